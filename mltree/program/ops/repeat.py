"""REPEAT: back to an earlier stage while a group of branch lengths moves."""

from __future__ import annotations

from typing import ClassVar

from mltree.program.ops.operation import Driver, Stage, Words


class Repeat(Stage):
    """Back to stage ``to`` while one of ``groups`` groups is active, at most ``times``."""

    name: ClassVar = "REPEAT"
    number: ClassVar = 4
    is_control: ClassVar = True

    to: int
    times: int
    groups: int

    @property
    def title(self) -> str:
        of = f"{self.groups} groups moves, at most {self.times} times"
        return f"REPEAT from {self.to:03d} while one of {of}"

    @property
    def passes(self) -> int:
        return self.times

    def loop(self, at: int) -> range:
        return range(self.to, at)

    def encode(self, words: Words) -> tuple[int, int]:
        return self.to, self.times

    def aux(self, cases: object) -> int:
        """The number of groups."""
        return self.groups

    def control(self, driver: Driver, at: int, repeats: int) -> int:
        return self.to if repeats < self.times and driver.is_active(self.groups) else at + 1
