"""``mltree sample``: Bayesian trees, by ladders of heated chains."""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.sample_options import SampleOptions
from mltree.analyses.summarize import PosteriorSummary, summarize
from mltree.data.alignments import Source
from mltree.data.patterns import Correction
from mltree.data.source import read_text, unpacked
from mltree.dating.beast_elements import is_beast_xml
from mltree.dating.beast_xml import read_beast_xml
from mltree.device.discovery import choose_devices
from mltree.device.parsimony import parsimony_engine
from mltree.fit.settings import PhaseSettings, preset
from mltree.likelihood.joint import joined_patterns
from mltree.likelihood.left_out import LeftOut, ascertained_parts
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.contract import CHAIN_WORDS, Move, TimeMove
from mltree.program.engine import ChainEngine, Engine
from mltree.runs.calls import Call, taking
from mltree.runs.demand import of_chains
from mltree.runs.engines import Resources, Workload, open_chain_engines
from mltree.runs.logged_run import begin_log, command_result, deliver, load, open_log, result_text
from mltree.runs.problem import Problem
from mltree.runs.trees import prepare_search
from mltree.runs.workspace import Workspace
from mltree.sampling.beast_files import TimeFormat
from mltree.sampling.diagnostics import LEAST_ESS, Verdict
from mltree.sampling.model_space import ModelSpace
from mltree.sampling.mrbayes_files import GrowingRuns, SampleFormat
from mltree.sampling.priors import Priors, read_priors
from mltree.sampling.sampler import (
    FIRST_RUNGS,
    LARGE_WORK,
    LEAST_RUNGS,
    STEPS_A_LARGE_SWEEP,
    Sample,
    Sampler,
    SamplerSettings,
    sweeps_at_once,
)
from mltree.sampling.shares import LENGTHS, REGRAFTS, ChainData, ChainShares
from mltree.sampling.summaries import Posterior
from mltree.sampling.tempering import BARRIER_A_RUNG
from mltree.sampling.time_space import (
    LEAST_TIPS,
    TimeSpace,
    mean_distance,
    time_data,
    tip_distances,
)
from mltree.system import __version__
from mltree.system.arrays import Float64
from mltree.system.errors import DeviceError, InputError, ModelError
from mltree.system.events import (
    BurnInRound,
    Busy,
    Emit,
    Event,
    MemoryPlanned,
    Notice,
    PriorsChosen,
    RunStarted,
    Sampled,
    SamplesChecked,
)
from mltree.system.files import is_there, naming, read_own, unusable, write_whole
from mltree.system.process import uninterrupted
from mltree.system.ranks import current_ranks
from mltree.tree.fitch import pack_sites
from mltree.tree.moves import random_nnis
from mltree.tree.parsimony import stepwise_additions
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import fingerprint

if TYPE_CHECKING:
    from mltree.report.progress import Reporter

LOG, STATE, RESULT = "sampleLog", "sampleState", "sample.json"

CPU_RUNS, GPU_RUNS, TIMED_GPU_RUNS = 2, 4, 32
"""Runs where their number is not given. Trees with a clock have runs of one chain each: a GPU has
as many as it sweeps at once, up to the last of these, and all of them are sampled."""

CPU_RUNGS, GPU_RUNGS = 16, 64
"""Rungs at most where their number is not given."""

GPU_BARRIER = 0.5
"""Mean barrier between rungs on a GPU, where chains side by side cost little: two a barrier of 1
are what a chain needs to go up and down freely (Syed et al. 2022)."""

SEARCHED_TAXA = 100
"""Taxa from which on chains begin near trees of a short search. Fewer are near the posterior within
the first round of burn-in, which takes as long as the ladder needs to be fitted. 714 taxa, two
chains on two cores: lnL -149,220 after 60 s and the posterior's -149,150 after 150 s, 50 s of which
are the searches'; from parsimony trees -150,700 after 205 s. 101 taxa: -64,880 after 13 s, 3 s of
which are the searches', or after 30 s."""

