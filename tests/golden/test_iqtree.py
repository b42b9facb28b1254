"""Free rates and linked parts at fixed parameters, against IQ-TREE and by the reference too.

IQ-TREE 2.0.7 (Debian 2.0.7+dfsg-1), 4 decimals, nothing optimised. Of free rates:

    iqtree2 -s <data>.phy -te trees/<data>.nwk -blfix -nt 1
        -m GTR{1.2,3.4,0.7,0.9,4.1}+F{0.31,0.22,0.19,0.28}+R4{0.3,0.1,0.3,0.6,0.25,1.4,0.15,3.0}

Of parts, where a and b are the halves of the alignment, the first of n // 2 sites:

    iqtree2 -s <data>.phy -q parts.nex -te trees/<data>.nwk -blfix -nt 1

    charpartition m = GTR{1.2,3.4,0.7,0.9,4.1}+F{0.31,0.22,0.19,0.28}+G4{0.5}: a,
        HKY{3.7}+F{0.25,0.25,0.25,0.25}+R4{0.3,0.1,0.3,0.6,0.25,1.4,0.15,3.0}: b;
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mltree.device.discovery import REFERENCE
from mltree.events import ignore
from mltree.model.partitioned import Linkage
from mltree.placement import Resources
from mltree.problem import load_problem, read_tree
from mltree.run import evaluate, open_computation

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"

TOLERANCE = 1e-3
"""Natural log; IQ-TREE prints 4 decimals and has its own constants for gamma classes."""

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
    likelihood = open_computation(problem, resources, ignore).likelihood
    found = evaluate(
        likelihood, tree, problem.model, ignore, optimise_parameters=False, optimise_lengths=False
    )
    assert found.lnl == pytest.approx(expected, abs=TOLERANCE)
