"""``mltree compare``, ``devices`` and ``check``: looking, without writing anything."""

from __future__ import annotations

from rich.console import Console

from mltree.alignment.checks import summarise
from mltree.commands.request import read_tree
from mltree.compare import is_close, score_everywhere, self_test
from mltree.device.discovery import NO_DEVICE_HINT, choose_device, find_devices
from mltree.engines import memory_need
from mltree.errors import DeviceError, NumericalError
from mltree.events import Notice, ignore
from mltree.report import tables
from mltree.report.progress import Reporter
from mltree.run import load_problem

__all__ = ["run_compare", "show_check", "show_devices"]


def run_compare(
    alignment: str, tree: str, model: str | None, mixed: bool, reporter: Reporter
) -> None:
    """The same likelihood from every engine, side by side.

    Raises:
        NumericalError: engines disagree by more than rounding explains.
    """
    problem = load_problem(alignment, model, reporter)
    given = read_tree(tree, problem, reporter)
    scores = []
    for score in score_everywhere(problem.patterns, given, problem.model, mixed):
        scores.append(score)
        if score.problem:
            reporter(Notice(f"{score.engine}: {score.problem}"))
    reporter.say(tables.compare_table(scores))
    reference, *others = scores
    wrong = [s for s in others if s.problem or not is_close(s.lnl, reference.lnl, mixed)]
    if wrong:
        names = ", ".join(score.engine for score in wrong)
        raise NumericalError(f"not the reference's result: {names}", hint="see the table")


def show_devices(console: Console) -> None:
    """Every device with what matters, and whether it computes rightly."""
    found = find_devices()
    if not found:
        raise DeviceError("no OpenCL device was found", hint=NO_DEVICE_HINT)
    for device in found:
        for line in tables.device_lines(device, self_test(device)):
            console.print(line, soft_wrap=True, markup=False)


def show_check(alignment: str, model: str | None, device: str | None, console: Console) -> None:
    """Everything worth knowing about an alignment before a search."""
    problem = load_problem(alignment, model, ignore)
    for line in tables.check_lines(summarise(problem.alignment, problem.patterns)):
        console.print(line, soft_wrap=True, markup=False)
    try:
        chosen = choose_device(device)
    except DeviceError as error:
        console.print(f"Memory       not known: {error.message}", soft_wrap=True, markup=False)
        return
    need = memory_need(chosen, problem.patterns, problem.model.arrays().n_categories)
    console.print(tables.memory_line(need), soft_wrap=True, markup=False)
