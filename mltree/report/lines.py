"""Events as text: one line each, with a result in several, for terminal and log."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import singledispatch
from typing import TYPE_CHECKING

from mltree.data.parts import NO_NAME
from mltree.report.tables import (
    check_lines,
    compare_table,
    parts_table,
    timing_table,
    tree_test_lines,
)
from mltree.system.events import (
    AlignmentChecked,
    AlignmentLoaded,
    AlignmentWritten,
    BootstopChecked,
    BootstrapFinished,
    Busy,
    CandidatesScored,
    CheckpointWritten,
    CommandEnded,
    ConsensusBuilt,
    DeviceChosen,
    DistancesMeasured,
    EnginesCompared,
    Event,
    LociFinished,
    LocusDone,
    LocusSkipped,
    MemoryPlanned,
    ModelChosen,
    ModelOptimised,
    ModelsRanked,
    Notice,
    PartitionsLoaded,
    PartsMerged,
    PhaseStarted,
    ReplicateDone,
    ResourcesSpent,
    ResultWritten,
    RoundDone,
    RunDescribed,
    RunFinished,
    RunStarted,
    SearchFinished,
    SearchPlanned,
    SearchResumed,
    StartsEnded,
    StartTree,
    StoppedShort,
    SupportsDrawn,
    TimeSpent,
    TreePerturbed,
    TreeScored,
    TreesCulled,
    TreesLoaded,
    TreesOffered,
    TreesTested,
    TreesWritten,
    Unsaved,
)
from mltree.tree.clades import ascii_drawing

if TYPE_CHECKING:
    from rich.console import RenderableType


# Model choice: progress, table of the best candidates, and IQ-TREE's last line.

NAMES = {"bic": "BIC", "aic": "AIC", "aicc": "AICc"}
"""Criteria as papers write them."""


def scored_line(event: CandidatesScored) -> str:
    """Progress of a model choice: candidates fitted, and the best so far."""
    count = f"{event.candidates:,} candidate{'' if event.candidates == 1 else 's'}"
    if event.parts == 1:
        return f"models: {count}, best so far {event.best}"
    return f"models: {count} for {event.parts:,} parts, best so far {event.best} for the first"


def merged_line(event: PartsMerged) -> str:
    """One round of merging parts."""
    pairs = f"{event.pairs:,} pair{'' if event.pairs == 1 else 's'}"
    subsets = f"{event.subsets:,} subset{'' if event.subsets == 1 else 's'} left"
    return f"merging: {pairs} compared, {event.merged:,} merged, {subsets}, score {event.score:.3f}"


def chosen_line(event: ModelChosen) -> str:
    """The model chosen for a part."""
    criterion = _criterion(event.criterion)
    part = "best model" if event.part == NO_NAME else event.part
    return f"{part}: {event.model}  {criterion} {event.score:.3f}  lnL {event.lnl:.3f}"


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


def clock_time(seconds: float) -> str:
    """``00:01:02`` for 62 seconds."""
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{whole:02d}"


def stamp(elapsed: float) -> str:
    """``[00:01:02]`` for 62 seconds."""
    return f"[{clock_time(elapsed)}]"


@singledispatch
def describe(event: Event) -> str:
    """One line of text for an event."""
    return f"{type(event).__name__} {dataclasses.asdict(event)}"


@describe.register
def _(event: Notice) -> str:
    return f"note: {event.text}"


@describe.register
def _(event: Unsaved) -> str:
    return f"not written, {event.path}: {event.content.strip()}"


@describe.register
def _(event: RunStarted) -> str:
    seed = "" if event.seed is None else f", seed {event.seed}"
    return f"mltree {event.version}{seed}: {event.command}"


@describe.register
def _(event: RunDescribed) -> str:
    """Several lines: names and values of the run's environment."""
    rows = [
        ("Date", event.date),
        ("Host", f"{event.host} ({event.system})"),
        ("CPU", f"{event.cpu}, {_count(event.threads, 'thread')} ({event.threads_source})"),
        *(("Device", device) for device in event.devices),
        ("Versions", ", ".join(f"{name} {version}" for name, version in event.versions.items())),
        *(("Input", f"{i.path} ({i.size:,} bytes, sha256 {i.sha256})") for i in event.inputs),
        *(
            ("Option", f"{name} = {value}" + ("" if origin == "default" else f" ({origin})"))
            for name, (value, origin) in event.options.items()
        ),
    ]
    return "\n".join(f"{name + ':':<10}{value}" for name, value in rows)


@describe.register
def _(event: Busy) -> str:
    return f"{event.what} ..."


