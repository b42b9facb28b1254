"""What happens during a run, as data: commands and the search emit events, the report draws them.

Every event is a frozen dataclass of plain values, so that the same stream is a log, a progress
display or JSON lines. Nothing here knows how, when or where an event is shown: whoever receives
it adds the time. lnL are natural logs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mltree.system.values import Value


class Event(Value):
    """Something that happened."""


Emit = Callable[[Event], None]
"""Who receives events. The search takes one and never asks what it does with them."""


def ignore(_: Event) -> None:
    """The receiver for whoever wants no events."""


class Notice(Event):
    """Something the user should know, in one line: an assumption, a fallback, a repair."""

    text: str


class Unsaved(Event):
    """A result that could not be written to its file: its last resort is wherever this is shown."""

    path: str
    content: str


# Events of a run as a whole: what it is made of, what it takes, and how it ends.


class RunStarted(Event):
    """The first event of a run."""

    version: str
    command: str
    """As it was typed."""
    seed: int | None = None
    """None where nothing is random."""


class MemoryPlanned(Event):
    """What a run will take at its peak, before it takes anything; bytes."""

    device: str
    """One, or several with commas."""
    layout: str
    trees: int
    """Trees side by side; others of the run follow after them."""
    slots: int
    """CLAs of a tree: one for every directed edge out of an inner node."""
    clas: int
    """Of those trees, with their scaling counts."""
    near: int
    """CLAs of the insertions that are re-scored at once, beside the trees'."""
    tips: int
    """One byte a pattern, and the eigen systems of patterns that have their own; shared by all
    trees."""
    matrices: int
    """P matrices of the largest launch."""
    sites: int
    """Site lnL of trees that are tested."""
    process: int
    """The process's largest resident size; a CPU's CLAs, matrices and tips are among it."""
    others: int
    """Bytes of the run's other processes on this host: ranks, and builders of kernels."""
    available: int
    """Memory of the devices."""

    @property
    def on_devices(self) -> int:
        """What is taken of that."""
        return self.clas + self.near + self.matrices + self.tips + self.sites


class DeviceChosen(Event):
    """An engine stands ready."""

    name: str
    """Device and layout."""


class RunFinished(Event):
    """What a run found."""

    lnl: float
    """In fp64, whatever precision it was found in."""
    model: str
    """With its values; ``--model`` takes it."""
    tree: str
    """In Newick, as in its file."""
    tree_length: float
    """Sum of all branch lengths, expected substitutions per site."""
    taxa: int
    files: tuple[str, ...]
    """That were written, the log among them."""
    seconds: float
    """Wall time of the search or the optimisation in this process; reading and opening are not
    among it."""
    support: str = ""
    """The tree with supports as labels, where there are any."""


class InputFile(Value):
    """A file that a run read."""

    path: str
    size: int
    """Bytes, as it lies there."""
    sha256: str


class RunDescribed(Event):
    """Everything that it takes to do a run again: the head of its log."""

    date: str
    """When it began, ISO 8601 with the time zone."""
    host: str
    system: str
    cpu: str
    threads: int
    """CPUs that it takes."""
    threads_source: str
    """What that number is from: ``CPU affinity``, ``--threads``, ..."""
    devices: tuple[str, ...]
    """Each with its platform and driver."""
    versions: Mapping[str, str]
    """Of mltree and of what it computes with."""
    options: Mapping[str, tuple[str, str]]
    """As they were resolved: value, and where it is from (``typed``, ``environment``, ``file``,
    ``default``)."""
    inputs: tuple[InputFile, ...]


class Busy(Event):
    """Something begins that takes a while and happens rarely: building kernels, measuring."""

    what: str


class ResourcesSpent(Event):
    """What a run took, from its process's start."""

    wall: float
    """Seconds."""
    cpu: float
    """CPU seconds of all its threads, where a CPU that is the device computes, and of the processes
    that it started: its ranks on this machine, and builds of kernels."""
    device: float
    """Seconds that devices computed."""
    peak_memory: int
    """Bytes of the process's largest resident size."""


class CommandEnded(Event):
    """A command has done what it was asked for: the last of its events, ``result`` in JSON."""

    command: str
    values: Mapping[str, Any]
    """What it found, by names that stay as they are (docs/command-line.md, "JSON")."""


