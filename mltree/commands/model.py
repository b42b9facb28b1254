"""``mltree model``: the model that suits the data best."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mltree import __version__
from mltree.alignment.nexus_sets import nexus_scheme_text
from mltree.alignment.partition_files import (
    SYNTAX,
    best_model_text,
    best_scheme_text,
    holds_partitions,
)
from mltree.alignment.source import expect_file
from mltree.choosing import choose
from mltree.commands.request import Request, begin_log, open_log
from mltree.commands.results import by_kind, command_result, deliver
from mltree.errors import InputError
from mltree.events import Emit, ModelsRanked, RankedModel, RunStarted
from mltree.model.candidates import Criterion
from mltree.model.grammar import format_best_model, format_model
from mltree.model_choice import Choice
from mltree.problem import Problem, read_tree
from mltree.report.choices import best_fit_line
from mltree.report.progress import Reporter

__all__ = ["SHOWN", "ModelRequest", "chosen", "part_row", "run_model"]

LOG, MODEL, TABLE = "modelLog", "bestFitModel", "modelTest"
SCHEME, NEXUS = "best_scheme", "best_scheme.nex"
"""Kinds of the files: RAxML-NG's and IQ-TREE's names. The model's has one of its own, for a search
beside the same alignment leaves a .bestModel."""

SHOWN = 10
"""Models of a part that are shown; all are in the file."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest(Request):
    """``mltree model``."""

    criterion: str
    tree: str | None
    seed: int

    def check_partitions(self) -> None:
        """Make sure that what was given as a partition file is one.

        Raises:
            InputError: it is not.
        """
        if self.model is None:
            return
        expect_file(self.model)
        if not holds_partitions(self.model):
            raise InputError("names no part", file=self.model, hint=SYNTAX)


def run_model(request: ModelRequest, reporter: Reporter) -> None:
    """Choose, show the ranking, write the files."""
    outputs = request.outputs
    kinds = [MODEL, TABLE, *([SCHEME, NEXUS] if request.model else [])]
    outputs.check([LOG, *kinds])
    with open_log(outputs.path(LOG), reporter) as log:
        outputs.claim(kinds, request.redo)
        reporter(RunStarted(__version__, request.command, request.seed))
        request.check_partitions()
        problem = request.load(reporter)
        tree = read_tree(request.tree, problem, reporter) if request.tree else None
        begin_log(log, request, [request.tree or ""], reporter)
        criterion = Criterion(request.criterion)
        choices = choose(
            problem, request.resources, criterion, seed=request.seed, tree=tree, emit=reporter
        )
        rank(choices, reporter)
        files = [log.path, *deliver(outputs, _texts(choices, problem), reporter)]
        reporter.say("\n".join(["", *(f"Wrote {file}" for file in files)]))
        names = [(choice.part, choice.best.name) for choice in choices]
        reporter.say(best_fit_line(criterion, names))
        best = {choice.part: format_model(choice.best.model) for choice in choices}
        values = {"seed": request.seed, "criterion": request.criterion, "best": best}
        inputs = [*request.files, request.tree or ""]
        result = command_result("model", request.command, values, by_kind(files), inputs, reporter)
        reporter.finish("model", result)


def chosen(
    problem: Problem, request: Request, seed: int, emit: Emit, criterion: Criterion = Criterion.BIC
) -> Problem:
    """The problem under the models that suit it best (``--model auto``)."""
    choices = choose(problem, request.resources, criterion, seed=seed, emit=emit)
    rank(choices, emit)
    return problem.under([choice.best.name for choice in choices])


def rank(choices: Sequence[Choice], emit: Emit) -> None:
    """Tell how the candidates of every part rank."""
    for choice in choices:
        worth = choice.weights(choice.criterion)
        rows = tuple(
            RankedModel(
                one.name, one.lnl, one.parameters, one.score(choice.criterion), worth[one.name]
            )
            for one in choice.ranked[:SHOWN]
        )
        emit(ModelsRanked(choice.part, choice.criterion, len(choice.scored), rows))


def _texts(choices: Sequence[Choice], problem: Problem) -> dict[str, str]:
    """The files' contents, parts in the order of the partition file."""
    best = [format_model(choice.best.model) for choice in choices]
    rows = {choice.part: part_row(choice) for choice in choices}
    if problem.data is None:
        model = format_best_model(choices[0].best.model, problem.n_sites) + "\n"
        return {MODEL: model, TABLE: _json(list(rows.values()))}
    placed = sorted(zip(problem.data.order, best, choices, strict=True), key=lambda row: row[0])
    parts = [replace(problem.data.parts[number], scaler=None) for number, *_ in placed]
    names = [choice.best.name for *_, choice in placed]
    return {
        MODEL: best_model_text(parts, [text for _, text, _ in placed]),
        TABLE: _json([rows[part.name] for part in parts]),
        SCHEME: best_scheme_text(
            parts, names, [choice.best.model.alphabet for *_, choice in placed]
        ),
        NEXUS: nexus_scheme_text(parts, names),
    }


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
    return json.dumps(value, indent=1) + "\n"
