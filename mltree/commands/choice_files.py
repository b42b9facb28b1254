"""The files that a model choice leaves, and how a search takes the choice from them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mltree.alignment.nexus_sets import nexus_scheme_text
from mltree.alignment.partition_files import best_model_text, best_scheme_text
from mltree.alignment.patterns import Patterns
from mltree.alignment.source import read_text
from mltree.choice.choosing import Scheme, regrouped
from mltree.choice.scored_models import Choice
from mltree.errors import InputError
from mltree.model.candidates import Criterion
from mltree.model.grammar import format_best_model, format_model
from mltree.model.names import in_iq_tree
from mltree.problem import Problem
from mltree.values import plain

__all__ = [
    "MODEL",
    "NEXUS",
    "SCHEME",
    "TABLE",
    "choice_kinds",
    "choice_texts",
    "criterion_of",
    "part_row",
    "recalled",
]

MODEL, TABLE = "bestFitModel", "modelTest"
SCHEME, NEXUS = "best_scheme", "best_scheme.nex"
"""Kinds of the files: RAxML-NG's and IQ-TREE's names. The model's has one of its own, for a search
beside the same alignment leaves a .bestModel."""


def choice_kinds(has_parts: bool) -> list[str]:
    """The kinds of the files for an alignment with or without parts."""
    return [MODEL, TABLE, *([SCHEME, NEXUS] if has_parts else [])]


def choice_texts(scheme: Scheme, merges: bool) -> dict[str, str]:
    """The files' contents, parts in the order of the partition file; ``merges``: if asked for."""
    problem, choices = scheme.problem, scheme.choices
    best = [format_model(choice.best.model) for choice in choices]
    if problem.data is None:
        model = format_best_model(choices[0].best.model, problem.n_sites) + "\n"
        return {MODEL: model, TABLE: _json([_row(choices[0], problem.patterns)])}
    data = problem.data
    placed = sorted(zip(data.order, best, choices, strict=True), key=lambda row: row[0])
    parts = [replace(data.parts[number], scaler=None) for number, *_ in placed]
    names = [choice.best.name for *_, choice in placed]
    rows = [
        _row(choice, data.patterns(number)) | ({"merged": scheme.members[number]} if merges else {})
        for number, _, choice in placed
    ]
    return {
        MODEL: best_model_text(parts, [text for _, text, _ in placed]),
        TABLE: _json(rows),
        SCHEME: best_scheme_text(
            parts, names, [choice.best.model.alphabet for *_, choice in placed]
        ),
        NEXUS: nexus_scheme_text(parts, [in_iq_tree(name) for name in names]),
    }


def recalled(path: Path, problem: Problem, merges: bool) -> Problem:
    """The problem under the models, and with the subsets, that a table of candidates has as best.

    Raises:
        InputError: the file is none, or of another choice.
    """
    hint = "--redo chooses again, --prefix writes other files"
    try:
        rows = json.loads(read_text(path).decode())
        if any("merged" in row for row in rows) != merges:
            done = "without" if merges else "with"
            raise InputError(f"models were chosen {done} --merge", file=str(path), hint=hint)
        if merges:
            problem = _subsets(problem, [row["merged"] for row in rows])
        known: dict[str, Mapping[str, Any]] = {row["part"]: row for row in rows}
        order = [0] if problem.data is None else problem.data.order
        named = zip(problem.model.names, order, strict=True)
        own = [(known.pop(name), problem.part(number)) for name, number in named]
        if known or any(row["data"] != _mark(patterns) for row, patterns in own):
            raise KeyError("data")
        return problem.under([row["best"][row["criterion"]] for row, _ in own])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("models were chosen for other data", file=str(path), hint=hint) from None


def criterion_of(path: Path) -> Criterion:
    """The criterion that a table of candidates was chosen by; one of :func:`recalled`'s."""
    first, *_ = json.loads(read_text(path).decode())
    return Criterion(first["criterion"])


def _subsets(problem: Problem, members: Sequence[Sequence[str]]) -> Problem:
    """The problem with parts put together by their names; raises KeyError, ValueError."""
    if problem.data is None:
        raise ValueError("no parts")
    number = {part.name: n for n, part in enumerate(problem.data.parts)}
    return regrouped(problem, [[number[name] for name in own] for own in members])


def _mark(patterns: Patterns) -> str:
    """What tells the data of a part from others."""
    found = hashlib.sha256("\n".join([patterns.alphabet.name, *patterns.taxa]).encode())
    found.update(patterns.codes.tobytes())
    found.update(patterns.weights.tobytes())
    return found.hexdigest()


def _row(choice: Choice, patterns: Patterns) -> dict[str, Any]:
    return {"data": _mark(patterns), **part_row(choice)}


def part_row(choice: Choice) -> dict[str, Any]:
    """All candidates of a part with their scores, as the file has them."""
    worth = {criterion: choice.weights(criterion) for criterion in Criterion}
    return {
        "part": choice.part,
        "criterion": choice.criterion,
        "best": {
            criterion: min(own, key=lambda name: -own[name]) for criterion, own in worth.items()
        },
        "models": [
            {
                "model": one.name,
                "lnl": one.lnl,
                "parameters": one.parameters,
                "sites": one.sites,
                **{criterion: one.score(criterion) for criterion in Criterion},
                **{f"{criterion}_weight": worth[criterion][one.name] for criterion in Criterion},
                "fitted": "whole" if one.whole else "screened",
                "estimates": format_model(one.model),
            }
            for one in choice.ranked
        ],
    }


def _json(value: Any) -> str:
    return json.dumps(plain(value), indent=1) + "\n"
