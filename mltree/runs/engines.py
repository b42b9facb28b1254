"""Where a run computes: planned once, shown, then opened.

A placement says which devices take part, in which layouts, how much of their memory is taken, and
whether they, and other ranks with devices like them, share the patterns out in panels. No memory is
taken before it is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np

from mltree.data.patterns import Patterns, empty_slots, usual_sizes
from mltree.device.build import is_built
from mltree.device.discovery import REFERENCE, DeviceInfo, choose_devices, shares_pay
from mltree.device.layout import Layout
from mltree.device.layout_choice import (
    KeptLayouts,
    check_width,
    choose_layout,
    kept_layouts,
    measured_layouts,
    notices,
    patterns_at_a_time,
)
from mltree.device.memory import LEAST_BATCH, limit_on, room_on, slot_bytes
from mltree.device.panels import PanelEngine
from mltree.device.session import Session
from mltree.device.shards import elsewhere, places_on
from mltree.device.speed import measured_speeds, occupied
from mltree.device.worker import Ahead, builders, search_workers
from mltree.fit.settings import REPLICATE
from mltree.likelihood.ascertainment import AscertainedLikelihood
from mltree.likelihood.classes import Columns
from mltree.likelihood.joint import JointEngine
from mltree.likelihood.left_out import ascertained_parts
from mltree.likelihood.likelihood import Likelihood
from mltree.program.engine import BerthEngine, Engine, Room
from mltree.program.reference import ReferenceEngine
from mltree.runs.demand import APART_BYTES, Company, Demand, Rows, rows_of, shared_limits, slots_of
from mltree.system.events import Busy, DeviceChosen, Emit, MemoryPlanned, Notice, ignore
from mltree.system.process import threads
from mltree.system.ranks import LONE, Ranks, local_rank
from mltree.system.values import Value


class Resources(Value, kw_only=True):
    """What a run may use of the machine, as its user asks for it."""

    device: str | None = None
    """One, or several, as :func:`mltree.device.discovery.choose_devices` takes them."""
    mixed: bool = False
    """CLAs in fp32, sums in fp64."""
    memory_limit: int | None = None
    """Bytes that CLAs may take on a device; the device's own limits where None."""
    vw: int | None = None
    """Patterns of a block; the device's own choice where None."""