FIRST_PHASES = (PhaseSettings(25, 50.0, min_round_gain=math.inf),)
FIRST_SEARCH = replace(
    preset("fast"),
    starts_in_company=1,
    phases=FIRST_PHASES,
    ascent_epsilon=1.0,
    final_smooth_epsilon=0.1,
)
"""Short search for first trees: lengths, parameters and a round of SPR. 714 taxa: lnL -148,577,
whole searches end at -148,345, the posterior's trees have -149,150. Without the round chains were
at -149,290 after 80 iterations."""

FIRST_NNIS, FIRST_JITTER = 0.05, 0.3
"""Share of a first tree's inner branches with an interchange, and deviation of its ln(length)."""

FIRST_CHECK = 200
"""Samples at the first look whether they have converged."""

LEAST_GROWTH, MOST_GROWTH = 1.1, 1.5
"""Growth of their number from one look to the next, which comes when their lowest ESS may do."""

NO_LADDER = "one chain a run, without ln Z; --rungs N asks for more"

PAUSE = 10.0
"""Seconds between two writings of samples and state."""

TOLD = 10.0
"""Seconds between two lines on where a run stands."""

LEAST_TAXA, MOST_RUNS = 4, 100
"""Taxa at least; numbers of runs whose files are looked for."""

MOVE_NAMES = {
    Move.REGRAFT: "regraft",
    Move.INTERCHANGE: "interchange",
    Move.BRANCH: "branch length",
    Move.SCALE: "tree length",
}
TIME_MOVE_NAMES = {
    move: move.name.lower().replace("_", " ") for move in TimeMove if move != TimeMove.TOUR
}
"""Names of the moves of time trees."""

PAIRS_OF_REGRAFTS = 2
"""Regrafts at the same height, and as many at others, that a sweep of a time tree has."""


def run_sample(options: SampleOptions, reporter: Reporter) -> None:
    """Sample the posterior, or go on with it; write samples, state and result.

    Raises: InputError: the data, priors or options cannot be used, or files are another run's.
    """
    workspace = options.workspace
    workspace.check([LOG, STATE, RESULT], options.inputs)
    with open_log(workspace.path(LOG), reporter) as log, workspace.held([STATE, RESULT]):
        reporter(RunStarted(__version__, options.line))
        run = _SampleRun(*imported(options, None, workspace, reporter))
        is_resumed = run.take_up()
        begin_log(log, options, reporter, append=is_resumed)
        reporter(PriorsChosen(tuple(run.prior_lines)))
        run.sample()
        run.finish(reporter)


@taking(SampleOptions, "model", without=("redo",))
def sample(options: SampleOptions, source: Source, call: Call) -> PosteriorSummary:
    """Sample trees and parameters from their posterior, as ``mltree sample``."""
    with TemporaryDirectory() as folder:
        prefix = options.prefix or str(Path(folder, "sample"))
        options = replace(options, prefix=prefix)
        workspace = Workspace.of(prefix, options.alignment)
        run = _SampleRun(*imported(options, source, workspace, call))
        run.take_up()
        run.sample()
        run.write_result()
        return summarize(prefix, burnin=0.0)


IMPORTED = {
    "dates": "dates.tsv", "calibrate": "calibrations.tsv", "partitions": "partitions",
    "prior": "priors.toml",
}  # fmt: skip
"""Kinds of the files of what an XML of BEAST has, by the options that read them."""


def imported(
    options: SampleOptions, source: Source | None, workspace: Workspace, emit: Reporter | Call
) -> tuple[SampleOptions, Reporter | Call, Source | None]:
    """Options and data of BEAST's XML, if the alignment is one; options that are given count more.

    Dates, calibrations, parts and priors are written into files, as they are read from them.
    """
    path = options.alignment if source is None else source
    if not isinstance(path, str | Path) or not _is_xml(str(path)):
        return options, emit, source
    found = read_beast_xml(str(path))
    for sentence in found.ignored:
        emit(Notice(f"{path}: {sentence}"))
    texts = {
        "dates": "".join(f"{name}\t{date}\n" for name, date in found.dates.items()),
        "calibrate": "".join(f"{row}\n" for row in found.calibrations),
        "partitions": found.partitions,
        "prior": "".join(f'{name} = "{prior}"\n' for name, prior in found.priors.items()),
    }
    defaults = {name: one.default for name, one in options.__dataclass_fields__.items()}
    is_free = {name for name, default in defaults.items() if getattr(options, name) == default}
    changes: dict[str, Any] = {n: value for n, value in found.options.items() if n in is_free}
    if options.model is not None:
        texts["partitions"] = ""
    if options.dates is None and found.dates:
        changes["ages"] = found.are_ages
    if found.is_prior_only:
        changes["prior_only"] = True
    for name, text in texts.items():
        if text and name in is_free:
            file = workspace.path(IMPORTED[name])
            write_whole(file, text.encode())
            changes[name] = str(file)
    taken = [f"{name.replace('_', '-')} {value}" for name, value in changes.items()]
    emit(Notice(f"{path}: taken over are {', '.join(taken)}"))
    return replace(options, **changes), emit, found.alignment


