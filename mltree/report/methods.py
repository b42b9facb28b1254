"""Methods paragraph of a run, for a paper, with its references.

A model without an entry in ``assets/references.tsv`` is named without a reference.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.resources import files

from mltree.models.names import outside_braces
from mltree.report.lines import counted
from mltree.supports.resampling import SamplingScheme
from mltree.system import __version__
from mltree.system.values import Value

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

DRAWN = {"FBP", "TBE", "UFBoot2"}
"""Supports from replicates that ``--sampling`` draws."""

Cite = Callable[..., str]
"""Function from keys of references to their numbers in the text."""

SPR = "subtree pruning and regrafting"

WIDTH = 100

NO_BREAK = "\N{NO-BREAK SPACE}"
"""Space in front of a reference's number, which stays on the line of what it is for."""

FREQUENCIES = {
    "F": "empirical {states} frequencies",
    "FC": "empirical {states} frequencies",
    "FE": "equal {states} frequencies",
    "FO": "maximum-likelihood {states} frequencies",
    "FU": "given {states} frequencies",
    "F1X4": "codon frequencies from base frequencies",
    "F3X4": "codon frequencies from base frequencies by codon position",
}
"""State frequencies in a paper."""

STATES = {"DNA": "base", "AA": "amino-acid"}
"""Name of a data type's states in a paper, where they have one."""

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""Numbers from 2 on that a paper spells out."""

TERMS = (
    (r"G([0-9]*)m?", "+G", "Γ-distributed rates{cited} ({n} categories)"),
    (r"G([0-9]*)a", "+G", "Γ-distributed rates{cited} ({n} categories, medians)"),
    (r"R([0-9]*)", "+R", "free rates among sites{cited} ({n} categories)"),
    (r"(?i)PSR.*", "+PSR", "a rate for every site{cited} during the search and Γ rates at its end"),
    (r"(?i)I.*", "+I", "a proportion of invariable sites{cited}"),
)
"""Patterns of a model's terms, keys of their references, and their text in a paper."""


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
    sampling: str = "sites"
    """Scheme by which the replicates of a bootstrap were drawn, as ``--sampling`` names it."""
    has_converged: bool | None = None
    """Verdict of autoMRE about the bootstrap's replicates; None where it was not asked."""
    is_estimated: bool = True
    """True if parameters or lengths were estimated on a fixed topology."""
    on_pocl: bool = False


@cache
def bibliography() -> dict[str, str]:
    """References by key, from ``assets/references.tsv``: models by their names in RAxML-NG."""
    text = files("mltree.report").joinpath("assets", "references.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.format(version=__version__).splitlines())
    return {key: reference for keys, reference in rows for key in keys.split()}


def methods_text(done: Methods) -> str:
    """The paragraph, and the references that it cites by number."""
    cited: list[str] = []

    def cite(*keys: str) -> str:
        known = [bibliography()[key] for key in keys if key in bibliography()]
        cited.extend(dict.fromkeys(reference for reference in known if reference not in cited))
        numbers = [str(cited.index(reference) + 1) for reference in known]
        return f" [{', '.join(numbers)}]" if numbers else ""

    kind = {"DNA": "nucleotide", "AA": "protein"}.get(done.data, done.data)
    kind = "codon" if kind.startswith("CODON") else kind
    begin = f"{_what(done)} with mltree {__version__}{cite('mltree', 'pruning')}"
    size = f"{done.taxa:,} taxa and {done.sites:,} sites ({done.patterns:,} distinct patterns)"
    sentences = [f"{begin} from a {kind} alignment of {size}."]
    each = dict.fromkeys(map(without_values, done.models))
    states = STATES.get(done.data, "codon" if kind == "codon" else "state")
    names = "; ".join(_model(model, states, cite) for model in each)
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
            f"The search started from {starts}{seed} and rearranged trees by {spr}; model "
            "parameters and branch lengths were estimated by maximum likelihood."
        )
    if done.supports:
        named = [
            f"{_support(name, done)}{cite(name)}{_replicates(name, replicates, done, cite)}"
            for name, replicates in done.supports.items()
        ]
        sentences.append(f"Branch supports are {_listed(named)}.")
        sentences += _drawn(done, cite)
    if done.on_pocl:
        sentences.append(f"Likelihoods were computed on CPUs through PoCL{cite('PoCL')}.")
    references = [_folded(f"[{n}] {text}", "    ") for n, text in enumerate(cited, 1)]
    glued = " ".join(sentences).replace(" [", NO_BREAK + "[")
    paragraph = _folded(glued).replace(NO_BREAK, " ")
    return "\n".join(["", "Methods", "", paragraph, "", *references])


