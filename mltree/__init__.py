"""Maximum-likelihood phylogenetics whose tree search lives on the device.

    import mltree
    result = mltree.search("frogs.phy", model="GTR+G4")

trees        ``run``, ``search``, ``evaluate``, ``bootstrap``: what the commands do, in memory
choice       ``model``: which model suits the data
tests        ``alrt`` of branches, ``test`` of trees
sequences    ``check``, ``ancestral``, ``simulate``, ``distances``
likelihood   ``Likelihood``: lnL, gradient and Hessian of one tree
trees alone  ``consensus``, ``support``, ``concordance``, ``rf``, ``random_tree``, ``nj_tree``,
             ``draw``, ``date``
Bayesian     ``sample``: the posterior of trees; ``summarize``: samples of MrBayes, BEAST and others
communities  ``unifrac``: distances of samples on a tree
results      what they give back, and ``PhyloTree``, ``ModelParameters``, which they take too

Alignments and trees may be files, or objects of other libraries (:mod:`mltree.runs.inputs`).
Errors are those of :mod:`mltree.system.errors`, one line each. Threads may call all of it: they
take turns. Each name is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mltree.system import __version__

if TYPE_CHECKING:
    from mltree.analyses.ancestral import AncestralStates, ancestral
    from mltree.analyses.bootstrap import bootstrap
    from mltree.analyses.check import AlignmentCheck, check
    from mltree.analyses.date import DatedTree, date
    from mltree.analyses.evaluate import evaluate
    from mltree.analyses.likelihood import DistanceMatrix, Likelihood, distances, nj_tree
    from mltree.analyses.model_selection import ModelChoice, model
    from mltree.analyses.run import run
    from mltree.analyses.sample import sample
    from mltree.analyses.search import search
    from mltree.analyses.simulate import SimulatedAlignment, random_tree, simulate
    from mltree.analyses.summarize import PosteriorSummary, summarize
    from mltree.analyses.tree_sets import (
        ConcordanceFactors,
        Drawing,
        concordance,
        consensus,
        draw,
        support,
    )
    from mltree.analyses.tree_tests import BranchTestResult, TreeTestResult, alrt, test
    from mltree.analyses.unifrac import UnifracResult, unifrac
    from mltree.runs.inputs import ModelParameters
    from mltree.runs.results import BootstrapResult, Evaluation, PhyloTree, SearchResult, rf
    from mltree.system.errors import (
        DeviceError,
        InputError,
        MltreeError,
        ModelError,
        NumericalError,
    )

__all__ = [
    "AlignmentCheck",
    "AncestralStates",
    "BootstrapResult",
    "BranchTestResult",
    "ConcordanceFactors",
    "DatedTree",
    "DeviceError",
    "DistanceMatrix",
    "Drawing",
    "Evaluation",
    "InputError",
    "Likelihood",
    "MltreeError",
    "ModelChoice",
    "ModelError",
    "ModelParameters",
    "NumericalError",
    "PhyloTree",
    "PosteriorSummary",
    "SearchResult",
    "SimulatedAlignment",
    "TreeTestResult",
    "UnifracResult",
    "__version__",
    "alrt",
    "ancestral",
    "bootstrap",
    "check",
    "concordance",
    "consensus",
    "date",
    "distances",
    "draw",
    "evaluate",
    "model",
    "nj_tree",
    "random_tree",
    "rf",
    "run",
    "sample",
    "search",
    "simulate",
    "summarize",
    "support",
    "test",
    "unifrac",
]

_HOMES = {
    "analyses.ancestral": (
        "AncestralStates",
        "ancestral",
    ),
    "analyses.bootstrap": ("bootstrap",),
    "analyses.check": (
        "AlignmentCheck",
        "check",
    ),
    "analyses.date": (
        "DatedTree",
        "date",
    ),
    "analyses.evaluate": ("evaluate",),
    "analyses.likelihood": (
        "DistanceMatrix",
        "Likelihood",
        "distances",
        "nj_tree",
    ),
    "analyses.model_selection": (
        "ModelChoice",
        "model",
    ),
    "analyses.run": ("run",),
    "analyses.sample": ("sample",),
    "analyses.search": ("search",),
    "analyses.simulate": (
        "SimulatedAlignment",
        "random_tree",
        "simulate",
    ),
    "analyses.summarize": ("PosteriorSummary", "summarize"),
    "analyses.tree_sets": (
        "ConcordanceFactors",
        "Drawing",
        "concordance",
        "consensus",
        "draw",
        "support",
    ),
    "analyses.tree_tests": (
        "BranchTestResult",
        "TreeTestResult",
        "alrt",
        "test",
    ),
    "analyses.unifrac": (
        "UnifracResult",
        "unifrac",
    ),
    "runs.inputs": ("ModelParameters",),
    "runs.results": (
        "BootstrapResult",
        "Evaluation",
        "PhyloTree",
        "SearchResult",
        "rf",
    ),
    "system.errors": (
        "DeviceError",
        "InputError",
        "MltreeError",
        "ModelError",
        "NumericalError",
    ),
}
"""Modules by the names that they have."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"mltree.{module}"), name)
    raise AttributeError(f"module 'mltree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
