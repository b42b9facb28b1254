"""``mltree model``: the model that suits the data best, and ``--model auto``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltree.analyses.options import ModelChoiceOptions, SearchOptions
from mltree.data.alignments import Source
from mltree.data.parts import NO_NAME, best_model_text, best_scheme_text, nexus_scheme_text
from mltree.data.patterns import Patterns
from mltree.data.source import read_text
from mltree.models.grammar import format_best_model, format_model
from mltree.models.names import in_iq_tree
from mltree.report.lines import best_fit_line
from mltree.runs.calls import Call, taking
from mltree.runs.inputs import ModelParameters
from mltree.runs.logged_run import begin_log, by_kind, command_result, deliver, load, open_log
from mltree.runs.model_choice import Criterion, RankedModels
from mltree.runs.problem import Problem, is_choice
from mltree.runs.results import Table
from mltree.runs.scheme import ChosenScheme, check_mergeable, choose, choose_scheme, regrouped
from mltree.runs.trees import read_tree
from mltree.system import __version__
from mltree.system.errors import InputError, ModelError
from mltree.system.events import Emit, ModelsRanked, Notice, RankedModel, RunStarted
from mltree.system.values import plain
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# The files that a model choice leaves, and how a search takes the choice from them again.

MODEL, TABLE = "bestFitModel", "modelTest"
SCHEME, NEXUS = "best_scheme", "best_scheme.nex"
"""Kinds of the files: RAxML-NG's and IQ-TREE's names. The model's has one of its own, for a search
beside the same alignment leaves a .bestModel."""


def choice_kinds(has_parts: bool) -> list[str]:
    """The kinds of the files for an alignment with or without parts."""
    return [MODEL, TABLE, *([SCHEME, NEXUS] if has_parts else [])]


def choice_texts(scheme: ChosenScheme, merges: bool) -> dict[str, str]:
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
    """Return the problem under the best models and subsets of a table of candidates.

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
    """Digest of the data of a part."""
    digest = hashlib.sha256("\n".join([patterns.alphabet.name, *patterns.taxa]).encode())
    digest.update(patterns.codes.tobytes())
    digest.update(patterns.weights.tobytes())
    return digest.hexdigest()


def _row(choice: RankedModels, patterns: Patterns) -> dict[str, Any]:
    return {"data": _mark(patterns), **part_row(choice)}


def part_row(choice: RankedModels) -> dict[str, Any]:
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


LOG = "modelLog"

SHOWN = 10
"""Models of a part that are shown; all are in the file."""


def run_model(options: ModelChoiceOptions, reporter: Reporter) -> None:
    """Choose, show the ranking, write the files."""
    workspace = options.workspace
    every = choice_kinds(has_parts=True)
    workspace.check([LOG, *every], options.inputs)
    with open_log(workspace.path(LOG), reporter) as log, workspace.held(every):
        workspace.claim(choice_kinds(has_parts=options.partitions is not None), options.redo)
        reporter(RunStarted(__version__, options.line, options.seed))
        problem = load(options, reporter)
        if options.merge:
            check_mergeable(problem)
        tree = read_tree(options.tree, problem, reporter) if options.tree else None
        begin_log(log, options, reporter)
        criterion = Criterion(options.criterion)
        scheme = scheme_of(problem, options, reporter, criterion, tree)
        rank(scheme.choices, reporter)
        texts = choice_texts(scheme, options.merge)
        spent = [kind for kind in every if options.redo and kind not in texts]
        files = [log.path, *deliver(workspace, texts, reporter, spent)]
        reporter.say("\n".join(["", *(f"Wrote {file}" for file in files)]))
        names = [(choice.part, choice.best.name) for choice in scheme.choices]
        reporter.say(best_fit_line(criterion, names))
        best = {choice.part: format_model(choice.best.model) for choice in scheme.choices}
        values = {"seed": options.seed, "criterion": options.criterion, "best": best}
        inputs = options.inputs
        result = command_result("model", options.line, values, by_kind(files), inputs, reporter)
        reporter.finish("model", result)


