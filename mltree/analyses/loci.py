"""``mltree search`` of many loci: alignments, folders, a list of files, or the parts of one.

Each has a tree and a model of its own, and is what it is whatever is searched beside it: its search
is that of ``mltree search`` on its alignment alone, with the same seed. Loci are taken in a few at
a time, share launches, and are kept in a journal as they end, so that a run goes on where it was
stopped, whichever loci are added. Taxa of gaps alone are left out, and loci that are unusable.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from mltree.analyses.html_report import REPORT
from mltree.analyses.options import RunOptions, SearchOptions
from mltree.analyses.run import options_of_search, run_pipeline
from mltree.analyses.search import (
    CHECKPOINT,
    OF_ONE_ALIGNMENT,
    TREE,
    SearchOutput,
    SupportPlan,
    draw_supports,
    run_search,
    search_settings,
)
from mltree.analyses.tree_sets import (
    CONCORDANCE_KINDS,
    CONCORDANCE_TREE,
    concordance_texts,
    factors_of_loci,
)
from mltree.data.alignments import MIN_TAXA, renaming
from mltree.data.alphabet import DNA
from mltree.data.partitions import table_of_tips
from mltree.data.patterns import Patterns
from mltree.data.source import STDIN, expect_file, read_text
from mltree.device.discovery import DeviceInfo, choose_devices, company_pays
from mltree.device.layout import Layout
from mltree.device.layout_choice import KeptLayouts, choose_layout, measured_layouts
from mltree.device.memory import cla_memory
from mltree.device.parsimony import parsimony_engine
from mltree.fit.fits import Fit
from mltree.fit.settings import SearchSettings
from mltree.likelihood.requests import perform_all
from mltree.models.grammar import format_model, parse_model
from mltree.models.partitioned import alone, model_alphabet
from mltree.models.substitution import Model, arrays_of_all
from mltree.program.cases import Case
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.logged_run import (
    LOCI_KINDS,
    NAMES,
    begin_log,
    by_kind,
    command_result,
    deliver,
    names_file,
    one_renaming,
    open_log,
    result_text,
    share_loci,
)
from mltree.runs.problem import Problem, model_text, names_parts, read_problem
from mltree.runs.scheme import choose
from mltree.runs.trees import (
    StartSpec,
    TreeResult,
    TreeSearch,
    starting_trees_of_each,
    terms_of,
    usual_terms,
    without_copies,
)
from mltree.runs.workspace import Head, LineJournal, RunLog
from mltree.system import __version__
from mltree.system.errors import InputError, ModelError, NumericalError
from mltree.system.events import (
    Emit,
    Event,
    LociFinished,
    LocusDone,
    LocusSkipped,
    ModelChosen,
    Notice,
    RunStarted,
    ignore,
)
from mltree.system.files import is_folder, is_there, read_own
from mltree.system.process import ExitMessage, on_signal
from mltree.system.ranks import ALIKE_HINT, LONE, Ranks, Work, by_itself, current_ranks
from mltree.tree.clades import read_labelled
from mltree.tree.newick import write_newick
from mltree.tree.parsimony import ParsimonyEngine
from mltree.treesearch.checkpoint import fingerprint
from mltree.treesearch.duplicates import Collapsed
from mltree.treesearch.search import beginning, search_steps
from mltree.treesearch.search_context import SearchContext

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


LOG, RESULT = "log", "json"
TREES, TABLE, JOURNAL = LOCI_KINDS
"""Kinds of files. The journal stays, so that loci can be added."""

COLUMNS = ("locus", "taxa", "sites", "patterns", "lnl", "tree_length", "model", "tree")
"""Columns of the table; ``tree``: the line of the locus's tree in its file, from 1."""

FOR_LONE_TREES = (
    "constraint", "outgroup", "metric", "report", "site_rates", "brlen", "merge", "site_freqs",
    "guide_tree", "dates",
)  # fmt: skip
"""Options of a search that say nothing of many trees."""

OneOrMany = TypeVar("OneOrMany", SearchOptions, RunOptions)

