"""Seats: a device each, with the patterns that it has of an alignment, in one panel or several."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64
from mltree.device.blocks import Blocks
from mltree.device.layout import Layout
from mltree.device.memory import cla_memory
from mltree.device.session import Dispatch, Session
from mltree.errors import DeviceError
from mltree.likelihood.engine import Weights
from mltree.values import Value

__all__ = ["Panel", "Place", "Rules", "Seat"]


GROWTH = 2
"""CLA slots for which room is made, over those that a program asks for: the next asks for more."""


class Place(Value):
    """A device that takes part, and how."""

    device: cl.Device
    layout: Layout
    share: float = 1.0
    """Of the patterns, relative to the other devices' shares."""
    memory_limit: int | None = None
    """Bytes that CLAs may take; the device's own limits where None."""


class Rules(NamedTuple):
    """What all seats of an alignment have in common."""

    vw: int
    chunk_blocks: int
    length_bounds: tuple[float, float]
    dispatch: Dispatch
    slots: int
    """CLAs to make room for at first."""


class Panel(NamedTuple):
    """Patterns of a seat that are computed together."""

    patterns: Patterns
    where: slice
    """Among the seat's."""
    first_chunk: int
    """Likewise."""


class Seat:
    """One device with the patterns of its residues, in one panel or several that take turns."""

    def __init__(self, place: Place, patterns: Patterns, residues: int, rules: Rules) -> None:
        """``patterns``: those of so many residues."""
        self.residues = residues
        self._patterns = patterns
        self._chunk_blocks = rules.chunk_blocks
        self._blocks = Blocks.of(patterns, rules.vw, rules.chunk_blocks)
        self._weights: Weights = self._patterns.weights[None]
        self._layout = place.layout
        self._limit = cla_memory(place.device, place.memory_limit)
        self.panels = self._split(rules.slots, place.device.name.strip())
        self.session = Session(
            place.device, self.panels[0].patterns, place.layout, rules.length_bounds,
            rules.dispatch,
            memory_limit=self._limit, chunk_blocks=rules.chunk_blocks, slots=rules.slots,
            residues=residues,
        )  # fmt: skip

    @property
    def fit(self) -> int:
        """CLA slots that fit for the largest panel, which is the first."""
        return self._limit // self._layout.cla_bytes(self.panels[0].patterns.n_patterns)

    @property
    def notice(self) -> str:
        """What the device takes, and why in several panels."""
        patterns = f"{self.session.device.name.strip()} takes {self._patterns.n_patterns} patterns"
        if len(self.panels) == 1:
            return patterns
        return (
            f"{patterns} in {len(self.panels)} panels, one after the other: its memory for CLAs is "
            f"{self._limit / 2**20:.0f} MiB"
        )

    def make_room(self, slots: int) -> None:
        """Make smaller panels where so many CLAs of one do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        if slots <= self.fit:
            return
        try:
            self.panels = self._split(GROWTH * slots, self.session.name)
        except DeviceError:
            self.panels = self._split(slots, self.session.name)
        self.turn_to(self.panels[0])
        self.expect_less()
        if self._weights.shape[0] > 1:
            self.load_weights(self._weights)

    def expect_less(self) -> None:
        """Free all CLAs, and make room for no more of them than are asked for."""
        self.session.close()
        self.session.expected_slots = 0

    def retreat(self, slots: int) -> None:
        """Make smaller panels, for so many CLAs of those that there are do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        self.session.close()
        self._limit = (
            max(1, slots) * self._layout.cla_bytes(self.panels[0].patterns.n_patterns) // 2
        )
        self.make_room(max(slots, self.fit + 1))

    def _split(self, slots: int, name: str) -> list[Panel]:
        blocks = self._blocks
        chunk = min(self._chunk_blocks * blocks.vw, blocks.width)
        least = max(1, slots) * self._layout.cla_bytes(chunk)
        fit = self._limit // least
        if fit == 0:
            raise DeviceError(
                f"{name}: {slots} CLAs of {chunk} patterns do not fit into "
                f"{self._limit / 2**20:.1f} MiB",
                hint=f"give --memory-limit {-(-least // 2**20)}M or more, or fewer starting trees",
            )
        panels = -(-blocks.chunks // fit)
        ends = [-(-n * blocks.chunks // panels) for n in range(panels + 1)]
        # A pattern's chunk rises with its number, so that a panel's follow one another.
        patterns = np.searchsorted(blocks.chunk_of, ends)
        return [
            Panel(self._patterns.take(np.arange(*span)), slice(*span), first)
            for span, first in zip(pairwise(patterns.tolist()), ends, strict=False)
        ]

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, patterns]."""
        self._weights = rows
        for panel in self.panels:
            self.turn_to(panel)
            self.session.load_weights(rows[:, panel.where])

    def load_patterns(self, first_part: int, patterns: Patterns, first: int) -> None:
        """Take these for those of as many parts; ``first``: of those, among all of the seat's."""
        self._patterns.put(first, patterns)
        end = first + patterns.n_patterns
        for panel in self.panels:
            start, stop = max(first, panel.where.start), min(end, panel.where.stop)
            if start < stop:
                some = patterns.take(np.arange(start - first, stop - first))
                panel.patterns.put(start - panel.where.start, some)
                self.turn_to(panel)
                self.session.load_patterns(first_part, some)

    def turn_to(self, panel: Panel) -> None:
        """Work on a panel."""
        self.session.turn_to(panel.patterns, panel.first_chunk)

    def site_lnl(self, rows: int) -> Float64:
        """f64[rows, patterns] of all panels."""
        found = []
        for panel in self.panels:
            self.turn_to(panel)
            found.append(self.session.site_log_likelihoods(rows))
        return np.concatenate(found, axis=1)
