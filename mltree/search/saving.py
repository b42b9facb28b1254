"""A file that is written again and again while a run goes on: when, and what if it cannot be."""

from __future__ import annotations

import time
from collections.abc import Callable

from mltree.errors import InputError
from mltree.events import Emit, Notice
from mltree.settings import CheckpointSettings

__all__ = ["Saving"]


class Saving:
    """The occasions on which a file is written."""

    def __init__(
        self,
        settings: CheckpointSettings,
        otherwise: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``otherwise``: how the run goes on where the file cannot be written."""
        self._settings = settings
        self._otherwise = otherwise
        self._clock = clock
        self._began = self._tried = clock()
        self._cost = 0.0
        self._is_failing = False

    def offer(self, write: Callable[[], object], emit: Emit, *, is_last: bool = False) -> bool:
        """Write the file where that is due, or for the last time; whether it was written.

        Where ``write`` raises InputError that is told of once, and ends nothing.
        """
        now = self._clock()
        if not is_last and now - self._tried < self._settings.pause(now - self._began, self._cost):
            return False
        try:
            write()
        except InputError as error:
            if not self._is_failing:
                emit(Notice(f"{error.message}; {self._otherwise}"))
            self._is_failing = True
        else:
            self._is_failing = False
        self._tried = self._clock()
        self._cost = self._tried - now
        return not self._is_failing
