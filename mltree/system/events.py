"""Events of a run, as data: analyses and the search emit them, the report shows them.

Every event is a frozen dataclass of plain values, so that the same stream is a log, a progress
display or JSON lines. The receiver shows them, and adds the time. lnL are natural logs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mltree.system.values import Value


class Event(Value):
    """Base class of events."""


Emit = Callable[[Event], None]
"""Receiver of events."""


def ignore(_: Event) -> None:
    """Drop an event: the receiver of runs without a report."""


class Notice(Event):
    """Something the user should know, in one line: an assumption, a fallback, a repair."""

    text: str


class Unsaved(Event):
    """A result that could not be written to its file: its last resort is wherever this is shown."""

    path: str
    content: str


# Events of a run as a whole.


class RunStarted(Event):
    """The first event of a run."""

    version: str
    command: str
    seed: int | None = None
    """Seed of the random numbers; None for a run without any."""


class MemoryPlanned(Event):
    """Memory of a run at its peak, in bytes, as planned before it is allocated."""

    device: str
    layout: str
    trees: int
    """Trees side by side; others of the run follow after them."""
    slots: int
    """CLAs of a tree: one for every directed edge out of an inner node."""
    clas: int
    """Bytes of the CLAs of those trees, with their scaling counts."""
    near: int
    """Bytes of the CLAs of insertions that are re-scored at once, beside the trees'."""
    tips: int
    """Bytes of tip characters, one a pattern, and of eigen systems that patterns have of their own;
    shared by all trees."""
    matrices: int
    """P matrices of the largest launch."""
    sites: int
    """Site lnL of trees that are tested."""
    process: int
    """Largest resident size of the process; on a CPU it includes CLAs, matrices and tips."""
    others: int
    """Bytes of the other processes of the run on this host: ranks, and builders of kernels."""
    available: int

    @property
    def on_devices(self) -> int:
        """Bytes on the devices."""
        return self.clas + self.near + self.matrices + self.tips + self.sites


class DeviceChosen(Event):
    """An engine is ready."""

    name: str
    """Name of the device and its layout."""


class RunFinished(Event):
    """Results of a search or an evaluation."""

    lnl: float
    """lnL in fp64, whatever the precision of the search."""
    model: str
    """The model with its parameter values, as ``--model`` takes it."""
    tree: str
    """Newick of the tree, as in its file."""
    tree_length: float
    """Sum of all branch lengths, expected substitutions per site."""
    taxa: int
    files: tuple[str, ...]
    """Files written, the log included."""
    seconds: float
    """Wall time of the search or the optimisation in this process, without reading data and opening
    devices."""
    support: str = ""
    """Newick of the tree with supports as labels; empty without supports."""


class InputFile(Value):
    """A file that a run read."""

    path: str
    size: int
    """Size on disk, in bytes."""
    sha256: str


class RunDescribed(Event):
    """Everything needed to repeat a run: the head of its log."""

    date: str
    """Start of the run, ISO 8601 with the time zone."""
    host: str
    system: str
    cpu: str
    threads: int
    threads_source: str
    """Source of that number: ``CPU affinity``, ``--threads``, ..."""
    devices: tuple[str, ...]
    """Name, platform and driver of each device."""
    versions: Mapping[str, str]
    """Versions of mltree and of the libraries that it computes with."""
    options: Mapping[str, tuple[str, str]]
    """Value and source (``typed``, ``environment``, ``file``, ``default``) of each option."""
    inputs: tuple[InputFile, ...]


class Busy(Event):
    """Something begins that takes a while and happens rarely: building kernels, calibration."""

    what: str


class ResourcesSpent(Event):
    """Resources of a run, from the start of its process."""

    wall: float
    """Wall time, in seconds."""
    cpu: float
    """CPU seconds of all threads, a CPU device's included, and of the processes that the run
    started: ranks on this machine, and builds of kernels."""
    device: float
    """Seconds that devices computed."""
    peak_memory: int
    """Bytes of the process's largest resident size."""


class CommandEnded(Event):
    """A command has ended: the last of its events, ``result`` in JSON."""

    command: str
    values: Mapping[str, Any]
    """Results by names that stay as they are (docs/command-line.md, "JSON")."""


class FunctionTime(Value):
    """A row of a run's timing table: a likelihood function, or work or waiting of the host."""

    name: str
    seconds: float
    calls: int = 0
    """Newviews, edges or insertions; 0 where nothing is counted."""
    pattern_nodes: int = 0
    """Sum over the calls of the number of patterns."""
    bytes_per_second: float | None = None
    """Bytes a second that the function must read and write; None where it needs none."""
    share_of_copy: float | None = None
    """Bytes a second as a share of the devices' copy bandwidth; None where the bandwidth is not
    known."""


