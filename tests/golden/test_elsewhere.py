"""Models of other programs' command lines compute here what they compute there.

Each row is what a program printed for a command, at the lengths of trees/<data>.nwk unless it is
RAxML, which optimises them. The commands are those of `commands`: IQ-TREE 2.0.7 (Debian
2.0.7+dfsg-1), RAxML 8.2.12 (Debian 8.2.12+dfsg-8) and PhyML 3.3.20220408 (Debian
3:3.3.20220408-3). Where a program is installed it is run, and has to print the same again.

The data are those of datasets/ (sha256 in its README; what the table says of their trees is in
lnl.tsv), as they are or as `recoded` of test_characters.py and `in_codons` of test_codons.py make
them of the primates: characters, and codons of the first 450 sites.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from mltree.models.names import from_elsewhere
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.problem import load_problem
from mltree.runs.trees import fit_topology, read_tree
from mltree.system.events import ignore

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"

LESS, MORE = 0.02, 2.5
"""Natural log: how much lower and higher than there an optimum may be here. Other frequencies make
10 and more of it; RAxML ends at gains of 0.1, and lacks 2 for characters of four states."""

LETTERS = {"binary": "0101", "four": "0123"}


class Row(NamedTuple):
    program: str
    data: str
    options: str
    lnl: float


ROWS = [
    Row("IQ-TREE", "primates", "-m JC", -6733.316),
    Row("IQ-TREE", "primates", "-m F81", -6592.951),
    Row("IQ-TREE", "primates", "-m K80+F", -6379.650),
    Row("IQ-TREE", "primates", "-m HKY", -6185.273),
    Row("IQ-TREE", "primates", "-m HKY+FQ", -6379.650),
    Row("IQ-TREE", "primates", "-m HKY+FO", -6168.228),
    Row("IQ-TREE", "primates", "-m HKY+G4", -5728.705),
    Row("IQ-TREE", "primates", "-m HKY+R3{0.3,0.1,0.3,0.6,0.4,2}", -5765.781),
    Row("IQ-TREE", "primates", "-m TN+I", -5795.280),
    Row("IQ-TREE", "primates", "-m TNe", -6315.876),
    Row("IQ-TREE", "primates", "-m K3P", -6366.955),
    Row("IQ-TREE", "primates", "-m K81uf", -6175.658),
    Row("IQ-TREE", "primates", "-m TPM2", -6159.412),
    Row("IQ-TREE", "primates", "-m TIM3", -6156.121),
    Row("IQ-TREE", "primates", "-m TIM2e", -6256.634),
    Row("IQ-TREE", "primates", "-m TVM{2,3,4,5}", -6620.127),
    Row("IQ-TREE", "primates", "-m SYM+F", -6243.169),
    Row("IQ-TREE", "primates", "-m 010020", -6168.702),
    Row("IQ-TREE", "primates", "-m GTR+G4 -gmedian", -5719.475),
    Row("IQ-TREE", "primates", "-m MIX{JC,HKY}", -6176.128),
    Row("IQ-TREE", "binary", "-st BIN -m JC2", -3175.635),
    Row("IQ-TREE", "binary", "-st BIN -m GTR2", -3157.097),
    Row("IQ-TREE", "binary", "-st BIN -m GTR2+F", -3163.023),
    Row("IQ-TREE", "four", "-st MORPH -m MK", -6733.316),
    Row("IQ-TREE", "four", "-st MORPH -m ORDERED", -8540.993),
    Row("IQ-TREE", "four", "-st MORPH -m GTR", -6243.169),
    Row("IQ-TREE", "codons", "-st CODON2 -m GY", -2894.642),
    Row("IQ-TREE", "proteins", "-m LG", -13088.859),
    Row("IQ-TREE", "proteins", "-m WAG+F", -13215.638),
    Row("RAxML", "primates", "-m GTRGAMMA", -5719.450280),
    Row("RAxML", "primates", "-m GTRGAMMAX", -5709.630111),
    Row("RAxML", "primates", "-m GTRGAMMA --HKY85", -5728.079073),
    Row("RAxML", "primates", "-m GTRGAMMA -u", -5719.533964),
    Row("RAxML", "binary", "-m BINGAMMA", -2111.281422),
    Row("RAxML", "four", "-m MULTIGAMMA -K MK", -6272.469064),
    Row("RAxML", "four", "-m MULTIGAMMA", -5721.313338),
    Row("RAxML", "proteins", "-m PROTGAMMAWAGF", -12600.408576),
    Row("PhyML", "primates", "", -5728.70292),
    Row("PhyML", "primates", "-m HKY85 -f m", -5714.88974),
    Row("PhyML", "primates", "-m TN93 -f 0.3,0.2,0.2,0.3", -5892.11803),
    Row("PhyML", "primates", "-m K80 -f m", -5959.52371),
    Row("PhyML", "primates", "-m GTR -c 1", -6130.26712),
    Row("PhyML", "primates", "-m HKY85 -t 4", -5796.80621),
    Row("PhyML", "primates", "-m 010020 -c 8 -a 0.5", -5732.60617),
    Row("PhyML", "proteins", "-d aa -m WAG -c 1", -13215.63817),
    Row("PhyML", "proteins", "-d aa -m WAG -c 1 -f m", -13208.31003),
]


def name_of(row: Row) -> str:
    return f"{row.program} {row.data} {row.options}"


def tree_of(data: str) -> Path:
    return FOLDER / "trees" / f"{'proteins' if data == 'proteins' else 'primates'}.nwk"


def written(data: str, folder: Path) -> Path:
    """The data as sequential PHYLIP."""
    if data in ("primates", "proteins"):
        return Path(shutil.copy(DATASETS / f"{data}.phy", folder / data))
    lines = (DATASETS / "primates.phy").read_text().split("\n")[1:]
    rows = [line.split() for line in lines if line.strip()]
    if data == "codons":
        rows = [[name, _codons(letters[:450])] for name, letters in rows]
    else:
        table = {ord(a): b for a, b in zip("ACGT", LETTERS[data], strict=True)}
        rows = [[name, re.sub("[^0-9]", "-", text.translate(table))] for name, text in rows]
    path = folder / data
    path.write_text("\n".join([f"{len(rows)} {len(rows[0][1])}", *map(" ".join, rows), ""]))
    return path


def _codons(letters: str) -> str:
    """Stop codons of the vertebrate mitochondrial code and ambiguous triplets as gaps."""
    triplets = re.findall("...", letters)
    stops = ("TAA", "TAG", "AGA", "AGG")
    return "".join(t if set(t) <= set("ACGT") and t not in stops else "---" for t in triplets)


def of_model(options: str) -> tuple[str, dict[str, str]]:
    """The model's name, and the other options with their values."""
    words, told = options.split(), {}
    while words:
        flag = words.pop(0)
        told[flag] = words.pop(0) if words and not words[0].startswith("-") else ""
    return told.pop("-m", ""), told


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_it_is_computed_what_the_other_program_computes(row: Row, tmp_path: Path) -> None:
    model = from_elsewhere(row.program, *of_model(row.options))
    datatype = {"codons": "codon:2"}.get(row.data)
    path = written(row.data, tmp_path)
    problem = load_problem(str(path), model, ignore, datatype=datatype)
    tree = read_tree(str(tree_of(row.data)), problem, ignore)
    found = fit_topology(
        open_engines(Resources(), Workload.of(problem), ignore).likelihood,
        tree, problem.model, ignore,
        optimise_parameters=True, optimise_lengths=row.program == "RAxML",
    )  # fmt: skip
    assert row.lnl - LESS < found.lnl < row.lnl + MORE


