"""Python processes that call a function and inherit nothing but the environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["clean_start"]


def clean_start(function: Callable[..., object], *arguments: Any) -> list[str]:
    """The command line of a process that calls a function of a module.

    It runs without the user's settings (``-I``), on this process's own path: it does not matter
    where from or by whom mltree was imported.

    arguments  as JSON has them
    """
    name = function.__name__
    code = (
        "import json, sys; sys.path[:], *arguments = json.loads(sys.argv[1]);"
        f"from {function.__module__} import {name}; {name}(*arguments)"
    )
    return [sys.executable, "-I", "-c", code, json.dumps([sys.path, *arguments])]