class TimeSpent(Event):
    """Distribution of a run's time over functions."""

    wall: float
    """Wall time in seconds: the sum of the rows, or nearly so."""
    rows: tuple[FunctionTime, ...]


class EngineScore(Value):
    """Answer of one engine."""

    engine: str
    lnl: float
    """NaN where the engine failed."""
    seconds: float
    """Seconds of one evaluation, traversal included."""
    problem: str = ""


class EnginesCompared(Event):
    """lnL of one tree from every engine."""

    scores: tuple[EngineScore, ...]


# Alignments and their parts: read, checked, written.


class Suspicion(Value):
    """A legal character that may not mean what the user thinks."""

    character: str
    count: int
    taxon: str
    """The first taxon with the character, in the order of the file."""
    site: int
    """The character's first site in that taxon, from 1."""
    reason: str


class AlignmentSummary(Value):
    """Facts of `mltree check`. Shares are of all T x sites characters, 0 to 1."""

    path: str
    file_format: str
    datatype: str
    seen: str
    doubtful: bool
    """True where few characters speak for the data type."""
    taxa: int
    sites: int
    patterns: int
    gap_share: float
    """Characters that may be any state."""
    ambiguous_share: float
    """Characters that may be several states, but not any."""
    names: tuple[str, ...]
    """Names of the taxa, sorted."""
    renamed: Mapping[str, str]
    """Names that the file has for taxa, by those here, where they differ."""
    taxon_gap_shares: tuple[float, ...]
    """Share of gaps in each taxon of ``names``."""
    composition_p_values: tuple[float, ...]
    """P-value of each taxon's χ² test against the composition of all
    (:mod:`mltree.runs.problem`)."""
    states: Sequence[str]
    frequencies: tuple[float, ...]
    """Frequency of each state, as +FC has them."""
    absent_states: tuple[str, ...]
    """States that never occur: +FC would give them frequency 0."""
    invariant_sites: int
    """Sites with one and the same state in all characters but gaps (RAxML-NG's definition)."""
    lacks_constant: bool
    """True where no site may be constant, and the model has no correction (+ASC) for that."""
    informative_sites: int
    """Sites with at least two states that are each certain in at least two taxa
    (parsimony-informative)."""
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
    notices: tuple[str, ...]
    """Notices of what the reader of the file has changed."""


class AlignmentLoaded(Event):
    """The data are read and compressed."""

    path: str
    file_format: str
    data_type: str
    data_seen: str
    """Reason for the data type: ``98.1% ACGT, 31 ambiguity codes``."""
    taxa: int
    sites: int
    patterns: int
    gap_share: float
    """Share of characters that are gaps or fully ambiguous, 0..1."""


class PartFacts(Value):
    """A part of the alignment, with facts about its data."""

    name: str
    data_type: str
    model: str
    """The model as the user wrote it, or the default."""
    sites: int
    patterns: int
    gap_share: float
    """Share of characters that may be any state, those of taxa without data too, 0..1."""
    taxa: int
    """Number of taxa with any data in the part."""


class PartitionsLoaded(Event):
    """The alignment is read and cut into parts."""

    path: str
    taxa: int
    sites: int
    parts: tuple[PartFacts, ...]


class AlignmentWritten(Event):
    """Sequences are in a file."""

    path: str
    file_format: str
    """A name of :data:`mltree.data.formats.FORMATS`."""
    taxa: int
    sites: int


class AlignmentChecked(Event):
    """Summary of an alignment before a search."""

    summary: AlignmentSummary
    memory: MemoryPlanned | None
    """Memory of a search with the default settings; None where no device would take any."""


# Model choice.


class CandidatesScored(Event):
    """Candidates of a model choice were fitted."""

    candidates: int
    """Number fitted so far, to all parts together."""
    parts: int
    best: str
    """The best model of the first part so far."""


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
    """Number of free parameters, branch lengths included."""
    score: float
    """Value of the criterion; smaller is better."""
    weight: float
    """exp(-delta / 2), normalised to sum 1."""


class ModelsRanked(Event):
    """The best candidates for a part, the best first."""

    part: str
    criterion: str
    candidates: int
    models: tuple[RankedModel, ...]