class Placement(Value, kw_only=True):
    """What runs where; :func:`place` makes one."""

    resources: Resources
    devices: tuple[DeviceInfo, ...]
    """Those that take part; the NumPy reference computes where there is none."""
    layouts: tuple[Layout, ...]
    """One for each device."""
    kept: KeptLayouts = field(default_factory=dict)
    """All that layouts were chosen by, and those chosen: the same come out of it again."""
    n_tips: int
    n_patterns: int
    parts: int
    categories: int
    systems: int
    """Eigen systems of a model."""
    bounds: tuple[float, float]
    """Of branch lengths, expected substitutions per site."""
    trees: int | None
    """That a search will have side by side at most; None where one is evaluated."""
    apart: int = 0
    """Patterns of the largest part where every tree is of a single part of several; 0 elsewhere."""
    among: Ranks = LONE
    """Who have a share of the patterns each, on devices like these."""
    ranges: int = 1
    """Ranges of parts that there are so many trees for, side by side: berths."""
    chunked_as: int = 0
    """Patterns that chunks suit: as many as there are where 0."""
    rows: Rows = Rows()
    """That supports or tests take."""
    afterwards: Placement | None = None
    """What is opened when the work on this one is done, with the memory that it gives back."""

    @property
    def is_exact(self) -> bool:
        """Whether all of it is computed in fp64."""
        return not any(layout.single for layout in self.layouts)

    @property
    def in_panels(self) -> bool:
        """Whether the patterns are shared out; a lone session holds them all otherwise.

        It does where there is one device of one rank, and room on it for a tree's CLAs.
        """
        seats = len(self.devices) * self.among.size
        return seats > 1 or (seats == 1 and self._least_rows > self.room.most)

    @property
    def planners(self) -> int:
        """Threads that lay out programs: one where a device is the CPU, or goes by panels."""
        is_apart = self.devices and not (self.in_panels or self.devices[0].is_cpu)
        return threads().number if is_apart else 1

    @property
    def memory(self) -> MemoryPlanned | None:
        """What will be taken here at the peak; None where no device is."""
        if not self.devices:
            return None
        opened = [self] if self.afterwards is None else [self, self.afterwards]
        plans = (placement._planned(self._company) for placement in opened)
        return max(plans, key=lambda plan: plan.process + plan.clas)

    def _planned(self, company: Company) -> MemoryPlanned:
        data = self.n_tips, self._own_patterns, self.parts, self.ranges, self.rows, company
        return self._demand.planned(self.devices, self.layouts[0], self.room, *data)

    @property
    def _company(self) -> Company:
        device, layout = self.devices[0], self.layouts[0]
        searches = self.trees is not None
        workers = search_workers(layout) if searches else ("sites",)
        return Company(
            compiles=device.is_cpu and not is_built(device.handle, layout, workers),
            builders=builders(device, layout) if searches and not self.in_panels else 0,
            ranks=local_rank()[1],
        )

    def show(self, emit: Emit) -> None:
        """Tell what the user should know before it is opened."""
        for text in notices(self.devices) if self.devices else ():
            emit(Notice(text))
        if (memory := self.memory) is not None:
            emit(memory)
            share = memory.on_devices // len(self.devices)
            for text in filter(None, (occupied(device, share) for device in self.devices)):
                emit(Notice(text))
        if len(self.devices) == 1 and self.among.size == 1 and self.in_panels:
            name = self.devices[0].name
            emit(Notice(f"{name} cannot hold all CLAs at once: patterns go in panels"))

    def open(self, patterns: Patterns, emit: Emit = ignore) -> Engine:
        """The engine, which holds the patterns that this was planned for.

        Devices that are unlike are timed first, where they share patterns out.

        Raises:
            DeviceError: a device cannot be used.
        """
        if (patterns.n_tips, patterns.n_patterns) != (self.n_tips, self.n_patterns):
            raise ValueError("a placement of other patterns")
        engine: Engine
        self._announce(emit)
        if not self.devices:
            engine = ReferenceEngine(patterns, self.categories, self.bounds, self.systems)
        elif self.in_panels:
            engine = self._open_panels(patterns)
        else:
            engine = self._open_session(patterns)
        emit(DeviceChosen(engine.name))
        if isinstance(engine, PanelEngine):
            emit(Notice(engine.notice))
        if not (self.is_exact or self.resources.mixed):
            emit(Notice("the device has no fp64: computes in mixed precision"))
        return engine

    def _announce(self, emit: Emit) -> None:
        """Say that kernels will be built, where nobody has built such ones here before."""
        for device, layout in zip(self.devices, self.layouts, strict=True):
            if not is_built(device.handle, layout):
                emit(Busy(f"building kernels for {device.name}, once for such data and models"))
        if len({(info.name, info.compute_units) for info in self.devices}) > 1:
            emit(Busy("timing the devices, to share the patterns out"))

    def _open_session(self, patterns: Patterns) -> Session:
        (device,), (layout,) = self.devices, self.layouts
        return Session(
            device.handle, patterns, layout, self.bounds,
            memory_limit=self._limit,
            chunk_blocks=layout.chunk_blocks(self.chunked_as or self.n_patterns),
            slots=self._demand.own + self._demand.near,
            apart=self.apart > 0,
            ahead=None if self.trees is None else Ahead.of_search(device, layout),
        )  # fmt: skip

    def _open_panels(self, patterns: Patterns) -> PanelEngine:
        speeds = measured_speeds(self.devices, self.layouts, patterns)
        where = self.devices, self.layouts, self.resources.memory_limit
        alike = [info.name for info in self.devices], *where[1:]
        return PanelEngine(
            patterns, places_on(*where, speeds), self.bounds, self._panel_slots,
            ranks=self.among, elsewhere=partial(elsewhere, self.resources.device, *alike),
            chunked_as=self.chunked_as,
        )  # fmt: skip

    def likelihood(self, patterns: Patterns, emit: Emit = ignore) -> Likelihood:
        """The likelihood of the patterns, on the engine that :meth:`open` gives."""
        return JointPlacement((self,)).likelihood((patterns,), emit)

    @property
    def exactly(self) -> Resources:
        """For fp64: the same devices where they can, else none."""
        can = all(info.has_fp64 for info in self.devices)
        device = self.resources.device if can else REFERENCE
        return replace(self.resources, device=device, mixed=False, vw=None)

    def exact(self, patterns: Patterns) -> Placement:
        """In fp64, for the final scores of a tree."""
        own = self.categories, self.bounds, None, self.kept, self.systems
        return place(self.exactly, patterns, *own, among=self.among)

    @property
    def _own_patterns(self) -> int:
        """Those that this rank has, of all."""
        return -(-self.n_patterns // self.among.size)

    @property
    def _least_slots(self) -> int:
        """CLAs that are worth a lone session."""
        return slots_of(self.n_tips) + LEAST_BATCH

    @property
    def _panel_slots(self) -> int:
        """CLAs of a panel: those of the whole run where they fit."""
        wanted = self._demand.own + self._demand.near
        return max(self._least_slots, min(wanted, self.room.most))

    @property
    def _least_rows(self) -> int:
        """The whole slots that those take."""
        return rows_of(self._least_slots, self.apart, self._own_patterns)

    @property
    def _limit(self) -> int | None:
        """Bytes that CLAs may take on the first device; its own limits where None."""
        device = self.devices[0]
        limit = limit_on(device, self.resources.memory_limit)
        if not (self.apart and device.is_cpu):
            return limit
        row = slot_bytes(self.layouts[0], self._own_patterns, self.parts)
        own = max(APART_BYTES, self._least_rows * row)
        return own if limit is None else min(limit, own)

    @property
    def room(self) -> Room:
        """Of the first device."""
        device, layout = self.devices[0], self.layouts[0]
        return room_on(device.handle, layout, self._own_patterns, self._limit, self.parts)

    @property
    def _demand(self) -> Demand:
        return Demand.of(self.n_tips, self.room, self.trees)


def place(
    resources: Resources,
    patterns: Patterns,
    categories: int,
    bounds: tuple[float, float],
    trees: int | None = None,
    kept: KeptLayouts | None = None,
    systems: int = 1,
    *,
    apart: bool = False,
    among: Ranks = LONE,
) -> Placement:
    """Plan where the likelihoods of an alignment are computed, without taking any memory.

    categories  of rates, that models have
    bounds      shortest and longest branch, expected substitutions per site
    trees       that a search will have; None where one is evaluated
    kept        layouts of a search that goes on, or of another rank, whatever was measured
    systems     eigen systems that models have, each with an equal number of categories
    apart       whether every tree is of a single part, or of a few neighbours
    among       ranks that may have a share of the patterns each; they do where that pays

    Raises:
        DeviceError: a device cannot be found, or cannot have such a layout.
    """
    devices = choose_devices(resources.device)
    alphabet, vw, parts = patterns.alphabet, resources.vw, patterns.parts
    known = measured_layouts(devices) if kept is None else kept
    size = categories * alphabet.n_states
    numbers = slots_of(patterns.n_tips) * size
    width = patterns_at_a_time(devices, patterns.n_patterns, numbers)
    layouts = []
    for device in devices:
        if vw is not None:
            check_width(device, vw)
        layout = choose_layout(
            device, alphabet.n_states, alphabet.n_codes, categories, width,
            resources.mixed, vw, known,
        )  # fmt: skip
        layouts.append(replace(layout, systems=systems).of(patterns))
    apart = apart and len(parts) > 1
    pays = not apart and shares_pay(
        devices, among.size, size * patterns.n_patterns, numbers * patterns.n_patterns
    )
    return Placement(
        resources=resources,
        devices=tuple(devices),
        layouts=tuple(layouts),
        kept={**known, **({} if vw else kept_layouts(devices, layouts, width))},
        n_tips=patterns.n_tips,
        n_patterns=patterns.n_patterns,
        parts=len(parts),
        categories=categories,
        systems=systems,
        bounds=bounds,
        trees=trees,
        apart=max(span.stop - span.start for span in parts) if apart else 0,
        among=among if pays else LONE,
    )


class JointPlacement(Value):
    """Where parts of several state counts are computed: a placement for each."""

    each: tuple[Placement, ...]

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Those that take part, the same for every placement."""
        return self.each[0].devices

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Of every placement, one for each device."""
        return tuple(layout for placement in self.each for layout in placement.layouts)

    @property
    def is_exact(self) -> bool:
        """Whether all of it is computed in fp64."""
        return all(placement.is_exact for placement in self.each)

    @property
    def kept(self) -> KeptLayouts:
        """Those of every placement."""
        return {key: value for one in self.each for key, value in one.kept.items()}

    @property
    def memory(self) -> MemoryPlanned | None:
        """What will be taken at the peak of the largest; None where no device is."""
        plans = [plan for one in self.each if (plan := one.memory) is not None]
        return max(plans, key=lambda plan: plan.clas) if plans else None

    def show(self, emit: Emit) -> None:
        """Tell what the user should know before it is opened."""
        for placement in self.each:
            placement.show(emit)

    def open(self, groups: Sequence[Patterns], emit: Emit = ignore) -> Engine:
        """The engine of the patterns that this was planned for; see :meth:`Placement.open`."""
        engines = [one.open(own, emit) for one, own in zip(self.each, groups, strict=True)]
        states, widths = [g.alphabet.n_states for g in groups], [g.n_patterns for g in groups]
        joint = JointEngine(engines, states, widths, self.each[0].bounds)
        return joint if len(engines) > 1 else engines[0]

    def likelihood(self, groups: Sequence[Patterns], emit: Emit = ignore) -> Likelihood:
        """The likelihood of the patterns that this was planned for."""
        common = self.open(groups, emit), self.each[0].bounds, Columns.of(groups)
        if not any(patterns.unseen for patterns in groups):
            return Likelihood(*common, min(own.planners for own in self.each))
        return AscertainedLikelihood(*common, ascertained_parts(groups))

    def exact(self, groups: Sequence[Patterns]) -> JointPlacement:
        """In fp64, for the final scores of a tree."""
        return JointPlacement(tuple(map(Placement.exact, self.each, groups)))


def place_all(
    resources: Resources,
    groups: Sequence[Patterns],
    categories: Sequence[int],
    bounds: tuple[float, float],
    trees: int | None = None,
    kept: KeptLayouts | None = None,
    systems: Sequence[int] | None = None,
    among: Ranks = LONE,
) -> JointPlacement:
    """As :func:`place`, of the patterns of every state count, which share the memory."""
    sizes = [patterns.n_patterns * patterns.alphabet.n_states for patterns in groups]
    limits = shared_limits(choose_devices(resources.device), resources.memory_limit, sizes)
    placements = []
    each = zip(groups, categories, systems or [1] * len(groups), limits, strict=True)
    for patterns, width, own_systems, limit in each:
        own = replace(resources, memory_limit=limit)
        placement = place(own, patterns, width, bounds, trees, kept, own_systems, among=among)
        if len(groups) > 1:
            layouts = tuple(replace(layout, parted=True) for layout in placement.layouts)
            placement = replace(placement, layouts=layouts)
        placements.append(placement)
    return JointPlacement(tuple(placements))


# The likelihood of trees over what replicates drew, each in a berth of its own.
#
# A *berth* is a range of parts with room for what any of them drew (:mod:`mltree.data.patterns`).
# Replicates take turns in it, so that kernels compute no pattern that a replicate has no weight
# for.


class BerthLikelihood(Likelihood):
    """The likelihood of trees over patterns that come and go."""

    def __init__(
        self,
        engine: BerthEngine,
        length_bounds: tuple[float, float],
        columns: Columns,
        planners: int = 1,
    ) -> None:
        super().__init__(engine, length_bounds, columns, planners)
        self._berths, self._parts = engine, columns.parts
        self._rows = np.array(self._rows)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.program.engine.BerthEngine.load_patterns`."""
        self._berths.load_patterns(first_part, patterns)
        first = self._parts[first_part].start
        self._rows[0, first : first + patterns.n_patterns] = patterns.weights
        self._resident = None


# Where replicates are computed that have a berth each (:mod:`mltree.runs.engines`).


def can_have_berths(placement: JointPlacement, groups: Sequence[Patterns]) -> bool:
    """Whether there are berths for replicates of patterns that are placed so.

    Not where they are of several state counts, nor where constant sites were left out of the data
    (+ASC), whose patterns have no weight and are needed all the same. The reference takes rows of
    weights, for it sums in an order that depends on the size of a berth.
    """
    return bool(placement.devices) and len(groups) == 1 and not groups[0].unseen


class BerthPlan(Value):
    """So many berths of one size, and where they are computed."""

    placement: Placement
    count: int
    sizes: tuple[int, ...]
    """Patterns of each part."""

    def open(self, patterns: Patterns, emit: Emit = ignore) -> BerthLikelihood:
        """The likelihood of what is drawn of the patterns; nothing is yet."""
        empty = empty_slots(patterns, self.sizes, self.count)
        engine, placement = self.placement.open(empty, emit), self.placement
        assert isinstance(engine, BerthEngine), "there are berths"
        return BerthLikelihood(engine, placement.bounds, Columns.of([empty]), placement.planners)


def plan_berths(
    placement: Placement, patterns: Patterns, sizes: Sequence[int], most: int, trees: int
) -> BerthPlan:
    """As many berths as searches are best side by side, ``most`` of them at most.

    placement  of the whole alignment, whose blocks and chunks they have: no bit depends on how
               many there are, nor on their size
    sizes      that a berth has at least, in patterns of each part
    trees      of a replicate's search
    """
    sizes = _as_many_chunks(placement.layouts[0], patterns, sizes)
    few = _placed(placement, patterns, sizes, min(2, most), trees)
    rows = min(few.room.trees, few.room.most - 1)
    count = max(1, min(most, rows * few.ranges // (trees * slots_of(patterns.n_tips))))
    return BerthPlan(_placed(placement, patterns, sizes, count, trees), count, tuple(sizes))


def _as_many_chunks(layout: Layout, patterns: Patterns, sizes: Sequence[int]) -> Sequence[int]:
    """Sizes with as many chunks as any replicates' have.

    Chunks of all parts are summed in turns (:mod:`mltree.device.layout`), so that one more would
    move those of the next part; at the end of a lone one it adds nothing.
    """
    if len(sizes) == 1:
        return sizes
    chunk = layout.vw * layout.chunk_blocks(patterns.n_patterns)
    usual = usual_sizes(patterns)
    return [
        max(own, (most - 1) // chunk * chunk + 1) for own, most in zip(sizes, usual, strict=True)
    ]


def with_replicates(
    placement: JointPlacement, groups: Sequence[Patterns], count: int
) -> JointPlacement:
    """The placement, which knows that so many replicates follow: by the usual size of berths."""
    trees = REPLICATE.parsimony_starts
    if not can_have_berths(placement, groups):
        each = (replace(one, trees=max(one.trees or 1, trees * count)) for one in placement.each)
        return JointPlacement(tuple(each))
    (alone,), (patterns,) = placement.each, groups
    plan = plan_berths(alone, patterns, usual_sizes(patterns), count, trees)
    return JointPlacement((replace(alone, afterwards=plan.placement),))


def _placed(
    placement: Placement, patterns: Patterns, sizes: Sequence[int], count: int, trees: int
) -> Placement:
    own = replace(placement.resources, vw=placement.layouts[0].vw)
    berths = empty_slots(patterns, sizes, count)
    placed = place(
        own, berths, placement.categories, placement.bounds, trees, systems=placement.systems
    )
    return replace(placed, ranges=count, chunked_as=patterns.n_patterns, among=placement.among)
