"""``mltree compare``, ``devices`` and ``check``: looking, without writing anything."""

from __future__ import annotations

from dataclasses import asdict, fields

from mltree.alignment.partition_files import read_partitions
from mltree.alignment.partitions import read_partitioned
from mltree.compare import is_close, is_ok, score_everywhere, self_test
from mltree.device.calibration import Calibration, load, notices
from mltree.device.discovery import choose_devices, find_devices, no_device
from mltree.device.info import DeviceInfo
from mltree.device.speed import build_all, calibrate
from mltree.errors import DeviceError, NumericalError
from mltree.events import Notice
from mltree.events.alignments import AlignmentChecked, PartFacts, PartitionsLoaded
from mltree.events.run import Busy, EnginesCompared
from mltree.given_trees import check_possible, read_tree
from mltree.model.part_models import in_our_words, model_alphabet, model_names, part_models
from mltree.model_option import is_choice
from mltree.placement import Resources, place
from mltree.problem import Problem, load_problem, read_problem, refuse_gap_taxa
from mltree.report import tables
from mltree.report.lines import describe
from mltree.report.progress import Reporter
from mltree.settings import preset

__all__ = ["run_compare", "show_check", "show_devices", "show_parts"]


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
    check_possible(given, problem.groups)
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
    reporter.finish("compare", {"scores": [asdict(score) for score in scores]})


def show_devices(reporter: Reporter, again: bool) -> None:
    """Every device with what matters, and whether it computes rightly.

    Measures what layouts suit the device where nobody has; ``again``: in any case.
    """
    found = find_devices()
    if not found:
        raise no_device()
    for text in notices(found):
        reporter(Notice(text))
    due = [device for device in found if again or not load(device).layouts]

    def tell(text: str) -> None:
        reporter(Busy(text))

    build_all(due, tell)
    told = []
    for device in found:
        verdict, known = self_test(device), load(device)
        if not is_ok(verdict):
            known = Calibration()
        elif device in due:
            known = calibrate(device, tell)
        reporter.say("\n".join(tables.device_lines(device, verdict, known)))
        told.append({**_facts(device), "self_test": verdict, "copy_bytes": known.copy_bytes})
    reporter.finish("devices", {"devices": told})


def _facts(device: DeviceInfo) -> dict[str, object]:
    """What is known of a device, but for its handle."""
    names = [field.name for field in fields(device) if field.name != "handle"]
    return {name: getattr(device, name) for name in names}


def show_parts(
    alignment: str,
    partitions: str,
    model: str | None,
    datatype: str | None,
    device: str | None,
    reporter: Reporter,
) -> None:
    """The parts of an alignment: what each is and holds, and whether its model can be used.

    Raises: MltreeError: a search would refuse them, or the device.
    """
    if device is not None:
        choose_devices(device)
    _as_a_search_reads(alignment, model, datatype, partitions)
    model = None if is_choice(model) else model
    scheme = in_our_words(read_partitions(partitions))
    data = read_partitioned(alignment, scheme, model_alphabet, datatype)
    part_models(data, model)
    for text in data.notices:
        reporter(Notice(text))
    facts = tuple(
        PartFacts(
            name=part.name,
            data_type=patterns.alphabet.name,
            model=name,
            sites=patterns.n_sites,
            patterns=patterns.n_patterns,
            gap_share=patterns.gap_share,
            taxa=int(data.has_data[number].sum()),
        )
        for number, (part, name) in enumerate(
            zip(data.parts, model_names(data, model), strict=True)
        )
        for patterns in [data.patterns(number)]
    )
    loaded = PartitionsLoaded(partitions, len(data.taxa), data.n_sites, facts)
    reporter(loaded)
    reporter.finish("check", asdict(loaded))


def _as_a_search_reads(
    alignment: str, model: str | None, datatype: str | None, partitions: str | None = None
) -> Problem:
    """The problem, as a search begins with it.

    Raises: MltreeError: a search would refuse the data or the model.
    """
    chooses = is_choice(model)
    name = None if chooses else model
    return read_problem(
        alignment, name, datatype, partitions=partitions, chooses=chooses, site_rates=True
    )


def show_check(
    alignment: str,
    model: str | None,
    datatype: str | None,
    device: str | None,
    reporter: Reporter,
) -> None:
    """Everything worth knowing about an alignment before a search.

    Raises: MltreeError: a search would refuse it; what can be shown is shown before.
    """
    problem = _as_a_search_reads(alignment, model, datatype)
    if problem.summary is None:
        assert model is not None, "a partition file has stood for it"
        show_parts(alignment, model, None, datatype, device, reporter)
        return
    patterns, categories = problem.patterns, max(problem.model.categories)
    settings = preset("default")
    bounds = settings.branches.bounds(patterns.n_sites)
    wanted = Resources(device=device)
    memory = None
    try:
        memory = place(
            wanted, patterns, categories, bounds, settings.most_trees,
            systems=max(problem.model.systems),
        ).memory  # fmt: skip
        line = "no device's" if memory is None else describe(memory).removeprefix("memory: ")
    except DeviceError as error:
        if device is not None:
            raise
        line = f"not known: {error.message}"
    reporter(AlignmentChecked(problem.summary, memory))
    reporter.say(f"Memory       {line}")
    values = {
        **asdict(problem.summary),
        "warnings": tables.warning_lines(problem.summary),
        "model": problem.model.text,
        "memory": None if memory is None else asdict(memory),
    }
    refuse_gap_taxa(problem)
    reporter.finish("check", values)
