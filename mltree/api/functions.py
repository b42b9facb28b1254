"""Searches, evaluations and bootstraps: the library's own steps, as the commands take them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mltree.analyses.bootstrap import (
    BOOTSTRAPS,
    Bootstrap,
    Wanted,
    bootstrap_after,
    finished,
    prepare_bootstrap,
    replicate_settings,
)
from mltree.analyses.evaluate import fitted, given_tree
from mltree.analyses.model_selection import SHOWN, part_row, scheme_of
from mltree.analyses.search import (
    SUPPORT,
    Drawn,
    SearchRequest,
    Supports,
    draw_supports,
    run_search,
)
from mltree.analyses.trees import (
    CONSENSUS_FILES,
    METRICS,
    consensus_texts,
    support_kinds,
    support_texts,
)
from mltree.api.calls import Call, Progress, calling, one_of, resources_of
from mltree.api.inputs import AlignmentLike, source_of, written
from mltree.api.results import (
    BootstrapResult,
    Evaluation,
    PhyloTree,
    SearchResult,
    TreeLike,
    newick_of,
    table,
)
from mltree.data.alignments import Given
from mltree.fit.settings import PRESETS
from mltree.models.grammar import format_model
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.runs.engines import Engines, Workload, open_engines
from mltree.runs.model_choice import Choice, Criterion
from mltree.runs.problem import Problem, is_choice, load_problem, read_problem
from mltree.runs.request import breakdown_of, model_text
from mltree.runs.site_frequencies import SiteFrequencies
from mltree.runs.steps import TreeResult, TreeSearch, prepare_search
from mltree.runs.trees import read_tree
from mltree.runs.workspace import MemoryJournal, Outputs
from mltree.supports.consensus import Consensus
from mltree.system.errors import InputError
from mltree.system.events import BootstrapFinished, Emit, StartsEnded, SupportsDrawn
from mltree.system.values import plain
from mltree.tree.clades import read_clades, read_labelled
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree

CONSENSUS = CONSENSUS_FILES[Consensus.MAJORITY]


def search(
    alignment: AlignmentLike,
    model: str | None = None,
    *,
    taxa: Sequence[str] | None = None,
    data_type: str | None = None,
    partitions: str | None = None,
    merge: bool = False,
    brlen: str = "scaled",
    site_frequencies: str | os.PathLike[str] | None = None,
    guide_tree: TreeLike | None = None,
    start: TreeLike | None = None,
    preset: str = "default",
    moves: str = "spr",
    constraint: TreeLike | None = None,
    bootstrap: int | str | None = None,
    metric: str = "fbp",
    sh_alrt: int | None = None,
    lbp: int | None = None,
    alrt: bool = False,
    abayes: bool = False,
    ufboot: int | None = None,
    bnni: bool = False,
    seed: int = 1,
    device: str | int | None = None,
    precision: str = "double",
    memory_limit: str | int | None = None,
    prefix: str | os.PathLike[str] | None = None,
    redo: bool = False,
    progress: Progress = False,
) -> SearchResult:
    """Find the maximum-likelihood tree of an alignment, as ``mltree search`` does.

    alignment   a path, or sequences in memory; see :mod:`mltree.api.inputs`
    model       RAxML-NG's grammar, a .bestModel file, a partition file, or ``"auto"``
    partitions  a partition file, for parts whose models are given or chosen; ``merge``: put
                parts together that are better off under one model
    taxa        names of the rows of a NumPy array
    site_frequencies  a .sitefreq file: sites have state frequencies of their own (PMSF)
    guide_tree  a tree, on which the model's profiles tell those
    start       ``"pars{6},rand{2}"``, or a tree; the preset's where None
    bootstrap   so many replicates, or ``"auto"``: supports on the tree
    sh_alrt     so many resamplings; with ``lbp``, ``alrt``, ``abayes`` the tests of its branches
    ufboot      so many replicates of the ultrafast bootstrap, instead of ``bootstrap``; ``bnni``:
                improve each on its own data
    prefix      write the files of the command, and go on from those of a stopped one; None: none
    progress    whether to show what happens, or who is told of it

    Raises:
        MltreeError: what the command ends with, in the same line.
    """
    one_of("preset", preset, PRESETS)
    one_of("moves", moves, ("spr", "nni"))
    one_of("brlen", brlen, Linkage)
    one_of("metric", metric, METRICS)
    from mltree.cli.support_options import local_tests_of, ultrafast_of

    wanted = None if bootstrap is None else Wanted(_replicates(bootstrap), metric)
    request = SearchRequest(
        alignment="",
        model=model,
        partitions=partitions,
        site_frequencies=_frequencies(site_frequencies, guide_tree),
        merge=merge,
        datatype=data_type,
        linkage=brlen,
        resources=resources_of(device, precision, memory_limit),
        prefix=None if prefix is None else os.fspath(prefix),
        redo=redo,
        command="mltree.search(...)",
        seed=seed,
        tree=None if start is None else newick_of(start),
        preset=preset,
        nni_only=moves == "nni",
        constraint=None if constraint is None else newick_of(constraint),
        outgroup=None,
        collapse=None,
        report=False,
        supports=Supports(
            local_tests_of(sh_alrt, lbp, alrt, abayes),
            wanted,
            ultrafast_of(ufboot, bnni, None if bootstrap is None else str(bootstrap)),
        ),
    )
    source = source_of(alignment, taxa)
    with calling(progress) as call:
        if request.prefix is not None:
            return _in_files(request, source, call)
        return _in_memory(request, source, call)


def _frequencies(file: str | os.PathLike[str] | None, guide: TreeLike | None) -> SiteFrequencies:
    return SiteFrequencies(
        None if file is None else os.fspath(file), None if guide is None else newick_of(guide)
    )


def _replicates(wanted: int | str) -> int | None:
    """How many; None for as many as it takes. Raises: InputError."""
    from mltree.cli.support_options import replicates_of

    return replicates_of(str(wanted), "bootstrap")


def _in_files(request: SearchRequest, source: str | Given, call: Call) -> SearchResult:
    """The command itself, its alignment in a file."""
    assert request.prefix is not None
    if isinstance(source, Given):
        source = written(source, Outputs.of(request.prefix, "alignment").path("fasta"))
    ready, found, drawn = run_search(replace(request, alignment=source), call)
    return _result(request, ready, found, drawn, call)


def _in_memory(request: SearchRequest, source: str | Given, call: Call) -> SearchResult:
    """The same steps without a file."""
    problem = _problem(request, source, call)
    ready = prepare_search(
        problem, request.settings, request.resources, seed=request.seed, starts=request.tree,
        constraint=request.constraint, replicates=request.supports.replicates,
        rows=request.supports.rows, emit=call,
    )  # fmt: skip
    found = ready.run(call)
    return _result(request, ready, found, _supports(request, source, ready, found, call), call)


def _supports(
    request: SearchRequest, source: str | Given, ready: TreeSearch, found: TreeResult, call: Call
) -> Drawn:
    """Those that were asked for, as the command draws them."""
    taxa = ready.problem.taxa

    def draw(tree: Tree, labels: Mapping[int, str] | None = None) -> str:
        return write_newick(tree, taxa, labels=labels)

    def replicate(wanted: Wanted, newick: str) -> tuple[dict[str, str], list[SupportsDrawn]]:
        model = found.per_site or _as_written(found.model, ready.problem, source, request)
        settings = replicate_settings(request.nni_only)
        return _replicated(
            bootstrap_after(ready, model, settings, request.seed), wanted, newick, call
        )

    return draw_supports(request.supports, ready, found, request.seed, draw, replicate, call)


def _problem(request: SearchRequest, source: str | Given, emit: Emit) -> Problem:
    """The data, under the models that suit them best where that is wanted."""
    problem = request.load(emit, source)
    if request.merge and not request.chooses:
        raise InputError("merge=True goes with model='auto'", hint="or mltree.model")
    if not request.chooses:
        return problem
    scheme = scheme_of(
        problem, request.resources, merge=request.merge, seed=request.seed, emit=emit
    )
    return scheme.problem.under([choice.best.name for choice in scheme.choices])


def _as_written(
    model: PartitionModel, problem: Problem, source: str | Given, request: SearchRequest
) -> PartitionModel:
    """The model with the digits of its file, under which a command's replicates are searched."""
    if problem.data is not None:
        return model
    text = model_text(model, problem).strip()
    return read_problem(source, text, request.datatype, Linkage(request.linkage)).model


