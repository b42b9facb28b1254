"""Searches, evaluations, bootstraps and choices of models, as the commands do them.

Keywords, their defaults and their documentation are those of the commands' options.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

from mltree.analyses.bootstrap import BOOTSTRAPS, bootstrap_in_memory
from mltree.analyses.evaluate import fitted, opened
from mltree.analyses.model_selection import SHOWN, part_row, scheme_of
from mltree.analyses.options import (
    BootstrapOptions,
    EvaluateOptions,
    ModelChoiceOptions,
    SearchOptions,
)
from mltree.analyses.search import SUPPORT, run_search, search_in_memory
from mltree.analyses.tree_sets import CONSENSUS_FILES, METRICS
from mltree.api.calls import Call, Progress, calling
from mltree.api.inputs import AlignmentLike, source_of, written
from mltree.api.results import (
    BootstrapResult,
    Evaluation,
    PhyloTree,
    SearchResult,
    newick_of,
    table,
)
from mltree.data.alignments import MemoryAlignment, Source
from mltree.models.grammar import format_model
from mltree.runs.engines import Engines
from mltree.runs.model_choice import Criterion, RankedModels
from mltree.runs.options import AnalysisOptions, one_of
from mltree.runs.problem import is_choice
from mltree.runs.request import breakdown_of, load
from mltree.runs.steps import TreeResult
from mltree.runs.trees import read_tree
from mltree.runs.workspace import Workspace
from mltree.supports.consensus import Consensus
from mltree.system.errors import InputError
from mltree.system.events import BootstrapFinished, StartsEnded
from mltree.system.values import plain

CONSENSUS = CONSENSUS_FILES[Consensus.MAJORITY]

Asked = TypeVar("Asked", bound=AnalysisOptions)
Answer = TypeVar("Answer")

OF_COMMANDS = ("alignment", "separate", "threads", "ranks", "quiet", "verbose", "json")
"""Options of commands alone: a call has one alignment, and shows as much as ``progress`` asks."""

OF_FILES = ("prefix", "redo", "report", "site_rates", "site_lnl", "site_prob", "site_freq")
"""Options about files."""

SYNONYMS = {"start": "tree", "site_frequencies": "site_freqs"}
"""Other names of keywords."""

OPPOSITES = {"optimise_model": "no_opt_model", "optimise_branches": "no_opt_branches"}
"""Keywords that are true where an option is not given."""

TAXA = "names of the rows of a NumPy array"
PROGRESS = "true to show what happens; or a function that receives every event"
ALIGNMENT = "a path, or sequences in memory; see :mod:`mltree.api.inputs`"


def taking(
    options: type[Asked], *first: str, without: Sequence[str] = OF_FILES
) -> Callable[[Callable[[Asked, Source, Call], Answer]], Callable[..., Answer]]:
    """Make a function take the options of a command as keywords.

    first    options that may be given by position, behind the alignment
    without  options that it does not take
    """
    described = options.described()
    named = [name for name in described if name not in {*OF_COMMANDS, *first, *without}]

    def parameter(name: str, by_position: bool = False) -> inspect.Parameter:
        both, alone = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        default = getattr(options, name, inspect.Parameter.empty)
        return inspect.Parameter(
            name, both if by_position else alone, default=default, annotation=options.type_of(name)
        )

    of_any = inspect.signature(_of_any).parameters
    signature = inspect.Signature(
        [
            of_any["alignment"],
            *(parameter(name, by_position=True) for name in first),
            of_any["taxa"],
            *map(parameter, named),
            of_any["progress"],
        ]
    )
    texts = {name: described[name].help for name in (*first, *named)}
    arguments = {"alignment": ALIGNMENT, "taxa": TAXA, **texts, "progress": PROGRESS}

    def decorate(function: Callable[[Asked, Source, Call], Answer]) -> Callable[..., Answer]:
        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Answer:
            keywords = {SYNONYMS.get(name, name): value for name, value in keywords.items()}
            for positive, option in OPPOSITES.items():
                if positive in keywords and option in described:
                    keywords[option] = not keywords.pop(positive)
            try:
                values = signature.bind(*arguments, **keywords).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            source = source_of(values.pop("alignment"), values.pop("taxa", None))
            progress = values.pop("progress", False)
            typed = {name: _typed(options, name, value) for name, value in values.items()}
            line = f"mltree.{function.__name__}(...)"
            asked = options(alignment="", line=line, **typed)
            asked.check()
            with calling(progress, in_files=asked.prefix is not None) as receiver:
                return function(asked, source, receiver)

        call.__signature__ = signature  # type: ignore[attr-defined]
        lines = "\n".join(f"{name}  {text}" for name, text in arguments.items())
        call.__doc__ = f"{inspect.getdoc(function)}\n\n{lines}\n\n{RAISES}\n"
        return call

    return decorate


RAISES = "Raises:\n    MltreeError: the data, the model, a tree or the device cannot be used."


def _of_any(
    alignment: AlignmentLike, *, taxa: Sequence[str] | None = None, progress: Progress = False
) -> None:
    """Parameters of every function."""


def _typed(options: type[AnalysisOptions], name: str, value: Any) -> Any:
    """A value as the command line would have it: paths, trees and numbers as text."""
    if value is None:
        return None
    if options.described()[name].reads == "tree":
        return newick_of(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    is_text = options.type_of(name) in (str, str | None)
    return str(value) if is_text and isinstance(value, int) else value


@taking(SearchOptions, "model", without=("report", "site_rates"))
def search(options: SearchOptions, source: Source, call: Call) -> SearchResult:
    """Find the maximum-likelihood tree of an alignment, as ``mltree search`` does.

    With a prefix it writes the files of the command, and goes on from those of a stopped one.
    """
    one_of("metric", options.metric, METRICS)
    if options.prefix is None:
        ready, found, supports = search_in_memory(options, call, source)
    else:
        if isinstance(source, MemoryAlignment):
            source = written(source, Workspace.of(options.prefix, "alignment").path("fasta"))
        assert call.reporter is not None, "calls that leave files have one"
        in_file = replace(options, alignment=str(source))
        ready, found, supports = run_search(in_file, call.reporter)
    return SearchResult(
        problem=ready.problem,
        resources=options.resources,
        found=found.scored(ready.engines, call),
        timings=_timings(ready.engines, found, call),
        seed=options.seed,
        starts=call.last(StartsEnded),
        labelled=supports,
        bootstrap=_of_texts(supports.texts, call) if options.bootstrap else None,
    )


def _timings(engines: Engines, found: TreeResult, call: Call) -> dict[str, float]:
    spent = breakdown_of(engines)
    device = 0.0 if spent is None else spent.device_seconds
    return {"total": call.elapsed, "run": found.seconds, "device": device}


def _of_texts(texts: Mapping[str, str], call: Call) -> BootstrapResult:
    """The result that the files of a bootstrap have."""
    end, supported = call.last(BootstrapFinished), texts.get(SUPPORT)
    return BootstrapResult(
        trees=tuple(map(PhyloTree, texts[BOOTSTRAPS].splitlines())),
        consensus=PhyloTree(texts[CONSENSUS].strip()),
        tree=None if supported is None else PhyloTree(supported.strip()),
        converged=end.converged if end else None,
    )


@taking(EvaluateOptions, "tree", "model")
def evaluate(options: EvaluateOptions, source: Source, call: Call) -> Evaluation:
    """Compute the log-likelihood of a tree, topology or all of it fixed, as ``mltree evaluate``."""
    problem, tree, engines = opened(options, call, source)
    found = fitted(engines, tree, problem.model, options, call)
    return Evaluation(
        problem=problem,
        resources=options.resources,
        found=found.scored(engines, call),
        timings=_timings(engines, found, call),
    )


@taking(BootstrapOptions, "model")
def bootstrap(options: BootstrapOptions, source: Source, call: Call) -> BootstrapResult:
    """Search the trees of bootstrap replicates, as ``mltree bootstrap`` does."""
    one_of("metric", options.metric, METRICS)
    if is_choice(options.model):
        raise InputError("model='auto' is chosen by search", hint="or ask mltree.model for one")
    return _of_texts(bootstrap_in_memory(options, call, source), call)


# Which model suits an alignment best: ``mltree model`` from Python.


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The candidates for an alignment, or for one of its parts, and the best of them."""

    choice: RankedModels = field(repr=False)

    def __repr__(self) -> str:
        return f"ModelChoice({self.name!r}, part={self.part!r})"

    def __str__(self) -> str:
        return self.name

    @property
    def part(self) -> str:
        """The part's name; ``noname`` where there is one."""
        return self.choice.part

    @property
    def name(self) -> str:
        """The best model, as ``model`` takes it: ``TVM+FC+G4``."""
        return self.choice.best.name

    @property
    def model(self) -> str:
        """The same with its estimates."""
        return format_model(self.choice.best.model)

    @property
    def lnl(self) -> float:
        """Log-likelihood under it, on the tree that all were compared on."""
        return self.choice.best.lnl

    def to_dict(self) -> dict[str, Any]:
        """All candidates and their scores, under the names of a .modelTest file."""
        return part_row(self.choice)

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(plain(self.to_dict()), indent=1) + "\n"

    def _repr_html_(self) -> str:
        criterion = self.choice.criterion
        worth = self.choice.weights(criterion)
        rows = [
            [one.name, f"{one.lnl:.3f}", str(one.parameters), f"{one.score(criterion):.3f}",
             f"{worth[one.name]:.4f}"]
            for one in self.choice.ranked[:SHOWN]
        ]  # fmt: skip
        return table(rows, ["model", "lnL", "parameters", criterion.upper(), "weight"])


@taking(ModelChoiceOptions)
def model(
    options: ModelChoiceOptions, source: Source, call: Call
) -> ModelChoice | list[ModelChoice]:
    """Choose the model that suits an alignment best; of each part where there are partitions."""
    problem = load(options, call, source)
    tree = None if options.tree is None else read_tree(options.tree, problem, call)
    scheme = scheme_of(problem, options, call, Criterion(options.criterion), tree)
    data, choices = scheme.problem.data, scheme.choices
    if data is None:
        return ModelChoice(choices[0])
    placed = sorted(zip(data.order, choices, strict=True), key=lambda pair: pair[0])
    return [ModelChoice(choice) for _, choice in placed]
