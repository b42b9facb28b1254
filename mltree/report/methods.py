"""Methods paragraph of a run, for a paper, with its references.

A model without an entry in REFERENCES is named without a reference.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from mltree.models.names import outside_braces
from mltree.system.values import Value
from mltree.system.version import __version__

REFERENCES = {
    "mltree": f"The mltree authors. mltree {__version__}: maximum-likelihood phylogenetic trees on "
    "any OpenCL device.",
    "pruning": "Felsenstein J (1981) Evolutionary trees from DNA sequences: a maximum likelihood "
    "approach. J Mol Evol 17:368-376.",
    "GTR": "Tavaré S (1986) Some probabilistic and statistical problems in the analysis of DNA "
    "sequences. Lect Math Life Sci 17:57-86.",
    "HKY": "Hasegawa M, Kishino H, Yano T (1985) Dating of the human-ape splitting by a molecular "
    "clock of mitochondrial DNA. J Mol Evol 22:160-174.",
    "JC": "Jukes TH, Cantor CR (1969) Evolution of protein molecules. In: Munro HN (ed) Mammalian "
    "Protein Metabolism, pp 21-132. Academic Press.",
    "K80": "Kimura M (1980) A simple method for estimating evolutionary rates of base "
    "substitutions through comparative studies of nucleotide sequences. J Mol Evol 16:111-120.",
    "K81": "Kimura M (1981) Estimation of evolutionary distances between homologous nucleotide "
    "sequences. Proc Natl Acad Sci USA 78:454-458.",
    "TN93": "Tamura K, Nei M (1993) Estimation of the number of nucleotide substitutions in the "
    "control region of mitochondrial DNA in humans and chimpanzees. Mol Biol Evol 10:512-526.",
    "SYM": "Zharkikh A (1994) Estimation of evolutionary distances between nucleotide sequences. "
    "J Mol Evol 39:315-329.",
    "LG": "Le SQ, Gascuel O (2008) An improved general amino acid replacement matrix. Mol Biol "
    "Evol 25:1307-1320.",
    "WAG": "Whelan S, Goldman N (2001) A general empirical model of protein evolution derived from "
    "multiple protein families using a maximum-likelihood approach. Mol Biol Evol 18:691-699.",
    "JTT": "Jones DT, Taylor WR, Thornton JM (1992) The rapid generation of mutation data matrices "
    "from protein sequences. Comput Appl Biosci 8:275-282.",
    "GY": "Goldman N, Yang Z (1994) A codon-based model of nucleotide substitution for "
    "protein-coding DNA sequences. Mol Biol Evol 11:725-736.",
    "MG": "Muse SV, Gaut BS (1994) A likelihood approach for comparing synonymous and "
    "nonsynonymous nucleotide substitution rates, with application to the chloroplast genome. Mol "
    "Biol Evol 11:715-724.",
    "ECMK07": "Kosiol C, Holmes I, Goldman N (2007) An empirical codon model for protein sequence "
    "evolution. Mol Biol Evol 24:1464-1479.",
    "GT10": "Kozlov A, Alves JM, Stamatakis A, Posada D (2022) CellPhy: accurate and fast "
    "probabilistic inference of single-cell phylogenies from scDNA-seq data. Genome Biol 23:37, "
    "doi:10.1186/s13059-021-02583-w.",
    "+G": "Yang Z (1994) Maximum likelihood phylogenetic estimation from DNA sequences with "
    "variable rates over sites: approximate methods. J Mol Evol 39:306-314.",
    "+R": "Yang Z (1995) A space-time process model for the evolution of DNA sequences. Genetics "
    "139:993-1005.",
    "+PSR": "Stamatakis A (2006) Phylogenetic models of rate heterogeneity: a high performance "
    "computing perspective. Proc 20th IEEE Int Parallel Distrib Process Symp 1-8.",
    "+I": "Gu X, Fu YX, Li WH (1995) Maximum likelihood estimation of the heterogeneity of "
    "substitution rate among nucleotide sites. Mol Biol Evol 12:546-557.",
    "parsimony": "Fitch WM (1971) Toward defining the course of evolution: minimum change for a "
    "specific tree topology. Syst Zool 20:406-416.",
    "SPR": "Stamatakis A (2014) RAxML version 8: a tool for phylogenetic analysis and "
    "post-analysis of large phylogenies. Bioinformatics 30:1312-1313.",
    "selection": "Kalyaanamoorthy S, Minh BQ, Wong TKF, von Haeseler A, Jermiin LS (2017) "
    "ModelFinder: fast model selection for accurate phylogenetic estimates. Nat Methods "
    "14:587-589.",
    "SH-aLRT": "Guindon S, Dufayard JF, Lefort V, Anisimova M, Hordijk W, Gascuel O (2010) New "
    "algorithms and methods to estimate maximum-likelihood phylogenies: assessing the performance "
    "of PhyML 3.0. Syst Biol 59:307-321.",
    "LBP": "Adachi J, Hasegawa M (1996) MOLPHY version 2.3: programs for molecular phylogenetics "
    "based on maximum likelihood. Comput Sci Monogr 28:1-150.",
    "aLRT": "Anisimova M, Gascuel O (2006) Approximate likelihood-ratio test for branches: a fast, "
    "accurate, and powerful alternative. Syst Biol 55:539-552.",
    "aBayes": "Anisimova M, Gil M, Dufayard JF, Dessimoz C, Gascuel O (2011) Survey of branch "
    "support methods demonstrates accuracy, power, and robustness of fast likelihood-based "
    "approximation schemes. Syst Biol 60:685-699.",
    "UFBoot2": "Hoang DT, Chernomor O, von Haeseler A, Minh BQ, Vinh LS (2018) UFBoot2: improving "
    "the ultrafast bootstrap approximation. Mol Biol Evol 35:518-522.",
    "FBP": "Felsenstein J (1985) Confidence limits on phylogenies: an approach using the "
    "bootstrap. Evolution 39:783-791.",
    "TBE": "Lemoine F, Domelevo Entfellner JB, Wilkinson E, Correia D, Dávila Felipe M, De "
    "Oliveira T, Gascuel O (2018) Renewing Felsenstein's phylogenetic bootstrap in the era of big "
    "data. Nature 556:452-456.",
    "PoCL": "Jääskeläinen P et al (2015) pocl: a performance-portable OpenCL implementation. Int J "
    "Parallel Prog 43:752-785.",
}
"""References by key; models by their names in RAxML-NG's spelling."""

