"""Time trees as states of chains: their words, priors and first states, and what is told of them.

A :class:`TimeSpace` is to the sampler what free trees are without a clock: which program sweeps
them, how a chain begins, which prior its tree has, which widths of proposals are adapted.
Letters: T tips, N = 2T - 1 nodes, C chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from mltree.data.patterns import Patterns
from mltree.dating.dates import ANY, calibration_rows, dates_of, missing_text
from mltree.dating.time_trees import TimeTree
from mltree.program.contract import (
    TIME_MOVES,
    TIME_WORDS,
    Chain,
    ClockKind,
    PriorKind,
    Scalar,
    TimeChain,
    TimeMove,
    TreePriorKind,
)
from mltree.program.ops.time_trees import (
    TimePriors,
    TimeShape,
    TimeTreeWords,
    empty_time_words,
    write_calibration,
)
from mltree.program.random_numbers import Stream
from mltree.sampling.calibrations import NodeCalibration, calibrations_of
from mltree.sampling.priors import (
    Beta,
    Distribution,
    Exponential,
    Fixed,
    GammaDistribution,
    Laplace,
    LogNormal,
    Normal,
    Priors,
    Shifted,
    Uniform,
)
from mltree.sampling.sampler import TreeSpace
from mltree.sampling.tree_priors import (
    birth_death_log_density,
    cells_of,
    chain_log_density,
    coalescent_log_density,
    fitted_heights,
    grid_log_density,
    grid_warp,
    growth_warp,
    join_at_random,
    nearest_joins,
    rate_by_ages,
    serial_log_density,
    skyline_log_density,
)
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.values import Value
from mltree.tree.topology import Tree

CLOCKS = {
    "strict": ClockKind.STRICT,
    "ucln": ClockKind.LOG_NORMAL,
    "ucgd": ClockKind.GAMMA,
    "wn": ClockKind.WHITE_NOISE,
}
"""Kinds of clocks by the names that options have."""

TREE_PRIORS = {
    "yule": TreePriorKind.BIRTH_DEATH,
    "bd": TreePriorKind.BIRTH_DEATH,
    "coalescent": TreePriorKind.COALESCENT,
    "expgrowth": TreePriorKind.COALESCENT,
    "skygrid": TreePriorKind.SKYGRID,
    "skyline": TreePriorKind.SKYLINE,
}
"""Kinds of priors of trees by the names that options have."""

SPREAD_NAMES = {"ucln": "ucldStdev", "ucgd": "ucgdStdev", "wn": "wnVariance"}
"""Columns of the spread of rates; the first as BEAST 2 has it."""

SERIAL_NAMES = {
    Scalar.GROWTH: "reproductiveNumber",
    Scalar.SIZE: "becomeUninfectiousRate",
    Scalar.SAMPLING: "samplingProportion",
    Scalar.FRACTION: "samplingFraction",
}
"""Columns of sampling through time, as BEAST 2's birth-death skyline has them."""

FIRST_WIDTHS = {TimeMove.REHANG: 2.0, TimeMove.ROOT: 1.0, TimeMove.UP_DOWN: 0.3}
"""Widths of proposals before they are adapted, where they are not FIRST_WIDTH."""

FIRST_WIDTH = 0.5

LEAST_WIDTH, MOST_WIDTH = 1e-6, 1e3
"""Bounds of widths; those of moves without one, which grow or shrink, end there."""

ACCEPTED = 0.3
"""Share of proposals with a width that is best accepted."""

SLOWING, LEAST_GAIN = 0.6, 0.02
"""An iteration's part in the adaptation of widths falls as number^-SLOWING, to LEAST_GAIN."""

UNLIKELY = 0.005
"""Probability beyond a first value on either side, at least."""

STARTS = 200
"""Trees that are drawn at most for one that meets all calibrations."""

JITTER = 0.2
"""Deviation of the logarithms of distances, so that runs begin with different trees."""

ROOM = 1.3
"""The height of a first tree's root over what is known to be below it."""


