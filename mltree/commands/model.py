"""``mltree model``: the model that suits the data best, and ``--model auto``."""

from __future__ import annotations

from collections.abc import Sequence

from mltree import __version__
from mltree.choice.choosing import Scheme, check_mergeable, choose, choose_scheme
from mltree.choice.scored_models import Choice
from mltree.commands.choice_files import TABLE, choice_kinds, choice_texts, recalled
from mltree.commands.request import Request, begin_log, open_log
from mltree.commands.results import by_kind, command_result, deliver
from mltree.events import Emit, Notice
from mltree.events.choice import ModelsRanked, RankedModel
from mltree.events.run import RunStarted
from mltree.given_trees import read_tree
from mltree.model.candidates import Criterion
from mltree.model.grammar import format_model
from mltree.placement import Resources
from mltree.problem import Problem
from mltree.report.choices import best_fit_line
from mltree.report.progress import Reporter
from mltree.tree.topology import Tree

__all__ = ["SHOWN", "ModelRequest", "chosen", "run_model", "scheme_of"]

LOG = "modelLog"

SHOWN = 10
"""Models of a part that are shown; all are in the file."""


class ModelRequest(Request, kw_only=True):
    """``mltree model``."""

    criterion: str
    tree: str | None
    seed: int
    merge: bool
    """Whether parts are put together."""

    @property
    def chooses(self) -> bool:
        """It does nothing else."""
        return True


def run_model(request: ModelRequest, reporter: Reporter) -> None:
    """Choose, show the ranking, write the files."""
    outputs = request.outputs
    every = choice_kinds(has_parts=True)
    outputs.check([LOG, *every], [*request.files, request.tree or ""])
    with open_log(outputs.path(LOG), reporter) as log, outputs.held(every):
        outputs.claim(choice_kinds(has_parts=request.partitions is not None), request.redo)
        reporter(RunStarted(__version__, request.command, request.seed))
        problem = request.load(reporter)
        if request.merge:
            check_mergeable(problem)
        tree = read_tree(request.tree, problem, reporter) if request.tree else None
        begin_log(log, request, [request.tree or ""], reporter)
        criterion = Criterion(request.criterion)
        scheme = _scheme(problem, request, request.seed, criterion, tree, reporter, request.merge)
        texts = choice_texts(scheme, request.merge)
        spent = [kind for kind in every if request.redo and kind not in texts]
        files = [log.path, *deliver(outputs, texts, reporter, spent)]
        reporter.say("\n".join(["", *(f"Wrote {file}" for file in files)]))
        names = [(choice.part, choice.best.name) for choice in scheme.choices]
        reporter.say(best_fit_line(criterion, names))
        best = {choice.part: format_model(choice.best.model) for choice in scheme.choices}
        values = {"seed": request.seed, "criterion": request.criterion, "best": best}
        inputs = [*request.files, request.tree or ""]
        result = command_result("model", request.command, values, by_kind(files), inputs, reporter)
        reporter.finish("model", result)


def chosen(problem: Problem, request: Request, seed: int, merge: bool, emit: Emit) -> Problem:
    """The problem under the models that suit it best, merged if asked for (``--model auto``).

    What was chosen once stays: it is in a file, whoever has written it.

    Raises:
        InputError: the file is of another choice.
    """
    if merge:
        check_mergeable(problem)
    outputs = request.outputs
    table = outputs.path(TABLE)
    if table.exists() and not request.redo:
        problem = recalled(table, problem, merge)
        emit(Notice(f"models are as {table} has them"))
        return problem
    scheme = _scheme(problem, request, seed, Criterion.BIC, None, emit, merge)
    outputs.write(choice_texts(scheme, merge))
    return scheme.problem.under([choice.best.name for choice in scheme.choices])


def _scheme(
    problem: Problem,
    request: Request,
    seed: int,
    criterion: Criterion,
    tree: Tree | None,
    emit: Emit,
    merge: bool,
) -> Scheme:
    """Choose, and tell how the candidates rank."""
    scheme = scheme_of(
        problem, request.resources, criterion, merge=merge, seed=seed, tree=tree, emit=emit
    )
    rank(scheme.choices, emit)
    return scheme


def scheme_of(
    problem: Problem,
    resources: Resources,
    criterion: Criterion = Criterion.BIC,
    *,
    merge: bool,
    seed: int,
    tree: Tree | None = None,
    emit: Emit,
) -> Scheme:
    """The best models of the parts, which ``merge`` puts together where that is better."""
    if merge:
        return choose_scheme(problem, resources, criterion, seed=seed, tree=tree, emit=emit)
    choices = choose(problem, resources, criterion, seed=seed, tree=tree, emit=emit)
    return Scheme(problem, choices, [[name] for name in problem.model.names])


def rank(choices: Sequence[Choice], emit: Emit) -> None:
    """Tell how the candidates of every part rank."""
    for choice in choices:
        worth = choice.weights(choice.criterion)
        rows = tuple(
            RankedModel(
                one.name, one.lnl, one.parameters, one.score(choice.criterion), worth[one.name]
            )
            for one in choice.ranked[:SHOWN]
        )
        emit(ModelsRanked(choice.part, choice.criterion, len(choice.scored), rows))
