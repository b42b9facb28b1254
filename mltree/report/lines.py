"""Events as text: one line each, with a result in several, for terminal and log."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any

from mltree.data.parts import NO_NAME
from mltree.report.record import best_labelled
from mltree.report.tables import (
    check_lines,
    compare_table,
    parts_table,
    timing_table,
    tree_test_lines,
)
from mltree.system import events
from mltree.system.events import Event, ModelsRanked, ResourcesSpent, RunFinished, StartsEnded
from mltree.tree.clades import ascii_drawing

if TYPE_CHECKING:
    from rich.console import RenderableType


MIB = 2**20

NAMES = {"bic": "BIC", "aic": "AIC", "aicc": "AICc"}
"""Criteria of a model choice as papers write them."""


def counted(number: int, noun: str, ending: str = "s") -> str:
    """``1 move``, ``2,000 moves``."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def clock_time(seconds: float) -> str:
    """``00:01:02`` for 62 seconds."""
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{whole:02d}"


def stamp(elapsed: float) -> str:
    """``[00:01:02]`` for 62 seconds."""
    return f"[{clock_time(elapsed)}]"


def best_fit_line(criterion: str, chosen: Sequence[tuple[str, str]]) -> str:
    """IQ-TREE's line, which pipelines look for; ``chosen``: parts and their models.

    A single part's model stands alone, others before their part: ``HKY+FC:gene1,JC:gene2``.
    """
    if len(chosen) == 1:
        ((_, models),) = chosen
    else:
        models = ",".join(f"{model}:{part}" for part, model in chosen)
    return f"Best-fit model according to {_criterion(criterion)}: {models}"


def _criterion(name: str) -> str:
    return NAMES.get(name, name)


# A line of text for each event: a template, or a function where some of it may be missing.


def scored_line(event: events.CandidatesScored) -> str:
    """Progress of a model choice: candidates fitted, and the best so far."""
    count = counted(event.candidates, "candidate")
    if event.parts == 1:
        return f"models: {count}, best so far {event.best}"
    return f"models: {count} for {event.parts:,} parts, best so far {event.best} for the first"


def chosen_line(event: events.ModelChosen) -> str:
    """The model chosen for a part."""
    criterion = _criterion(event.criterion)
    part = "best model" if event.part == NO_NAME else event.part
    return f"{part}: {event.model}  {criterion} {event.score:.3f}  lnL {event.lnl:.3f}"


def starts_text(event: StartsEnded) -> str:
    """``5 of 6 starts reached the best tree``, and the number of starts dropped."""
    text = f"{event.reached} of {counted(event.starts, 'start')} reached the best tree"
    dropped = event.starts - event.ended
    return f"{text}; {dropped} dropped on the way" if dropped else text


def _started(event: events.RunStarted) -> str:
    seed = "" if event.seed is None else f", seed {event.seed}"
    return f"mltree {event.version}{seed}: {event.command}"


def _described(event: events.RunDescribed) -> str:
    """Several lines: names and values of the run's environment."""
    rows = [
        ("Date", event.date),
        ("Host", f"{event.host} ({event.system})"),
        ("CPU", f"{event.cpu}, {counted(event.threads, 'thread')} ({event.threads_source})"),
        *(("Device", device) for device in event.devices),
        ("Versions", ", ".join(f"{name} {version}" for name, version in event.versions.items())),
        *(("Input", f"{i.path} ({i.size:,} bytes, sha256 {i.sha256})") for i in event.inputs),
        *(
            ("Option", f"{name} = {value}" + ("" if origin == "default" else f" ({origin})"))
            for name, (value, origin) in event.options.items()
        ),
    ]
    return "\n".join(f"{name + ':':<10}{value}" for name, value in rows)


def _memory(event: events.MemoryPlanned) -> str:
    trees = "a tree" if event.trees == 1 else f"{event.trees} trees"
    near = f"{event.near / MIB:,.1f} MiB for insertions, " if event.near else ""
    sites = f"{event.sites / MIB:,.1f} MiB of site lnL, " if event.sites else ""
    more = f", {event.others / MIB:,.0f} MiB more in other processes" if event.others else ""
    return (
        f"memory: the process will take about {event.process / MIB:,.0f} MiB{more}; "
        f"{event.clas / MIB:,.1f} MiB for likelihood arrays (CLAs), {event.slots} a tree, "
        f"of {trees}, {near}{sites}"
        f"{event.matrices / MIB:,.1f} MiB of P matrices, {event.tips / MIB:,.1f} MiB of tips; "
        f"{event.device} has {event.available / MIB:,.0f} MiB ({event.layout})"
    )