OF_ANY_NUMBER = "MULTI"
"""Beginning of models whose states are as many as the data have."""

HINT = "search one alignment, or give the options on the trees afterwards"

AT_ONCE = 256
"""Loci that are in memory at a time, at most."""

CPU_BYTES, GPU_SHARE = 1 << 27, 0.5
"""Bytes of CLAs of the loci that are searched at a time, a tree each, on a CPU
(:data:`mltree.device.memory.CPU_SPREAD`); the share of those that a GPU holds."""

SHARES, LEAST_SHARE = 2, 4
"""Part that a rank takes next of the loci left for each of several, and loci of the smallest share:
what ranks take gets less towards the end, so that all end at about the same time."""

LOCUS_PATTERNS = 512
"""Patterns that layouts are chosen for: the same for all loci, whatever stands beside them."""


def run_searches(options: SearchOptions, reporter: Reporter) -> None:
    """Search the tree of an alignment, or of every locus."""
    if options.has_loci:
        run_loci(options, reporter)
    else:
        run_search(of_one_alignment(options), reporter)


def run_pipelines(options: RunOptions, reporter: Reporter) -> None:
    """Choose the model, search, compute supports: of an alignment, or of every locus."""
    if options.has_loci:
        run_loci(replace(options_of_search(options), report=False), reporter)
    else:
        run_pipeline(of_one_alignment(options), reporter)


def of_one_alignment(options: OneOrMany) -> OneOrMany:
    """Options as they would be if no more than one alignment could be given.

    Raises: InputError: something is for loci.
    """
    if options.species_tree is not None:
        hint = "mltree concordance compares one tree with another"
        raise InputError("--species-tree goes with loci: several alignments", hint=hint)
    origins = options.origins
    if "alignment" in origins:
        origins = {**origins, "alignment": (options.alignment, "typed")}
    return replace(options, origins=origins)


def run_loci(options: SearchOptions, reporter: Reporter) -> None:
    """Search every locus, show the result, write the files."""
    _refuse(options)
    workspace, kinds = options.workspace, [TREES, TABLE, RESULT]
    if options.species_tree is not None:
        read_labelled(options.species_tree)
        kinds += CONCORDANCE_KINDS
    loci, files = _loci(options)
    workspace.check((LOG, *kinds, JOURNAL), [*options.inputs, *files])
    share_loci(options, len(loci))
    held = {*kinds, JOURNAL, *OF_ONE_ALIGNMENT, *CONCORDANCE_KINDS} - {REPORT}
    with open_log(workspace.path(LOG), reporter) as log, workspace.held(held):
        resumes = not options.redo and workspace.path(JOURNAL).exists()
        if not resumes:
            workspace.claim((*kinds, JOURNAL, TREE, CHECKPOINT), options.redo)
        elif not _is_alike(options):
            workspace.claim(kinds, redo=False)
        reporter(RunStarted(__version__, options.line, options.seed))
        reporter(Notice(f"{len(loci):,} loci, each with a tree and a model of its own"))
        search = LociSearch(
            settings=search_settings(options), resources=options.resources, seed=options.seed,
            starts=terms_of(options.tree) if options.tree else None, collapse=options.collapse,
            chooses=options.chooses, plan=SupportPlan.asked_by(options),
            replicate_moves=options.moves,
        )  # fmt: skip
        with LociJournal(workspace.path(JOURNAL), afresh=not resumes) as journal:
            begin_log(log, options, reporter, resumes, inputs=files)
            if journal.done:
                reporter(Notice(f"{journal.path} has {len(journal.done):,} loci"))
            with on_signal(partial(_leave, options, journal, log)):
                trees = search.run(loci, journal, reporter, current_ranks())
            _finish(options, loci, trees, log, files, reporter)


def _refuse(options: SearchOptions) -> None:
    """Raise what cannot be asked of many trees."""
    for name in FOR_LONE_TREES:
        if options.origins.get(name, (None, "default"))[1] != "default":
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for the search of one alignment", hint=HINT)
    if options.tree is not None and terms_of(options.tree) is None:
        hint = "pars{N} and rand{N} can be"
        raise InputError("--tree: a file of trees cannot be for many loci", hint=hint)
    if options.model is not None and not options.chooses and not names_parts(options.model):
        text = model_text(options.model)
        if model_alphabet(text) is None and not text.upper().startswith(OF_ANY_NUMBER):
            parse_model(text, DNA)  # of no data at all: it says why