class TimeData(Value, eq=False):
    """Dates of the tips of time trees, and ages of groups."""

    taxa: tuple[str, ...]
    earliest: Float64
    """f64[T]: least heights of tips, times before the latest date of any."""
    latest: Float64
    """f64[T]: greatest heights of tips."""
    calibrations: tuple[NodeCalibration, ...] = ()
    present: float | None = None
    """The date of height 0, a decimal year; None without dates."""

    @property
    def span(self) -> float:
        """A stretch of time that most of a tree's history surely is within.

        Raises: InputError: nothing tells of time.
        """
        ages = [one.distribution.quantile(0.9) for one in self.calibrations if one.distribution]
        oldest = max([2 * float(self.earliest.max()), *ages])
        if oldest > 0:
            return oldest
        hint = "--skygrid CELLS,WIDTH"
        raise InputError("nothing tells how much time a skygrid spans", hint=hint)

    @property
    def is_level(self) -> bool:
        """True where all tips have the same known date."""
        return not (self.earliest.any() or self.latest.any())

    @property
    def at_once(self) -> int:
        """Number of tips that surely are of height 0."""
        return int((self.latest == 0).sum())

    @property
    def is_timed(self) -> bool:
        """True where anything tells of time, so that the clock has a rate."""
        has_ages = any(one.distribution is not None for one in self.calibrations)
        return has_ages or not self.is_level


LEAST_TIPS = 3
"""Tips of a time tree at least."""


def time_data(
    taxa: Sequence[str], dates: str | None, calibrate: str | None, *, ages: bool
) -> tuple[TimeData, str]:
    """Read a source of dates and a table of calibrations; returns a notice too, most often none.

    dates, calibrate  as ``--dates`` and ``--calibrate`` have them
    ages              True for numbers that count back from the present

    Raises: InputError: a date or a calibration cannot be, or calibrations contradict each other.
    """
    rows = [] if calibrate is None else calibration_rows(calibrate)
    if dates is None:
        none, found = np.zeros(len(taxa)), calibrations_of(rows, taxa)
        return TimeData(tuple(taxa), none, none, tuple(found)), ""
    dated = dates_of(dates, taxa, ages=ages)
    spans = [dated.tips.get(name, ANY) for name in taxa]
    ends = [end for span in spans for end in span if math.isfinite(end)]
    if not ends:
        raise InputError("no tip has a date", hint="--dates names, a table, or an expression")
    present = 0.0 if dated.are_ages else max(ends)
    for name, span in zip(taxa, spans, strict=True):
        if dated.are_ages and span.upper > 0 and span != ANY:
            raise InputError(f"the age of {name} is {-span.upper:g}: after the present", taxon=name)
    within = np.clip(np.array(spans), min(ends), present)
    earliest, latest = present - within[:, 1], present - within[:, 0]
    found = calibrations_of(
        [*dated.calibrations, *rows], taxa, latest=present, ages=dated.are_ages,
        tip_heights=earliest.tolist(), sampled=np.flatnonzero(latest > earliest).tolist(),
    )  # fmt: skip
    data = TimeData(tuple(taxa), earliest, latest, tuple(found), present)
    return data, missing_text(taxa, dated.tips)


MOST_COMPARED = 2000
"""Tips up to which first trees are made by distances."""


def tip_distances(groups: Sequence[Patterns]) -> Float64:
    """Expected substitutions per site between tips, f64[T, T], by the formula of Jukes and Cantor.

    Of more tips than MOST_COMPARED those of evenly spaced ones.
    """
    tips = len(groups[0].codes)
    chosen = np.linspace(0, tips - 1, min(tips, MOST_COMPARED)).astype(np.int64)
    known, alike = np.zeros((2, len(chosen), len(chosen)))
    correction = 0.0
    for group in groups:
        table, states = group.alphabet.tip_table, group.alphabet.n_states
        codes = group.codes[chosen]
        is_certain = table.sum(axis=1) == 1
        seen = is_certain[codes].astype(np.float64)
        known += (seen * group.weights) @ seen.T
        for state in range(states):
            has = (is_certain & (table[:, state] > 0))[codes].astype(np.float64)
            alike += (has * group.weights) @ has.T
        correction = max(correction, 1 - 1 / states)
    apart = np.divide(known - alike, known, np.full_like(known, np.nan), where=known > 0)
    apart = np.where(known > 0, apart, np.nanmean(apart) if (known > 0).any() else 0.0)
    share = np.clip(apart, 0.0, 0.9 * correction)
    return np.asarray(-correction * np.log1p(-share / correction), np.float64)


def mean_distance(distances: Float64) -> float:
    """Mean of the distances f64[T, T] of different tips."""
    tips = len(distances)
    return max(float(distances.sum()) / (tips * (tips - 1)), 1e-4)


