"""Kinds of operations: each defines all that its kind asks for."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from mltree.program import ops
from mltree.program.ops.operation import (
    CASE,
    RUNS,
    STAGES,
    ControlStage,
    Row,
    TableStage,
    WorkStage,
    table,
)


def test_every_operation_defines_what_its_kind_asks_for() -> None:
    assert ops.__doc__
    for kind in (*RUNS.values(), *STAGES.values()):
        assert not inspect.isabstract(kind)
        assert kind.name


def test_every_stage_is_computed_or_controls() -> None:
    for kind in STAGES.values():
        assert issubclass(kind, WorkStage) != issubclass(kind, ControlStage)


def test_an_operation_without_a_formula_cannot_be_made() -> None:
    class Unfinished(TableStage):
        pass

    with pytest.raises(TypeError, match=r"formula.*jobs|jobs.*formula"):
        Unfinished(np.zeros(0, CASE))


def test_fields_of_a_row_are_attributes() -> None:
    (row,) = map(Row, table(CASE, 1, first_part=2, parts=3, model=-1, weights=0))
    assert (row.first_part, row.parts, row.model, row.weights) == (2, 3, -1, 0)