def _is_alike(options: SearchOptions) -> bool:
    """True if the same options made the existing results; more loci then replace them."""
    try:
        before = json.loads(read_own(options.workspace.path(RESULT)))
        return bool(before["asked"] == options.asked)
    except (InputError, ValueError, KeyError, TypeError):
        return False


def _leave(options: SearchOptions, journal: LociJournal, log: RunLog) -> ExitMessage:
    """Say how the run goes on; the loci that are done are kept already."""
    command = "the same command without --redo" if options.redo else "the same command"
    text = f"{len(journal.done):,} loci are kept; {command} goes on from here"
    log.close(f"stopped: {text}\n")
    return ExitMessage(text)


def _finish(
    options: SearchOptions,
    loci: Sequence[Locus],
    trees: Sequence[LocusTree | None],
    log: RunLog,
    inputs: Sequence[str],
    reporter: Reporter,
) -> None:
    """Write the trees and their table, and tell the result."""
    workspace, made = options.workspace, list(filter(None, trees))
    if not made:
        raise InputError("no locus could be searched", hint=f"{log.path} says why")
    lnl, skipped = sum(tree.lnl for tree in made), len(trees) - len(made)
    rows = [
        {"name": locus.name, **(tree._asdict() if tree else {})}
        for locus, tree in zip(loci, trees, strict=True)
    ]
    values: dict[str, Any] = {
        "asked": options.asked, "seed": options.seed, "trees": len(made), "skipped": skipped,
        "lnl": lnl, "loci": rows,
    }  # fmt: skip
    texts = {TREES: "".join(f"{tree.newick}\n" for tree in made), TABLE: _table(loci, trees)}
    renamed = {row["name"]: row.get("renamed", {}) for row in rows}
    texts |= names_file(one_renaming(renamed, reporter))
    wrong = None
    if options.species_tree is not None:
        sites = partial(_sites_of_all, loci, emit=reporter)
        factors = partial(factors_of_loci, texts[TREES], sites, options)
        try:
            more, values["concordance"] = concordance_texts(options.species_tree, factors, reporter)
            texts |= more
        except InputError as error:  # the trees are worth keeping all the same
            wrong = error
    files = by_kind([log.path, *map(workspace.path, (*texts, RESULT))])
    sources = [*options.inputs, *inputs]
    result = command_result("search", options.line, values, files, sources, reporter)
    stale = {NAMES, *OF_ONE_ALIGNMENT, *CONCORDANCE_KINDS} - texts.keys()
    texts |= {RESULT: result_text(result)}
    deliver(workspace, texts, reporter, sorted(stale) if options.redo else ())
    reporter(LociFinished(len(made), skipped, lnl, tuple(files.values()), reporter.elapsed))
    if wrong is not None:
        raise wrong
    reporter.say(_next_steps(options, files))
    reporter.finish("search", result)


def _next_steps(options: SearchOptions, files: Mapping[str, str]) -> str:
    """Two files to open, and the way to a species tree."""
    table = f"Open {files[TABLE]} in a spreadsheet: column tree has the line of {files[TREES]}\n"
    if options.species_tree is not None:
        return f"{table}Open {files[CONCORDANCE_TREE]} in a tree viewer (FigTree, iTOL)"
    return (
        f"{table}Next, a species tree: astral -i {files[TREES]} -o species.nwk; then this command "
        "with --species-tree species.nwk adds concordance factors"
    )