def brief_memory(event: events.MemoryPlanned) -> str:
    """The memory of the process alone, for a terminal."""
    return f"memory: about {event.process / MIB:,.0f} MiB (details with --verbose)"


def _phase(event: events.PhaseStarted) -> str:
    trees = "1 tree" if event.trees == 1 else f"{event.trees} trees"
    cut = "no cut" if math.isinf(event.cut) else f"cut {event.cut:g}"
    return f"phase {event.phase}: SPR to radius {event.radius}, {cut}, {trees}"


def _stopped_short(event: events.StoppedShort) -> str:
    below = "" if event.lacking is None else f", about {event.lacking:.2g} lnL below it"
    return (
        f"warning: the optimisation of {event.what} stopped short of a maximum{below}; "
        "mltree evaluate of the tree found, with the same --model, goes on from there"
    )


def _supports(event: events.SupportsDrawn) -> str:
    mean = "" if event.mean is None else f", mean {event.mean:.1%}"
    return f"{event.metric}  {counted(event.branches, 'inner branch', 'es')}{mean}"


def _distances(event: events.DistancesMeasured) -> str:
    weighted = "" if event.weighted is None else f", weighted {event.weighted:.6f}"
    topologies = "1 topology" if event.topologies == 1 else f"{event.topologies:,} topologies"
    return (
        f"{counted(event.pairs, 'pair')} of trees, {topologies}  "
        f"mean Robinson-Foulds distance {event.mean:.3f} ({event.relative:.2%}){weighted}"
    )


def _loci(event: events.LociFinished) -> str:
    skipped = f", {event.skipped:,} skipped" if event.skipped else ""
    wrote = f"; wrote {', '.join(event.files)}" if event.files else ""
    return f"{counted(event.trees, 'tree')}{skipped}, sum of lnL {event.lnl:.3f}{wrote}"


def _chosen_bootstrap(event: events.BootstrapChosen) -> str:
    replicates = f"{event.replicates:,} replicates"
    seconds = clock_time(event.seconds)
    if event.is_standard:
        return f"supports: the standard bootstrap; {replicates} at most, about {seconds}"
    return (
        f"supports: the ultrafast bootstrap, for {replicates} of the standard one would take "
        f"{'at least' if event.at_least else 'about'} {seconds}; --bootstrap auto wants it all the "
        "same"
    )


def replicates_text(event: events.ReplicateDone) -> str:
    """``50 of 100``, or ``50 (at most 1,000)`` where fewer may do."""
    limit = f"(at most {event.wanted:,})" if event.may_converge else f"of {event.wanted:,}"
    return f"{event.done:,} {limit}"


def _bootstrap(event: events.BootstrapFinished) -> str:
    verdicts = {True: ": converged", False: ": not converged", None: ""}
    return f"{counted(event.replicates, 'replicate')}{verdicts[event.converged]}"


def _checked(event: events.SamplesChecked) -> str:
    """Convergence as samples so far have it."""
    lowest = "" if math.isnan(event.ess) else f"  lowest ESS {event.ess:.0f} ({event.where})"
    of_runs = "" if math.isnan(event.asdsf) else f"  ASDSF {event.asdsf:.4f}"
    pace = f", {event.sweeps:.0f} sweeps/s" if event.sweeps else ""
    return (
        f"{counted(event.samples, 'sample')} a run{lowest}  R-hat {event.rhat:.3f}{of_runs}  "
        f"{counted(event.trips, 'round trip')}{pace}"
    )


def _sampled(event: events.Sampled) -> str:
    """The end of a sampler."""
    lnz = "" if math.isnan(event.lnz) else f", ln Z {event.lnz:.3f} ± {event.error:.3f}"
    state = f"not converged: {'; '.join(event.unmet)}" if event.unmet else "converged"
    return f"{counted(event.runs, 'run')} of {counted(event.samples, 'sample')}{lnz}; {state}"


