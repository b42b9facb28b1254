"""Free rates and parts of every linkage at fixed parameters, against IQ-TREE, by the reference too.

IQ-TREE 2.0.7 (Debian 2.0.7+dfsg-1), 4 decimals. Of free rates, nothing optimised:

    iqtree2 -s <data>.phy -te trees/<data>.nwk -blfix -nt 1
        -m GTR{1.2,3.4,0.7,0.9,4.1}+F{0.31,0.22,0.19,0.28}+R4{0.3,0.1,0.3,0.6,0.25,1.4,0.15,3.0}

Of linked parts, where a and b are the halves of the alignment, the first of n // 2 sites:

    iqtree2 -s <data>.phy -q parts.nex -te trees/<data>.nwk -blfix -nt 1

    charpartition m = GTR{1.2,3.4,0.7,0.9,4.1}+F{0.31,0.22,0.19,0.28}+G4{0.5}: a,
        HKY{3.7}+F{0.25,0.25,0.25,0.25}+R4{0.3,0.1,0.3,0.6,0.25,1.4,0.15,3.0}: b;

Of scaled and unlinked parts at IQ-TREE's own lengths, the same models, a = 1-n\\3 2-n\\3 and
b = 3-n\\3:

    iqtree2 -s <data>.phy -p strides.nex -te trees/<data>.nwk -nt 1 -pre p
    iqtree2 -s <data>.phy -Q strides.nex -te trees/<data>.nwk -nt 1 -pre Q

All optimised on the tree's topology, where halves.nex says a and b as above and

    iqtree2 -s <data>.phy -te trees/<data>.nwk -m <model> -nt 1
    iqtree2 -s <data>.phy -te trees/<data>.nwk -p halves.nex -nt 1

    charpartition m = GTR+F+G4: a, HKY+F+I+G4: b;

trees/<data>.scaled.nwk is p.treefile, trees/<data>.unlinked.nwk Q.parttrees. Factors are the tree
lengths of parts in p.best_model.nex over that of p.treefile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mltree.device.discovery import REFERENCE
from mltree.models.partitioned import Linkage
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.problem import load_problem
from mltree.runs.trees import fit_topology, read_tree, read_trees
from mltree.system.events import ignore

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"

TOLERANCE = 1e-3
"""Natural log; IQ-TREE prints 4 decimals and has its own constants for gamma classes."""

SHORT = 0.01
"""Natural log: what IQ-TREE's own optimisation may lack, which ends at gains of 0.01."""

GTR = "GTR{1.2/3.4/0.7/0.9/4.1/1.0}+FU{0.31/0.22/0.19/0.28}"
RATES = "+R4{0.1/0.6/1.4/3.0}{0.3/0.3/0.25/0.15}"

SITES = {"primates": 898, "animals": 1998}

ROWS = [
    ("primates", False, -5913.6725),
    ("animals", False, -21592.3818),
    ("primates", True, -5967.8526),
    ("animals", True, -21748.9609),
]


@pytest.mark.parametrize("resources", [Resources(), Resources(device=REFERENCE)])
@pytest.mark.parametrize(("data", "in_parts", "expected"), ROWS)
def test_fixed_parameters(
    data: str, in_parts: bool, expected: float, resources: Resources, tmp_path: Path
) -> None:
    model, sites = GTR + RATES, SITES[data]
    if in_parts:
        half = sites // 2
        model = str(tmp_path / "parts")
        (tmp_path / "parts").write_text(
            f"{GTR}+G4m{{0.5}}, a = 1-{half}\nHKY{{3.7}}+FE{RATES}, b = {half + 1}-{sites}\n"
        )
    path = str(DATASETS / f"{data}.phy")
    problem = load_problem(path, model, ignore, linkage=Linkage.LINKED)
    assert problem.n_sites == sites
    tree = read_tree(str(FOLDER / "trees" / f"{data}.nwk"), problem, ignore)
    likelihood = open_engines(resources, Workload.of(problem), ignore).likelihood
    found = fit_topology(
        likelihood, tree, problem.model, ignore, optimise_parameters=False, optimise_lengths=False
    )
    assert found.lnl == pytest.approx(expected, abs=TOLERANCE)