def _sites_of_all(loci: Sequence[Locus], taxa: Sequence[str], emit: Emit) -> Patterns | None:
    """Patterns of all loci side by side, with gaps for taxa that one lacks.

    None where loci are of several data types, whose sites do not count alike.
    """
    read = read_loci(loci, range(len(loci)))
    every = [one.problem.patterns for one in read if isinstance(one, Ready)]
    if len({patterns.alphabet.name for patterns in every}) > 1:
        emit(Notice("no sCF: loci are of several data types"))
        return None
    alphabet, row = every[0].alphabet, {name: tip for tip, name in enumerate(sorted(taxa))}
    codes = []
    for patterns in every:
        own = np.full((len(row), patterns.n_patterns), alphabet.gap_code, np.uint8)
        tips = [tip for tip, name in enumerate(patterns.taxa) if name in row]
        own[[row[patterns.taxa[tip]] for tip in tips]] = patterns.codes[tips]
        codes.append(own)
    return Patterns(
        taxa=tuple(row), codes=np.concatenate(codes, axis=1),
        weights=np.concatenate([patterns.weights for patterns in every]),
        site_pattern=np.zeros(0, np.int32), alphabet=alphabet,
    )  # fmt: skip


def _table(loci: Sequence[Locus], trees: Sequence[LocusTree | None]) -> str:
    """A line a locus, in their order, with tabs; of those skipped nothing but the name."""
    rows, line = [list(COLUMNS)], 0
    for locus, tree in zip(loci, trees, strict=True):
        cells = [""] * (len(COLUMNS) - 1)
        if tree is not None:
            line += 1
            lnl, length = f"{tree.lnl:.6f}", f"{tree.tree_length:.6f}"
            values = tree._asdict() | {"lnl": lnl, "tree_length": length, "tree": line}
            cells = [str(values[column]) for column in COLUMNS[1:]]
        rows.append([locus.name, *cells])
    return "".join("\t".join(row) + "\n" for row in rows)


def _loci(options: SearchOptions) -> tuple[list[Locus], list[str]]:
    """The loci that were asked for, and the files that they are in.

    Raises: InputError where a file is missing, or there is no locus.
    """
    alignments = options.alignments or (options.alignment,)
    if STDIN in alignments:
        raise InputError("standard input is one alignment, not many", hint="name files")
    scheme, model = options.partitions, options.model
    if scheme is None and model is not None and names_parts(model):
        scheme = model
    is_lone = options.separate and len(alignments) == 1
    if scheme is not None:
        if not is_lone:
            hint = "give one alignment and --separate: every part is a locus then"
            raise InputError("a partition file is for one alignment", file=scheme, hint=hint)
        return _parts(options), [options.alignment, scheme]
    paths = _listed(options.alignment) if is_lone else list(_expanded(alignments))
    for path in paths:
        expect_file(path)
    if not paths:
        raise InputError("there is no alignment in it", file=options.alignment)
    odd = next((path for path in paths if not path.isprintable()), None)
    if odd is not None:
        hint = "rename the file: no tabs, no line ends"
        raise InputError(f"{odd!r}: a locus cannot have that name in a table", hint=hint)
    count = Counter(Path(path).name for path in paths)
    read = partial(
        read_problem, model=None if options.chooses else model, datatype=options.data_type,
        summarises=False, computes=False,
    )  # fmt: skip
    names = [path if count[Path(path).name] > 1 else Path(path).name for path in paths]
    return [
        Locus(name, partial(read, path)) for name, path in zip(names, paths, strict=True)
    ], paths


def _expanded(paths: Iterable[str]) -> Iterable[str]:
    """Files, and those in folders by name, without mltree's; broken links are missing files."""
    for path in paths:
        if not is_folder(path):
            yield path
            continue
        for file in sorted(Path(path).iterdir()):
            is_taken = file.is_file() or not is_there(file)
            if is_taken and not file.name.startswith(".") and ".mltree." not in file.name:
                yield str(file)


def _listed(path: str) -> list[str]:
    """The files that a list names, a line each; beside the list where they are not here."""
    files = []
    for line in read_text(path).decode(errors="replace").split("\n"):
        name = line.strip()
        if not name or line.startswith("#"):
            continue
        here = [file for file in (Path(name), Path(path).parent / name) if is_there(file)]
        if not here:
            hint = "a list names one file on each line; for parts of an alignment give --partitions"
            raise InputError(f"there is no file {name[:80]}", file=path, hint=hint)
        files.append(str(here[0]))
    return files