LINES: dict[type[Event], str | Callable[[Any], str]] = {
    events.Notice: "note: {text}",
    events.Unsaved: lambda event: f"not written, {event.path}: {event.content.strip()}",
    events.RunStarted: _started,
    events.RunDescribed: _described,
    events.Busy: "{what} ...",
    events.AlignmentLoaded: "{path}: {data_type} ({data_seen}), {taxa} taxa x {sites:,} sites, "
    "{patterns:,} patterns, {gap_share:.1%} gaps ({file_format})",
    events.MemoryPlanned: _memory,
    events.DeviceChosen: "engine: {name}",
    events.SearchPlanned: "search from {starts:starting tree} in {phases:phase}",
    events.StartTree: "start {origin:<20}  lnL {lnl:.3f}",
    events.PhaseStarted: _phase,
    events.RoundDone: "SPR round {round} (radius {radius})  lnL {lnl:.3f}  {candidates:,} "
    "insertions, {moves:move}",
    events.ModelOptimised: "model  lnL {lnl:.3f}  {model}",
    events.CandidatesScored: scored_line,
    events.ModelChosen: chosen_line,
    events.PartsMerged: "merging: {pairs:pair} compared, {merged:,} merged, {subsets:subset} left, "
    "score {score:.3f}",
    events.StoppedShort: _stopped_short,
    events.TreesCulled: "{kept:start} kept, {dropped} dropped",
    events.StartsEnded: starts_text,
    events.TreePerturbed: "perturbation {batch}  lnL {lnl:.3f}  {better} of {copies} copies better",
    events.CheckpointWritten: "checkpoint {path}",
    events.SearchResumed: "resumed from {path} after round {rounds}  lnL {lnl:.3f}",
    events.SearchFinished: "search done  lnL {lnl:.3f}  {rounds:round}, {candidates:,} insertions, "
    "{moves:move}",
    events.TreeScored: "tree as given, branches smoothed  lnL {lnl:.3f}",
    events.ResourcesSpent: lambda event: (
        f"wall {event.wall:.2f} s, CPU {event.cpu:.2f} s, device {event.device:.2f} s, "
        f"peak memory {event.peak_memory / MIB:,.0f} MiB"
    ),
    events.CommandEnded: "{command} done",
    events.TreesLoaded: "{path}: {trees:tree}, {taxa:,} taxa",
    events.SupportsDrawn: _supports,
    events.ConsensusBuilt: "{kind} consensus  {branches:,} of {largest:,} inner branches",
    events.DistancesMeasured: _distances,
    events.UnifracComputed: "{metric} UniFrac  {samples:sample}, {branches:,} branches  mean "
    "distance {mean:.6f}",
    events.UnifracTested: lambda event: (
        f"{event.metric}  {event.method} {event.column}  {event.statistic_name} "
        f"{event.statistic:.4f}"
        + ("" if event.r2 is None else f", R2 {event.r2:.4f}")
        + f", p {event.p_value:.3g}"
    ),
    events.BootstopChecked: "{replicates:,} replicates  wRF {wrf:.3f} ± {wrf_error:.3f} "
    "({share:.3%}), {passed:,} of {halvings:,} permutations pass: "
    "{converged:converged/not converged}",
    events.AlignmentWritten: "wrote {path}: {taxa:,} taxa x {sites:,} sites ({file_format})",
    events.ResultWritten: "wrote {path}, for {program}",
    events.TreesWritten: "wrote {path}: {trees:tree}, {taxa:,} taxa",
    events.ReplicateDone: lambda event: f"replicate {replicates_text(event)}  lnL {event.lnl:.3f}",
    events.LocusDone: "locus {number}  {name}  {taxa} taxa  lnL {lnl:.3f}  {done:,} of {wanted:,} "
    "done",
    events.LocusSkipped: "locus {number}  {name}  skipped: {why}",
    events.LociFinished: _loci,
    events.BootstrapFinished: _bootstrap,
    events.BootstrapChosen: _chosen_bootstrap,
    events.TimeLeft: lambda event: (
        f"{event.what}: {'at most' if event.at_most else 'about'} {clock_time(event.seconds)} left"
    ),
    events.PriorsChosen: lambda event: f"priors: {'; '.join(event.priors)}",
    events.BurnInRound: "burn-in round {round}, {iterations:iteration}  lnL {lnl:.2f}  "
    "{rungs:rung}, barrier {barrier:.1f}",
    events.SamplesChecked: _checked,
    events.Sampled: _sampled,
    events.TreesOffered: "looked around {around:tree}: {offered:,} offered, {held:,} held, "
    "correlation of supports {correlation:.3f}",
}


