"""Maximum-likelihood phylogenetics whose tree search lives on the device.

    import mltree
    result = mltree.search("frogs.phy", model="GTR+G4")

running      ``search``, ``evaluate``, ``bootstrap``: what the commands do, in memory
choice       ``model``: which model suits the data
results      what they give back
likelihood   ``Likelihood``: lnL, gradient and Hessian of one tree
comparing    ``rf`` and ``support``: trees against trees
Bayesian     ``sample``: the posterior of trees; ``summarize``: samples of MrBayes, BEAST and others

Alignments and trees may be files, or objects of other libraries (:mod:`mltree.runs.inputs`).
Errors are those of :mod:`mltree.system.errors`, one line each. Threads may call all of it: they
take turns. Each name is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mltree.system import __version__

if TYPE_CHECKING:
    from mltree.analyses.bootstrap import bootstrap
    from mltree.analyses.evaluate import evaluate
    from mltree.analyses.likelihood import Likelihood
    from mltree.analyses.model_selection import ModelChoice, model
    from mltree.analyses.sample import sample
    from mltree.analyses.search import search
    from mltree.analyses.summarize import PosteriorSummary, summarize
    from mltree.analyses.tree_sets import support
    from mltree.runs.results import BootstrapResult, Evaluation, PhyloTree, SearchResult, rf
    from mltree.system.errors import MltreeError

__all__ = [
    "BootstrapResult",
    "Evaluation",
    "Likelihood",
    "MltreeError",
    "ModelChoice",
    "PhyloTree",
    "PosteriorSummary",
    "SearchResult",
    "__version__",
    "bootstrap",
    "evaluate",
    "model",
    "rf",
    "sample",
    "search",
    "summarize",
    "support",
]

_HOMES = {
    "analyses.bootstrap": ("bootstrap",),
    "analyses.evaluate": ("evaluate",),
    "analyses.likelihood": ("Likelihood",),
    "analyses.model_selection": ("ModelChoice", "model"),
    "analyses.sample": ("sample",),
    "analyses.search": ("search",),
    "analyses.summarize": ("PosteriorSummary", "summarize"),
    "analyses.tree_sets": ("support",),
    "runs.results": ("BootstrapResult", "Evaluation", "PhyloTree", "SearchResult", "rf"),
    "system.errors": ("MltreeError",),
}
"""Modules by the names that they have."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"mltree.{module}"), name)
    raise AttributeError(f"module 'mltree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