class TimeSpace(TreeSpace):
    """Trees with a time axis under a clock and a prior of trees."""

    moves = TIME_MOVES

    def __init__(
        self, data: TimeData, clock: str, tree_prior: str, priors: Priors, *,
        cells: int = 0, width: float = 1.0, distances: Float64 | None = None
    ) -> None:  # fmt: skip
        """``cells`` of a skygrid, ``width`` units of time each, or groups of a skyline.

        distances  f64[T, T], expected substitutions per site between tips; None where data do not
                   count

        Raises: InputError: a prior does not suit a time tree.
        """
        self.data, self.clock, self.tree_prior = data, clock, tree_prior
        self._clock_kind, self._tree_kind = CLOCKS[clock], TREE_PRIORS[tree_prior]
        self._is_birth = self._tree_kind == TreePriorKind.BIRTH_DEATH
        if self._is_birth and not data.is_level:
            self._tree_kind = TreePriorKind.SERIAL
        self._is_skyline = tree_prior == "skyline"
        if self._is_skyline and cells >= len(data.taxa):
            events = len(data.taxa) - 1
            raise InputError(f"{cells} groups of a skyline: the tree has {events} events")
        self._cells, self._width, self._distances = cells, width, distances
        self._distance = None if distances is None else mean_distance(distances)
        members = sum(len(one.tips) for one in data.calibrations)
        self.shape = TimeShape(len(data.taxa), cells, len(data.calibrations), members)
        self.scalars = self._scalars(priors)

    def _scalars(self, priors: Priors) -> dict[Scalar, Distribution]:
        spread = priors.noise_variance if self.clock == "wn" else priors.clock_spread
        growths = {"bd": priors.relative_death, "expgrowth": priors.growth_rate}
        one = Fixed(1.0)
        scalars = {
            Scalar.CLOCK: priors.clock_rate if self.data.is_timed or priors.has_rate else one,
            Scalar.SPREAD: one if self.clock == "strict" else spread,
            Scalar.SIZE: priors.birth_rate if self._is_birth else priors.population_size,
            Scalar.GROWTH: growths.get(self.tree_prior, Fixed(0.0)),
            Scalar.FRACTION: (priors.sampling_fraction if self.tree_prior == "bd" else None) or one,
            Scalar.PRECISION: priors.grid_precision if self.tree_prior == "skygrid" else one,
            Scalar.SAMPLING: one,
        }
        return scalars | self._serial_scalars(priors) if self._is_serial else scalars

    @property
    def _is_serial(self) -> bool:
        """True for births and deaths of tips with dates."""
        return self._tree_kind == TreePriorKind.SERIAL

    def _serial_scalars(self, priors: Priors) -> dict[Scalar, Distribution]:
        """Scalars of sampling through time; without deaths all who are removed are sampled."""
        most_at_once = 2 * self.data.at_once >= len(self.data.taxa)
        removed = priors.sampling_proportion if self.tree_prior == "bd" else Fixed(1.0)
        return {
            Scalar.SIZE: priors.removal_rate,
            Scalar.GROWTH: priors.reproductive_number,
            Scalar.FRACTION: priors.sampling_fraction or Fixed(float(most_at_once)),
            Scalar.SAMPLING: removed,
        }

    @property
    def names(self) -> dict[Scalar, str]:
        """Columns of the scalars that are sampled, as BEAST 2 has them."""
        return {
            which: name
            for which, name in self._every_name.items()
            if not (
                isinstance(self.scalars[which], Fixed) or (self._cells and which == Scalar.SIZE)
            )
        }

    @property
    def _every_name(self) -> dict[Scalar, str]:
        """Names of the scalars that the clock and the tree's prior have."""
        sizes = {"yule": "birthRate", "bd": "BDBirthRate", "expgrowth": "ePopSize"}
        names = {Scalar.CLOCK: "clockRate"}
        if self.clock != "strict":
            names[Scalar.SPREAD] = SPREAD_NAMES[self.clock]
        names[Scalar.SIZE] = sizes.get(self.tree_prior, "popSize")
        if self.tree_prior == "skygrid":
            names |= {Scalar.SIZE: "skygrid.size1", Scalar.PRECISION: "skygrid.precision"}
        if self._is_skyline:
            names[Scalar.SIZE] = "bPopSizes.1"
        if self.tree_prior == "bd":
            names |= {Scalar.GROWTH: "BDDeathRate", Scalar.FRACTION: "samplingFraction"}
        if self._is_serial:
            names |= SERIAL_NAMES
        if self.tree_prior == "expgrowth":
            names[Scalar.GROWTH] = "growthRate"
        return names

    @property
    def prior_lines(self) -> Iterator[str]:
        """The priors of the tree, its scalars and the calibrations."""
        grid = f", {self._cells} cells of {self._width:g}" if self._cells else ""
        grid = f", {self._cells} groups of events" if self._is_skyline else grid
        yield f"tree: {self.tree_prior}{grid}; clock: {self.clock}"
        for which, name in self._every_name.items():
            yield f"{name}: {self.scalars[which]}"
        for calibration in self.data.calibrations:
            yield f"age of {calibration}"
        uncertain = self.data.latest > self.data.earliest
        for tip in np.flatnonzero(uncertain).tolist():
            low, high = self.data.earliest[tip], self.data.latest[tip]
            yield f"height of {self.data.taxa[tip]}: Uniform({low:.6g}, {high:.6g})"

    # Answers to the sampler.

    @property
    def windows(self) -> Float64:
        """f64[moves]: widths of proposals before they are adapted."""
        widths = np.full(self.moves, FIRST_WIDTH)
        for move, width in FIRST_WIDTHS.items():
            widths[move] = width
        growth = self.scalars[Scalar.GROWTH]
        if not isinstance(growth, Fixed):
            widths[TimeMove.GROWTH] = growth.quantile(0.75) - growth.quantile(0.25)
        return widths

    def empty(self, chains: int) -> Float64:
        """States without a tree."""
        return empty_time_words(chains, self.shape)

    @property
    def _time_at(self) -> int:
        """Number of the first of the words of time."""
        words = self.shape._replace(cells=0, calibrations=0, members=0).words
        return words - 6 * self.shape.nodes - TIME_WORDS

    def write_windows(self, words: Float64, windows: Float64) -> None:
        """Write the widths of all moves."""
        first = self._time_at + TimeChain.WINDOWS
        words[:, first : first + self.moves] = windows

    def stretch(self, words: Float64, steps: Float64, number: int) -> Float64:
        """Scale the clock, or where it is known all heights; branches may have any length."""
        assert number == 0, "a tree in time has one set of lengths"
        trees = [TimeTreeWords(row, self.shape) for row in words]
        return np.array(list(map(self._stretch_one, trees, steps.tolist())))

    def _stretch_one(self, tree: TimeTreeWords, step: float) -> float:
        """Scale one tree's lengths; return the log-ratio, of densities and of the proposal."""
        is_clock = not isinstance(self.scalars[Scalar.CLOCK], Fixed)
        before, jacobian = self._of_stretch(tree, is_clock=is_clock), step
        if is_clock:
            tree.scalars[Scalar.CLOCK, 0] *= math.exp(step)
        else:
            jacobian = tree.stretch_heights(step)
        after = self._of_stretch(tree, is_clock=is_clock)
        return after - before + jacobian if after > -math.inf else -math.inf

    def _of_stretch(self, tree: TimeTreeWords, *, is_clock: bool) -> float:
        """Natural log of the prior as far as such a scaling may change it."""
        priors = TimePriors(tree)
        rates = priors.of_rates() if self.clock == "wn" else 0.0
        if is_clock:
            return rates + priors.of_scalar(Scalar.CLOCK)
        return rates + priors.of_heights() + priors.of_ages()

    def counts(self, words: Float64) -> Float64:
        """Moves tried and taken."""
        first = self._time_at + TimeChain.TRIED
        return words[:, first : first + 2 * self.moves].reshape(-1, 2, self.moves)

    def clear_counts(self, words: Float64) -> None:
        """Begin to count anew."""
        first = self._time_at + TimeChain.TRIED
        words[:, first : first + 2 * self.moves] = 0

    def adapted(
        self, windows: Float64, tried: Float64, taken: Float64, number: int | None
    ) -> Float64:
        """Fit all widths behind each iteration, less and less of a round."""
        if number is None:
            return windows
        share = np.divide(taken, tried, np.full_like(tried, ACCEPTED), where=tried > 0)
        gain = max(LEAST_GAIN, (number + 1) ** -SLOWING)
        wanted = windows * np.exp(gain * (share - ACCEPTED))
        return np.asarray(np.clip(wanted, LEAST_WIDTH, MOST_WIDTH))

    # States.

    def begin(self, words: Float64, seed: int, _starts: Sequence[Tree]) -> None:
        """First trees, each another one, in which calibrated groups have likely ages."""
        for row in words:
            run, replica = int(row[Chain.RUN]), int(row[Chain.REPLICA])
            stream = Stream(seed, run, replica, 0, self.first_stream)
            self._begin_one(row, np.random.default_rng([int(stream.uniform() * 2**53)]))

    def _begin_one(self, row: Float64, rng: np.random.Generator) -> None:
        """A first state of finite prior. Raises: InputError: none is found."""
        tree = TimeTreeWords(row, self.shape)
        self._write_settings(tree)
        for _ in range(STARTS):
            if (rate := self._tree_by_distances(tree, rng)) is None:
                self._draw_tree(tree, rng)
            self._begin_scalars(tree, rate)
            if math.isfinite(TimePriors(tree).total()):
                return
        names = ", ".join(one.name for one in self.data.calibrations)
        raise InputError(f"no tree is found that meets all calibrations: {names}")

    def _write_settings(self, tree: TimeTreeWords) -> None:
        tree.time[TimeChain.CLOCK_KIND] = self._clock_kind
        tree.time[TimeChain.TREE_KIND] = self._tree_kind
        tree.time[TimeChain.IS_LEVEL] = self.data.is_level
        tree.time[TimeChain.CELL_WIDTH] = self._width
        tree.earliest[: tree.tips], tree.latest[: tree.tips] = self.data.earliest, self.data.latest
        for which, prior in self.scalars.items():
            kind, a, b, offset = kernel_prior(prior)
            if offset:
                raise InputError(f"{prior} has an offset, as only a calibration can")
            tree.scalars[which] = prior.quantile(0.5), kind, a, b
        for number, one in enumerate(self.data.calibrations):
            prior = one.distribution or Fixed(0.0)
            flags = float(one.is_stem), float(one.is_monophyletic)
            write_calibration(tree, number, (*kernel_prior(prior), *flags), one.tips)

    def _begin_scalars(self, tree: TimeTreeWords, rate: float | None) -> None:
        top = float(tree.heights[tree.root])
        self._set(tree, Scalar.SIZE, 1 / top if self._is_birth else top)
        tree.cells[0] = math.log(tree.scalars[Scalar.SIZE, 0])
        if self._is_skyline:
            events = tree.tips - 1
            tree.cells[2] = events // self._cells
            tree.cells[2, : events % self._cells] += 1
        if rate is not None:
            self._set(tree, Scalar.CLOCK, rate)
        elif self._distance is not None:
            apart = 2 * (top - float(tree.heights[: tree.tips].mean()))
            self._set(tree, Scalar.CLOCK, self._distance / apart)
        self._set(tree, Scalar.SPREAD, 0.1)
        if self.tree_prior == "expgrowth":
            self._set(tree, Scalar.GROWTH, 0.0)

    def _set(self, tree: TimeTreeWords, which: Scalar, value: float) -> None:
        """A scalar's first value, or the nearest that its prior thinks likely."""
        prior = self.scalars[which]
        least = UNLIKELY if not isinstance(prior, Uniform) else 1e-12  # all are alike in one
        ends = prior.quantile(least), prior.quantile(1 - least)
        tree.scalars[which, 0] = np.clip(value, *ends)

    def _tree_by_distances(self, tree: TimeTreeWords, rng: np.random.Generator) -> float | None:
        """Write a tree by distances that are jittered, and return its clock's rate; None without.

        Groups that are to be monophyletic are; calibrated nodes have likely heights.
        """
        if self._distances is None or len(self._distances) < tree.tips:
            return None
        ages = self._first_ages(rng)
        jitter = np.exp(JITTER * rng.standard_normal(self._distances.shape))
        distances = self._distances * np.sqrt(jitter * jitter.T)
        clock = self.scalars[Scalar.CLOCK]
        rate = clock.value if isinstance(clock, Fixed) else rate_by_ages(distances, ages)
        has_rate = rate is not None
        if rate is None and not self.data.is_timed:
            rate = clock.quantile(0.5)
        if rate is None:  # calibrations alone tell it
            rate = mean_distance(distances) / (2.0 * max(float(np.ptp(ages)), 1.0))
        groups = [one.tips for one in self._nested if one.is_monophyletic]
        joins = nearest_joins(distances, ages, rate, groups)
        for v, join in enumerate(joins, tree.tips):
            tree.left[v], tree.right[v] = join.one, join.other
            tree.parent[join.one] = tree.parent[join.other] = v
        root = tree.nodes - 1
        tree.parent[root], tree.time[TimeChain.ROOT] = -1, root
        fixed = self._calibrated_heights(tree, ages, rng)
        if fixed and not has_rate:
            ratio = float(np.median([h / joins[v - tree.tips].height for v, h in fixed.items()]))
            joins = [join._replace(height=join.height * ratio) for join in joins]
        heights = fitted_heights(joins, ages, fixed, ROOM)
        if heights is None:
            return None
        tree.heights[:] = heights
        between = sum(
            join.pairs * (2.0 * heights[v] - join.ages) for v, join in enumerate(joins, tree.tips)
        )
        return float(sum(join.pairs * join.distance for join in joins) / between)

    def _first_ages(self, rng: np.random.Generator) -> Float64:
        """Heights of tips within their intervals, and where others are, as far as they may be."""
        earliest, latest = self.data.earliest, self.data.latest
        most = max(float(earliest.max()), float(np.median(latest)))
        return rng.uniform(earliest, np.minimum(latest, most))

    def _calibrated_heights(
        self, tree: TimeTreeWords, ages: Float64, rng: np.random.Generator
    ) -> dict[int, float]:
        """Likely heights of the calibrated nodes of a tree without heights."""
        fixed: dict[int, float] = {}
        for number, one in enumerate(self.data.calibrations):
            node = tree.calibrated_node(tree.calibrations[number])
            oldest = max(float(ages[tip]) for tip in one.tips)
            height = self._likely(one, oldest, rng)
            if node >= tree.tips and height is not None:
                fixed.setdefault(node, height)
        return fixed

    def _draw_tree(self, tree: TimeTreeWords, rng: np.random.Generator) -> None:
        """A tree at random in which calibrated groups have likely ages, where they agree."""
        tips, following = tree.tips, tree.tips
        tree.heights[:tips] = (self.data.earliest + self.data.latest) / 2
        uncertain = self.data.latest > self.data.earliest
        drawn = self._first_ages(rng)
        tree.heights[:tips][uncertain] = drawn[uncertain]

        def join(one: int, other: int, height: float) -> int:
            nonlocal following
            tree.left[following], tree.right[following] = one, other
            tree.parent[one] = tree.parent[other] = following
            tree.heights[following] = height
            following += 1
            return following - 1

        lineages = {tip: tip for tip in range(tips)}  # by one of its tips
        line_of = list(range(tips))
        for one in self._nested:
            own = sorted({line_of[tip] for tip in one.tips})
            members = [lineages.pop(line) for line in own]
            oldest = float(max(tree.heights[m] for m in members))
            until = None if one.is_stem else self._likely(one, oldest, rng)
            size = ((until or ROOM * oldest) - oldest or 1.0) / 2
            ancestor = members[0]
            if len(members) > 1:
                ancestor = join_at_random(members, tree.heights, join, rng, size, until)
            lineages[own[0]] = ancestor
            for tip in range(tips):
                if line_of[tip] in own:
                    line_of[tip] = own[0]
            if one.is_stem:
                self._join_stem(one, own[0], lineages, line_of, tree, join, rng)
        members = list(lineages.values())
        if len(members) > 1:
            oldest = float(max(tree.heights[m] for m in members))
            until = max(self._likely_top, ROOM * oldest)
            join_at_random(members, tree.heights, join, rng, (until - oldest) / 2, until)
        tree.parent[following - 1], tree.time[TimeChain.ROOT] = -1, following - 1

    def _join_stem(
        self,
        one: NodeCalibration,
        line: int,
        lineages: dict[int, int],
        line_of: list[int],
        tree: TimeTreeWords,
        join: Callable[[int, int, float], int],
        rng: np.random.Generator,
    ) -> None:
        """Join a group to another lineage at a likely height of its stem."""
        enclosing = [set(other.tips) for other in self._nested if set(one.tips) < set(other.tips)]
        within = min(enclosing, key=len, default=set(range(tree.tips)))
        others = sorted({line_of[tip] for tip in within} - {line})
        if not others or line not in lineages:
            return
        other = others[int(rng.integers(len(others)))]
        oldest = float(max(tree.heights[lineages[line]], tree.heights[lineages[other]]))
        height = self._likely(one, oldest, rng) or ROOM * oldest
        if height <= oldest:
            return
        lineages[line] = join(lineages[line], lineages.pop(other), height)
        for tip in range(tree.tips):
            if line_of[tip] == other:
                line_of[tip] = line

    @property
    def _likely_top(self) -> float:
        """A height of the root that suits the distances of tips, or their dates."""
        oldest = float(self.data.earliest.max())
        clock = self.scalars[Scalar.CLOCK]
        if isinstance(clock, Fixed) and self._distance is not None:
            return max(self._distance / 2 / clock.value, ROOM * oldest)
        return ROOM * oldest if oldest > 0 else 1.0

    @cached_property
    def _nested(self) -> list[NodeCalibration]:
        """Calibrations from small groups to large, without those that overlap with others."""
        found: list[NodeCalibration] = []
        for one in sorted(
            self.data.calibrations, key=lambda c: (not c.is_monophyletic, len(c.tips))
        ):
            own = set(one.tips)
            if all(not own & set(o.tips) or own <= set(o.tips) or own > set(o.tips) for o in found):
                found.append(one)
        return sorted(found, key=lambda c: (len(c.tips), c.is_stem))

    @staticmethod
    def _likely(one: NodeCalibration, oldest: float, rng: np.random.Generator) -> float | None:
        """A height of a calibrated node amid its distribution, above its tips."""
        if one.distribution is None:
            return None
        low, high = one.support
        share = rng.uniform(0.2, 0.8)
        height = max(one.distribution.quantile(share), low)
        if not height > oldest or not math.isfinite(height):
            height = oldest + share * (high - oldest) if math.isfinite(high) else ROOM * oldest
        return float(height)

    # Priors.

    def log_prior(self, words: Float64) -> float:
        """Natural log of the prior of a chain's tree, clock, scalars, ages and dates."""
        tree = TimeTreeWords(words, self.shape)
        total = self.tree_log_prior(tree) + self._rates_log_prior(tree)
        for which, prior in self.scalars.items():
            if not isinstance(prior, Fixed) and not (self._cells and which == Scalar.SIZE):
                total += float(prior.log_density(tree.scalars[which, 0]))
        if self._cells:
            first = float(tree.cells[0, 0])
            total += float(self.scalars[Scalar.SIZE].log_density(np.exp(first))) + first
            total += self._cells_log_prior(tree)
        for number, one in enumerate(self.data.calibrations):
            node = tree.calibrated_node(tree.calibrations[number])
            if one.distribution is not None:
                total += float(one.distribution.log_density(tree.heights[node]))
        widths = self.data.latest - self.data.earliest
        return total - float(np.log(widths[widths > 0]).sum())

    def _cells_log_prior(self, tree: TimeTreeWords) -> float:
        """Natural log of the density of all log sizes but the first, and of a skyline's groups."""
        if self._is_skyline:
            ways = math.comb(tree.tips - 2, self._cells - 1)
            return chain_log_density(tree.cells[0]) - math.log(ways)
        return grid_log_density(tree.cells[0], float(tree.scalars[Scalar.PRECISION, 0]))

    def tree_log_prior(self, tree: TimeTreeWords) -> float:
        """Natural log of the density of the topology and its heights."""
        tips, inner = tree.heights[: tree.tips], tree.heights[tree.tips :]
        _, _, size, growth, sampled, _, removed = tree.scalars[:, 0].tolist()
        if self._is_serial:
            return serial_log_density(
                tips, inner, births=growth * size, deaths=(1 - removed) * size,
                sampling=removed * size, present=sampled,
                at_once=self.data.at_once if sampled > 0 else 0,
            )  # fmt: skip
        if self._tree_kind == TreePriorKind.BIRTH_DEATH:
            return birth_death_log_density(inner, rate=size, death=growth, sampled=sampled)
        if self._is_skyline:
            events = tree.cells[2].astype(np.int64).tolist()
            return skyline_log_density(tips, inner, tree.cells[0], events)
        if self._cells:
            sizes = tree.cells[0]
            log_sizes = sizes[cells_of(inner, self._cells, self._width)]
            return coalescent_log_density(tips, inner, grid_warp(sizes, self._width), log_sizes)
        log_sizes = math.log(size) - growth * inner
        return coalescent_log_density(tips, inner, growth_warp(size, growth), log_sizes)

    def _rates_log_prior(self, tree: TimeTreeWords) -> float:
        """Natural log of the density of all branches' rates; the root's is none."""
        if self.clock == "strict":
            return 0.0
        priors, branches = TimePriors(tree), [v for v in range(tree.nodes) if v != tree.root]
        constant = -math.log(2 * math.pi) / 2 if self.clock == "ucln" else 0.0
        return sum(map(priors.of_rate, branches)) + len(branches) * constant

    # Reports of samples.

    def time_tree(self, words: Float64) -> TimeTree:
        """The time tree of a chain, with rates in substitutions per site and time."""
        tree = TimeTreeWords(words, self.shape)
        rates = None if self.clock == "strict" else tree.rates * tree.clock
        return TimeTree(self.data.taxa, tree.parent.astype(np.intp), tree.heights.copy(), rates)

    @property
    def labels(self) -> list[str]:
        """Columns of the tree and its scalars."""
        labels = ["Tree.height", "Tree.treeLength"]
        if self.data.present is not None:
            labels.append("age(root)")
        labels += self.names.values()
        if self.clock != "strict":
            labels += [f"rate.{of}" for of in ("mean", "variance", "coefficientOfVariation")]
        labels += self._cell_labels
        labels += [f"mrca.age({one.name})" for one in self.data.calibrations]
        return labels + [f"height({self.data.taxa[tip]})" for tip in self._uncertain]

    @property
    def _cell_labels(self) -> list[str]:
        numbers = range(1, self._cells + 1)
        if self._is_skyline:
            return [f"{of}.{n}" for of in ("bPopSizes", "bGroupSizes") for n in numbers]
        end = ["skygrid.cutOff"] if self._cells else []
        return [f"skygrid.logPopSize{cell}" for cell in numbers] + end

    def _cell_values(self, tree: TimeTreeWords) -> list[float]:
        if self._is_skyline:
            return [*np.exp(tree.cells[0]).tolist(), *tree.cells[2].tolist()]
        end = [self._width * (self._cells - 1)] if self._cells else []
        return [*tree.cells[0].tolist(), *end]

    @cached_property
    def _uncertain(self) -> list[int]:
        return np.flatnonzero(self.data.latest > self.data.earliest).tolist()

    def values(self, words: Float64) -> list[float]:
        """The values of those columns."""
        tree = TimeTreeWords(words, self.shape)
        top = float(tree.heights[tree.root])
        branches = np.flatnonzero(np.arange(tree.nodes) != tree.root)
        durations = tree.heights[tree.parent[branches].astype(np.int64)] - tree.heights[branches]
        values = [top - float(tree.heights[: tree.tips].min()), float(durations.sum())]
        if self.data.present is not None:
            values.append(self.data.present - top)
        values += [float(tree.scalars[which, 0]) for which in self.names]
        if self.clock != "strict":
            rates = tree.rates[branches] * tree.clock
            mean, variance = float(rates @ durations / durations.sum()), float(rates.var(ddof=1))
            values += [mean, variance, math.sqrt(variance) / float(rates.mean())]
        values += self._cell_values(tree)
        for row in tree.calibrations:
            values.append(float(tree.heights[tree.calibrated_node(row)]))
        return values + [float(tree.heights[tip]) for tip in self._uncertain]


def kernel_prior(prior: Distribution) -> tuple[PriorKind, float, float, float]:
    """Kind, arguments and offset of a distribution as kernels know it.

    Raises: InputError: they do not know it.
    """
    if isinstance(prior, Shifted):
        kind, a, b, _ = kernel_prior(prior.of)
        return kind, a, b, prior.offset
    known: dict[type[Distribution], PriorKind] = {
        LogNormal: PriorKind.LOG_NORMAL,
        GammaDistribution: PriorKind.GAMMA,
        Uniform: PriorKind.UNIFORM,
        Beta: PriorKind.BETA,
        Normal: PriorKind.NORMAL,
        Laplace: PriorKind.LAPLACE,
    }
    if isinstance(prior, Fixed):
        return PriorKind.FIXED, 0.0, 0.0, 0.0
    if isinstance(prior, Exponential):
        return PriorKind.GAMMA, 1.0, prior.rate, 0.0
    a, b = (float(number) for number in vars(prior).values())
    return known[type(prior)], a, b, 0.0
