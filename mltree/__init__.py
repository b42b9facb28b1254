"""Maximum-likelihood phylogenetics whose tree search lives on the device.

    import mltree
    result = mltree.search("frogs.phy", model="GTR+G4")

``search``, ``evaluate``, ``model``, ``bootstrap``, ``support``, ``rf``, ``Likelihood`` and what
they give back come from :mod:`mltree.api`, which is loaded when one of them is first asked for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

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

__version__ = "0.1.0"

_LAZY = frozenset(__all__) - {"__version__"}

_NAMESAKES = ("model", "search")
"""Functions that have the name of a package of mltree."""


class _Package(ModuleType):
    """This package. Some of its functions have the name of a package of it, such as ``search``.

    Python binds a package's name when the package is first imported; here the function keeps the
    name, and has the package's attributes, so that ``import mltree.search.state`` is of use.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'mltree' has no attribute {name!r}")
        from mltree import api

        value = getattr(api, name)
        if name in _NAMESAKES:  # mltree.api has imported the package
            value.__dict__ = vars(sys.modules[f"mltree.{name}"])
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
