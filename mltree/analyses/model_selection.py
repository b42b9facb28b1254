"""``mltree model``: the model that suits the data best, and ``--model auto``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.options import ModelChoiceOptions, SearchOptions
from mltree.data.alignments import Source
from mltree.data.partitions import merged, only, refuse_files
from mltree.data.parts import best_model_text, best_scheme_text, nexus_scheme_text
from mltree.data.patterns import Patterns
from mltree.data.source import read_text
from mltree.fit.fits import Fit
from mltree.fit.settings import SearchSettings, preset
from mltree.likelihood.likelihood import Likelihood
from mltree.models.grammar import format_best_model, format_model
from mltree.models.names import in_iq_tree
from mltree.models.partitioned import Linkage, part_models
from mltree.models.substitution import Model
from mltree.report.lines import best_fit_line
from mltree.runs.calls import Call, taking
from mltree.runs.engines import ANY_DEVICE, Engines, Resources, Workload, open_engines
from mltree.runs.merging import merge_parts
from mltree.runs.model_choice import (
    REFIT_MARGIN,
    Criterion,
    KnownModels,
    RankedModels,
    choose_models,
    matrices_near,
)
from mltree.runs.problem import Problem, in_parts
from mltree.runs.request import begin_log, by_kind, command_result, deliver, load, open_log
from mltree.runs.results import table
from mltree.runs.steps import TreeResult, with_own_lengths
from mltree.runs.trees import read_tree
from mltree.system import __version__
from mltree.system.errors import InputError
from mltree.system.events import Emit, ModelsRanked, Notice, RankedModel, RunStarted, ignore
from mltree.system.values import Value, plain
from mltree.tree.fitch import pack_sites
from mltree.tree.parsimony import parsimony_trees
from mltree.tree.topology import Tree
from mltree.treesearch.search import StartingTree, search

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# A model choice, step by step: a quick tree of all parts, then the candidates of each kind.

TOGETHER = 2.0 * REFIT_MARGIN
"""Score: matrices are tried for a merged subset if the sum of their scores for its parts is so near
the best sum. Parts with parameters of their own score a few units more."""


MATRICES = 1 << 26
"""Bytes of P matrices up to which the quick tree on a CPU has one model a part: 24 parts of
proteins and 24 taxa would take 150 MB. A tree of all parts as one is as good where they are many:
of 100 parts of DNA and 24 of proteins the sum of BICs was 0.04 and 0.3 higher, of 30 0.1 lower,
the models the same; of seven sets of 4 to 12 parts, most with gaps, two were 4 and 10 higher."""


@dataclass(frozen=True)
class ChosenScheme:
    """Parts put together, and what is chosen for each."""

    problem: Problem
    """The same data in fewer parts."""
    choices: list[RankedModels]
    """In the order of ``problem.model``."""
    members: list[list[str]]
    """The names of the parts that each is made of, in the order of the partition file."""

    @property
    def under_best(self) -> Problem:
        """The problem under the models that were chosen."""
        return self.problem.under([choice.best.name for choice in self.choices])


def choose(
    problem: Problem,
    resources: Resources = ANY_DEVICE,
    criterion: Criterion = Criterion.BIC,
    *,
    seed: int = 1,
    tree: Tree | None = None,
    emit: Emit = ignore,
) -> list[RankedModels]:
    """The best model of every part, in the order of ``problem.model``.

    tree  what models are fitted to; where None, what moves make of a parsimony tree under
          the problem's models

    Raises:
        DeviceError: a device cannot be found or used.
    """
    quick = _Quick(tree) if tree is not None else _quick_tree(problem, resources, seed, emit)
    return _choices(problem, resources, criterion, quick, emit)


def choose_scheme(
    problem: Problem,
    resources: Resources = ANY_DEVICE,
    criterion: Criterion = Criterion.BIC,
    *,
    seed: int = 1,
    tree: Tree | None = None,
    emit: Emit = ignore,
) -> ChosenScheme:
    """The problem with parts put together that are better off under one model, and the choices.

    Subsets of several parts choose again; for the arguments see :func:`choose`.

    Raises:
        InputError: the problem has no parts that could be merged.
        DeviceError: a device cannot be found or used.
    """
    check_mergeable(problem)
    quick = _Quick(tree) if tree is not None else _quick_tree(problem, resources, seed, emit)
    tree, choices = quick.tree, _choices(problem, resources, criterion, quick, emit)
    subsets = merge_parts(problem, choices, tree, resources, criterion, emit)
    fewer = regrouped(problem, subsets)
    lone = _lone(problem, subsets)
    known = {choice.part: choice for choice in choices if choice.part in lone}
    members = _members(problem, subsets)
    of_part = {choice.part: choice for choice in choices}
    parts_of = {"_".join(own): [of_part[name] for name in own] for own in members}
    names = list(fewer.model.names)
    for patterns in fewer.groups:
        own, names = names[: len(patterns.parts)], names[len(patterns.parts) :]
        new = [place for place, name in enumerate(own) if name not in known]
        if new:
            again = [own[place] for place in new]
            before = _known_of([parts_of[name] for name in again])
            found = choose_models(
                only(patterns, new), again, tree, resources, criterion, emit, before
            )
            known |= {choice.part: choice for choice in found}
    return ChosenScheme(fewer, [known[name] for name in fewer.model.names], members)


def check_mergeable(problem: Problem) -> None:
    """Make sure that there are parts that can be put together.

    Raises:
        InputError: there are none, or their branch lengths are not of one tree.
    """
    if problem.data is None:
        raise InputError("--merge puts parts together", hint="name them, --partitions FILE")
    if problem.model.linkage == Linkage.UNLINKED:
        raise InputError(
            "--merge compares parts under one tree, linked or scaled",
            hint="choose the scheme with --brlen scaled, and then search with what it writes",
        )
    refuse_files(problem.data.scheme)


def regrouped(problem: Problem, subsets: Sequence[Sequence[int]]) -> Problem:
    """The problem with subsets of its parts for parts, by their numbers in the file."""
    if problem.data is None:
        raise ValueError("no parts")
    data = merged(problem.data, subsets)
    return in_parts(problem.path, data, part_models(data), problem.model.linkage)


def _members(problem: Problem, subsets: Sequence[Sequence[int]]) -> list[list[str]]:
    """The names of each subset's parts."""
    parts = () if problem.data is None else problem.data.parts
    return [
        [parts[number].name for number in sorted(subset)] for subset in sorted(map(sorted, subsets))
    ]


