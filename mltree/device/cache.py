"""Where things are kept that can be made again."""

from __future__ import annotations

from pathlib import Path

import platformdirs

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """The user's folder for them; it need not be there yet."""
    return Path(platformdirs.user_cache_dir("mltree", appauthor=False))