class PartsMerged(Event):
    """A round of merging parts has ended."""

    pairs: int
    merged: int
    """Number of pairs that became one subset."""
    subsets: int
    """Number of subsets left."""
    score: float
    """Value of the criterion for the whole scheme."""


# Search.


class SearchPlanned(Event):
    """A search is ready to begin."""

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
    """The rounds of one radius begin."""

    phase: int
    """Number of the phase, from 1."""
    radius: int
    """Edges from the pruning point to the farthest target."""
    cut: float
    """lnL below the current tree at which a scan goes no further."""
    trees: int


class RoundDone(Event):
    """A batched SPR round over all trees of a phase has ended."""

    round: int
    """Number of the round within the run, from 1."""
    radius: int
    candidates: int
    moves: int
    lnl: float
    """lnL of the best tree."""


class ModelOptimised(Event):
    """Model parameters and branch lengths of the best tree were optimised."""

    model: str
    lnl: float


class StoppedShort(Event):
    """A warning: an optimisation ended before it reached a maximum."""

    what: str
    """Parameters that were optimised: ``model and branch lengths``, ``model``, ``branch
    lengths``."""
    lacking: float | None
    """Expected gain of lnL up to the maximum, by the last steps; None where the steps tell
    nothing."""

    @classmethod
    def by(cls, what: str, lacking: float) -> StoppedShort:
        """The event for an expected gain ``lacking``; an infinite one means an unknown gain."""
        return cls(what, lacking if math.isfinite(lacking) else None)


class TreesCulled(Event):
    """Starts that cannot catch up were dropped."""

    kept: int
    dropped: int


class StartsEnded(Event):
    """The last phase is over."""

    starts: int
    ended: int
    """Number of starts that were searched to the end; the others were dropped."""
    reached: int
    """Number of starts that led to the topology of the best tree, including starts that were
    dropped for having the tree of another."""


class TreePerturbed(Event):
    """A batch of perturbed copies was searched."""

    batch: int
    copies: int
    better: int
    """Number of copies that ended above the best tree."""
    lnl: float
    """lnL of the best tree after the batch."""


class CheckpointWritten(Event):
    """The search can go on from here if it is stopped."""

    path: str


class SearchResumed(Event):
    """A checkpoint was found: the work up to here is not done again."""

    path: str
    rounds: int
    lnl: float
    """lnL of the best tree."""


class SearchFinished(Event):
    """The search is over."""

    lnl: float
    rounds: int
    candidates: int
    moves: int


class TreeScored(Event):
    """A given tree after a first smoothing of its branches."""

    lnl: float


# Trees: supports, consensus, distances, replicates and tests; loci.


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
    """Supports of all inner branches of a tree are computed."""

    metric: str
    """``FBP`` or ``TBE`` by trees, ``SH-aLRT``, ``aBayes`` and so on by data, ``gCF``, ``sCF``."""
    branches: int
    mean: float | None
    """Mean over the branches, 0 to 1; None without inner branches."""
    newick: str


class ConsensusBuilt(Event):
    """A consensus tree is built."""

    kind: str
    """``strict``, ``majority`` or ``extended``."""
    branches: int
    largest: int
    """Number of inner branches of a tree without polytomies."""
    newick: str


class DistancesMeasured(Event):
    """Pairs of trees were compared."""

    pairs: int
    topologies: int
    mean: float
    """Mean number of splits that only one of two trees has (Robinson-Foulds distance)."""
    relative: float
    """The mean as a share of the largest possible distance."""
    weighted: float | None
    """Mean sum of differences in branch length, expected substitutions per site."""


class UnifracComputed(Event):
    """UniFrac distances of all pairs of samples are computed."""

    metric: str
    samples: int
    branches: int
    mean: float


class UnifracTested(Event):
    """Distances were tested: between groups of samples, or against other distances."""

    metric: str
    column: str
    """The column of the metadata, or the file of the other matrix."""
    method: str
    statistic_name: str
    statistic: float
    p_value: float
    r2: float | None
    """Share of the variation that the groups, or the other distances, explain."""


class ReplicateDone(Event):
    """A bootstrap replicate was searched."""

    number: int
    """Number of the replicate, from 1; replicates end in any order."""
    lnl: float
    """lnL under the replicate's weights."""
    done: int
    """Number of replicates done, earlier runs included."""
    wanted: int
    """Largest number of replicates that the run will make."""
    may_converge: bool = False
    """True if the run ends earlier once the supports have converged."""