def _folded(text: str, indent: str = "") -> str:
    """A text in lines that end between words: SH-aLRT stays whole."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _support(name: str, done: Methods) -> str:
    """Name of a support in a paper: what it is called depends on how replicates are drawn."""
    if name == "FBP" and SamplingScheme.of(done.sampling).kept is not None:
        return "the jackknife"
    return SUPPORTS[name]


def _drawn(done: Methods, cite: Cite) -> list[str]:
    """The sentence on how replicates were drawn, where that is not by sites alone."""
    scheme = SamplingScheme.of(done.sampling)
    if scheme.is_usual or not done.supports.keys() & DRAWN:
        return []
    if scheme.kept is not None:
        share = f"{100 * (1 - scheme.kept):.3g}%"
        return [f"Each replicate left out {share} of the sites of every part, drawn at random."]
    within = ", and within each of them its sites" if scheme.sites else ""
    whole = f"the parts of the alignment with replacement{within}{cite('genes')}"
    return [f"Each replicate drew {whole}."]


def _replicates(name: str, replicates: int | None, done: Methods, cite: Cite) -> str:
    """`` (100 replicates, converged by autoMRE [9])``."""
    if replicates is None:
        return ""
    verdict = ""
    if done.has_converged is not None and name in {"FBP", "TBE"}:
        verb = "converged" if done.has_converged else "not converged"
        verdict = f", {verb} by autoMRE{cite('autoMRE')}"
    return f" ({counted(replicates, 'replicate')}{verdict})"


def without_values(model: str) -> str:
    """A model's name without values in braces, and without rates and weights of classes."""
    return re.sub(r"\{[-+.\d/e]*\}|:[-+.\de]+", "", model)


def _what(done: Methods) -> str:
    if done.starts:
        return "The maximum-likelihood tree was inferred"
    if done.is_estimated:
        return "The likelihood of a given topology was maximised"
    return "The likelihood of a given tree was computed"


def _model(model: str, states: str, cite: Cite) -> str:
    base, *terms = outside_braces(model, "+")
    if base.startswith("MIX{"):
        families = (_family(name.split("+")[0]) for name in outside_braces(base[4:-1], ","))
        name = f"the mixture {base}{cite(*families)}"
    else:
        name = base + cite(_family(base))
    told = [_term(term, states, cite) for term in terms]
    return f"{name} with {_listed(told)}" if told else name


def _listed(items: Sequence[str]) -> str:
    """``a, b and c``."""
    *most, last = items
    return " and ".join(filter(None, [", ".join(most), last]))


def _family(base: str) -> str:
    """Name under which a model is cited: K80 for itself, K81 for K81uf."""
    base = re.sub("^CODON[0-9]+_", "", base)
    if base in bibliography():
        return base
    if base.startswith(("GT10", "GT16")):
        return "GT10"
    return next((name for name in ("TN93", "K81", "MG") if base.startswith(name)), "")


def _term(term: str, states: str, cite: Cite) -> str:
    if term.upper() in FREQUENCIES:
        return FREQUENCIES[term.upper()].format(states=states)
    for pattern, key, text in TERMS:
        if (match := re.fullmatch(pattern, term)) is not None:
            number = int((match[1] if match.groups() else "") or 4)
            spelt = NUMBERS[number - 2] if 2 <= number <= len(NUMBERS) + 1 else str(number)
            return text.format(n=spelt, cited=cite(key))
    return f"+{term}"


def _starts(starts: Sequence[str], cite: Cite) -> str:
    """``6 parsimony trees and 2 random trees``."""
    kinds = [start.rpartition(" ")[0] for start in starts]
    parts = []
    for kind in dict.fromkeys(kinds):
        cited = cite("parsimony") if kind == "parsimony" else ""
        named = f"{'given' if kind == 'user' else kind} tree"
        parts.append(f"{counted(kinds.count(kind), named)}{cited}")
    return " and ".join(parts)