def _parts(options: SearchOptions) -> list[Locus]:
    """A locus for every part of a partition file, in its order."""
    model = None if options.chooses else options.model
    whole = read_problem(
        options.alignment, model, options.data_type, partitions=options.partitions,
        chooses=options.chooses,
    )  # fmt: skip
    assert whole.data is not None, "a partition file has at least one part"
    models = dict(zip(whole.data.order, whole.model.models, strict=True))
    return [
        Locus(part.name, partial(_part, whole, number, models[number]))
        for number, part in enumerate(whole.data.parts)
    ]


def _part(whole: Problem, number: int, model: Model) -> Problem:
    return Problem(whole.path, (whole.part(number),), alone(model), None)


@dataclass(frozen=True)
class Locus:
    """An alignment that has a tree of its own."""

    name: str
    read: Callable[[], Problem]
    """Read data and model of the locus; raises MltreeError where they are wrong."""


NO_SUPPORTS = SupportPlan()


class LocusTree(NamedTuple):
    """Result of the search of a locus; ``renamed``: the alignment's names by those changed."""

    taxa: int
    sites: int
    patterns: int
    lnl: float
    """Natural log."""
    model: str
    tree_length: float
    """Expected substitutions per site."""
    newick: str
    """Newick in one line, without its end; supports are labels where they were asked for."""
    renamed: Mapping[str, str]


@dataclass(frozen=True)
class Ready:
    """A locus that has been read."""

    number: int
    """Among all, from 0."""
    name: str
    problem: Problem
    mark: str
    """Digest of the name, data and model of the locus."""


class LociJournal(LineJournal[str, LocusTree]):
    """The loci that are done, by their :attr:`Ready.mark`."""

    FORMAT, WHAT, RECORD = "mltree loci 3", "loci", LocusTree


def read_loci(
    loci: Sequence[Locus], numbers: Iterable[int]
) -> Iterator[Ready | LocusSkipped | Notice]:
    """Yield the loci of these numbers that can be searched, and notices about the others."""
    for number in numbers:
        locus = loci[number]
        try:
            problem, dropped = without_gaps(locus.read())
        except (InputError, ModelError, NumericalError) as error:
            yield LocusSkipped(locus.name, number + 1, error.message)
            continue
        if dropped:
            left_out = "1 taxon" if dropped == 1 else f"{dropped} taxa"
            yield Notice(f"{locus.name}: left out {left_out} without data")
        for text in renaming(problem.renamed):
            yield Notice(f"{locus.name}: {text}")
        patterns = problem.patterns
        mark = fingerprint(
            locus.name, "\n".join(problem.taxa), patterns.codes.tobytes(),
            patterns.weights.tobytes(), format_model(problem.model.lone),
        )  # fmt: skip
        yield Ready(number, locus.name, problem, mark)


def computable(loci: Sequence[Ready]) -> Iterator[Ready | LocusSkipped]:
    """Loci whose models can be computed, and events of the others; all eigen systems at once."""
    try:
        arrays_of_all([locus.problem.model.lone for locus in loci])
    except (ModelError, NumericalError) as error:
        if len(loci) == 1:
            yield LocusSkipped(loci[0].name, loci[0].number + 1, error.message)
        else:
            for locus in loci:
                yield from computable([locus])
    else:
        yield from loci


def without_gaps(problem: Problem) -> tuple[Problem, int]:
    """The data without the taxa that have nothing but gaps, and how many those are.

    Raises:
        InputError: too few are left, or there is more than one part, or constant sites are missing.
    """
    if len(problem.groups) > 1 or problem.model.n_parts > 1:
        raise InputError("a locus has one model", hint="--separate makes every part a locus")
    patterns = problem.patterns
    if patterns.unseen:
        raise InputError("data without constant sites (+ASC) are searched one at a time")
    kept = np.flatnonzero((patterns.codes != patterns.alphabet.gap_code).any(axis=1))
    if kept.size < MIN_TAXA:
        taxa = "taxon has" if kept.size == 1 else "taxa have"
        raise InputError(f"{kept.size} {taxa} data: a tree needs {MIN_TAXA}")
    dropped = patterns.n_tips - int(kept.size)
    if not dropped:
        return problem, 0
    taxa_kept = tuple(patterns.taxa[tip] for tip in kept)
    patterns = replace(patterns, taxa=taxa_kept, codes=patterns.codes[kept])
    return replace(problem, groups=(patterns,)), dropped


