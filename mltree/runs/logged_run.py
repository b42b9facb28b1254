"""Runs: how their data are read, their logs, their files and how they end."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltree.data.alignments import Source
from mltree.data.parts import Part, best_model_text
from mltree.data.source import STDIN, read_bytes, read_text
from mltree.device.discovery import REFERENCE, DeviceInfo, choose_devices
from mltree.device.speed import joint_bandwidth, load_meter
from mltree.device.timing import Breakdown
from mltree.models.grammar import format_best_model, format_model
from mltree.models.names import default_model_name
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.models.substitution import Model
from mltree.report.lines import describe
from mltree.report.methods import Methods, methods_text, without_values
from mltree.report.tables import Timed, time_spent
from mltree.runs.engines import Engines
from mltree.runs.options import AnalysisOptions, WrittenOptions, shown
from mltree.runs.problem import Problem, load_problem, terms_of_choice
from mltree.runs.trees import TreeResult
from mltree.runs.workspace import RunLog, Workspace, claim_files
from mltree.system import __version__
from mltree.system.errors import InputError, ModelError
from mltree.system.events import (
    BootstrapFinished,
    Emit,
    Event,
    InputFile,
    Notice,
    ResourcesSpent,
    RunDescribed,
    RunFinished,
    StartsEnded,
    Unsaved,
)
from mltree.system.files import write_together
from mltree.system.process import ExitMessage, on_signal, set_exit_message, threads, uninterrupted
from mltree.system.rank_start import start
from mltree.system.ranks import current_ranks
from mltree.system.values import plain
from mltree.tree.newick import write_newick

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# Where and with what a run was done: the head of its log, and of its ``mltree.json``.

PACKAGES = ("numpy", "pyopencl", "pocl-binary-distribution")

KIB = 1 << 10


def describe_run(
    devices: Sequence[DeviceInfo],
    options: Mapping[str, tuple[Any, str]],
    resolved: Mapping[str, object],
    inputs: Iterable[str],
) -> RunDescribed:
    """All of it.

    options   as they were given, and where each is from
    resolved  values of those that the run has chosen itself
    inputs    what may be files; what is none is left out
    """
    available = threads()
    values = {**{name: value for name, (value, _) in options.items()}, **resolved}
    return RunDescribed(
        date=datetime.now().astimezone().isoformat(timespec="seconds"),
        host=platform.node(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        cpu=_cpu(),
        threads=available.number,
        threads_source=available.source,
        devices=tuple(_device(device) for device in devices) or ("none: NumPy reference",),
        versions=_versions(),
        options={
            name: (shown(value), options[name][1] if name in options else "default")
            for name, value in values.items()
            if value is not None
        },
        inputs=input_files(inputs),
    )


def _device(device: DeviceInfo) -> str:
    units = f"{device.compute_units} compute units"
    return f"{device.name}: {device.platform}, driver {device.driver}, {units}"


def _cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()  # which asks a process


def _versions() -> dict[str, str]:
    versions = {"mltree": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # noqa: PERF203
            continue
    return versions


def input_files(names: Iterable[str]) -> tuple[InputFile, ...]:
    """The files among these names, each once, with their digests."""
    files = {}
    for name in names:
        if name == STDIN or _is_file(name):
            content = read_bytes(name)
            files[name] = InputFile(name, len(content), hashlib.sha256(content).hexdigest())
    return tuple(files.values())


def expect_files(inputs: Iterable[InputFile]) -> None:
    """Make sure that this rank sees the files that the first one reads; its standard input is its.

    Raises: InputError: one is another here.
    """
    for file in inputs:
        if file.path != STDIN and input_files([file.path]) != (file,):
            raise InputError("is not the file that rank 0 reads", file=file.path)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # no name that a file could have, such as a model's values
        return False


def spent_so_far(wall: float, device: float) -> ResourcesSpent:
    """CPU seconds and memory of the process and its children; ``wall``, ``device``: seconds."""
    usage, ended = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = usage.ru_utime + usage.ru_stime + ended.ru_utime + ended.ru_stime + _children_seconds()
    unit = 1 if sys.platform == "darwin" else KIB
    return ResourcesSpent(wall, cpu, device, usage.ru_maxrss * unit)


def _children_seconds() -> float:
    """CPU seconds of the processes that this one started and that still run, where Linux tells."""
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for process in listed.read_text().split():
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # its own, and of those it has waited for
    return ticks / os.sysconf("SC_CLK_TCK")


# How a command ends: results in files, all or none, and what was found as JSON.

LOCI_KINDS = ("bestTrees", "lociTable", "loci")
"""Kinds of the files that a search of many loci leaves, and one of a lone alignment does not."""

RESULT_FORMAT = 1
"""Version of the result as JSON: a new number where a key changes or goes."""


NAMES = "names"
"""The kind of the file that tells which name a taxon of a changed name has in the alignment."""


def names_file(renamed: Mapping[str, str]) -> dict[str, str]:
    """The content of a .names file, by its kind; nothing where no name is changed.

    renamed  names in the alignment by the names in results
    """
    rows = "".join(f"{name}\t{before}\n" for name, before in renamed.items())
    return {NAMES: f"name\talignment\n{rows}"} if rows else {}


def one_renaming(renamed: Mapping[str, Mapping[str, str]], emit: Emit) -> dict[str, str]:
    """Names in alignments by the names in results, with a notice where alignments disagree.

    renamed  such names of each alignment, by its name
    """
    known: dict[str, tuple[str, str]] = {}
    for alignment, names in renamed.items():
        for name, before in names.items():
            first, where = known.setdefault(name, (before, alignment))
            if first != before:
                emit(Notice(f"{name} is {first} in {where} and {before} in {alignment}"))
    return {name: before for name, (before, _) in known.items()}


def read_names(path: str) -> dict[str, str]:
    """Names by other names, of a table of two columns such as a .names file.

    Raises: InputError: a line has no tab, or more than one, or a name is there twice.
    """
    names: dict[str, str] = {}
    for number, line in enumerate(read_text(path).decode(errors="replace").split("\n"), 1):
        before, tab, after = line.partition("\t")
        if line.strip() and (not before or not after.strip() or "\t" in after):
            hint = "a line is a name, a tab, and the name in its place"
            raise InputError("not two columns", file=path, line=number, hint=hint)
        if before in names:
            raise InputError(f"{before} is there twice", file=path, line=number)
        if tab:
            names[before] = after.strip()
    return names


def deliver(
    workspace: Workspace, texts: Mapping[str, str], reporter: Reporter, spent: Sequence[str] = ()
) -> list[Path]:
    """Write the results, all or none; from then on a stop changes nothing any more.

    ``spent``: kinds of files that are of no use beside them. Lines that cannot be written are shown
    instead, not to be lost.

    Raises:
        InputError: the results cannot be written.
    """
    with uninterrupted():
        try:
            files = workspace.write(texts)
        except InputError as error:
            for kind, text in texts.items():
                if text.count("\n") == 1:
                    reporter(Unsaved(str(workspace.path(kind)), text))
            hint = "the results are printed instead; the same command writes them once it can"
            raise InputError(error.message, hint=hint) from error
        for kind in spent:
            workspace.remove(kind)
        set_exit_message(ExitMessage("the results are written", 0))
    return files


def result_text(values: Mapping[str, Any]) -> str:
    """The content of a file with a result: JSON, a name a line."""
    return json.dumps(plain(values), indent=1) + "\n"


def command_result(
    command: str,
    line: str,
    values: Mapping[str, Any],
    files: Mapping[str, str],
    inputs: Iterable[str],
    reporter: Reporter,
) -> dict[str, Any]:
    """The result of a command that is no search as JSON has it.

    line    the command as it was typed
    values  what it found
    files   those that it wrote, by kind
    inputs  what may be files that it read
    """
    return {
        "command": command,
        "format": RESULT_FORMAT,
        "version": __version__,
        "command_line": line,
        **values,
        "files": dict(files),
        "seconds": reporter.elapsed,
        "inputs": [asdict(file) for file in input_files(inputs)],
    }


def finish(
    command: str,
    line: str,
    workspace: Workspace,
    texts: Mapping[str, str],
    values: Mapping[str, Any],
    inputs: Iterable[str],
    reporter: Reporter,
    spent: Sequence[str] = (),
) -> None:
    """Write the results, all of them as JSON too, and say where they are.

    See `command_result` for its arguments, and `deliver` for ``spent``.
    """
    kind = f"{command}.json"
    written = {name: str(workspace.path(name)) for name in [*texts, kind]}
    document = command_result(command, line, values, written, inputs, reporter)
    files = deliver(workspace, {**texts, kind: result_text(document)}, reporter, spent)
    reporter.say("\n".join(f"Wrote {file}" for file in files))
    reporter.finish(command, document)


def write_out(
    command: str,
    options: WrittenOptions,
    contents: Mapping[str, bytes],
    files: Mapping[str, str],
    events: Iterable[Event],
    values: Mapping[str, Any],
    reporter: Reporter,
) -> None:
    """Write the contents to files, ``out`` compressed if it ends in .gz, and end the command.

    events, values  facts about the files, for the log and for JSON
    """
    paths = {name: Path(file) for name, file in files.items()}
    claim_files(list(paths.values()), options.inputs, options.redo)  # another may have been quicker
    if paths["out"].suffix == ".gz":
        contents = {**contents, "out": gzip.compress(contents["out"], mtime=0)}
    write_together({path: contents[name] for name, path in paths.items()})
    for event in events:
        reporter(event)
    result = command_result(command, options.line, values, files, options.inputs, reporter)
    reporter.finish(command, result)


def by_kind(paths: Iterable[Path]) -> dict[str, str]:
    """Files by what their names have behind the prefix."""
    return {path.name.rpartition(".mltree.")[2]: str(path) for path in paths}


def load(
    options: AnalysisOptions,
    emit: Emit,
    source: Source | None = None,
    *,
    expect: Callable[[Problem], object] = lambda _: None,
    site_rates: bool = False,
    as_taken: Callable[[str], str] = str,
) -> Problem:
    """Read the data and the models, and tell what is to be said of them.

    source      data at hand, instead of the alignment's file
    expect      raises where anything else that is given does not go with the data, before anything
                is computed
    site_rates  whether the model may have rates of sites (+PSR)
    as_taken    the default model's name as the analysis takes it
    """
    chooses, frequencies = options.chooses, options.site_frequencies
    if chooses and frequencies.files:
        raise ModelError(
            "frequencies of sites go with a model that is named, not with --model auto",
            hint="such as LG+C20+F+G4",
        )
    model = terms_of_choice(options.model) if chooses else options.model
    problem = load_problem(
        source or options.alignment, model, emit, options.data_type, options.linkage,
        options.partitions, chooses=chooses, site_rates=site_rates,
    )  # fmt: skip
    expect(problem)
    if options.model is None and options.partitions is None and not chooses:
        name = as_taken(default_model_name(problem.patterns.alphabet))
        how = "--model auto" if hasattr(options, "chooses") else "mltree model"
        emit(Notice(f"the model is {name} by default; {how} chooses the best-fitting one"))
    return frequencies.given_to(problem, options.resources, emit)


@contextmanager
def open_log(path: Path, reporter: Reporter) -> Iterator[RunLog]:
    """The log of a run, which locks its prefix, while the run lasts."""
    with RunLog(path) as log, on_signal(partial(_abandon, log)):
        reporter.log_to(log)
        if not log.is_locked:
            reporter(Notice(f"{path.parent} has no locks: no other run may write {path.name}"))
        try:
            yield log
        finally:
            reporter.log_to(None)


def _abandon(log: RunLog) -> ExitMessage:
    """The end of a run that has nothing worth keeping yet."""
    log.close("stopped\n")
    return ExitMessage()


def best_model_file(model: PartitionModel, problem: Problem) -> str:
    """The content of a .bestModel file: a line a part, in the order of the partition file."""
    if problem.data is None:
        return format_best_model(model.lone, problem.n_sites) + "\n"
    rows: list[tuple[int, Part, str]] = []
    for number, own, scaler in zip(
        problem.data.order, model.models, model.scalers.tolist(), strict=True
    ):
        known = scaler if model.linkage == Linkage.SCALED else None
        rows.append((number, replace(problem.data.parts[number], scaler=known), format_model(own)))
    rows.sort(key=lambda row: row[0])
    return best_model_text([part for _, part, _ in rows], [text for *_, text in rows])


def part_trees_file(result: TreeResult, problem: Problem) -> str:
    """The content of a .bestPartitionTrees file: a tree a line, in the order of the file."""
    if problem.data is None:
        return ""
    numbered = zip(problem.data.order, result.part_trees, strict=False)
    rows = sorted((number, write_newick(tree, problem.taxa)) for number, tree in numbered)
    return "".join(f"{text}\n" for _, text in rows)


def begin_log(
    log: RunLog,
    options: AnalysisOptions,
    reporter: Reporter,
    append: bool = False,
    inputs: Iterable[str] = (),
) -> None:
    """Write the head of a run's log, and what was said so far.

    inputs  what may be files, beside those that the options name
    """
    devices = choose_devices(options.resources.device)
    chosen = {"device": _numbers(devices), "prefix": options.stem}
    described = describe_run(devices, options.origins, chosen, [*options.inputs, *inputs])
    expect_ranks(described, reporter)
    log.begin(append, describe(described) + "\n")
    reporter(described)


def expect_ranks(described: RunDescribed, emit: Emit) -> None:
    """Make sure that all ranks see the files of a run, and tell which processes they are.

    Raises: InputError: one sees others.
    """
    if (ranks := current_ranks()).size > 1:
        ranks.everywhere(partial(expect_files, described.inputs))
        emit(Notice(ranks.text))


def show_times(engines: Engines, reporter: Reporter) -> None:
    """Show where the time of a run went."""
    spent = breakdown_of(engines)
    if spent is not None:
        wall, busy = reporter.elapsed, reporter.busy
        reporter(time_spent(spent, wall, busy, joint_bandwidth(spent)))


@dataclass
class LoggedRun:
    """A run under way, as its log and its result tell of it."""

    name: str
    """The command's."""
    options: AnalysisOptions
    problem: Problem
    engines: Engines
    reporter: Reporter
    described: RunDescribed
    methods: Methods
    result_kind: str
    """The kind of the file that has the result as JSON."""
    record_kind: str
    """The kind of the file that has the events."""
    files: list[Path] = field(default_factory=list)
    """Files written so far, the log first."""
    starts: StartsEnded | None = None
    support: str = ""
    """The best tree with supports as labels, in Newick; none where empty."""
    supports: Mapping[str, Any] = field(default_factory=dict)
    """By metric or test, as JSON has them."""

    @classmethod
    def of(
        cls,
        name: str,
        options: AnalysisOptions,
        problem: Problem,
        engines: Engines,
        reporter: Reporter,
        *,
        kind: str,
        record: str,
        resolved: Mapping[str, object],
        starts: Sequence[str] = (),
        nni_only: bool = False,
        seed: int | None = None,
        supports: Mapping[str, int | None] | None = None,
        is_estimated: bool = True,
    ) -> LoggedRun:
        """Describe a run that stands ready.

        ``resolved``: options that it has chosen itself; ``supports``: what of
        :data:`mltree.report.methods.SUPPORTS` will be computed, with its replicates.
        """
        data = " + ".join(patterns.alphabet.name for patterns in problem.groups)
        names = tuple(map(_named, problem.model.models))
        models = ", ".join(names)
        chosen = {
            "model": options.model or models,
            "data_type": data,
            "device": _numbers(engines.devices),
            "vw": ", ".join(str(layout.vw) for layout in engines.layouts) or None,
            "prefix": options.stem,
        }
        described = describe_run(
            engines.devices, options.origins, {**chosen, **resolved}, options.inputs
        )
        methods = Methods(
            taxa=len(problem.taxa),
            sites=problem.n_sites,
            patterns=problem.n_patterns,
            data=data,
            models=names,
            starts=starts,
            nni_only=nni_only,
            seed=seed,
            chooses=options.chooses,
            supports=supports or {},
            sampling=getattr(options, "sampling", "sites"),
            is_estimated=is_estimated,
            on_pocl=any(device.is_cpu for device in engines.devices),
        )
        return cls(name, options, problem, engines, reporter, described, methods, kind, record)

    def begin(self, log: RunLog, append: bool) -> None:
        """Write the head of the log, and what was said so far."""
        expect_ranks(self.described, self.reporter)
        log.begin(append, describe(self.described) + "\n")
        record = self.options.workspace.path(self.record_kind)
        self.files += [log.path, record]
        self.reporter(self.described)
        self.reporter.record_to(record, append)
        if len(self.engines.devices) == 1:
            self.reporter.watch(load_meter(self.engines.devices[0]))

    def __call__(self, event: Event) -> None:
        """Receive an event on its way to the reporter."""
        if isinstance(event, StartsEnded):
            self.starts = event
            begun = self.methods.starts[: event.starts]  # others were not searched
            self.methods = replace(self.methods, starts=begun)
        if isinstance(event, BootstrapFinished):
            drawn = dict.fromkeys(self.methods.supports.keys() & {"FBP", "TBE"}, event.replicates)
            supports = {**self.methods.supports, **drawn}
            verdict = event.converged if drawn else None
            self.methods = replace(self.methods, supports=supports, has_converged=verdict)
        self.reporter(event)

    def keep(self, texts: Mapping[str, str]) -> None:
        """Write what is done while the run goes on, which does so where it cannot be written."""
        try:
            self.options.workspace.write(texts)
        except InputError as error:
            self.reporter(Notice(f"{error.message}; it is tried again at the end"))

    def deliver(
        self, result: TreeResult, newick: str, texts: dict[str, str], spent: Sequence[str] = ()
    ) -> None:
        """Write the results, and them all as JSON; see :func:`deliver`."""
        workspace, texts = self.options.workspace, {**texts, **names_file(self.problem.renamed)}
        paths = [*self.files, *map(workspace.path, [*texts, self.result_kind])]
        values = self._values(self._event(result, newick), paths)
        texts = {**texts, self.result_kind: result_text(values)}
        self.files += deliver(workspace, texts, self.reporter, spent)

    def conclude(self, result: TreeResult, newick: str) -> dict[str, Any]:
        """Show what was found, scored in fp64, what it took, and how a paper says it.

        Returns the result, for :meth:`.Reporter.finish`.
        """
        exact = result.scored(self.engines, self.reporter)
        event = self._event(exact, newick)
        values = self._values(event, self.files)
        if exact is not result:
            self.options.workspace.write({self.result_kind: result_text(values)})
        self.reporter(self._spent())
        self.reporter(event)
        show_times(self.engines, self.reporter)
        from mltree.report.progress import Verbosity

        self.reporter.say(methods_text(self.methods), Verbosity.VERBOSE)
        return values

    def _event(self, result: TreeResult, newick: str) -> RunFinished:
        return result.event(newick, list(map(str, self.files)), self.support)

    def _spent(self) -> ResourcesSpent:
        """Time and memory that the run took so far."""
        breakdown = breakdown_of(self.engines)
        device = 0.0 if breakdown is None else breakdown.device_seconds
        return spent_so_far(self.reporter.elapsed, device)

    def _values(self, event: RunFinished, files: Sequence[Path]) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "command": self.name,
            "format": RESULT_FORMAT,
            "version": __version__,
            "command_line": self.options.line,
            "lnl": event.lnl,
            "tree": event.tree,
            **({"supports": self.supports} if self.supports else {}),
            "model": event.model,
            "tree_length": event.tree_length,
            "data": {
                "type": self.methods.data,
                "taxa": self.methods.taxa,
                "sites": self.methods.sites,
                "patterns": self.methods.patterns,
            },
            "seed": self.methods.seed,
            "starts": None if self.starts is None else asdict(self.starts),
            **({"renamed": dict(self.problem.renamed)} if self.problem.renamed else {}),
            "files": by_kind(files),
            "seconds": event.seconds,
            "spent": asdict(self._spent()),
            "run": asdict(self.described),
            "asked": self.options.asked,
        }