class _Template(Formatter):
    """``str.format`` with words: ``{n:move}`` is 1 move or 2 moves, ``{done:yes/no}`` yes or no."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if not format_spec[:2].isalpha() or len(format_spec) < 2:
            return super().format_field(value, format_spec)
        if isinstance(value, bool):
            return format_spec.split("/")[not value]
        return counted(value, format_spec)


_TEMPLATE = _Template()


def describe(event: Event) -> str:
    """A line of text for an event."""
    line = LINES[type(event)]
    return _TEMPLATE.vformat(line, (), vars(event)) if isinstance(line, str) else line(event)


# Results: text or tables below the lines of the other events.

SMALL_TREE = 30
"""Taxa up to which a tree is drawn in a terminal of any height."""


class Ending:
    """Earlier events that the text of a result needs."""

    def __init__(self) -> None:
        self.starts: StartsEnded | None = None
        self.spent: ResourcesSpent | None = None
        self.supports: list[events.SupportsDrawn] = []

    def update(self, event: Event) -> None:
        """Keep an event that the result needs."""
        if isinstance(event, StartsEnded):
            self.starts = event
        elif isinstance(event, ResourcesSpent):
            self.spent = event
        elif isinstance(event, events.SupportsDrawn):
            self.supports.append(event)

    def names(self, support: str) -> Sequence[str]:
        """Names of the supports in the labels of a tree; none if they are another tree's."""
        newick, names = best_labelled((one.metric, one.newick) for one in self.supports)
        return names if newick.strip() == support.strip() else ()


def ranking_lines(event: ModelsRanked) -> list[str]:
    """Table of a part's best candidates, under the number compared."""
    criterion = _criterion(event.criterion)
    width = max(len("Model"), *(len(one.model) for one in event.models))
    least = event.models[0].score
    part = "" if event.part == NO_NAME else f"{event.part}: "
    title = f"{part}the best {len(event.models):,} of {event.candidates:,} candidates"
    heads = f"{'lnL':>14} {'free':>5} {criterion:>14} {'delta':>9} {'weight':>7}"
    rows = [
        f"{one.model:<{width}} {one.lnl:14.3f} {one.parameters:5} {one.score:14.3f} "
        f"{one.score - least:9.3f} {one.weight:7.4f}"
        for one in event.models
    ]
    return [title, f"{'Model':<{width}} {heads}", *rows]


RESULTS: dict[type[Event], Callable[[Any], RenderableType]] = {
    events.EnginesCompared: lambda event: compare_table(event.scores),
    events.AlignmentChecked: lambda event: "\n".join(check_lines(event.summary)),
    events.PartitionsLoaded: parts_table,
    events.ModelsRanked: lambda event: "\n".join(["", *ranking_lines(event)]),
    events.TreesTested: lambda event: "\n".join(["", *tree_test_lines(event.trees)]),
    events.TimeSpent: timing_table,
}


def result(event: Event, height: int, ending: Ending) -> RenderableType | None:
    """Text or table of an event that is a result; None for other events.

    ``height``: lines of the terminal.
    """
    if isinstance(event, RunFinished):
        is_small = is_drawn(event.taxa, height)
        drawing = ascii_drawing(event.support or event.tree) if is_small else ""
        return summary_text(event, drawing, ending)
    drawn = RESULTS.get(type(event))
    return None if drawn is None else drawn(event)


def is_drawn(taxa: int, terminal_height: int) -> bool:
    """True for a tree small enough to draw, with a line for a taxon and one between."""
    return taxa <= SMALL_TREE or 2 * taxa < terminal_height


def summary_text(event: RunFinished, drawing: str, ending: Ending) -> str:
    """Result of a run, readable by eye and by ``grep``; ``drawing``: the tree, or empty."""
    lines = [
        "",
        f"Final log-likelihood: {event.lnl:.4f}",
        f"Model: {event.model}",
        f"Tree length: {event.tree_length:.6f} expected substitutions per site",
    ]
    if ending.starts is not None:
        lines.append(f"Starts: {starts_text(ending.starts)}")
    if names := ending.names(event.support):
        lines.append(f"Supports: {'/'.join(names)}")
    if ending.spent is not None:
        lines.append(f"Time: {ending.spent.wall:.2f} s ({ending.spent.cpu:.2f} s of CPU)")
    if drawing:
        lines += ["", drawing]
    if event.files:
        lines += ["", *(f"Wrote {file}" for file in event.files)]
        lines.append(f"To cite: methods and references are at the end of {event.files[0]}")
    return "\n".join(lines)