_Ended: TypeAlias = tuple[int, str, LocusTree | None] | Event
"""A locus by number and mark, with its tree where it had none; or what is said of one."""


@dataclass(frozen=True, kw_only=True)
class LociSearch:
    """How loci are searched."""

    settings: SearchSettings
    resources: Resources
    seed: int
    starts: Sequence[StartSpec] | None = None
    """As many as a preset has where None."""
    collapse: float | None = None
    """Branches shorter than that are written as polytomies."""
    chooses: bool = False
    """True if every locus has the model that suits it best."""
    plan: SupportPlan = NO_SUPPORTS
    """Supports of every tree."""
    replicate_moves: str = "spr"
    """Moves of the search of a bootstrap replicate."""
    kept: KeptLayouts | None = None
    """Layouts that every rank uses; None: each by what was measured of its devices."""

    def run(
        self,
        loci: Sequence[Locus],
        journal: LociJournal,
        emit: Emit = ignore,
        ranks: Ranks = LONE,
    ) -> list[LocusTree | None]:
        """The tree of every locus, in order; None where it was skipped.

        Raises: InputError: the journal is another run's, or cannot be written.
        """
        mark = self._mark()
        journal.begin(Head(mark, measured_layouts(self._devices)))
        assert journal.head is not None, "it has begun"
        search = replace(self, kept=journal.head.layouts)
        work = search, tuple(loci), frozenset(journal.done)
        trees: list[LocusTree | None] = [None] * len(loci)
        done = 0
        batches = _batches(len(loci), ranks.size, on_gpus=self._on_gpus)
        for ended in ranks.deal(batches, partial(_searched, *work), partial(_helping, mark, *work)):
            if isinstance(ended, Event):
                emit(ended)
                continue
            locus, key, tree = ended
            if tree is not None:
                journal.add(key, tree)
            trees[locus] = tree = journal.done[key]
            done += 1
            emit(LocusDone(loci[locus].name, locus + 1, tree.lnl, tree.taxa, done, len(loci)))
        return trees

    @property
    def _devices(self) -> list[DeviceInfo]:
        return choose_devices(self.resources.device)

    @property
    def _on_gpus(self) -> bool:
        return bool(self._devices) and not self._devices[0].is_cpu

    def _mark(self) -> str:
        """Digest of all that decides how a locus is searched, and where."""
        return fingerprint(
            __version__, repr(asdict(self.settings)), str(self.seed), str(self.starts),
            str(self.collapse), str(self.resources.mixed), str(self.resources.vw),
            str(self.chooses), repr(self.plan), self.replicate_moves,
            "\n".join(f"{device.platform} {device.name}" for device in self._devices),
        )  # fmt: skip

    def in_memory(self, loci: Sequence[Ready]) -> Iterator[tuple[Ready, LocusTree]]:
        """Search loci that have been read, and yield them as they end."""
        kinds: dict[Hashable, list[Ready]] = {}
        for locus in loci:
            name, model = locus.problem.patterns.alphabet.name, locus.problem.model
            kind = name, *model.categories, *model.systems, *self._bounds(locus)
            kinds.setdefault(kind, []).append(locus)
        for alike in kinds.values():
            layout = self._layout(alike, alike[0].problem.patterns, self.resources)
            for some in _fitting(alike, self._bytes(), layout):
                yield from self._side_by_side(some)

    def _bounds(self, locus: Ready) -> tuple[float, float]:
        return self.settings.branches.bounds(locus.problem.n_sites)

    def _bytes(self) -> int:
        """Bytes of the CLAs of loci that are searched at a time."""
        devices, limit = self._devices, self.resources.memory_limit
        if not self._on_gpus:
            return min(limit or CPU_BYTES, CPU_BYTES)
        return int(GPU_SHARE * cla_memory(devices[0].handle, limit)) // devices[0].sharers

    def _layout(
        self, loci: Sequence[Ready], patterns: Patterns, resources: Resources
    ) -> Layout | None:
        """Layout of loci of one kind, whichever they are; None on the reference."""
        devices, alphabet = choose_devices(resources.device), patterns.alphabet
        if not devices:
            return None
        (categories,) = loci[0].problem.model.categories
        return choose_layout(
            devices[0], alphabet.n_states, alphabet.n_codes, categories, LOCUS_PATTERNS,
            resources.mixed, resources.vw, self.kept,
        )  # fmt: skip

    def _engines(self, loci: Sequence[Ready], patterns: Patterns, resources: Resources) -> Engines:
        if layout := self._layout(loci, patterns, resources):
            resources = replace(resources, vw=layout.vw)
        model = loci[0].problem.model
        work = Workload.of_patterns(
            patterns, model.categories[0], self._bounds(loci[0]), self.settings.most_trees,
            systems=model.systems[0], parted=True,
        )  # fmt: skip
        return Engines(resources, work)

    def _side_by_side(self, loci: Sequence[Ready]) -> Iterator[tuple[Ready, LocusTree]]:
        """Search loci of one kind by one engine."""
        every = [without_copies(locus.problem.groups, None, ignore) for locus in loci]
        patterns = table_of_tips([distinct.groups[0] for distinct in every])
        engines = self._engines(loci, patterns, self.resources)
        likelihood = exact = engines.likelihood
        if not engines.is_exact:
            exact = self._engines(loci, patterns, engines.exactly).likelihood
        steps = map(search_steps, self._begun(loci, every, engines.is_exact))
        for part, result in perform_all(likelihood, steps, len(loci)):
            lnl = result.lnl
            if exact is not likelihood:
                case = Case(result.model.arrays(), first_part=part)
                lnl = float(exact.log_likelihoods([result.tree], [case])[0])
            problem, tree = loci[part].problem, every[part].restore(result.tree)
            found = TreeResult.of(Fit(tree, result.model, lnl=lnl), 0.0, result)
            newick = self._supported(problem, every[part], found)
            model, length = format_model(result.model.lone), float(tree.lengths.sum())
            sizes = len(problem.taxa), problem.n_sites, problem.n_patterns
            yield loci[part], LocusTree(*sizes, lnl, model, length, newick, dict(problem.renamed))

    def chosen(self, loci: Iterable[Ready]) -> Generator[Event, None, list[Ready]]:
        """Return each locus under the model that suits it best, by BIC; yields what it is."""
        ready = []
        for locus in loci:
            try:
                with by_itself():
                    (choice,) = choose(locus.problem, self.resources, seed=self.seed)
                best = choice.best
                ready.append(replace(locus, problem=locus.problem.under([best.name])))
            except (ModelError, NumericalError) as error:  # noqa: PERF203
                yield LocusSkipped(locus.name, locus.number + 1, error.message)
            else:
                score = best.score(choice.criterion)
                yield ModelChosen(locus.name, best.name, choice.criterion, score, best.lnl)
        return ready

    def _supported(self, problem: Problem, distinct: Collapsed, found: TreeResult) -> str:
        """The tree in Newick, with supports as :func:`.draw_supports` computes them."""
        draw = partial(write_newick, taxa=problem.taxa, outgroup=[0], collapse=self.collapse)
        if self.plan == NO_SUPPORTS:
            return draw(found.tree)
        settings = self._settings(problem)
        with by_itself():
            work = Workload.of(
                problem, settings, distinct.groups, trees=settings.most_trees,
                replicates=self.plan.replicates, rows=self.plan.rows, kept=self.kept,
            )  # fmt: skip
        engines = Engines(self.resources, work)
        ready = TreeSearch(
            problem=problem, distinct=distinct, engines=engines,
            settings=settings.for_precision(engines.is_exact), starts=(), constraint=None,
            rng=np.random.default_rng(self.seed), start_text="", fingerprint="",
        )  # fmt: skip
        options = SearchOptions(alignment=problem.path, seed=self.seed, moves=self.replicate_moves)
        output = SearchOutput(options, self.plan, ignore)
        with output.begun(ready, draw):
            return draw_supports(ready, found, draw, output).newick

    def _begun(
        self, loci: Sequence[Ready], every: Sequence[Collapsed], is_exact: bool
    ) -> Iterator[SearchContext]:
        """The search of each locus from its beginning, on a part of the engine."""
        problems = [locus.problem for locus in loci]
        fitting = [self._settings(problem) for problem in problems]
        terms = [self.starts or usual_terms(settings) for settings in fitting]
        rngs = [np.random.default_rng(self.seed) for _ in loci]
        starts = starting_trees_of_each(terms, every, rngs, self._parsimony)
        for part, problem in enumerate(problems):
            settings = fitting[part].for_precision(is_exact)
            state = beginning(starts[part], problem.model, settings, rngs[part])
            yield SearchContext(settings, state, ignore, first_part=part)

    @cached_property
    def _parsimony(self) -> ParsimonyEngine:
        return parsimony_engine(self._devices)

    def _settings(self, problem: Problem) -> SearchSettings:
        fitting = self.settings.for_data(len(problem.taxa), problem.n_sites)
        if company_pays(self._devices, problem.cla_size):
            return fitting
        return fitting.one_by_one(all_starts=self.starts is not None)