def breakdown_of(engines: Engines) -> Breakdown | None:
    """Where the time of the engines went; None where they do not know."""
    timed = [engine.breakdown() for engine in engines.opened if isinstance(engine, Timed)]
    known = [spent for spent in timed if spent is not None]
    return Breakdown.one_after_the_other(known) if known else None


class WorkTimer:
    """Seconds that engines work, as they would take on a machine that is not shared.

    Builds of kernels are left out, which no second run does again; on CPUs the time too that other
    processes have taken: seconds are no more than all threads of this one had.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._on_cpu = all(device.is_cpu for device in engines.devices)
        self._began = self._clocks()

    @property
    def seconds(self) -> float:
        """Seconds since the timer was made."""
        wall, cpu = (now - then for now, then in zip(self._clocks(), self._began, strict=True))
        return max(0.0, min(wall, cpu) if self._on_cpu else wall)

    def _clocks(self) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        spent = breakdown_of(self._engines)
        return (wall, cpu) if spent is None else (wall - spent.builds, cpu - spent.idle_cpu)


def _named(model: Model) -> str:
    """A model without values, as it is asked for: frequencies that are estimated are +FO."""
    name = without_values(format_model(model))
    return name.replace("+FU", "+FO") if model.frequency_mode == "FO" else name


def _numbers(devices: Sequence[DeviceInfo]) -> str:
    """As ``--device`` takes them."""
    return ", ".join(str(device.index) for device in devices) or REFERENCE


# How many processes share out a run that was told no number of them (``--ranks auto``).
#
# Each needs a CPU for its Python. On CPUs they would only take turns.

MOST_FOR_LOCI, LOCI_OF_A_RANK = 14, 64
"""Processes beyond which one GPU is what all wait for; loci that are worth the start of one. 1,000
of 50 taxa x 500 sites on an H200 with 16 cores, seconds by 8 / 14: 27.3 / 22.8."""

MOST_FOR_REPLICATES, TIPS_OF_A_RANK = 6, 800
"""The same of replicates, in tips of them all. 100 on an H200, 16 cores, seconds by 1 / 3 / 6 / 8 /
12 processes: 101 taxa 34.9 / 20.9 / 15.7 / 15.6 / 17.1; 47 taxa by 1 / 3 / 6: 8.2 / 5.9 / 5.2."""


def share_loci(options: AnalysisOptions, loci: int) -> None:
    """Start the processes that so many loci are worth."""
    _share(options, loci // LOCI_OF_A_RANK, MOST_FOR_LOCI)


def share_replicates(options: AnalysisOptions, replicates: int, taxa: int) -> bool:
    """Start those that so many searches of trees of so many taxa are worth; whether any are new."""
    before = current_ranks()
    _share(options, replicates * taxa // TIPS_OF_A_RANK, MOST_FOR_REPLICATES)
    return current_ranks() is not before


def _share(options: AnalysisOptions, worth: int, most: int) -> None:
    if options.ranks is None and current_ranks().size == 1:
        devices = choose_devices(options.resources.device)
        start(ranks_for(min(worth, most), devices, threads().number))


def ranks_for(worth: int, devices: Sequence[DeviceInfo], cpus: int) -> int:
    """Processes where there is work for so many: a GPU is done before one has laid out the next."""
    if not devices or devices[0].is_cpu:
        return 1
    return max(1, min(worth, cpus * 7 // 8))
