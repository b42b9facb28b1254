"""The likelihood of fixed trees under fixed models, against RAxML-NG and IQ-TREE.

``lnl.tsv`` says where its figures come from. All rows of one data set and number of categories
share an engine, and a launch: the same tree side by side under every model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import Patterns, compress
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.tree.newick import read_newick
from mltree.tree.topology import Tree

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"

TOLERANCE = 1e-4
"""Natural log: the file has 6 decimals, sums over 5,565 patterns differ by about 1e-9 relative,
and RAxML-NG's tables for LG, WAG and JTT are rounded as mltree's are."""

IQTREE_TOLERANCE = 1e-3
"""The same for IQ-TREE, which prints 4 decimals and has its own constants for Γ classes."""


class Row(NamedTuple):
    data: str
    model: str
    raxmlng: float
    iqtree: float


LINES = (FOLDER / "lnl.tsv").read_text().splitlines()
ROWS = [
    Row(data, model, float(raxmlng), float(iqtree))
    for data, model, raxmlng, iqtree in (line.split("\t") for line in LINES if line[0] != "#")
    if data != "data"
]
NAMES = list(dict.fromkeys(row.data for row in ROWS))


@cache
def load(name: str) -> tuple[Patterns, Tree]:
    patterns = compress(read_alignment(DATASETS / f"{name}.phy"))
    tree, _ = read_newick(FOLDER / "trees" / f"{name}.nwk", patterns.taxa)
    return patterns, tree


def test_the_figures_belong_to_these_files() -> None:
    sums = re.findall(r"([0-9a-f]{64})  (\S+)", "\n".join(LINES))
    assert len(sums) == 2 * len(NAMES)
    for digest, name in sums:
        path = (DATASETS if name.endswith(".phy") else FOLDER / "trees") / name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, name


def test_the_two_programs_agree() -> None:
    for row in ROWS:
        assert row.iqtree == pytest.approx(row.raxmlng, abs=IQTREE_TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_lnl(name: str, open_engine: Callable[..., Engine]) -> None:
    patterns, tree = load(name)
    rows = [row for row in ROWS if row.data == name]
    models = [parse_model(row.model, patterns.alphabet).arrays() for row in rows]
    for categories in sorted({model.n_categories for model in models}):
        mine = [n for n, model in enumerate(models) if model.n_categories == categories]
        engine = open_engine(patterns, categories)
        lnl = TreeLikelihood(engine, (0.0, 100.0)).log_likelihoods(
            [tree] * len(mine), [Case((models[n],)) for n in mine]
        )
        expected = [rows[n].raxmlng for n in mine]
        np.testing.assert_allclose(lnl, expected, rtol=0, atol=TOLERANCE)
