"""Simulated tables are sound, and kernels are timed on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.unifrac import DEPTH, kernel_times, simulated
from mltree.diversity.branches import place
from mltree.diversity.table import read_table


def test_tables_are_sound_and_kernels_timed(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    name, table, tree = simulated(tmp_path, 40, 300, 1)
    samples = place(read_table(str(table)), str(tree))
    assert name == "40 x 300"
    assert samples.n_samples == 40
    assert (samples.totals == DEPTH).all()
    assert simulated(tmp_path, 40, 300, 1)[1:] == (table, tree)
    row = kernel_times(table, tree, "unweighted", "double", None)
    assert row["status"] == "done"
    assert row["common_terms"] > 0
    assert {"dense", "rare", "finish"} <= set(row["kernels_s"])