class FunctionTime(Value):
    """A row of a run's timing table: a likelihood function, or what the host did or waited for."""

    name: str
    seconds: float
    calls: int = 0
    """Newviews, edges or insertions; 0 where nothing is counted."""
    pattern_nodes: int = 0
    """Those times the patterns that they were for."""
    bytes_per_second: float | None = None
    """Of what they must read and write; None where that is nothing."""
    share_of_copy: float | None = None
    """Of the bytes a second that the devices copy; None where that is not known."""


class TimeSpent(Event):
    """Where a run's time went."""

    wall: float
    """Seconds; what the rows add up to, or nearly so."""
    rows: tuple[FunctionTime, ...]


class EngineScore(Value):
    """What one engine answered."""

    engine: str
    """Its name and layout."""
    lnl: float
    """NaN where the engine failed."""
    seconds: float
    """Of one evaluation, traversal included."""
    problem: str = ""
    """Why there is no lnL."""


class EnginesCompared(Event):
    """The same likelihood from every engine."""

    scores: tuple[EngineScore, ...]
    """The reference's first."""


# What is said of alignments: read, checked, written, and their parts.


class Suspicion(Value):
    """A legal character that may not mean what the user thinks."""

    character: str
    count: int
    taxon: str
    """Where it occurs first, in the order of the file."""
    site: int
    """The site there, from 1."""
    reason: str


class AlignmentSummary(Value):
    """The facts that `mltree check` shows. Shares are of all T x sites characters, 0 to 1."""

    path: str
    file_format: str
    datatype: str
    seen: str
    """What the data type was told by."""
    doubtful: bool
    """Whether the data type was told by little."""
    taxa: int
    sites: int
    patterns: int
    gap_share: float
    """Characters that may be any state."""
    ambiguous_share: float
    """Characters that may be several states, but not any."""
    names: tuple[str, ...]
    """The taxa, sorted."""
    taxon_gap_shares: tuple[float, ...]
    """Share of gaps in each taxon of ``names``."""
    composition_p_values: tuple[float, ...]
    """Of each taxon's χ² test against the composition of all (see composition.py)."""
    states: Sequence[str]
    frequencies: tuple[float, ...]
    """Of each state, as +FC has them."""
    absent_states: tuple[str, ...]
    """States that never occur: +FC would give them frequency 0."""
    invariant_sites: int
    """All characters but gaps are one and the same state (RAxML-NG's definition)."""
    informative_sites: int
    """At least two states, each certain in at least two taxa (parsimony-informative)."""
    identical_sequences: tuple[tuple[str, ...], ...]
    """Groups of taxa with equal sequences."""
    alike_names: tuple[tuple[str, ...], ...]
    """Groups of names that differ in upper and lower case only."""
    gap_taxa: tuple[str, ...]
    """Taxa with nothing but gaps."""
    gap_sites: tuple[int, ...]
    """Sites with nothing but gaps, from 1."""
    suspicions: tuple[Suspicion, ...]
    has_parts: bool
    """True if the file also names parts of the alignment, here under one model."""


class AlignmentLoaded(Event):
    """The data are read and compressed."""

    path: str
    file_format: str
    """The file format that was found."""
    data_type: str
    data_seen: str
    """What the data type was told by: ``98.1% ACGT, 31 ambiguity codes``."""
    taxa: int
    sites: int
    patterns: int
    gap_share: float
    """Share of characters that are gaps or fully ambiguous, 0..1."""


class PartFacts(Value):
    """A part of the alignment, and what is in it."""

    name: str
    data_type: str
    model: str
    """As it was given, or the default."""
    sites: int
    patterns: int
    gap_share: float
    """Share of characters that may be any state, those of taxa without data too, 0..1."""
    taxa: int
    """With any data in the part."""


class PartitionsLoaded(Event):
    """The alignment is read and cut into parts."""

    path: str
    """The partition file."""
    taxa: int
    sites: int
    """In parts."""
    parts: tuple[PartFacts, ...]


class AlignmentWritten(Event):
    """Sequences are in a file."""

    path: str
    file_format: str
    """A name of :data:`mltree.data.writing.FORMATS`."""
    taxa: int
    sites: int