SUPPORTS = {
    "SH-aLRT": "SH-aLRT",
    "LBP": "local bootstrap probabilities",
    "aLRT": "parametric aLRT",
    "aBayes": "aBayes",
    "UFBoot2": "the ultrafast bootstrap UFBoot2",
    "FBP": "the bootstrap",
    "TBE": "the transfer bootstrap expectation",
}
"""Names of supports in a paper."""

REFERENCES["F81"] = REFERENCES["pruning"]

Cite = Callable[..., str]
"""Function from keys of references to their numbers in the text."""

SPR = "subtree pruning and regrafting"

WIDTH = 100

FREQUENCIES = {
    "F": "counted in the alignment",
    "FC": "counted in the alignment",
    "FE": "equal",
    "FO": "estimated",
    "FU": "given",
    "F1X4": "products of nucleotides'",
    "F3X4": "products of nucleotides', by codon position",
}


class Methods(Value, kw_only=True):
    """Facts of a run that a methods paragraph states."""

    taxa: int
    sites: int
    patterns: int
    data: str
    """``DNA`` or ``AA``."""
    models: Sequence[str]
    """Model of each part with its values, as in a .bestModel file."""
    starts: Sequence[str] = ()
    """Origins of the starting trees: ``parsimony 1``, ...; empty if the topology was fixed."""
    nni_only: bool = False
    """True if the search tried interchanges of neighbours only."""
    seed: int | None = None
    chooses: bool = False
    """True if the models were chosen among candidates."""
    criterion: str = "BIC"
    """Criterion of the choice."""
    supports: Mapping[str, int | None] = field(default_factory=dict)
    """Supports of the tree's branches: keys of :data:`SUPPORTS`, and the number of replicates."""
    is_estimated: bool = True
    """True if parameters or lengths were estimated on a fixed topology."""
    on_pocl: bool = False


