"""What every run shares: its request, its log, its files and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mltree.alignment.source import expect_file
from mltree.device.speed import joint_bandwidth
from mltree.device.timing import Breakdown
from mltree.errors import InputError
from mltree.events import Notice, Unsaved
from mltree.log import RunLog
from mltree.model.grammar import format_best_model
from mltree.model.substitution import Model
from mltree.outputs import Outputs
from mltree.placement import Resources
from mltree.problem import Problem
from mltree.report.progress import Reporter
from mltree.report.tables import Timed, timing_table
from mltree.run import Computation, Found
from mltree.stopping import Farewell, last_word, parting, unbroken

__all__ = ["Request", "conclude", "deliver", "model_line", "open_log"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every run needs to know."""

    alignment: str
    model: str | None
    datatype: str | None
    """``"dna"`` or ``"protein"``; what the data look like where None."""
    resources: Resources
    prefix: str | None
    redo: bool
    command: str

    @property
    def outputs(self) -> Outputs:
        """Where the run writes; without a prefix there must be an alignment to lie beside."""
        if self.prefix is None:
            expect_file(self.alignment)
        return Outputs.of(self.prefix, self.alignment)


@contextmanager
def open_log(path: Path, reporter: Reporter) -> Iterator[RunLog]:
    """The log of a run, which locks its prefix, while the run lasts."""
    with RunLog(path) as log, parting(partial(_abandon, log)):
        reporter.log_to(log)
        if not log.is_locked:
            reporter(Notice(f"{path.parent} has no locks: no other run may write {path.name}"))
        try:
            yield log
        finally:
            reporter.log_to(None)


def _abandon(log: RunLog) -> Farewell:
    """The end of a run that has nothing worth keeping yet."""
    log.close("stopped\n")
    return Farewell()


def deliver(
    outputs: Outputs, texts: Mapping[str, str], reporter: Reporter, spent: Sequence[str] = ()
) -> list[Path]:
    """Write the results, all or none; from then on a stop changes nothing any more.

    ``spent``: kinds of files that are of no use beside them. Lines that cannot be written are shown
    instead, not to be lost.

    Raises:
        InputError: the results cannot be written.
    """
    with unbroken():
        try:
            files = outputs.write(texts)
        except InputError as error:
            for kind, text in texts.items():
                if text.count("\n") == 1:
                    reporter(Unsaved(str(outputs.path(kind)), text))
            hint = "results are printed instead; once it can be, the same command writes them"
            raise InputError(error.message, hint=hint) from error
        for kind in spent:
            outputs.remove(kind)
        last_word(Farewell("the results are written", 0))
    return files


def model_line(model: Model, problem: Problem) -> str:
    """The content of a .bestModel file."""
    return format_best_model(model, problem.patterns.n_sites) + "\n"


def conclude(
    computation: Computation, found: Found, newick: str, files: list[Path], reporter: Reporter
) -> None:
    """Show what a run found, scored in fp64, and where its time went."""
    exact = computation.exactly(found, reporter)
    reporter(exact.event(newick, list(map(str, files))))
    wall, busy = reporter.elapsed, reporter.busy
    timed = [engine.breakdown() for engine in computation.engines if isinstance(engine, Timed)]
    if timed:
        spent = Breakdown.one_after_the_other(timed)
        reporter.say(timing_table(spent, wall, busy, joint_bandwidth(spent)))
