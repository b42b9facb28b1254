"""What is said of files of trees: supports, consensus, distances, replicates and tests."""

from __future__ import annotations

from mltree.events import Event
from mltree.values import Value

__all__ = [
    "BootstopChecked",
    "BootstrapFinished",
    "ConsensusBuilt",
    "DistancesMeasured",
    "LociFinished",
    "LocusDone",
    "LocusSkipped",
    "ReplicateDone",
    "ResultWritten",
    "SupportsDrawn",
    "TestValue",
    "TestedTree",
    "TreesLoaded",
    "TreesOffered",
    "TreesTested",
    "TreesWritten",
]


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
