"""The workload of an analysis, and the engines that compute it.

A :class:`Workload` has the data, the models' shapes, the trees at once, and the replicates and rows
of weights that follow. :class:`Engines` plans all of that: devices, layouts, memory, and whether
devices and ranks share the patterns out. No memory is taken before an engine is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from mltree.data.patterns import Patterns, empty_slots, usual_sizes
from mltree.device.build import has_programs, is_built
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
from mltree.device.memory import LEAST_BATCH, room_on, slot_bytes
from mltree.device.models import speed_up_models
from mltree.device.parsimony import parsimony_engine
from mltree.device.rate_groups import RateGroupEngine, unrated
from mltree.device.session import Session
from mltree.device.shards import ShardedEngine, device_specs, remote_group
from mltree.device.speed import measured_speeds, occupied
from mltree.device.worker import BUILDS, SEARCHING, Build, is_used
from mltree.fit.settings import REPLICATE, SearchSettings, preset
from mltree.likelihood.ascertainment import AscertainedLikelihood
from mltree.likelihood.joint import JointEngine
from mltree.likelihood.left_out import ascertained_parts
from mltree.likelihood.likelihood import Columns, PerSiteLikelihood, TreeLikelihood
from mltree.models.partitioned import PartitionModel
from mltree.models.rates import rates_for
from mltree.program.cases import Case
from mltree.program.engine import Engine, ReferenceEngine, ReplicateEngine, Room
from mltree.runs.demand import (
    APART_BYTES,
    NO_ROWS,
    Demand,
    HostLoad,
    RowCounts,
    resident_bytes,
    rows_of,
    shared_limits,
    slots_of,
)
from mltree.runs.problem import Problem
from mltree.system.errors import DeviceError
from mltree.system.events import Busy, DeviceChosen, Emit, MemoryPlanned, Notice, ignore
from mltree.system.process import threads
from mltree.system.ranks import LONE, Ranks, current_ranks, local_rank
from mltree.system.values import Value
from mltree.tree.parsimony import ParsimonyEngine
from mltree.tree.topology import random_topology
from mltree.treesearch.replicates import PatternSlots, Replicates, ReplicateSlots, WeightRows

DEFAULT = preset("default")


class Resources(Value, kw_only=True):
    """The part of the machine that an analysis may use, as its user asks for it."""

    device: str | None = None
    """A device, or several, as :func:`mltree.device.discovery.choose_devices` takes them."""
    mixed: bool = False
    """True for CLAs in fp32 with sums in fp64."""
    memory_limit: int | None = None
    """Bytes that CLAs may take on a device; the device's own limits where None."""
    vw: int | None = None
    """Patterns of a block; the device's own choice where None."""


ANY_DEVICE = Resources()