def _is_xml(path: str) -> bool:
    return is_there(path) and is_beast_xml(unpacked(path)[:4096])


def _expect(options: SampleOptions, problem: Problem) -> None:
    """Make sure that the data and the model can be sampled."""
    model = problem.model
    if options.is_timed:
        if len(problem.taxa) < LEAST_TIPS:
            raise InputError(f"{len(problem.taxa)} taxa: a time tree has {LEAST_TIPS} or more")
    elif len(problem.taxa) < LEAST_TAXA:
        raise InputError(
            f"{len(problem.taxa)} taxa have one topology: mltree sample takes four or more",
            hint="mltree evaluate fits its branch lengths",
        )
    if options.is_timed and model.linkage == Linkage.UNLINKED and model.n_parts > 1:
        raise ModelError(
            "branch lengths of every part's own have no clock in common",
            hint="--brlen scaled or linked",
        )
    for part in ascertained_parts(problem.groups):
        about = part.ascertainment
        if about.correction is Correction.FELSENSTEIN and not about.counts[0].is_integer():
            raise ModelError(f"{about.text}: a number of sites that is sampled is a whole one")
    if options.number_of("stop") is None and options.runs == 1:
        raise InputError(
            "--runs 1 --stop auto: one run cannot agree with another",
            hint="give --runs 2, or --stop N",
        )


def _time_space(
    options: SampleOptions, problem: Problem, priors: Priors, emit: Emit
) -> TimeSpace | None:
    """The space of time trees that options ask for; None for unrooted trees. Raises: InputError."""
    options.expect_time()
    if not options.is_timed:
        return None
    data, notice = time_data(problem.taxa, options.dates, options.calibrate, ages=options.ages)
    if notice:
        emit(Notice(notice))
    cells, width = options.cells
    distances = None if options.prior_only else tip_distances(problem.groups)
    if cells and not width:
        if distances is None or data.is_timed:
            width = data.span / cells
        else:  # heights are in substitutions, unless the rate is known
            rate = priors.clock_rate.quantile(0.5) if priors.has_rate else 1.0
            width = mean_distance(distances) / cells / rate
    return TimeSpace(
        data, options.clock, options.tree_prior, priors,
        cells=cells, width=width, distances=distances,
    )  # fmt: skip


def _with_frequencies(name: str) -> str:
    """The name of a default model, with frequencies as parameters."""
    return name.replace("+FC", "+FO")


def _sampled_frequencies(options: SampleOptions, problem: Problem) -> PartitionModel:
    """The model, with frequencies as parameters where no model was asked for."""
    model = problem.model
    if options.model is not None or options.partitions is not None:
        return model
    free = [
        replace(part, frequency_mode="FO") if part.frequency_mode == "FC" else part
        for part in model.models
    ]
    return model.with_parts(free)