def _lone(problem: Problem, subsets: Sequence[Sequence[int]]) -> set[str]:
    """The names of parts that stay alone."""
    parts = () if problem.data is None else problem.data.parts
    return {parts[subset[0]].name for subset in subsets if len(subset) == 1}


class _Quick(Value):
    """Tree and models that choices begin with."""

    tree: Tree
    models: Sequence[Model] = ()
    """For the parts to begin with; or none."""
    likelihoods: Sequence[dict[int, Likelihood]] = ()
    """Open likelihoods of every kind of data, by categories; empty where none is open."""


def _choices(
    problem: Problem, resources: Resources, criterion: Criterion, quick: _Quick, emit: Emit
) -> list[RankedModels]:
    """Choose for every part."""
    choices: list[RankedModels] = []
    for number, patterns in enumerate(problem.groups):
        own = slice(len(choices), len(choices) + len(patterns.parts))
        likelihoods = quick.likelihoods[number] if quick.likelihoods else {}
        known = KnownModels(models=quick.models[own], likelihoods=likelihoods)
        names = problem.model.names[own]
        choices += choose_models(patterns, names, quick.tree, resources, criterion, emit, known)
    return choices


def _known_of(subsets: Sequence[Sequence[RankedModels]]) -> KnownModels:
    """Models to begin with and matrices to try, from the choices of the parts of some subsets."""
    return KnownModels(
        models=[
            next(iter(max(own, key=lambda one: one.best.sites).scored.values())).model
            for own in subsets
        ],
        matrices=[matrices_near(own, TOGETHER) for own in subsets],
    )


