"""Which model suits an alignment best: ``mltree model`` from Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mltree.api.alignments import AlignmentLike, source_of
from mltree.api.calls import Progress, calling, one_of, resources_of
from mltree.api.results import table
from mltree.api.trees import TreeLike, newick_of
from mltree.choice.scored_models import Choice
from mltree.commands.choice_files import part_row
from mltree.commands.model import SHOWN, scheme_of
from mltree.given_trees import read_tree
from mltree.model.candidates import Criterion
from mltree.model.grammar import format_model
from mltree.model.partitioned import Linkage
from mltree.problem import load_problem
from mltree.values import plain

__all__ = ["ModelChoice", "model"]


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The candidates for an alignment, or for one of its parts, and the best of them."""

    choice: Choice = field(repr=False)

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


def model(
    alignment: AlignmentLike,
    *,
    partitions: str | None = None,
    merge: bool = False,
    brlen: str = "scaled",
    criterion: str = "bic",
    tree: TreeLike | None = None,
    taxa: Sequence[str] | None = None,
    data_type: str | None = None,
    seed: int = 1,
    device: str | int | None = None,
    precision: str = "double",
    memory_limit: str | int | None = None,
    progress: Progress = False,
) -> ModelChoice | list[ModelChoice]:
    """The model that suits an alignment best; of each part where ``partitions`` names a file.

    merge      whether parts are put together that are better off under one model
    criterion  ``"bic"``, ``"aic"`` or ``"aicc"``
    tree       that all are fitted to; one made quickly where None

    Raises:
        MltreeError: what the command ends with, in the same line.
    """
    one_of("criterion", criterion, Criterion)
    one_of("brlen", brlen, Linkage)
    resources = resources_of(device, precision, memory_limit)
    source, text = source_of(alignment, taxa), None if tree is None else newick_of(tree)
    with calling(progress) as call:
        problem = load_problem(
            source, None, call, data_type, Linkage(brlen), partitions, chooses=True
        )
        given = None if text is None else read_tree(text, problem, call)
        scheme = scheme_of(
            problem, resources, Criterion(criterion),
            merge=merge, seed=seed, tree=given, emit=call,
        )  # fmt: skip
    data, choices = scheme.problem.data, scheme.choices
    if data is None:
        return ModelChoice(choices[0])
    placed = sorted(zip(data.order, choices, strict=True), key=lambda pair: pair[0])
    return [ModelChoice(choice) for _, choice in placed]