def command(row: Row, alignment: Path) -> list[str]:
    """The command line of which the row is; results lie beside the alignment."""
    tree, own = str(tree_of(row.data)), row.options.split()
    if row.program == "IQ-TREE":
        return ["iqtree2", "-s", alignment.name, "-te", tree, "-blfix", "-nt", "1", *own]
    if row.program == "RAxML":
        started = ["raxmlHPC", "-f", "e", "-s", alignment.name, "-t", tree, "-p", "1", "-n", "x"]
        return [*started, *own]
    fixed = ["-u", tree, "-o", "r", "-b", "0", "-q", "--quiet", "--no_memory_check"]
    return ["phyml", "-i", alignment.name, *fixed, *own]


STEP = 21
"""Rows from one that is run to the next, so that all of them come once."""

SAYS = {
    "IQ-TREE": r"BEST SCORE FOUND : (\S+)",
    "RAxML": r"Final GAMMA  likelihood: (\S+)",
    "PhyML": r"Log-likelihood:\s+(\S+)",
}


@pytest.mark.cases(3, len(ROWS))
def test_the_other_program_prints_it(case: int, tmp_path: Path) -> None:
    row = ROWS[case * STEP % len(ROWS)]
    words = command(row, written(row.data, tmp_path))
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    # Debian's PhyML is an MPI program, which refuses to be root's unless it is told twice.
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | root, capture_output=True, check=False, timeout=100
    )
    results = tmp_path.glob("*_phyml_stats*")
    texts = [path.read_text(errors="replace") for path in results] or [
        done.stdout.decode(errors="replace")
    ]
    told = re.findall(SAYS[row.program], texts[0])
    assert told, done.stderr.decode(errors="replace")
    assert float(told[-1]) == pytest.approx(row.lnl, abs=LESS)