def _quick_tree(problem: Problem, resources: Resources, seed: int, emit: Emit) -> _Quick:
    """A tree as good as a model needs it, with one length a branch.

    Interchanges, and then wide moves: without these the tree of 3 in 8 simulated sets of 13 to 39
    taxa lacked 0.5 to 6 lnL, and the BIC of the model chosen up to 12.
    """
    fast = preset("fast")
    near, far = fast.nni_only(), fast.phases[0]
    settings = replace(near, phases=(near.phases[0], far))
    pooled = _as_one(problem) if _is_much(problem, resources, settings) else problem
    engines = open_engines(resources, Workload.of(pooled, settings, trees=1), emit)
    rng = np.random.default_rng(seed)
    sites = pack_sites(*pooled.groups)
    (start,) = parsimony_trees(sites, 1, rng, engine=engines.parsimony)
    first = StartingTree(with_own_lengths(start, pooled.model), "parsimony 1")
    found = search(engines.likelihood, [first], pooled.model, settings, rng, emit)
    tree = TreeResult.of(Fit(found.tree, found.model, lnl=found.lnl), 0.0).mean_tree
    models = found.model.models
    if pooled is not problem:
        of_kinds = zip(problem.groups, models, strict=True)
        models = tuple(model for patterns, model in of_kinds for _ in patterns.parts)
    shapes = problem.model.shapes
    is_alone = len(shapes) == 1 and shapes[0][0] == 1 and not problem.model.has_site_rates
    known = [{shapes[0][1]: engines.likelihood}] if is_alone else []
    return _Quick(tree, models, known)


def _is_much(problem: Problem, resources: Resources, settings: SearchSettings) -> bool:
    """True if the P matrices of parts would take much of the memory of a CPU."""
    if problem.data is None or len(problem.model.names) == len(problem.groups):
        return False
    work = Workload(
        groups=tuple(problem.groups),
        shapes=((max(problem.model.categories), 1),) * len(problem.groups),
        bounds=settings.branches.bounds(problem.n_sites),
        trees=1,
    )
    engines = Engines(resources, work)
    planned = [memory for plan in engines.plans if (memory := plan.memory) is not None]
    on_host = all(device.is_cpu for device in engines.devices)
    return on_host and sum(memory.matrices for memory in planned) > MATRICES


def _as_one(problem: Problem) -> Problem:
    """The problem with one part of each data type."""
    if problem.data is None:
        raise ValueError("no parts")
    kinds = np.array(problem.data.group_of_part)
    every = range(len(problem.groups))
    return regrouped(problem, [np.flatnonzero(kinds == kind).tolist() for kind in every])


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
    found = hashlib.sha256("\n".join([patterns.alphabet.name, *patterns.taxa]).encode())
    found.update(patterns.codes.tobytes())
    found.update(patterns.weights.tobytes())
    return found.hexdigest()


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
        emit(Notice(f"models are as {table} has them"))
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
    if options.merge:
        return choose_scheme(problem, resources, criterion, seed=seed, tree=tree, emit=emit)
    choices = choose(problem, resources, criterion, seed=seed, tree=tree, emit=emit)
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
class ModelChoice:
    """The candidates for an alignment, or for one of its parts, and the best of them."""

    choice: RankedModels = field(repr=False)

    def __repr__(self) -> str:
        return f"ModelChoice({self.name!r}, part={self.part!r})"

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

    def _repr_html_(self) -> str:
        criterion = self.choice.criterion
        worth = self.choice.weights(criterion)
        rows = [
            [one.name, f"{one.lnl:.3f}", str(one.parameters), f"{one.score(criterion):.3f}",
             f"{worth[one.name]:.4f}"]
            for one in self.choice.ranked[:SHOWN]
        ]  # fmt: skip
        return table(rows, ["model", "lnL", "parameters", criterion.upper(), "weight"])


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