def methods_text(done: Methods) -> str:
    """The paragraph, and the references that it cites by number."""
    cited: list[str] = []

    def cite(*keys: str) -> str:
        for key in keys:
            if key in REFERENCES and REFERENCES[key] not in cited:
                cited.append(REFERENCES[key])
        numbers = [str(cited.index(REFERENCES[key]) + 1) for key in keys if key in REFERENCES]
        return f" [{', '.join(numbers)}]" if numbers else ""

    kind = {"DNA": "nucleotide", "AA": "protein"}.get(done.data, done.data)
    kind = "codon" if kind.startswith("CODON") else kind
    begin = f"{_what(done)} with mltree {__version__}{cite('mltree', 'pruning')}"
    size = f"{done.taxa:,} taxa and {done.sites:,} sites ({done.patterns:,} distinct patterns)"
    sentences = [f"{begin} from a {kind} alignment of {size}."]
    each = dict.fromkeys(map(without_values, done.models))
    names = " and ".join(_model(model, cite) for model in each)
    if len(done.models) == 1:
        sentences.append(f"The substitution model was {names}.")
    else:
        of_parts = f"of {len(done.models):,} parts, each with parameters of its own,"
        sentences.append(f"The substitution models {of_parts} were {names}.")
    if done.chooses:
        it = "It was" if len(done.models) == 1 else "They were"
        sentences.append(f"{it} chosen among candidates by {done.criterion}{cite('selection')}.")
    if done.starts:
        seed = "" if done.seed is None else f" (random seed {done.seed})"
        starts = _starts(done.starts, cite)
        spr = "nearest-neighbour interchange" if done.nni_only else f"{SPR}{cite('SPR')}"
        sentences.append(
            f"The search began from {starts}{seed} and rearranged trees by {spr}; model parameters "
            "and branch lengths were estimated by maximum likelihood."
        )
    if done.supports:
        named = [
            f"{SUPPORTS[name]}{cite(name)}{_drawn(drawn)}" for name, drawn in done.supports.items()
        ]
        listed = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
        sentences.append(f"Branches were supported by {listed}.")
    if done.on_pocl:
        sentences.append(f"It was computed on CPUs through PoCL{cite('PoCL')}.")
    references = [
        textwrap.fill(f"[{n}] {text}", WIDTH, subsequent_indent="    ")
        for n, text in enumerate(cited, 1)
    ]
    paragraph = textwrap.fill(" ".join(sentences), WIDTH)
    return "\n".join(["", "Methods", "", paragraph, "", *references])


def without_values(model: str) -> str:
    """A model's name without values in braces, and without rates and weights of classes."""
    return re.sub(r"\{[-+.\d/e]*\}|:[-+.\de]+", "", model)


def _what(done: Methods) -> str:
    if done.starts:
        return "The maximum-likelihood tree was inferred"
    if done.is_estimated:
        return "The likelihood of a given topology was maximised"
    return "The likelihood of a given tree was computed"


def _drawn(replicates: int | None) -> str:
    if replicates is None:
        return ""
    return f" ({replicates:,} replicate{'' if replicates == 1 else 's'})"


def _model(model: str, cite: Cite) -> str:
    base, *terms = outside_braces(model, "+")
    if base.startswith("MIX{"):
        families = (_family(name.split("+")[0]) for name in outside_braces(base[4:-1], ","))
        return "".join([f"{base}, a mixture", cite(*families), *(_term(t, cite) for t in terms)])
    return "".join([base, cite(_family(base)), *(_term(term, cite) for term in terms)])


def _family(base: str) -> str:
    """Name under which a model is cited: K80 for itself, K81 for K81uf."""
    base = re.sub("^CODON[0-9]+_", "", base)
    if base in REFERENCES:
        return base
    if base.startswith(("GT10", "GT16")):
        return "GT10"
    return next((name for name in ("TN93", "K81", "MG") if base.startswith(name)), "")


def _term(term: str, cite: Cite) -> str:
    if term.upper() in FREQUENCIES:
        return f", with state frequencies {FREQUENCIES[term.upper()]}"
    if (gamma := re.fullmatch(r"G([0-9]*)([am]?)", term)) is not None:
        of = "medians" if gamma[2] == "a" else "means"
        return (
            f", with rates that vary over sites by a Γ distribution in {gamma[1] or 4} categories "
            f"({of}){cite('+G')}"
        )
    if (free := re.fullmatch(r"R([0-9]*)", term)) is not None:
        return (
            f", with rates that vary over sites in {free[1] or 4} categories, rates and weights "
            f"free{cite('+R')}"
        )
    if re.fullmatch(r"PSR[0-9]*", term.upper()) is not None:
        return (
            f", with a rate for every site{cite('+PSR')} during the search and Γ rates at its end"
        )
    if term.upper().startswith("I"):
        return f", with a proportion of invariable sites{cite('+I')}"
    return f", +{term}"


def _starts(starts: Sequence[str], cite: Cite) -> str:
    """``6 parsimony trees and 2 random trees``."""
    kinds = [start.rpartition(" ")[0] for start in starts]
    parts = []
    for kind in dict.fromkeys(kinds):
        count = kinds.count(kind)
        noun = "tree" if count == 1 else "trees"
        cited = cite("parsimony") if kind == "parsimony" else ""
        parts.append(f"{count} {'given' if kind == 'user' else kind} {noun}{cited}")
    return " and ".join(parts)