class BootstrapFinished(Event):
    """The bootstrap has converged, or made all replicates."""

    replicates: int
    converged: bool | None
    """Result of the last bootstopping test (autoMRE); None with too few replicates for a test."""
    files: tuple[str, ...]
    """Files written; empty where a search goes on to write them."""
    seconds: float
    """Wall time of the replicates in this process."""


class BootstrapChosen(Event):
    """A run has chosen its bootstrap by time: the standard one where that is cheap."""

    is_standard: bool
    """False for the ultrafast bootstrap."""
    seconds: float
    """Estimated seconds of all standard replicates that there may be."""
    at_least: bool
    """True where the search alone told so, and it may well be more."""
    replicates: int
    """Number of those."""


class TimeLeft(Event):
    """Estimate of the time until a bootstrap ends, at its pace so far."""

    what: str
    seconds: float
    """Wall seconds."""
    at_most: bool
    """True where replicates may suffice earlier."""


class BootstopChecked(Event):
    """Replicates were halved at random, and the halves' supports compared."""

    replicates: int
    wrf: float
    """Mean weighted Robinson-Foulds distance of the halves' consensus trees, in replicates."""
    wrf_error: float
    """Monte-Carlo error of ``wrf``: the standard error of the mean."""
    share: float
    """Mean share of the largest possible distance, 0 to 1."""
    passed: int
    """Number of halvings in which that share is within the cutoff."""
    halvings: int
    converged: bool


class TreesOffered(Event):
    """Replicates of an ultrafast bootstrap were offered more trees."""

    around: int
    """Number of trees whose neighbours were offered so far."""
    offered: int
    """Number of different topologies offered so far."""
    held: int
    """Number of those that are the best tree of any replicate."""
    correlation: float
    """Correlation of all splits' supports with those after half as many trees."""


class TestValue(Value):
    """Result of one test for one tree."""

    __test__ = False  # no test of pytest's

    name: str
    """``p-KH``, ``c-ELW`` and so on, as IQ-TREE calls them."""
    value: float
    """A p-value, a proportion or a weight, 0 to 1."""
    error: float
    """Monte-Carlo error of the value: the standard error."""
    kept: bool
    """True for a tree in the test's 95 % confidence set."""


class TestedTree(Value):
    """A tree of a tree test."""

    __test__ = False

    number: int
    """Number of the tree in its file, from 1."""
    same_as: int | None
    """Number of an earlier tree of the same topology, whose values this tree has."""
    lnl: float
    delta: float
    """lnL of the best tree less lnL of this tree."""
    tests: tuple[TestValue, ...]


class TreesTested(Event):
    """Trees were compared on one alignment."""

    replicates: int
    """Number of replicates of each scale."""
    trees: tuple[TestedTree, ...]


class LocusDone(Event):
    """The tree of a locus is found, in this run or an earlier one."""

    name: str
    number: int
    """Number of the locus, from 1, in the order of the input."""
    lnl: float
    taxa: int
    done: int
    wanted: int


class LocusSkipped(Event):
    """A locus gets no tree; the run goes on with the others."""

    name: str
    number: int
    why: str


class LociFinished(Event):
    """Trees of all loci are done."""

    trees: int
    skipped: int
    lnl: float
    """Sum of the lnL of all trees."""
    files: tuple[str, ...]
    seconds: float


class PriorsChosen(Event):
    """The priors of a sampler are known."""

    priors: tuple[str, ...]
    """A line a prior, as ``--prior FILE`` takes it."""


class BurnInRound(Event):
    """A round of burn-in has ended, and what is tuned was tuned anew."""

    round: int
    iterations: int
    """Iterations so far."""
    lnl: float
    """Mean lnL on the first rungs."""
    rungs: int
    barrier: float
    """Communication barrier of the ladder."""


class SamplesChecked(Event):
    """Samples were looked at: have they converged?"""

    samples: int
    """Samples of each run."""
    ess: float
    """Lowest effective sample size; NaN where there is none."""
    where: str
    """Parameter or split that has it."""
    rhat: float
    asdsf: float
    sweeps: float
    """Sweeps of all chains a second."""
    trips: int
    """Round trips between posterior and prior, of all runs."""
    unmet: tuple[str, ...]
    """Rules of convergence that are not met."""


class Sampled(Event):
    """A sampler has ended."""

    runs: int
    samples: int
    """Samples of each run."""
    lnz: float
    """Natural log of the marginal likelihood; NaN where there is none."""
    error: float
    """Standard error of that."""
    unmet: tuple[str, ...]
    files: tuple[str, ...]