def chosen(problem: Problem, options: SearchOptions, emit: Emit) -> Problem:
    """The problem under the models that suit it best, merged if asked for (``--model auto``).

    What was chosen once stays: it is in a file, whoever has written it.

    Raises:
        InputError: the file is of another choice.
    """
    if options.merge:
        check_mergeable(problem)
    workspace = options.workspace
    table = workspace.path(TABLE)
    if table.exists() and not options.redo:
        problem = recalled(table, problem, options.merge)
        emit(Notice(f"models taken from {table}; --redo chooses again"))
        return problem
    scheme = scheme_of(problem, options, emit)
    rank(scheme.choices, emit)
    workspace.write(choice_texts(scheme, options.merge))
    return scheme.under_best


def scheme_of(
    problem: Problem,
    options: SearchOptions | ModelChoiceOptions,
    emit: Emit,
    criterion: Criterion = Criterion.BIC,
    tree: Tree | None = None,
) -> ChosenScheme:
    """The best models of the parts, which are put together where that is asked for and better."""
    resources, seed = options.resources, options.seed
    among = [name.strip() for name in (options.model_set or "").split(",") if name.strip()]
    if not is_choice(options.model):
        hint = "the matrices to choose among are --model-set NAMES"
        raise ModelError(f"--model {options.model}: a choice is auto or auto+ASC", hint=hint)
    if options.merge:
        return choose_scheme(
            problem, resources, criterion, seed=seed, tree=tree, among=among, emit=emit
        )
    choices = choose(problem, resources, criterion, seed=seed, tree=tree, among=among, emit=emit)
    return ChosenScheme(problem, choices, [[name] for name in problem.model.names])


def rank(choices: Sequence[RankedModels], emit: Emit) -> None:
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


@dataclass(frozen=True, eq=False)
class ModelChoice(Table):
    """The candidates for an alignment, or for one of its parts, the best of them first."""

    choice: RankedModels = field(repr=False)

    def __repr__(self) -> str:
        part = "" if self.part == NO_NAME else f" of {self.part}"
        return f"ModelChoice({self.name}{part}, of {len(self.choice.ranked):,} models)"

    def __str__(self) -> str:
        return self.name

    @property
    def part(self) -> str:
        """The part's name; ``noname`` where there is one."""
        return self.choice.part

    @property
    def name(self) -> str:
        """The best model, as ``model`` takes it: ``TVM+FC+G4``."""
        return self.choice.best.name

    @property
    def model(self) -> str:
        """The same with its estimates."""
        return format_model(self.choice.best.model)

    @property
    def lnl(self) -> float:
        """Log-likelihood under it, on the tree that all were compared on."""
        return self.choice.best.lnl

    def to_dict(self) -> dict[str, Any]:
        """All candidates and their scores, under the names of a .modelTest file."""
        return part_row(self.choice)

    def to_json(self) -> str:
        """The same as JSON."""
        return _json(self.to_dict())

    @property
    def parameters(self) -> ModelParameters:
        """The best model with its estimates as numbers."""
        return ModelParameters.of(self.choice.best.model)

    def columns(self) -> dict[str, Sequence[Any]]:
        """A row a candidate: ``model``, ``lnl``, ``parameters``, every criterion, its weight.

        ``whole``: False for a candidate that was screened alone, on the branch lengths of another.
        """
        ranked, criterion = self.choice.ranked, self.choice.criterion
        worth = self.choice.weights(criterion)
        return {
            "model": [one.name for one in ranked],
            "lnl": [one.lnl for one in ranked],
            "parameters": [one.parameters for one in ranked],
            **{str(one): [own.score(one) for own in ranked] for one in Criterion},
            f"{criterion}_weight": [worth[one.name] for one in ranked],
            "whole": [one.whole for one in ranked],
        }

    def _facts(self) -> dict[str, str]:
        part = {} if self.part == NO_NAME else {"part": self.part}
        return {**part, "best model": self.name, "criterion": self.choice.criterion.upper()}


@taking(ModelChoiceOptions)
def model(
    options: ModelChoiceOptions, source: Source, call: Call
) -> ModelChoice | list[ModelChoice]:
    """Choose the model that suits an alignment best; of each part where there are partitions."""
    problem = load(options, call, source)
    tree = None if options.tree is None else read_tree(options.tree, problem, call)
    scheme = scheme_of(problem, options, call, Criterion(options.criterion), tree)
    data, choices = scheme.problem.data, scheme.choices
    if data is None:
        return ModelChoice(choices[0])
    placed = sorted(zip(data.order, choices, strict=True), key=lambda pair: pair[0])
    return [ModelChoice(choice) for _, choice in placed]