class AlignmentChecked(Event):
    """All that is worth knowing about an alignment before a search."""

    summary: AlignmentSummary
    memory: MemoryPlanned | None
    """Of a search with the default settings; None where no device would take any."""


# What happens when models are chosen.


class CandidatesScored(Event):
    """Candidates of a model choice were fitted to every part."""

    candidates: int
    """How many, of all parts."""
    parts: int
    best: str
    """Of the first part, so far."""


class ModelChosen(Event):
    """The best model of a part."""

    part: str
    model: str
    criterion: str
    score: float
    lnl: float


class RankedModel(Value):
    """A candidate of a model choice."""

    model: str
    lnl: float
    parameters: int
    """Free ones, branch lengths included."""
    score: float
    """By the criterion; smaller is better."""
    weight: float
    """exp(-delta / 2), of sum 1."""


class ModelsRanked(Event):
    """The best candidates for a part, the best first."""

    part: str
    criterion: str
    candidates: int
    """How many were compared."""
    models: tuple[RankedModel, ...]


class PartsMerged(Event):
    """A round of merging parts has ended."""

    pairs: int
    """That were compared."""
    merged: int
    """Pairs that became one."""
    subsets: int
    """That are left."""
    score: float
    """Of the whole scheme, by the criterion."""


# Events of a search, from its starting trees to its best.


class SearchPlanned(Event):
    """A search stands ready."""

    starts: int
    phases: int
    patience: int
    """Batches of perturbed copies without a better tree after which it ends; 0: none."""


class StartTree(Event):
    """A starting tree, scored after a first smoothing."""

    origin: str
    """``parsimony 1``, ``random 2``, ``user 1``."""
    lnl: float


class PhaseStarted(Event):
    """Rounds of one radius begin."""

    phase: int
    """Counted from 1."""
    radius: int
    """Edges from the pruning point to the farthest target."""
    cut: float
    """lnL below the current tree at which a scan goes no further."""
    trees: int
    """Trees side by side."""


class RoundDone(Event):
    """One batched SPR round over all trees of a phase."""

    round: int
    """Counted from 1 within the run."""
    radius: int
    candidates: int
    """Insertions that were scored."""
    moves: int
    """Moves that were applied."""
    lnl: float
    """Of the best tree."""


class ModelOptimised(Event):
    """Model parameters and branch lengths of the best tree were optimised."""

    model: str
    """With its values."""
    lnl: float


class StoppedShort(Event):
    """A warning: an optimisation ended before it reached a maximum."""

    what: str
    """What was optimised: ``model and branch lengths``, ``model``, ``branch lengths``."""
    lacking: float | None
    """lnL by which the maximum is higher, as far as the last steps tell; None: they do not."""

    @classmethod
    def by(cls, what: str, lacking: float) -> StoppedShort:
        """Where so much lnL was still promised, or infinitely much: nothing was."""
        return cls(what, lacking if math.isfinite(lacking) else None)


class TreesCulled(Event):
    """Starts that cannot catch up were dropped."""

    kept: int
    dropped: int


class StartsEnded(Event):
    """The last phase is over, and with it what each start led to."""

    starts: int
    ended: int
    """Those that were searched to the end; the others fell behind and were dropped."""
    reached: int
    """Those that led to the best tree, by its topology; those among them that were dropped
    because another one had the same tree."""


class TreePerturbed(Event):
    """A batch of perturbed copies was searched."""

    batch: int
    copies: int
    better: int
    """Copies that ended above the best tree."""
    lnl: float
    """Of the best tree, after it."""


class CheckpointWritten(Event):
    """The search can go on from here if it is stopped."""

    path: str


class SearchResumed(Event):
    """A checkpoint was found: the work up to here is not done again."""

    path: str
    rounds: int
    """SPR rounds that were done before."""
    lnl: float
    """Of the best tree."""


class SearchFinished(Event):
    """The search is over."""

    lnl: float
    rounds: int
    candidates: int
    moves: int


class TreeScored(Event):
    """A given tree after a first smoothing of its branches."""

    lnl: float


# What is said of files of trees: supports, consensus, distances, replicates and tests.


