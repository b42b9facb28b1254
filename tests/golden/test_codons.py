"""Codon models at fixed trees, lengths and parameters, against codeml and IQ-TREE.

The codons are those of `in_codons`: nucleotides three at a time by the vertebrate mitochondrial
code, stop codons (and for IQ-TREE, which reads them as gaps, ambiguous triplets) as ---; taxa and
sites in the file's order, written as PHYLIP, tree and lengths trees/<data>.nwk. The files' sha256
are in lnl.tsv.

codeml 4.9j (Debian's paml): seqtype = 1, CodonFreq = 0 (FE), 1 (F1X4) or 2 (F3X4), model = 0,
NSsites = 0, icode = 1, fix_kappa = 1, kappa = 2.5, fix_omega = 1, omega = 0.2, fix_alpha = 1,
alpha = 0 or 0.5, ncatG = 4, cleandata = 0, fix_blength = 2. 6 decimals.

IQ-TREE 2.0.7 (Debian 2.0.7+dfsg-1) fits omega and kappa in any case: iqtree2 -s <codons> -st CODON2
-te trees/<data>.nwk -blfix -nt 1 -m <model>; the values are those of its checkpoint. 4 decimals.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.data.alignments import Alignment, read_alignment
from mltree.data.alphabet import UNKNOWN
from mltree.data.codons import codon_alphabet
from mltree.data.patterns import compress
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.tree.newick import read_newick

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"
BOUNDS = (0.0, 100.0)


def in_codons(data: str, *, only_certain: bool) -> Alignment:
    real = read_alignment(DATASETS / f"{data}.phy")
    characters = real.characters[:, : real.n_sites // 3 * 3].copy()
    certain = codon_alphabet(2)
    alphabet = certain.covering([characters])
    read_by = certain if only_certain else alphabet
    characters.reshape(len(characters), -1, 3)[read_by.encode(characters) == UNKNOWN] = ord("-")
    return Alignment(real.names, characters, real.path, read_by)


@pytest.mark.parametrize(
    ("program", "data", "model", "lnl"),
    [
        ("codeml", "primates", "GY{0.2/2.5}+FE", -6318.157968),
        ("codeml", "primates", "GY{0.2/2.5}+FE+G4{0.5}", -6194.207495),
        ("codeml", "frogs", "GY{0.2/2.5}+FE", -24436.411490),
        ("codeml", "frogs", "GY{0.2/2.5}+FE+G4{0.5}", -22319.820871),
        ("codeml", "primates", "GY{0.2/2.5}+F3X4", -6337.039211),
        ("codeml", "primates", "GY{0.2/2.5}+F1X4", -6296.304894),
        ("codeml", "frogs", "GY{0.2/2.5}+F3X4", -24075.566741),
        ("codeml", "frogs", "GY{0.2/2.5}+F1X4", -23999.720577),
        ("IQ-TREE", "primates", "GY{2.718132312/5.57434256}+F3X4", -5641.9646),
        ("IQ-TREE", "primates", "MGK{2.478011036/5.145845379}+F1X4", -5566.9681),
        ("IQ-TREE", "primates", "MG{1.620139902}+F3X4", -5883.1904),
        ("IQ-TREE", "frogs", "GY{0.9464585487/5.460346433}+F3X4", -21398.1535),
        ("IQ-TREE", "frogs", "MGK{0.9391611565/5.432501515}+F1X4", -21476.1930),
        ("IQ-TREE", "frogs", "MG{0.6055316681}+F3X4", -22515.2104),
        ("IQ-TREE", "frogs", "GY{0.9419391809/5.254250174}+FE", -21664.7129),
    ],
)
def test_lnl(
    program: str, data: str, model: str, lnl: float, open_native: Callable[..., Engine]
) -> None:
    alignment = in_codons(data, only_certain=program == "IQ-TREE")
    patterns = compress(alignment)
    parsed = parse_model(model, alignment.alphabet).with_empirical_frequencies(patterns)
    tree, _ = read_newick(FOLDER / "trees" / f"{data}.nwk", patterns.taxa)
    arrays = parsed.arrays()
    used = TreeLikelihood(open_native(patterns, arrays.n_categories), BOUNDS)
    assert used.log_likelihoods([tree], [Case((arrays,))])[0] == pytest.approx(lnl, abs=1e-3)
