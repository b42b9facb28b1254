"""Maximum-likelihood phylogenetics whose tree search lives on the device.

    import mltree
    result = mltree.search("frogs.phy", model="GTR+G4")

``search``, ``evaluate``, ``model``, ``bootstrap``, ``support``, ``rf``, ``Likelihood`` and what
they give back come from :mod:`mltree.api`, which is loaded when one of them is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mltree.system import __version__

if TYPE_CHECKING:
    from mltree.api import (
        BootstrapResult,
        Evaluation,
        Likelihood,
        MltreeError,
        ModelChoice,
        PhyloTree,
        SearchResult,
        bootstrap,
        evaluate,
        model,
        rf,
        search,
        support,
    )

__all__ = [
    "BootstrapResult",
    "Evaluation",
    "Likelihood",
    "MltreeError",
    "ModelChoice",
    "PhyloTree",
    "SearchResult",
    "__version__",
    "bootstrap",
    "evaluate",
    "model",
    "rf",
    "search",
    "support",
]


_LAZY = frozenset(__all__) - {"__version__"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'mltree' has no attribute {name!r}")
    from mltree import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