def _helping(
    mark: str, search: LociSearch, loci: Sequence[Locus], done: frozenset[str]
) -> Work[range, _Ended]:
    """How another rank than the first goes through loci.

    Raises: InputError: it would find something else.
    """
    if search._mark() != mark:
        raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
    return partial(_searched, search, loci, done)


def _searched(
    search: LociSearch, loci: Sequence[Locus], done: frozenset[str], batches: Iterator[range]
) -> Iterator[_Ended]:
    """Loci of batches, by their numbers, as they end, and what is said of others.

    done  marks of those that need no search
    """
    for batch in batches:
        fresh = []
        for locus in read_loci(loci, batch):
            if isinstance(locus, Event):
                yield locus
            elif locus.mark in done:
                yield locus.number, locus.mark, None
            else:
                fresh.append(locus)
        sound = []
        for locus in computable(fresh):
            if isinstance(locus, Event):
                yield locus
            else:
                sound.append(locus)
        if search.chooses:
            sound = yield from search.chosen(sound)
        for locus, tree in search.in_memory(sound):
            yield locus.number, locus.mark, tree


def _batches(loci: int, ranks: int, *, on_gpus: bool = False) -> Iterator[range]:
    """Loci by their numbers, those that a rank has in memory at a time."""
    if on_gpus and ranks > 1:  # a batch takes about as many launches whatever its size
        batches = ranks * -(-loci // (AT_ONCE * ranks))
        yield from (range(first, loci, batches) for first in range(min(loci, batches)))
        return
    first = 0
    while first < loci:
        share = max(LEAST_SHARE, (loci - first) // (SHARES * ranks)) if ranks > 1 else AT_ONCE
        last = min(loci, first + min(AT_ONCE, share))
        yield range(first, last)
        first = last


def _fitting(loci: Sequence[Ready], most: int, layout: Layout | None) -> Iterator[list[Ready]]:
    """Loci whose CLAs, of all patterns and as many as the largest tree has, take no more bytes.

    Of several no more patterns than are summed in the smallest chunks, as those of one are.
    """
    most_patterns = layout.patterns_in_least_chunks if layout else math.inf
    batch: list[Ready] = []
    slots = words = count = 0
    for locus in loci:
        problem = locus.problem
        size = 3 * (len(problem.taxa) - 2), problem.cla_size, problem.n_patterns
        slots, words, count = max(slots, size[0]), words + size[1], count + size[2]
        if batch and (8 * slots * words > most or count > most_patterns):
            yield batch
            batch, (slots, words, count) = [], size
        batch.append(locus)
    if batch:
        yield batch