class Workload(Value, kw_only=True):
    """All that an analysis computes on an alignment."""

    groups: tuple[Patterns, ...]
    """Patterns of each state count that trees are searched or evaluated on."""
    shapes: tuple[tuple[int, int], ...]
    """Rate categories and eigen systems of the models of each group."""
    bounds: tuple[float, float]
    """Shortest and longest branch, expected substitutions per site."""
    trees: int | None = None
    """Trees of a search that stand side by side, at most; None where trees are evaluated."""
    replicates: int = 0
    """Bootstrap replicates that are searched after the trees."""
    rows: RowCounts = NO_ROWS
    """Rows over all patterns that supports and tests take after the trees."""
    site_rates: int = 0
    """Rates of every part, of which each pattern has one (+PSR); 0 for other models."""
    scored: Workload | None = None
    """The patterns and models that results are scored under, where those differ: all taxa of a
    search without copies of sequences, Γ after +PSR."""
    kept: KeptLayouts | None = None
    """Layouts of a search that goes on, or of another rank; measured ones and rules where None."""
    apart: bool = False
    """True where every tree is of a single part, or of a few neighbours."""
    parted: bool = False
    """True where kernels look parts up even if there is one."""
    among: Ranks = LONE
    """Ranks that may have a share of the patterns each; they do where that pays."""

    @classmethod
    def of(
        cls,
        problem: Problem,
        settings: SearchSettings = DEFAULT,
        groups: Sequence[Patterns] | None = None,
        *,
        trees: int | None = None,
        replicates: int = 0,
        rows: RowCounts = NO_ROWS,
        kept: KeptLayouts | None = None,
    ) -> Workload:
        """The workload of a problem; ``groups``: its patterns without copies of sequences."""
        model, whole = problem.model, tuple(problem.groups)
        searched = whole if groups is None else tuple(groups)
        bounds = settings.branches.bounds(problem.n_sites)
        under = model.under_gamma if model.has_site_rates else model
        scored = cls(groups=whole, shapes=_shapes(whole, under), bounds=bounds)
        work = partial(cls, groups=searched, bounds=bounds, trees=trees, replicates=replicates,
                       rows=rows, kept=kept)  # fmt: skip
        if not model.has_site_rates:
            is_whole = searched[0].n_tips == len(problem.taxa)
            shapes = _shapes(searched, model)
            return work(shapes=shapes, scored=None if is_whole else scored, among=current_ranks())
        largest = max(part.stop - part.start for one in searched for part in one.parts)
        count = rates_for(largest, max(form.most for form in model.site_rates))
        return work(shapes=((1, 1),) * len(searched), scored=scored, site_rates=count)

    @classmethod
    def of_patterns(
        cls,
        patterns: Patterns,
        categories: int,
        bounds: tuple[float, float],
        trees: int | None = None,
        *,
        systems: int = 1,
        **others: Any,
    ) -> Workload:
        """The workload of patterns of one state count; ``others``: further fields."""
        shapes = ((categories, systems),)
        return cls(groups=(patterns,), shapes=shapes, bounds=bounds, trees=trees, **others)

    @property
    def laid_out(self) -> tuple[Patterns, ...]:
        """The groups as engines hold them before any rates of sites are known."""
        return tuple(unrated(self.groups, self.site_rates)) if self.site_rates else self.groups


def _shapes(groups: Sequence[Patterns], model: PartitionModel) -> tuple[tuple[int, int], ...]:
    """Rate categories and eigen systems of a model of as many parts, for each group."""
    firsts = np.cumsum([0, *(len(patterns.parts) for patterns in groups[:-1])]).tolist()
    return tuple((model.categories[first], model.systems[first]) for first in firsts)


