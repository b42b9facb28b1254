"""Genotypes at fixed trees, lengths and parameters, against RAxML-NG 1.1 (commit 31c7a02).

The genotypes are those of `paired`: the letters of two neighbouring sites of a data set are the two
nucleotides of one. Written as FASTA and scored by
raxml-ng --loglh --threads 1 --msa <genotypes> --tree trees/<data>.nwk --model <model>
--opt-model off --opt-branches off, the model by its older name there and with a 0 in front of the
exchangeabilities, for double changes. 6 decimals. That version has no GT16, and its successor
(coraxlib, 2022 to 2025) takes A-G's exchangeability for AA-AC and CC-AC, so that GT10 differs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import Alignment, read_alignment
from mltree.data.alphabet import HETEROZYGOTES, UNPHASED
from mltree.data.patterns import compress
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.tree.newick import read_newick

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"

FREQUENCIES = "+FU{0.05/0.15/0.1/0.1/0.2/0.05/0.05/0.1/0.1/0.1}"


def paired(data: str) -> Alignment:
    real = read_alignment(DATASETS / f"{data}.phy")
    letter_of = {frozenset(pair): letter for letter, pair in HETEROZYGOTES.items()}
    letter_of |= {frozenset(base): base for base in "ACGT"}
    characters = np.full((len(real.names), real.n_sites // 2), ord("N"), np.uint8)
    for row, text in enumerate(real.characters):
        pairs = zip(text[::2].tolist(), text[1::2].tolist(), strict=False)
        letters = [letter_of.get(frozenset(map(chr, pair)), "N") for pair in pairs]
        characters[row] = np.frombuffer("".join(letters).encode(), np.uint8)
    return Alignment(real.names, characters, real.path, UNPHASED)


@pytest.mark.parametrize(
    ("data", "model", "lnl"),
    [
        ("primates", "GT10JC", -6230.224273),
        ("primates", f"GT10JC-SM{FREQUENCIES}+G4{{0.5}}", -5908.196860),
        ("primates", f"GT10HKY{{1/2.5}}{FREQUENCIES}", -5733.536261),
        ("primates", "GT10{1.5/4/0.7/1/3/2}+FE+IU{0.1}+G4{0.5}", -5636.397485),
        ("primates", "GT10{1.5/4/0.7/1/3/2}+FC", -5488.989899),
        (
            "primates",
            f"GT10{{1.5/4/0.7/1/3/2}}{FREQUENCIES}+R2{{0.5/1.5}}{{0.5/0.5}}",
            -5690.572619,
        ),
        ("frogs", "GT10JC", -25031.785386),
        ("frogs", f"GT10JC-SM{FREQUENCIES}+G4{{0.5}}", -21962.971693),
        ("frogs", f"GT10HKY{{1/2.5}}{FREQUENCIES}", -22985.633565),
        ("frogs", "GT10{1.5/4/0.7/1/3/2}+FE+IU{0.1}+G4{0.5}", -20851.375572),
        ("frogs", "GT10{1.5/4/0.7/1/3/2}+FC", -22727.701114),
        ("frogs", f"GT10{{1.5/4/0.7/1/3/2}}{FREQUENCIES}+R2{{0.5/1.5}}{{0.5/0.5}}", -22269.288282),
    ],
)
def test_lnl(data: str, model: str, lnl: float, open_native: Callable[..., Engine]) -> None:
    patterns = compress(paired(data))
    arrays = parse_model(model, UNPHASED).with_empirical_frequencies(patterns).arrays()
    tree, _ = read_newick(FOLDER / "trees" / f"{data}.nwk", patterns.taxa)
    engine = open_native(patterns, arrays.n_categories)
    used = TreeLikelihood(engine, (0.0, 100.0), Columns.of([patterns]))
    assert used.log_likelihoods([tree], [Case((arrays,))])[0] == pytest.approx(lnl, abs=1e-3)