@describe.register
def _(event: AlignmentLoaded) -> str:
    return (
        f"{event.path}: {event.data_type} ({event.data_seen}), {event.taxa} taxa x "
        f"{event.sites:,} sites, {event.patterns:,} patterns, {event.gap_share:.1%} gaps "
        f"({event.file_format})"
    )


@describe.register
def _(event: MemoryPlanned) -> str:
    mib = 2**20
    trees = "a tree" if event.trees == 1 else f"{event.trees} trees"
    near = f"{event.near / mib:,.1f} MiB for insertions, " if event.near else ""
    sites = f"{event.sites / mib:,.1f} MiB of site lnL, " if event.sites else ""
    others = f", and others {event.others / mib:,.0f} MiB" if event.others else ""
    return (
        f"memory: the process will take about {event.process / mib:,.0f} MiB{others}; "
        f"{event.clas / mib:,.1f} MiB for the CLAs of {trees}, {event.slots} each, {near}{sites}"
        f"{event.matrices / mib:,.1f} MiB of P matrices, {event.tips / mib:,.1f} MiB of tips; "
        f"{event.device} has {event.available / mib:,.0f} MiB ({event.layout})"
    )


@describe.register
def _(event: DeviceChosen) -> str:
    return f"engine: {event.name}"


@describe.register
def _(event: SearchPlanned) -> str:
    return f"search from {_count(event.starts, 'starting tree')} in {_count(event.phases, 'phase')}"


@describe.register
def _(event: StartTree) -> str:
    return f"start {event.origin:<20}  lnL {event.lnl:.3f}"


@describe.register
def _(event: PhaseStarted) -> str:
    trees = "1 tree" if event.trees == 1 else f"{event.trees} trees"
    cut = "no cut" if math.isinf(event.cut) else f"cut {event.cut:g}"
    return f"phase {event.phase}: SPR to radius {event.radius}, {cut}, {trees}"


@describe.register
def _(event: RoundDone) -> str:
    return (
        f"SPR round {event.round} (radius {event.radius})  lnL {event.lnl:.3f}  "
        f"{event.candidates:,} insertions, {_count(event.moves, 'move')}"
    )


@describe.register
def _(event: ModelOptimised) -> str:
    return f"model  lnL {event.lnl:.3f}  {event.model}"


describe.register(CandidatesScored, scored_line)
describe.register(ModelChosen, chosen_line)
describe.register(PartsMerged, merged_line)


@describe.register
def _(event: StoppedShort) -> str:
    below = "" if event.lacking is None else f", about {event.lacking:.2g} lnL below it"
    return (
        f"warning: the optimisation of {event.what} stopped short of a maximum{below}; "
        "mltree evaluate of the tree found, with the same --model, goes on from there"
    )


@describe.register
def _(event: TreesCulled) -> str:
    return f"{_count(event.kept, 'start')} kept, {event.dropped} dropped"


@describe.register
def _(event: StartsEnded) -> str:
    return starts_text(event)


def starts_text(event: StartsEnded) -> str:
    """``5 of 6 starts reached the best tree``, and the number of starts dropped."""
    text = f"{event.reached} of {_count(event.starts, 'start')} reached the best tree"
    dropped = event.starts - event.ended
    return f"{text}; {dropped} dropped on the way" if dropped else text


@describe.register
def _(event: TreePerturbed) -> str:
    return (
        f"perturbation {event.batch}  lnL {event.lnl:.3f}  "
        f"{event.better} of {event.copies} copies better"
    )


@describe.register
def _(event: CheckpointWritten) -> str:
    return f"checkpoint {event.path}"


@describe.register
def _(event: SearchResumed) -> str:
    return f"resumed from {event.path} after round {event.rounds}  lnL {event.lnl:.3f}"


@describe.register
def _(event: SearchFinished) -> str:
    return (
        f"search done  lnL {event.lnl:.3f}  {_count(event.rounds, 'round')}, "
        f"{event.candidates:,} insertions, {_count(event.moves, 'move')}"
    )


@describe.register
def _(event: TreeScored) -> str:
    return f"tree as given, branches smoothed  lnL {event.lnl:.3f}"


@describe.register
def _(event: ResourcesSpent) -> str:
    return (
        f"wall {event.wall:.2f} s, CPU {event.cpu:.2f} s, device {event.device:.2f} s, "
        f"peak memory {event.peak_memory / 2**20:,.0f} MiB"
    )


@describe.register
def _(event: CommandEnded) -> str:
    return f"{event.command} done"


@describe.register
def _(event: TreesLoaded) -> str:
    return f"{event.path}: {_count(event.trees, 'tree')}, {event.taxa:,} taxa"


@describe.register
def _(event: SupportsDrawn) -> str:
    mean = "" if event.mean is None else f", mean {event.mean:.1%}"
    return f"{event.metric}  {_count(event.branches, 'inner branch', 'es')}{mean}"