class EnginePlan(Value, kw_only=True):
    """One engine, planned for patterns of one state count: devices, layouts, memory."""

    resources: Resources
    devices: tuple[DeviceInfo, ...]
    """Devices that take part; the NumPy reference computes where there is none."""
    layouts: tuple[Layout, ...]
    """A layout for each device."""
    kept: KeptLayouts = field(default_factory=dict)
    """Layouts known and chosen, from which the same choice follows again."""
    n_tips: int
    n_patterns: int
    parts: int
    shape: tuple[int, int]
    """Rate categories and eigen systems of models."""
    bounds: tuple[float, float]
    """Shortest and longest branch, expected substitutions per site."""
    trees: int | None
    """Trees of a search side by side, at most; None where trees are evaluated."""
    rows: RowCounts = NO_ROWS
    """Rows over all patterns that supports or tests take."""
    apart: int = 0
    """Patterns of the largest part where every tree is of a single part of several; 0 elsewhere."""
    sets: int = 1
    """Sets of parts on which trees stand, apart from each other."""
    among: Ranks = LONE
    """Ranks that have a share of the patterns each, on devices like these."""
    slot_sizes: tuple[int, ...] = ()
    """Patterns of each part of a replicate slot; () where the alignment itself is held."""
    replicate_slots: int = 1
    """Replicate slots, each with room for ``trees`` of its own."""
    chunked_as: int = 0
    """Patterns that chunks suit; 0: ``n_patterns``."""
    then: EnginePlan | None = None
    """The plan of the replicate slots that take the memory when the trees are done."""

    @classmethod
    def of(
        cls,
        resources: Resources,
        devices: Sequence[DeviceInfo],
        patterns: Patterns,
        shape: tuple[int, int],
        work: Workload,
    ) -> EnginePlan:
        """Choose the layouts for patterns of one state count.

        Raises:
            DeviceError: a device cannot have such a layout.
        """
        alphabet, vw, (categories, systems) = patterns.alphabet, resources.vw, shape
        known = measured_layouts(devices) if work.kept is None else work.kept
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
        parted = work.parted or len(work.groups) > 1
        apart = work.apart and len(patterns.parts) > 1
        pays = not apart and shares_pay(
            devices, work.among.size, size * patterns.n_patterns, numbers * patterns.n_patterns
        )
        return cls(
            resources=resources,
            devices=tuple(devices),
            layouts=tuple(replace(one, parted=one.parted or parted) for one in layouts),
            kept={**known, **({} if vw else kept_layouts(devices, layouts, width))},
            n_tips=patterns.n_tips,
            n_patterns=patterns.n_patterns,
            parts=len(patterns.parts),
            shape=shape,
            bounds=work.bounds,
            trees=work.trees,
            rows=work.rows,
            apart=max(span.stop - span.start for span in patterns.parts) if apart else 0,
            sets=len(patterns.parts) if work.parted else 1,
            among=work.among if pays else LONE,
        )

    def with_replicate_slots(
        self, patterns: Patterns, sizes: Sequence[int], most: int, trees: int
    ) -> EnginePlan:
        """Plan as many replicate slots as are best searched side by side.

        Blocks and chunks are those of the whole alignment: no bit depends on how many slots there
        are, nor on their size.

        patterns  of the alignment
        sizes     patterns of each part that a slot has at least
        most      slots
        trees     of a replicate's search
        """
        sizes = _as_many_chunks(self.layouts[0], patterns, sizes)
        few = self._slots(patterns, sizes, min(2, most), trees)
        rows = min(few.room.spread * few.room.trees, few.room.most - 1)
        count = max(1, min(most, rows * few.replicate_slots // (trees * slots_of(patterns.n_tips))))
        return self._slots(patterns, sizes, count, trees)

    def _slots(
        self, patterns: Patterns, sizes: Sequence[int], count: int, trees: int
    ) -> EnginePlan:
        empty, shapes = empty_slots(patterns, sizes, count), (self.shape,)
        work = Workload(groups=(empty,), shapes=shapes, bounds=self.bounds, trees=trees)
        own = replace(self.resources, vw=self.layouts[0].vw)
        plan = EnginePlan.of(own, self.devices, empty, self.shape, work)
        return replace(
            plan,
            replicate_slots=count,
            slot_sizes=tuple(sizes),
            chunked_as=patterns.n_patterns,
            sets=count,
            among=self.among,
        )

    @property
    def is_exact(self) -> bool:
        """True where all is computed in fp64."""
        return not any(layout.single for layout in self.layouts)

    @property
    def is_sharded(self) -> bool:
        """True where the patterns are shared out; else one session holds all of them.

        One session takes one device of one rank, with room for a tree's CLAs.
        """
        shards = len(self.devices) * self.among.size
        return shards > 1 or (shards == 1 and self._least_rows > self.room.most)

    @property
    def planners(self) -> int:
        """Threads that lay out programs: one where a device is the CPU, or patterns are shared."""
        is_apart = self.devices and not (self.is_sharded or self.devices[0].is_cpu)
        return threads().number if is_apart else 1

    @property
    def memory(self) -> MemoryPlanned | None:
        """The memory taken here at the peak; None where no device is."""
        if not self.devices:
            return None
        plans = [self] if self.then is None else [self, self.then]
        load = self._host_load
        planned = (plan._planned(load) for plan in plans)
        return max(planned, key=lambda memory: memory.process + memory.clas)

    def _planned(self, load: HostLoad) -> MemoryPlanned:
        data = self.n_tips, self._rank_patterns, self.parts, self.replicate_slots, self.rows, load
        return self._demand.planned(self.devices, self.layouts[0], self.room, *data)

    @property
    def _host_load(self) -> HostLoad:
        device, layout = self.devices[0], self.layouts[0]
        workers = [build.name for build in self.of_search] or ["sites"]
        return HostLoad(
            compiles=device.is_cpu and not is_built(device.handle, layout, workers),
            launches=not has_programs(),
            builders=BUILDS.processes(device, self.of_search),
            ranks=local_rank()[1],
            resident=resident_bytes(),
        )

    @property
    def of_search(self) -> list[Build]:
        """Workers of the search, in the order in which it needs them; none where it has none."""
        if self.trees is None:
            return []
        return self.wanted(*SEARCHING, *["rell"] * (self.rows.drawn > 0))

    def wanted(self, *workers: str) -> list[Build]:
        """Select the workers that a lone session uses; none where there are several sessions."""
        if not self.devices or self.is_sharded:
            return []
        layout = self.layouts[0]
        return [Build(worker, layout) for worker in workers if is_used(worker, layout)]

    def show(self, emit: Emit) -> None:
        """Tell the user what matters before the engine is opened."""
        for text in notices(self.devices) if self.devices else ():
            emit(Notice(text))
        if (memory := self.memory) is not None:
            emit(memory)
            share = memory.on_devices // len(self.devices)
            for text in filter(None, (occupied(device, share) for device in self.devices)):
                emit(Notice(text))
        if len(self.devices) == 1 and self.among.size == 1 and self.is_sharded:
            name = self.devices[0].name
            emit(Notice(f"{name} cannot hold all CLAs at once: patterns go in slices"))

    def open(self, patterns: Patterns, emit: Emit = ignore) -> Engine:
        """Open the engine on the patterns that it was planned for.

        Unlike devices that share patterns out are timed first.

        Raises:
            DeviceError: a device cannot be used.
        """
        if (patterns.n_tips, patterns.n_patterns) != (self.n_tips, self.n_patterns):
            raise ValueError("an engine planned for other patterns")
        engine: Engine
        self._announce(emit)
        if not self.devices:
            engine = ReferenceEngine(patterns, self.shape[0], self.bounds, self.shape[1])
        elif self.is_sharded:
            engine = self._open_shards(patterns)
        else:
            engine = self._open_session(patterns)
        for device in self.devices[:1]:
            speed_up_models(device)
        emit(DeviceChosen(engine.name))
        if isinstance(engine, ShardedEngine):
            emit(Notice(engine.notice))
        if not (self.is_exact or self.resources.mixed):
            emit(Notice("the device has no fp64: computes in mixed precision"))
        return engine

    def open_replicate_slots(self, patterns: Patterns) -> ReplicateLikelihood:
        """Open the replicate slots, empty, for what is drawn of the patterns."""
        empty = empty_slots(patterns, self.slot_sizes, self.replicate_slots)
        engine = self.open(empty)
        assert isinstance(engine, ReplicateEngine), "parts take other patterns"
        return ReplicateLikelihood(engine, self.bounds, Columns.of([empty]), self.planners)

    def _announce(self, emit: Emit) -> None:
        """Say that kernels will be built, where no such kernels were built before."""
        for device, layout in zip(self.devices, self.layouts, strict=True):
            if not is_built(device.handle, layout):
                emit(Busy(f"building kernels for {device.name}, once for such data and models"))
        if len({(info.name, info.compute_units) for info in self.devices}) > 1:
            emit(Busy("timing the devices, to share the patterns out"))

    def _open_session(self, patterns: Patterns) -> Session:
        (device,), (layout,) = self.devices, self.layouts
        BUILDS.start(device, self.of_search)
        return Session(
            device.handle, patterns, layout, self.bounds,
            memory_limit=self._limit,
            chunk_blocks=layout.chunk_blocks(self.chunked_as or self.n_patterns),
            slots=self._demand.tree_slots + self._demand.near_slots,
            apart=self.apart > 0,
        )  # fmt: skip

    def _open_shards(self, patterns: Patterns) -> ShardedEngine:
        speeds = measured_speeds(self.devices, self.layouts, patterns)
        where = self.devices, self.layouts, self.resources.memory_limit
        alike = [info.name for info in self.devices], *where[1:]
        return ShardedEngine(
            patterns, device_specs(*where, speeds), self.bounds, self._shard_slots,
            ranks=self.among, elsewhere=partial(remote_group, self.resources.device, *alike),
            chunked_as=self.chunked_as,
        )  # fmt: skip

    @property
    def _rank_patterns(self) -> int:
        """Patterns of this rank."""
        return -(-self.n_patterns // self.among.size)

    @property
    def _least_slots(self) -> int:
        """CLAs that are worth a session of all patterns."""
        return slots_of(self.n_tips) + LEAST_BATCH

    @property
    def _shard_slots(self) -> int:
        """CLAs of a shard: those of the whole search where they fit."""
        demand = self._demand
        return max(self._least_slots, min(demand.tree_slots + demand.near_slots, self.room.most))

    @property
    def _least_rows(self) -> int:
        """Whole slots that the least CLAs take."""
        return rows_of(self._least_slots, self.apart, self._rank_patterns)

    @property
    def _limit(self) -> int | None:
        """Bytes that CLAs may take on the first device; its own limits where None."""
        device = self.devices[0]
        limit = device.memory_limit(self.resources.memory_limit)
        if not (self.apart and device.is_cpu):
            return limit
        row = slot_bytes(self.layouts[0], self._rank_patterns, self.parts)
        cached = max(APART_BYTES, self._least_rows * row)
        return cached if limit is None else min(limit, cached)

    @property
    def room(self) -> Room:
        """The room for CLAs on the first device."""
        device, layout = self.devices[0], self.layouts[0]
        return room_on(device.handle, layout, self._rank_patterns, self._limit, self.parts)

    @property
    def _demand(self) -> Demand:
        return Demand.of(self.n_tips, self.room, self.trees, self.rows.tests > 0, self.sets)


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
        max(size, (most - 1) // chunk * chunk + 1) for size, most in zip(sizes, usual, strict=True)
    ]


class ReplicateLikelihood(TreeLikelihood):
    """The likelihood of trees over what replicates drew, each in a replicate slot.

    A *replicate slot* is a range of parts with room for what any replicate drew
    (:mod:`mltree.data.patterns`). Replicates take turns in it, so that kernels compute no pattern
    that a replicate has no weight for.
    """

    def __init__(
        self,
        engine: ReplicateEngine,
        length_bounds: tuple[float, float],
        columns: Columns,
        planners: int = 1,
    ) -> None:
        super().__init__(engine, length_bounds, columns, planners)
        self._slots, self._parts = engine, columns.parts
        self._rows = np.array(self._rows)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.program.engine.ReplicateEngine.load_patterns`."""
        self._slots.load_patterns(first_part, patterns)
        first = self._parts[first_part].start
        self._rows[0, first : first + patterns.n_patterns] = patterns.weights
        self._resident = None


class Engines:
    """The engines of a workload: planned at once, opened when they are needed."""

    def __init__(self, resources: Resources, workload: Workload) -> None:
        """Plan, and take no memory.

        Raises:
            DeviceError: a device cannot be found, or cannot have such a layout.
        """
        self.resources, self.workload = resources, workload
        devices, groups = choose_devices(resources.device), workload.laid_out
        sizes = [patterns.n_patterns * patterns.alphabet.n_states for patterns in groups]
        limits = shared_limits(devices, resources.memory_limit, sizes)
        plans = [
            EnginePlan.of(
                replace(resources, memory_limit=limit), devices, patterns, shape, workload
            )
            for patterns, shape, limit in zip(groups, workload.shapes, limits, strict=True)
        ]
        self.plans = self._with_replicates(plans) if workload.replicates else plans
        self._likelihood: TreeLikelihood | None = None
        self._replicate_engines: list[Engine] = []

    def _with_replicates(self, plans: Sequence[EnginePlan]) -> list[EnginePlan]:
        """Plans that leave room for the replicates: slots of the usual size, or more trees."""
        count, trees = self.workload.replicates, REPLICATE.parsimony_starts
        if self.workload.site_rates:
            return [replace(plan, trees=max(plan.trees or 1, count)) for plan in plans]
        if not _can_have_slots(plans, self.workload):
            return [replace(plan, trees=max(plan.trees or 1, trees * count)) for plan in plans]
        (plan,), (patterns,) = plans, self.workload.groups
        sizes = usual_sizes(patterns)
        return [replace(plan, then=plan.with_replicate_slots(patterns, sizes, count, trees))]

    def __reduce__(self) -> tuple[Callable[..., Engines], tuple[Any, ...]]:
        """Send another rank what it takes to open engines of its own."""
        bare = replace(self.workload, kept=self.kept, among=LONE)
        return _open_elsewhere, (self.resources, bare, self.workload.among is not LONE)

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Devices that take part."""
        return self.plans[0].devices

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Layouts of every state count, one for each device."""
        return tuple(layout for plan in self.plans for layout in plan.layouts)

    @property
    def kept(self) -> KeptLayouts:
        """Layouts known and chosen, from which the same choice follows again."""
        return {key: layout for plan in self.plans for key, layout in plan.kept.items()}

    @property
    def is_exact(self) -> bool:
        """True where the likelihood is computed in fp64."""
        return all(plan.is_exact for plan in self.plans)

    @property
    def is_shared(self) -> bool:
        """True where every rank has a share of the patterns: none of them can compute alone."""
        return any(plan.among.size > 1 for plan in self.plans)

    @property
    def has_replicate_slots(self) -> bool:
        """True where replicates have slots: it decides the last bits of their lnL."""
        return _can_have_slots(self.plans, self.workload)

    @property
    def memory(self) -> MemoryPlanned | None:
        """The memory taken at the peak of the largest engine; None where no device is."""
        planned = [memory for plan in self.plans if (memory := plan.memory) is not None]
        return max(planned, key=lambda memory: memory.clas) if planned else None

    def show(self, emit: Emit) -> None:
        """Tell the user what matters before engines are opened."""
        for plan in self.plans:
            plan.show(emit)

    def build_ahead(self, further: Sequence[Build] = ()) -> None:
        """Have other processes build the workers of a search, and then ``further`` ones."""
        wanted = [one for plan in self.plans for one in plan.of_search]
        for device in self.devices[:1]:
            BUILDS.start(device, [*wanted, *further])

    @property
    def likelihood(self) -> TreeLikelihood:
        """The likelihood of the trees of the workload; see :meth:`open`."""
        return self.open()

    def open(self, emit: Emit = ignore) -> TreeLikelihood:
        """Open the likelihood of the trees of the workload, once.

        Raises:
            DeviceError: a device cannot be used.
        """
        if self._likelihood is None:
            self._likelihood = self._opened(emit)
        return self._likelihood

    def _opened(self, emit: Emit) -> TreeLikelihood:
        groups, bounds, count = self.workload.groups, self.workload.bounds, self.workload.site_rates
        columns = Columns.of(groups)
        if count:
            rated = RateGroupEngine(self._open_engine, groups, count, emit)
            return PerSiteLikelihood(rated, bounds, columns, count)
        engine = self._open_engine(groups, emit)
        if any(patterns.unseen for patterns in groups):
            return AscertainedLikelihood(engine, bounds, columns, ascertained_parts(groups))
        return TreeLikelihood(engine, bounds, columns, min(plan.planners for plan in self.plans))

    def _open_engine(self, groups: Sequence[Patterns], emit: Emit) -> Engine:
        engines = [plan.open(one, emit) for plan, one in zip(self.plans, groups, strict=True)]
        if len(engines) == 1:
            return engines[0]
        states, widths = [g.alphabet.n_states for g in groups], [g.n_patterns for g in groups]
        return JointEngine(engines, states, widths, self.workload.bounds)

    @property
    def exactly(self) -> Resources:
        """Resources for fp64: the same devices where they can, else none."""
        can = all(info.has_fp64 for info in self.devices)
        device = self.resources.device if can else REFERENCE
        return replace(self.resources, device=device, mixed=False, vw=None)

    @cached_property
    def scoring(self) -> Engines:
        """The engines that score results: in fp64, of all taxa, under Γ after +PSR."""
        if self._scores_itself and self.workload.scored is None:
            return self
        work = replace(
            self.workload.scored or self.workload,
            trees=None, replicates=0, rows=NO_ROWS, apart=False, kept=self.kept,
            among=self.workload.among if self.is_shared else LONE,
        )  # fmt: skip
        return Engines(self.exactly, work)

    @property
    def exact(self) -> TreeLikelihood:
        """The likelihood that scores results, opened when needed; see :attr:`scoring`."""
        return self.scoring.likelihood

    @property
    def _scores_itself(self) -> bool:
        """True where trees are searched under the models and the precision of results."""
        return self.is_exact and not self.workload.site_rates

    @cached_property
    def parsimony(self) -> ParsimonyEngine:
        """The engine that makes starting trees."""
        return parsimony_engine(self.devices)

    @property
    def opened(self) -> list[Engine]:
        """Engines whose time counts: of the trees, of exact scores elsewhere, of replicates."""
        exact = [] if self._scores_itself else [self.exact.engine]
        return [self.likelihood.engine, *exact, *self._replicate_engines]

    @contextmanager
    def for_replicates(
        self, replicates: Replicates, numbers: Sequence[int], most: int
    ) -> Iterator[tuple[TreeLikelihood, ReplicateSlots]]:
        """The likelihood of these replicates, and where each has its weights.

        Slots take the memory of the trees' likelihood until the replicates are done; rows of
        weights leave it.

        most  replicates side by side
        """
        starts = 1 if replicates.given else replicates.settings.parsimony_starts
        if not self.has_replicate_slots:
            yield self.likelihood, self._weight_rows(replicates, most, starts)
            return
        (plan,), (patterns,) = self.plans, replicates.distinct.groups
        sizes = replicates.resampling.most_patterns(numbers)
        slots = plan.with_replicate_slots(patterns, sizes, most, starts)
        self.likelihood.close()
        likelihood = slots.open_replicate_slots(patterns)
        self._replicate_engines.append(likelihood.engine)
        try:
            yield likelihood, PatternSlots(slots.replicate_slots, patterns, slots.slot_sizes)
        finally:
            likelihood.close()

    def _weight_rows(self, replicates: Replicates, most: int, starts: int) -> WeightRows:
        """Rows of weights for as many replicates as there is room for."""
        groups = replicates.distinct.groups
        tree = random_topology(groups[0].n_tips, np.random.default_rng(0))
        tree.lengths = replicates.model.spread(tree.lengths)
        trees, cases = [tree] * (starts * most), [Case(replicates.model.arrays())] * (starts * most)
        count = max(1, self.likelihood.trees_at_once(trees, cases) // starts)
        return WeightRows(count, sum(patterns.n_patterns for patterns in groups))


def _can_have_slots(plans: Sequence[EnginePlan], work: Workload) -> bool:
    """True where replicates may have slots.

    Not for several state counts, nor where constant sites were left out of the data (+ASC), whose
    patterns have no weight and are needed all the same, nor for rates of sites. The reference takes
    rows of weights, for it sums in an order that depends on the size of a slot.
    """
    if work.site_rates or len(work.groups) > 1 or work.groups[0].unseen:
        return False
    return bool(plans[0].devices)


def open_engines(resources: Resources, workload: Workload, emit: Emit = ignore) -> Engines:
    """Plan the engines of a workload, show the plan, and open the likelihood of its trees.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    engines = Engines(resources, workload)
    engines.show(emit)
    engines.open(emit)
    return engines


def open_chain_engines(
    resources: Resources, workload: Workload, emit: Emit = ignore
) -> tuple[list[Engine], KeptLayouts]:
    """Open an engine of all patterns on each device; also return the layouts, for other ranks.

    Raises:
        DeviceError: a device cannot be found or used, or cannot hold the CLAs of a chain.
    """
    (patterns,), (shape,) = workload.groups, workload.shapes
    devices = choose_devices(resources.device)
    plans = [
        EnginePlan.of(resources, own, patterns, shape, workload)
        for own in ([[device] for device in devices] or [[]])
    ]
    if any(plan.devices and plan.is_sharded for plan in plans):
        raise DeviceError(
            "a device has no room for the CLAs of a chain",
            hint="--precision mixed takes half of it",
        )
    engines = []
    for plan in plans:
        plan.show(emit)
        engines.append(plan.open(patterns, emit))
    return engines, plans[0].kept


def _open_elsewhere(resources: Resources, workload: Workload, among: bool) -> Engines:
    """Open another rank's engines, as the first rank planned its own."""
    return open_engines(resources, replace(workload, among=current_ranks()) if among else workload)
