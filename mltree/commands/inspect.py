"""``mltree compare``, ``devices`` and ``check``: looking, without writing anything."""

from __future__ import annotations

from rich.console import Console

from mltree.compare import is_close, is_ok, score_everywhere, self_test
from mltree.device.calibration import Calibration, load, notices
from mltree.device.discovery import find_devices, no_device
from mltree.device.speed import build_all, calibrate
from mltree.errors import DeviceError, NumericalError
from mltree.events import EnginesCompared, Notice
from mltree.placement import Resources, place
from mltree.problem import check_possible, load_problem, read_problem, read_tree
from mltree.report import tables
from mltree.report.progress import Reporter, describe
from mltree.settings import preset

__all__ = ["run_compare", "show_check", "show_devices"]


def run_compare(
    alignment: str,
    tree: str,
    model: str | None,
    datatype: str | None,
    mixed: bool,
    reporter: Reporter,
) -> None:
    """The same likelihood from every engine, side by side.

    Raises:
        NumericalError: engines disagree by more than rounding explains.
    """
    problem = load_problem(alignment, model, reporter, datatype)
    given = read_tree(tree, problem, reporter)
    check_possible(given, problem.patterns)
    for text in notices(find_devices()):
        reporter(Notice(text))
    scores = []
    for score in score_everywhere(problem.patterns, given, problem.model, mixed):
        scores.append(score)
        if score.problem:
            reporter(Notice(f"{score.engine}: {score.problem}"))
    reporter(EnginesCompared(tuple(scores)))
    reference, *others = scores
    wrong = [s for s in others if s.problem or not is_close(s.lnl, reference.lnl, mixed)]
    if wrong:
        names = ", ".join(score.engine for score in wrong)
        raise NumericalError(f"not the reference's result: {names}", hint="see the table")


def show_devices(console: Console, again: bool) -> None:
    """Every device with what matters, and whether it computes rightly.

    Measures what layouts suit the device where nobody has; ``again``: in any case.
    """
    found = find_devices()
    if not found:
        raise no_device()
    for text in notices(found):
        console.print(describe(Notice(text)), soft_wrap=True, markup=False)
    due = [device for device in found if again or not load(device).layouts]
    with console.status("self-test", spinner="line") as status:

        def tell(text: str) -> None:
            if console.is_terminal:
                status.update(text)
            else:
                console.print(text, soft_wrap=True, markup=False)

        build_all(due, tell)
        for device in found:
            verdict, known = self_test(device), load(device)
            if not is_ok(verdict):
                known = Calibration()
            elif device in due:
                known = calibrate(device, tell)
            for line in tables.device_lines(device, verdict, known):
                console.print(line, soft_wrap=True, markup=False)


def show_check(
    alignment: str,
    model: str | None,
    datatype: str | None,
    device: str | None,
    console: Console,
) -> None:
    """Everything worth knowing about an alignment before a search."""
    problem = read_problem(alignment, model, datatype)
    for line in tables.check_lines(problem.summary):
        console.print(line, soft_wrap=True, markup=False)
    patterns, categories = problem.patterns, problem.model.arrays().n_categories
    settings = preset("default")
    bounds = settings.branches.bounds(patterns.n_sites)
    wanted = Resources(device=device)
    try:
        memory = place(wanted, patterns, categories, bounds, settings.most_trees).memory
        line = "no device's" if memory is None else describe(memory).removeprefix("memory: ")
    except DeviceError as error:
        line = f"not known: {error.message}"
    console.print(f"Memory       {line}", soft_wrap=True, markup=False)