STRIDES = [
    ("primates", Linkage.SCALED, (1.244359, 0.510463), -5876.0162),
    ("animals", Linkage.SCALED, (1.033910, 0.932182), -21659.0905),
    ("primates", Linkage.UNLINKED, (), -5858.6372),
    ("animals", Linkage.UNLINKED, (), -21639.6471),
]


def strides(data: str, factors: Sequence[float], folder: Path) -> str:
    """A partition file: two sites of three and the third; scaled by factors, if there are any."""
    one, other = (f"+BU{{{factor}}}" for factor in factors) if factors else ("", "")
    n, path = SITES[data], folder / "strides"
    path.write_text(
        f"{GTR}+G4m{{0.5}}{one}, a = 1-{n}\\3, 2-{n}\\3\n"
        f"HKY{{3.7}}+FE{RATES}{other}, b = 3-{n}\\3\n"
    )
    return str(path)


@pytest.mark.parametrize("resources", [Resources(), Resources(device=REFERENCE)])
@pytest.mark.parametrize(("data", "linkage", "factors", "expected"), STRIDES)
def test_parts_at_the_lengths_of_iqtree(
    data: str,
    linkage: Linkage,
    factors: Sequence[float],
    expected: float,
    resources: Resources,
    tmp_path: Path,
) -> None:
    model = strides(data, factors, tmp_path)
    problem = load_problem(str(DATASETS / f"{data}.phy"), model, ignore, linkage=linkage)
    tree = read_trees(str(FOLDER / "trees" / f"{data}.{linkage}.nwk"), problem, ignore)
    likelihood = open_engines(resources, Workload.of(problem), ignore).likelihood
    found = fit_topology(
        likelihood, tree, problem.model, ignore, optimise_parameters=False, optimise_lengths=False
    )
    assert found.lnl == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize(("data", "linkage", "factors", "expected"), STRIDES)
def test_lengths_of_parts_are_optimised_as_far_as_by_iqtree(
    data: str, linkage: Linkage, factors: Sequence[float], expected: float, tmp_path: Path
) -> None:
    """From other lengths and factors of 1."""
    model = strides(data, (), tmp_path)
    problem = load_problem(str(DATASETS / f"{data}.phy"), model, ignore, linkage=linkage)
    tree = read_tree(str(FOLDER / "trees" / f"{data}.nwk"), problem, ignore)
    likelihood = open_engines(Resources(), Workload.of(problem), ignore).likelihood
    found = fit_topology(
        likelihood, tree, problem.model, ignore, optimise_parameters=True, optimise_lengths=True
    )
    assert expected - TOLERANCE < found.lnl < expected + SHORT
    if factors:
        np.testing.assert_allclose(found.model.scalers, factors, rtol=0.01)


OPTIMISED = [
    ("primates", "GTR+FC+R4", -5719.255),
    ("animals", "GTR+FC+R4", -21145.816),
    ("primates", "GTR+FC+I+R3", -5719.210),
    ("animals", "GTR+FC+I+R3", -21146.453),
    ("primates", "halves", -5719.435),
    ("animals", "halves", -21329.685),
    ("proteins", "LG+G4", -12454.521),
    ("proteins", "WAG+FC+I+G4", -12594.390),
]

OPTIMUM = 0.05
"""Natural log: what an optimum may lack to that of IQ-TREE, which ends at gains of 0.01."""


@pytest.mark.parametrize(("data", "model", "expected"), OPTIMISED)
def test_optimised_as_far_as_by_iqtree(
    data: str, model: str, expected: float, tmp_path: Path
) -> None:
    if model == "halves":
        n, path = SITES[data], tmp_path / "halves"
        path.write_text(f"GTR+FC+G4, a = 1-{n // 2}\nHKY+FC+I+G4, b = {n // 2 + 1}-{n}\n")
        model = str(path)
    linkage = Linkage.SCALED
    problem = load_problem(str(DATASETS / f"{data}.phy"), model, ignore, linkage=linkage)
    tree = read_tree(str(FOLDER / "trees" / f"{data}.nwk"), problem, ignore)
    tree.lengths[:] = 0.1
    found = fit_topology(
        open_engines(Resources(), Workload.of(problem), ignore).likelihood,
        tree, problem.model, ignore, optimise_parameters=True, optimise_lengths=True,
    )  # fmt: skip
    assert found.lnl > expected - OPTIMUM
