"""mltree from Python: the functions and the results that ``import mltree`` offers.

running      ``search``, ``evaluate``, ``bootstrap``: runs as the commands do them, in memory
choice       ``model``: which model suits the data
results      what they give back
likelihood   ``Likelihood``: lnL, gradient and Hessian of one tree
comparing    ``rf`` and ``support``: trees against trees
alignments   what may be given as an alignment, and
trees        as a tree; trees as other libraries have them
progress     what is shown meanwhile: nothing, unless asked for

Errors are those of :mod:`mltree.system.errors`, one line each. Threads may call all of it: they
take turns.
"""

from mltree.api.functions import ModelChoice, bootstrap, evaluate, model, search
from mltree.api.likelihood import Likelihood
from mltree.api.results import BootstrapResult, Evaluation, PhyloTree, SearchResult, rf, support
from mltree.system.errors import MltreeError

__all__ = [
    "BootstrapResult",
    "Evaluation",
    "Likelihood",
    "MltreeError",
    "ModelChoice",
    "PhyloTree",
    "SearchResult",
    "bootstrap",
    "evaluate",
    "model",
    "rf",
    "search",
    "support",
]