def _result(
    request: SearchRequest,
    ready: TreeSearch,
    found: TreeResult,
    drawn: Drawn,
    call: Call,
) -> SearchResult:
    return SearchResult(
        problem=ready.problem,
        resources=request.resources,
        found=found.scored(ready.engines, call),
        timings=_timings(ready.engines, found, call),
        seed=request.seed,
        starts=call.last(StartsEnded),
        drawn=drawn,
        bootstrap=_of_texts(drawn.texts, call) if request.supports.bootstrap else None,
    )


def _timings(engines: Engines, found: TreeResult, call: Call) -> dict[str, float]:
    spent = breakdown_of(engines)
    device = 0.0 if spent is None else spent.device_seconds
    return {"total": call.elapsed, "run": found.seconds, "device": device}


def _replicated(
    replicates: Bootstrap, wanted: Wanted, best: str | None, call: Call
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """Search for all replicates: the texts of their files, and what they say of the best tree."""
    journal = MemoryJournal()
    outcome = replicates.run(wanted.replicates, journal, call)
    newicks = journal.newicks(outcome.count)
    target, before = (None, []) if best is None else read_labelled(best)
    trees = read_clades(newicks, target, "the tree")
    texts = {BOOTSTRAPS: newicks} | consensus_texts(trees, [Consensus.MAJORITY], call)[0]
    told: list[SupportsDrawn] = []
    if target is not None:
        drawn, told = support_texts(target, trees, support_kinds(wanted.metrics), call, before)
        texts |= drawn
    call(finished(outcome))
    return texts, told


def _of_texts(texts: Mapping[str, str], call: Call) -> BootstrapResult:
    """What the files of a bootstrap say."""
    end, supported = call.last(BootstrapFinished), texts.get(SUPPORT)
    return BootstrapResult(
        trees=tuple(map(PhyloTree, texts[BOOTSTRAPS].splitlines())),
        consensus=PhyloTree(texts[CONSENSUS].strip()),
        tree=None if supported is None else PhyloTree(supported.strip()),
        converged=end.converged if end else None,
    )


def evaluate(
    alignment: AlignmentLike,
    tree: TreeLike,
    model: str | None = None,
    *,
    taxa: Sequence[str] | None = None,
    data_type: str | None = None,
    brlen: str = "scaled",
    site_frequencies: str | os.PathLike[str] | None = None,
    guide_tree: TreeLike | None = None,
    optimise_model: bool = True,
    optimise_branches: bool = True,
    device: str | int | None = None,
    precision: str = "double",
    memory_limit: str | int | None = None,
    progress: Progress = False,
) -> Evaluation:
    """The log-likelihood of a tree: topology fixed, or all of it, as ``mltree evaluate`` does.

    Raises:
        MltreeError: what the command ends with, in the same line.
    """
    one_of("brlen", brlen, Linkage)
    resources = resources_of(device, precision, memory_limit)
    source, text = source_of(alignment, taxa), newick_of(tree)
    frequencies = _frequencies(site_frequencies, guide_tree)
    with calling(progress) as call:
        problem = load_problem(source, model, call, data_type, Linkage(brlen), site_rates=True)
        problem = frequencies.given_to(problem, resources, call)
        given = given_tree(text, problem, call, optimise_branches)
        engines = open_engines(resources, Workload.of(problem), call)
        found = fitted(engines, given, problem.model, call, optimise_model, optimise_branches)
        return Evaluation(
            problem=problem,
            resources=resources,
            found=found.scored(engines, call),
            timings=_timings(engines, found, call),
        )


def bootstrap(
    alignment: AlignmentLike,
    model: str | None = None,
    *,
    replicates: int | str = "auto",
    tree: TreeLike | None = None,
    metric: str = "fbp",
    taxa: Sequence[str] | None = None,
    data_type: str | None = None,
    brlen: str = "scaled",
    site_frequencies: str | os.PathLike[str] | None = None,
    guide_tree: TreeLike | None = None,
    moves: str = "spr",
    constraint: TreeLike | None = None,
    seed: int = 1,
    device: str | int | None = None,
    precision: str = "double",
    memory_limit: str | int | None = None,
    progress: Progress = False,
) -> BootstrapResult:
    """The trees of bootstrap replicates, as ``mltree bootstrap`` finds them.

    replicates  so many, or ``"auto"``: as many as it takes (autoMRE), 1,000 at most
    tree        that the supports are drawn on, and the model is fitted to

    Raises:
        MltreeError: what the command ends with, in the same line.
    """
    one_of("brlen", brlen, Linkage)
    one_of("moves", moves, ("spr", "nni"))
    one_of("metric", metric, METRICS)
    if is_choice(model):
        raise InputError("model='auto' is chosen by search", hint="or ask mltree.model for one")
    wanted = Wanted(_replicates(replicates), metric)
    resources = resources_of(device, precision, memory_limit)
    source, text = source_of(alignment, taxa), None if tree is None else newick_of(tree)
    frequencies = _frequencies(site_frequencies, guide_tree)
    with calling(progress) as call:
        problem = load_problem(source, model, call, data_type, Linkage(brlen), site_rates=True)
        problem = frequencies.given_to(problem, resources, call)
        prepared = prepare_bootstrap(
            problem, replicate_settings(moves == "nni"), resources,
            replicates=wanted.replicates, seed=seed,
            tree=None if text is None else read_tree(text, problem, call),
            constraint=None if constraint is None else newick_of(constraint), emit=call,
        )  # fmt: skip
        return _of_texts(_replicated(prepared, wanted, text, call)[0], call)


# Which model suits an alignment best: ``mltree model`` from Python.


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The candidates for an alignment, or for one of its parts, and the best of them."""

    choice: Choice = field(repr=False)

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
        return json.dumps(plain(self.to_dict()), indent=1) + "\n"

    def _repr_html_(self) -> str:
        criterion = self.choice.criterion
        worth = self.choice.weights(criterion)
        rows = [
            [one.name, f"{one.lnl:.3f}", str(one.parameters), f"{one.score(criterion):.3f}",
             f"{worth[one.name]:.4f}"]
            for one in self.choice.ranked[:SHOWN]
        ]  # fmt: skip
        return table(rows, ["model", "lnL", "parameters", criterion.upper(), "weight"])


def model(
    alignment: AlignmentLike,
    *,
    partitions: str | None = None,
    merge: bool = False,
    brlen: str = "scaled",
    criterion: str = "bic",
    tree: TreeLike | None = None,
    taxa: Sequence[str] | None = None,
    data_type: str | None = None,
    seed: int = 1,
    device: str | int | None = None,
    precision: str = "double",
    memory_limit: str | int | None = None,
    progress: Progress = False,
) -> ModelChoice | list[ModelChoice]:
    """The model that suits an alignment best; of each part where ``partitions`` names a file.

    merge      whether parts are put together that are better off under one model
    criterion  ``"bic"``, ``"aic"`` or ``"aicc"``
    tree       that all are fitted to; one made quickly where None

    Raises:
        MltreeError: what the command ends with, in the same line.
    """
    one_of("criterion", criterion, Criterion)
    one_of("brlen", brlen, Linkage)
    resources = resources_of(device, precision, memory_limit)
    source, text = source_of(alignment, taxa), None if tree is None else newick_of(tree)
    with calling(progress) as call:
        problem = load_problem(
            source, None, call, data_type, Linkage(brlen), partitions, chooses=True
        )
        given = None if text is None else read_tree(text, problem, call)
        scheme = scheme_of(
            problem, resources, Criterion(criterion),
            merge=merge, seed=seed, tree=given, emit=call,
        )  # fmt: skip
    data, choices = scheme.problem.data, scheme.choices
    if data is None:
        return ModelChoice(choices[0])
    placed = sorted(zip(data.order, choices, strict=True), key=lambda pair: pair[0])
    return [ModelChoice(choice) for _, choice in placed]