class _SampleRun:
    """A run of the sampler: its engine, its samples on file, its state."""

    def __init__(
        self, options: SampleOptions, reporter: Reporter | Call, source: Source | None = None
    ) -> None:
        self._options, self._emit = options, reporter
        self._workspace = Workspace.of(options.prefix, options.alignment)
        if source is None:
            self._workspace = options.workspace
        priors = Priors()
        if options.prior is not None:
            priors = read_priors(read_text(options.prior).decode(errors="replace"), options.prior)
        self._problem = load(
            options, reporter, source, expect=partial(_expect, options), as_taken=_with_frequencies
        )
        model = _sampled_frequencies(options, self._problem)
        self._space = ModelSpace(model, priors)  # raises what cannot be sampled
        self._priors = priors
        self._on_gpu = any(not device.is_cpu for device in choose_devices(options.device))
        self._time = _time_space(options, self._problem, priors, self._emit)
        self._mark = self._fingerprint(model)
        self._is_done = self._seen_before()
        on_gpu = GPU_RUNS if self._time is None else TIMED_GPU_RUNS
        self._runs = options.runs or (on_gpu if self._on_gpu else CPU_RUNS)
        self._rungs = options.number_of("rungs")
        if self._time is not None:
            self._rungs = self._rungs or 1
        self._most_rungs = GPU_RUNGS if self._on_gpu else CPU_RUNGS
        self._patterns = joined_patterns(self._problem.groups)
        self._sampler = self._new_sampler()
        form = SampleFormat(self._space.labels, self._sampler.length_sets)
        if self._time is not None:
            form = TimeFormat(self._space.labels, self._time)
        self._files = _SampleFiles(self._workspace, self._sampler.settings.runs, form)
        self._read = GrowingRuns(self._files.prefix)
        self._samples = 0
        self._verdicts: Sequence[Verdict] = ()
        self._checked = 0
        """Samples at the last check."""
        self._lowest: dict[int, float] = {}
        """Lowest ESS at each number of samples that was checked."""
        self._next_check = FIRST_CHECK

    @property
    def prior_lines(self) -> Iterator[str]:
        """Priors of trees, in time or without, and of the model's parameters."""
        if self._time is not None:
            yield from self._time.prior_lines
        else:
            own = " of each part" if self._sampler.length_sets > 1 else ""
            yield f'branch_lengths{own} = "{self._priors.branch_lengths}"'
            yield "topologies: all equally probable"
        for block in self._space.blocks:
            yield f"{', '.join(block.labels)}: {block.prior}"  # type: ignore[attr-defined]

    def _fingerprint(self, model: PartitionModel) -> str:
        data = [part for group in self._problem.groups for part in (group.codes, group.weights)]
        names = "\n".join(self._problem.taxa)
        values = repr([part.values() for part in model.models])
        options = self._options.digest(without=("device",))  # its kind alone matters, not how many
        kind = "GPU" if self._on_gpu else "CPU"
        every = [options, kind, names, values, "\n".join(self._priors.lines()), str(CHAIN_WORDS)]
        if self._time is not None:
            heights = self._time.data.earliest, self._time.data.latest
            data += [np.array(heights)]
            every += self._time.prior_lines
        return fingerprint(*every, *(np.ascontiguousarray(table).tobytes() for table in data))

    def _seen_before(self) -> dict[str, Any] | None:
        """The state on file; raises InputError where files are not this run's."""
        paths = [self._workspace.path(kind) for kind in (STATE, RESULT)]
        if self._options.redo:
            for path in paths:
                with naming(path):
                    path.unlink(missing_ok=True)
            return None
        if not paths[0].exists():
            runs = range(1, MOST_RUNS)
            files = [kind for run in runs for kind in _kinds_there(self._workspace, run)]
            self._workspace.claim([RESULT, *files], redo=False)
            return None
        state = _read_state(paths[0])
        if str(state["mark"]) != self._mark:
            raise unusable(paths[0], "belongs to other data, priors or options")
        return state if "words" in state else None  # it was stopped before its first state

    def _new_sampler(self) -> Sampler:
        options, space, patterns = self._options, self._space, self._patterns
        rungs, runs, tips = self._rungs, self._runs, len(self._problem.taxa)
        trees = runs * (rungs or self._most_rungs)
        work = Workload.of_patterns(
            patterns, space.shape[1], LENGTHS, trees, systems=space.shape[0],
            parted=len(self._problem.groups) > 1,
        )  # fmt: skip
        planned: list[MemoryPlanned] = []
        engines, kept = open_chain_engines(options.resources, work, partial(self._take, planned))
        parts = [] if options.prior_only else ascertained_parts(self._problem.groups)
        left_out = LeftOut(parts) if parts else None
        data = ChainData(
            tips=tips,
            space=space,
            weights=np.zeros(patterns.n_patterns) if options.prior_only else patterns.weights,
            left_out=() if left_out is None else tuple(left_out.columns.tolist()),
            regrafts=REGRAFTS if self._time is None else PAIRS_OF_REGRAFTS,
            time=None if self._time is None else self._time.shape,
        )
        elsewhere = partial(_engines_of_a_rank, options.resources, replace(work, kept=kept))
        shares = ChainShares(_sweeping(engines), data, current_ranks(), elsewhere)
        fits = shares.chains_that_fit(data.slots)
        if options.runs is None:
            at_once = max(GPU_RUNS, shares.room.at_once)
            runs = max(CPU_RUNS, min(runs, at_once, fits // (rungs or LEAST_RUNGS)))
        if rungs is None and fits < runs * LEAST_RUNGS:
            rungs = 1
            self._emit(Notice(f"memory for {fits} chains: {NO_LADDER}"))
        if fits < runs * (rungs or LEAST_RUNGS):
            raise DeviceError(
                f"no memory for {runs} x {rungs or LEAST_RUNGS} chains: {fits} fit",
                hint="give fewer --runs and --rungs, or --precision mixed",
            )
        size = patterns.n_patterns * space.states * space.shape[1]
        work_of_all = size * tips * runs * (rungs or FIRST_RUNGS)
        is_timed, is_large = self._time is not None, size * space.states * tips >= LARGE_WORK
        settings = SamplerSettings(
            runs=runs,
            rungs=rungs or min(FIRST_RUNGS, fits // runs),
            seed=options.seed & 0xFFFFFFFF,
            most_rungs=0 if rungs else min(self._most_rungs, fits // runs),
            barrier_a_rung=GPU_BARRIER if self._on_gpu else BARRIER_A_RUNG,
            burn_in=options.number_of("burnin"),
            sweeps=1 if self._on_gpu else sweeps_at_once(work_of_all * (1 + is_timed)),
            rests=not self._on_gpu,
            takes_turns=self._on_gpu and not is_large,
            steps=STEPS_A_LARGE_SWEEP if is_timed and is_large else 1,
        )
        chains = runs * max(settings.rungs, settings.most_rungs)
        for memory in planned:
            share = -(-chains // len(planned))
            self._emit(of_chains(memory, share, data.slots, on_host=not self._on_gpu))
        starts, points = self._starts(settings)
        sampler = Sampler(shares, data, self._priors, settings, starts, left_out, self._time)
        sampler.points = sampler.points if points is None else points
        return sampler

    def _take(self, planned: list[MemoryPlanned], event: Event) -> None:
        """Keep what is planned for a tree, until the number of chains is known."""
        if isinstance(event, MemoryPlanned):
            planned.append(event)
        else:
            self._emit(event)

    def _starts(self, settings: SamplerSettings) -> tuple[list[Tree], Float64 | None]:
        """A tree for each chain, parameters of large ones too; none where the data do not count."""
        if self._options.prior_only or self._is_done is not None or self._time is not None:
            return [], None
        if len(self._problem.taxa) >= SEARCHED_TAXA:
            self._emit(Busy("first trees"))
            pairs = [self._searched(settings, run) for run in range(settings.runs)]
            points = np.repeat([point for _, point in pairs], settings.rungs, axis=0)
            return [tree for trees, _ in pairs for tree in trees], points
        rngs = [
            np.random.default_rng([settings.seed, chain])
            for chain in range(settings.runs * settings.rungs)
        ]
        engine = parsimony_engine(choose_devices(self._options.device))
        return stepwise_additions(pack_sites(*self._problem.groups), rngs, engine), None

    def _searched(self, settings: SamplerSettings, run: int) -> tuple[list[Tree], Float64]:
        """Trees of a run's chains around one of a short search, and f64[n] its parameters.

        Every run has a parsimony tree of its own to begin from, and every chain its own changes, so
        that runs that agree have found each other.
        """
        problem = replace(self._problem, model=self._space.model)
        devices = choose_devices(self._options.device)
        first = str(devices[0].index) if devices else self._options.device
        resources = replace(self._options.resources, device=first)
        seed = int(np.random.SeedSequence([settings.seed, run]).generate_state(1)[0])
        ready = prepare_search(problem, FIRST_SEARCH, resources, seed=seed, starts="pars{1}")
        few = replace(ready.settings, phases=FIRST_PHASES)  # and no wide look at large trees
        found = replace(ready, settings=few).run()
        ready.engines.likelihood.close()
        trees = []
        for rung in range(settings.rungs):
            rng, tree = np.random.default_rng([settings.seed, run, rung]), found.tree.copy()
            random_nnis(tree, FIRST_NNIS, rng)
            tree.lengths *= np.exp(rng.normal(0.0, FIRST_JITTER, tree.lengths.shape))
            tree.lengths[:] = np.clip(tree.lengths, *LENGTHS)
            trees.append(tree)
        return trees, ModelSpace(found.model, self._priors).start

    def take_up(self) -> bool:
        """Go on from the state on file; True if there is one. Begin the files of samples."""
        if (state := self._is_done) is not None:
            self._sampler.restore(state)
            self._samples = int(state["samples"])
            self._next_check = int(state["next_check"])
            self._checked = int(state["checked"])
            self._files.cut(state["sizes"].tolist())
            self._emit(Notice(f"goes on behind {self._sampler.iteration:,} iterations"))
            return True
        _write_state(self._workspace.path(STATE), {"mark": self._mark})
        self._files.begin(self._problem.taxa, self._options.seed)
        return False

    @property
    def is_over(self) -> bool:
        """True once there are as many samples as were asked for, or they have converged."""
        wanted = self._options.number_of("stop")
        if wanted is not None:
            return self._samples >= wanted
        return bool(self._verdicts) and all(verdict.is_met for verdict in self._verdicts)

    def sample(self) -> None:
        """Iterate until it is enough; write samples and state as they come."""
        sampler, every = self._sampler, self._options.every
        saved = told = began = time.monotonic()
        first = sampler.iteration
        if self._samples and self._samples == self._checked:  # it was stopped at a check
            self._check(0.0)
        while not self.is_over:
            was_sampling, round_before = sampler.is_sampling, sampler.round
            sampler.advance()
            now = time.monotonic()
            if sampler.round > round_before:
                self._tell_round()
            if was_sampling and sampler.iteration % every == 0:
                self._files.add(list(sampler.samples()))
                self._samples += 1
            if now - told > TOLD:
                told = now
                self._emit(Busy(self._where()))
            is_due = self._samples >= self._next_check
            if is_due or now - saved > PAUSE:
                if is_due:
                    self._checked = self._samples
                self.save()
                saved = time.monotonic()
            if is_due:
                self._check((sampler.iteration - first) / max(1e-9, now - began))
        self.save()

    def _where(self) -> str:
        sampler = self._sampler
        lnl = float(sampler.lnl.ravel()[sampler.cold].mean())
        if not sampler.is_sampling:
            return f"burn-in, {sampler.iteration:,} iterations, lnL {lnl:.1f}"
        return f"sampling, {self._samples:,} samples a run, lnL {lnl:.1f}"

    def _tell_round(self) -> None:
        sampler = self._sampler
        lnl = float(sampler.lnl.ravel()[sampler.cold].mean())
        ladders = sampler.ladders
        barrier = sampler.last_barrier
        if ladders.rungs == 1 and barrier:
            self._emit(Notice(f"no ladder as long as a barrier of {barrier:.0f}: {NO_LADDER}"))
        self._emit(BurnInRound(sampler.round, sampler.iteration, lnl, ladders.rungs, barrier))

    def _check(self, pace: float) -> None:
        """Look at the samples: what has not converged yet?"""
        posterior = Posterior.of(self._read.read(), 0.0)
        self._verdicts, self._checked = posterior.verdicts, self._samples
        ess = [v for v in self._verdicts if v.rule.startswith("ESS")]
        rhat = [v.value for v in self._verdicts if v.rule.startswith("R-hat")]
        asdsf = [v.value for v in self._verdicts if v.rule == "ASDSF"]
        lowest = min(ess, key=lambda v: v.value, default=None)
        if lowest is not None and not lowest.is_met:
            self._tell_of_standstill(lowest)
        growth = MOST_GROWTH
        if lowest is not None and lowest.value * growth > LEAST_ESS:  # not of too few, either
            growth = max(LEAST_ESS / lowest.value, LEAST_GROWTH)
        self._next_check = math.ceil(self._samples * growth)
        self._emit(
            SamplesChecked(
                samples=self._samples,
                ess=math.nan if lowest is None else lowest.value,
                where="" if lowest is None else lowest.where,
                rhat=max(rhat, default=math.nan),
                asdsf=max(asdsf, default=math.nan),
                sweeps=pace * self._sampler.mean_sweeps,
                trips=int(self._sampler.ladders.trips.sum()),
                unmet=self._unmet,
            )
        )

    def _tell_of_standstill(self, lowest: Verdict) -> None:
        """Say so once samples have doubled, and their lowest ESS has not risen."""
        before = [ess for count, ess in self._lowest.items() if 2 * count <= self._samples]
        self._lowest[self._samples] = lowest.value
        if before and lowest.value <= before[-1]:
            self._emit(
                Notice(
                    f"the ESS of {lowest.where} does not rise ({lowest.value:.0f}): the chains "
                    "hardly mix, and --stop auto may not end; give more --rungs, or --stop N"
                )
            )

    @property
    def _unmet(self) -> tuple[str, ...]:
        return tuple(
            f"{v.rule} {v.value:.4g}{f' ({v.where})' if v.where else ''}"
            for v in self._verdicts
            if not v.is_met
        )

    def save(self) -> None:
        """Write the samples so far, then the state that goes on behind them."""
        with uninterrupted():
            sizes = self._files.flush()
            more = {"mark": self._mark, "samples": self._samples, "sizes": sizes}
            more |= {"next_check": self._next_check, "checked": self._checked}
            _write_state(self._workspace.path(STATE), self._sampler.state() | more)

    def values(self) -> dict[str, Any]:
        """Settings and findings, as the result has them in JSON."""
        sampler, ladders = self._sampler, self._sampler.ladders
        lnz = ladders.log_evidence
        error = float(lnz.std(ddof=1) / len(lnz) ** 0.5) if len(lnz) > 1 else None
        has_lnz = ladders.heats[0, -1] == 0 and bool(np.isfinite(lnz).all())
        tried, taken = sampler.counts[:, 0], sampler.counts[:, 1]
        shares = np.divide(taken, tried, np.zeros_like(tried), where=tried > 0)
        settings = sampler.settings
        return {
            "taxa": len(self._problem.taxa),
            "model": self._problem.model.text,
            "seed": self._options.seed,
            "runs": settings.runs,
            "rungs": settings.rungs,
            "samples": self._samples,
            "every": self._options.every,
            "iterations": sampler.iteration,
            "sweeps_an_iteration": settings.sweeps,
            "priors": list(self.prior_lines),
            "prior_only": self._options.prior_only,
            "heats": ladders.heats[0].tolist(),
            "rejection": ladders.rejection.mean(axis=0).tolist(),
            "barrier": ladders.barrier,
            "round_trips": ladders.trips.tolist(),
            "mean_lnl": ladders.mean_lnl.tolist(),
            "acceptance": {
                name: shares[:, move].tolist()
                for move, name in (MOVE_NAMES if self._time is None else TIME_MOVE_NAMES).items()
            },
            "lnz": float(lnz.mean()) if has_lnz else None,
            "lnz_error": error if has_lnz else None,
            "lnz_by_run": lnz.tolist() if has_lnz else None,
            "converged": bool(self._verdicts) and not self._unmet,
            "unmet": list(self._unmet),
        }

    def write_result(self) -> dict[str, Any]:
        """End the files of trees, write the result."""
        self._files.end()
        if self._checked != self._samples:
            with suppress(InputError):
                self._check(0.0)
        values = self.values()
        write_whole(self._workspace.path(RESULT), result_text(values).encode())
        return values

    def finish(self, reporter: Reporter) -> None:
        """Write the result, and tell of it."""
        options, workspace = self._options, self._workspace
        values = self.write_result()
        files = {path.name.rpartition(".mltree.")[2]: str(path) for path in self._files.paths}
        files[RESULT] = str(workspace.path(RESULT))
        document = command_result("sample", options.line, values, files, options.inputs, reporter)
        deliver(workspace, {RESULT: result_text(document)}, reporter)
        lnz, error = values["lnz"], values["lnz_error"]
        reporter(
            Sampled(
                values["runs"],
                self._samples,
                math.nan if lnz is None else lnz,
                math.nan if error is None else error,
                self._unmet,
                tuple(files.values()),
            )
        )
        reporter.say(f"mltree summarize {self._files.prefix} sums the samples up")
        reporter.finish("sample", document)


def _sweeping(engines: Sequence[Engine]) -> list[ChainEngine]:
    """The engines, all of which sweep chains."""
    assert all(isinstance(engine, ChainEngine) for engine in engines)
    return list(engines)  # type: ignore[arg-type]


def _engines_of_a_rank(resources: Resources, workload: Workload) -> list[ChainEngine]:
    """Open the engines of another rank's devices, in the layouts of the first."""
    return _sweeping(open_chain_engines(resources, workload)[0])


def _kinds_there(workspace: Workspace, run: int) -> Iterator[str]:
    """Kinds of all files that are there of a run of any kind of sample."""
    of_parts = (f"tree{number}.run{run}.t" for number in count(1))
    yield from takewhile(lambda kind: workspace.path(kind).exists(), of_parts)
    endings = ("p", "t", "log", "trees")
    kinds = (f"run{run}.{ending}" for ending in endings)
    yield from (kind for kind in kinds if workspace.path(kind).exists())


class _SampleFiles:
    """The files of samples, a table and trees for each run, which grow at their ends."""

    def __init__(self, workspace: Workspace, runs: int, form: SampleFormat) -> None:
        self._form = form
        kinds = [kind for run in range(1, runs + 1) for kind in form.kinds(run)]
        workspace.check(kinds)
        self._workspace, self._runs = workspace, runs
        self._each = len(form.kinds(1))
        self.paths = [workspace.path(kind) for kind in kinds]
        self.prefix = str(workspace.path("x")).removesuffix(".mltree.x")
        self._waiting: list[list[str]] = [[] for _ in kinds]
        self._writer = ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def begin(self, taxa: Sequence[str], seed: int) -> None:
        """Start the files anew, and remove others of runs before."""
        for run in count(1):
            kinds = list(_kinds_there(self._workspace, run))
            if run > self._runs and not kinds:
                break
            for kind in kinds:
                self._workspace.remove(kind)
        heads = self._form.heads(taxa, seed)
        for number, path in enumerate(self.paths):
            write_whole(path, heads[number % self._each].encode())

    def cut(self, sizes: Sequence[int]) -> None:
        """Cut the files to what they were; raises InputError where less is left."""
        for path, size in zip(self.paths, sizes, strict=True):
            with naming(path):
                if not path.is_file() or path.stat().st_size < size:
                    raise unusable(path, "has lost samples that the state goes on behind")
                os.truncate(path, size)

    def add(self, samples: Sequence[Sample]) -> None:
        """Keep samples' lines until the next :meth:`flush`; they are made while a device sweeps."""
        self._wait()
        self._written = self._writer.submit(self._keep, samples)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()

    def _keep(self, samples: Sequence[Sample]) -> None:
        for one in samples:
            for number, line in enumerate(self._form.lines(one), one.run * self._each):
                self._waiting[number].append(line)

    def end(self) -> None:
        """End the files of trees; samples that follow cut this off again."""
        for path in (path for n, path in enumerate(self.paths) if n % self._each):
            with naming(path), path.open("ab") as file:
                file.write(self._form.end.encode())

    def flush(self) -> list[int]:
        """Write what waits, and return the files' sizes."""
        sizes = []
        self._wait()
        for number, path in enumerate(self.paths):
            with naming(path), path.open("ab") as file:
                file.write("".join(self._waiting[number]).encode())
                file.flush()
                os.fsync(file.fileno())
                sizes.append(file.tell())
            self._waiting[number].clear()
        return sizes


# The state on file: NumPy's .npz.


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **state)
    write_whole(path, buffer.getvalue())


def _read_state(path: Path) -> dict[str, Any]:
    """The state on file; raises InputError where it is none."""
    try:
        with np.load(io.BytesIO(read_own(path)), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, KeyError) as error:
        raise unusable(path, "is not the state of a sampler, or a damaged one") from error