class TreesLoaded(Event):
    """A file of trees is read."""

    path: str
    trees: int
    taxa: int


class TreesWritten(Event):
    """Trees are in a file, in some format or as a picture."""

    path: str
    trees: int
    taxa: int


class ResultWritten(Event):
    """A run's result is in a file, as another program shows it."""

    path: str
    program: str


class SupportsDrawn(Event):
    """Every inner branch of a tree has its support."""

    metric: str
    """``FBP`` or ``TBE`` by trees, ``SH-aLRT``, ``aBayes`` and so on by data, ``gCF``, ``sCF``."""
    branches: int
    mean: float | None
    """Over the branches, 0 to 1; None where there are none."""
    newick: str


class ConsensusBuilt(Event):
    """What trees have in common is a tree."""

    kind: str
    """``strict``, ``majority`` or ``extended``."""
    branches: int
    largest: int
    """Inner branches of a tree without polytomies."""
    newick: str


class DistancesMeasured(Event):
    """Pairs of trees were compared."""

    pairs: int
    topologies: int
    """Different ones among the trees."""
    mean: float
    """Splits that only one of two trees has (Robinson-Foulds distance)."""
    relative: float
    """The same as a share of the largest possible distance."""
    weighted: float | None
    """Mean sum of differences in branch length, expected substitutions per site."""


class ReplicateDone(Event):
    """A bootstrap replicate was searched."""

    number: int
    """From 1; replicates end in any order."""
    lnl: float
    """Under its own weights."""
    done: int
    """Replicates that are kept, those of earlier runs among them."""
    wanted: int
    """How many there will be, at most."""


class BootstrapFinished(Event):
    """There are replicates enough, or as many as were asked for."""

    replicates: int
    converged: bool | None
    """What the last check of them said (autoMRE); None where there were too few."""
    files: tuple[str, ...]
    """That were written; none where a search goes on to write them."""
    seconds: float
    """Wall time of the replicates in this process."""


class BootstopChecked(Event):
    """Replicates were halved at random, and the halves' supports compared."""

    replicates: int
    wrf: float
    """Mean weighted Robinson-Foulds distance of the halves' consensus trees, in replicates."""
    wrf_error: float
    """Its Monte-Carlo error: the standard error of the mean."""
    share: float
    """Mean share of the largest possible distance, 0 to 1."""
    passed: int
    """Halvings in which that share is within the cutoff."""
    halvings: int
    converged: bool


class TreesOffered(Event):
    """Replicates of an ultrafast bootstrap were offered more trees."""

    around: int
    """Trees whose neighbours were offered, so far."""
    offered: int
    """Different topologies, so far."""
    held: int
    """Of those, the ones that are the best of any replicate."""
    correlation: float
    """Of all splits' supports with those after half as many."""


class TestValue(Value):
    """What one test says of one tree."""

    __test__ = False  # no test of pytest's

    name: str
    """``p-KH``, ``c-ELW`` and so on, as IQ-TREE calls them."""
    value: float
    """A p-value, a proportion or a weight, 0 to 1."""
    error: float
    """Its Monte-Carlo error: the standard error."""
    kept: bool
    """Whether the tree is in the test's 95 % confidence set."""


class TestedTree(Value):
    """One of the trees of a file."""

    __test__ = False

    number: int
    """Counted from 1."""
    same_as: int | None
    """An earlier tree of the same topology, which stands for it."""
    lnl: float
    delta: float
    """LnL by which the best tree is better."""
    tests: tuple[TestValue, ...]


class TreesTested(Event):
    """Trees were compared on one alignment."""

    replicates: int
    """Of each scale."""
    trees: tuple[TestedTree, ...]


class LocusDone(Event):
    """The tree of a locus is found, or was by an earlier run."""

    name: str
    number: int
    """From 1, in the order given."""
    lnl: float
    taxa: int
    done: int
    """Loci so far."""
    wanted: int


class LocusSkipped(Event):
    """A locus has no tree, and others go on."""

    name: str
    number: int
    why: str


class LociFinished(Event):
    """All loci are done."""

    trees: int
    skipped: int
    lnl: float
    """Of all trees together."""
    files: tuple[str, ...]
    seconds: float