@describe.register
def _(event: ConsensusBuilt) -> str:
    return f"{event.kind} consensus  {event.branches:,} of {event.largest:,} inner branches"


@describe.register
def _(event: DistancesMeasured) -> str:
    weighted = "" if event.weighted is None else f", weighted {event.weighted:.6f}"
    topologies = "1 topology" if event.topologies == 1 else f"{event.topologies:,} topologies"
    return (
        f"{_count(event.pairs, 'pair')} of trees, {topologies}  "
        f"mean Robinson-Foulds distance {event.mean:.3f} ({event.relative:.2%}){weighted}"
    )


@describe.register
def _(event: BootstopChecked) -> str:
    verdict = "converged" if event.converged else "not converged"
    return (
        f"{event.replicates:,} replicates  wRF {event.wrf:.3f} ± {event.wrf_error:.3f} "
        f"({event.share:.3%}), {event.passed:,} of {event.halvings:,} halvings pass: {verdict}"
    )


@describe.register
def _(event: AlignmentWritten) -> str:
    return f"wrote {event.path}: {event.taxa:,} taxa x {event.sites:,} sites ({event.file_format})"


@describe.register
def _(event: ResultWritten) -> str:
    return f"wrote {event.path}, for {event.program}"


@describe.register
def _(event: TreesWritten) -> str:
    return f"wrote {event.path}: {_count(event.trees, 'tree')}, {event.taxa:,} taxa"


@describe.register
def _(event: ReplicateDone) -> str:
    return f"replicate {event.number}  lnL {event.lnl:.3f}  {event.done:,} of {event.wanted:,} done"


@describe.register
def _(event: LocusDone) -> str:
    done = f"{event.done:,} of {event.wanted:,} done"
    return f"locus {event.number}  {event.name}  {event.taxa} taxa  lnL {event.lnl:.3f}  {done}"


@describe.register
def _(event: LocusSkipped) -> str:
    return f"locus {event.number}  {event.name}  skipped: {event.why}"


@describe.register
def _(event: LociFinished) -> str:
    skipped = f", {event.skipped:,} skipped" if event.skipped else ""
    wrote = f"; wrote {', '.join(event.files)}" if event.files else ""
    return f"{_count(event.trees, 'tree')}{skipped}, sum of lnL {event.lnl:.3f}{wrote}"


@describe.register
def _(event: BootstrapFinished) -> str:
    verdicts = {True: ": converged", False: ": not converged", None: ""}
    return f"{_count(event.replicates, 'replicate')}{verdicts[event.converged]}"


@describe.register
def _(event: TreesOffered) -> str:
    return (
        f"looked around {_count(event.around, 'tree')}: {event.offered:,} offered, {event.held:,} "
        f"held, correlation of supports {event.correlation:.3f}"
    )


def _count(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"


# Results: text or tables below the lines of the other events.

SMALL_TREE = 30
"""Taxa up to which a tree is drawn in a terminal of any height."""


class Ending:
    """Earlier events that the text of a result needs."""

    def __init__(self) -> None:
        self.starts: StartsEnded | None = None
        self.spent: ResourcesSpent | None = None

    def update(self, event: Event) -> None:
        """Keep an event that the result needs."""
        if isinstance(event, StartsEnded):
            self.starts = event
        elif isinstance(event, ResourcesSpent):
            self.spent = event


def result(  # noqa: PLR0911  (a case an event)
    event: Event, height: int, ending: Ending
) -> RenderableType | None:
    """Text or table of an event that is a result; None for other events.

    ``height``: lines of the terminal.
    """
    match event:
        case RunFinished():
            drawing = (
                ascii_drawing(event.support or event.tree) if is_drawn(event.taxa, height) else ""
            )
            return summary_text(event, drawing, ending)
        case EnginesCompared():
            return compare_table(event.scores)
        case AlignmentChecked():
            return "\n".join(check_lines(event.summary))
        case PartitionsLoaded():
            return parts_table(event)
        case ModelsRanked():
            lines = ranking_lines(event)
        case TreesTested():
            lines = tree_test_lines(event.trees)
        case TimeSpent():
            return timing_table(event)
        case _:
            return None
    return "\n".join(["", *lines])


def is_drawn(taxa: int, terminal_height: int) -> bool:
    """Tell if a tree, one line a taxon and one between, is small enough to draw."""
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
    if ending.spent is not None:
        lines.append(f"Time: {ending.spent.wall:.2f} s ({ending.spent.cpu:.2f} s of CPU)")
    if drawing:
        lines += ["", drawing]
    if event.files:
        lines += ["", *(f"Wrote {file}" for file in event.files)]
        lines.append(f"To cite: methods and references are at the end of {event.files[0]}")
    return "\n".join(lines)
