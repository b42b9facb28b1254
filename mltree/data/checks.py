"""Facts about an alignment before a search, without printing."""

from __future__ import annotations

import math

import numpy as np

from mltree.data.alignments import Alignment
from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns, identical_taxa
from mltree.system.arrays import Bool, Float64
from mltree.system.events import AlignmentSummary, Suspicion


def composition_p_values(patterns: Patterns) -> Float64:
    """f64 [T]: P(χ² as large) if a sequence came from the whole; 1 for empty ones.

        χ² = Σ_s (n[s] - n f[s])² / (n f[s]),   n = Σ_s n[s]

    over the states s that occur, as in IQ-TREE: n[s] is the sequence's count of state s, an
    ambiguous character shared out evenly over its states, f the frequencies in the whole alignment;
    degrees of freedom are the states that occur, less one. Models of one composition for the whole
    tree can group sequences by what they are made of instead of by descent.
    """
    counts = _state_counts(patterns)
    counts = counts[:, counts.sum(axis=0) > 0]
    freedom = counts.shape[1] - 1
    if freedom < 1:
        return np.ones(patterns.n_tips)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0) / counts.sum())
    terms = np.divide((counts - expected) ** 2, expected, np.zeros_like(counts), where=expected > 0)
    return np.array([_chi_square_tail(float(chi2), freedom) for chi2 in terms.sum(axis=1)])


def _state_counts(patterns: Patterns) -> Float64:
    """f64 [T, S]: characters of each state in each sequence; gaps count nothing."""
    table = patterns.alphabet.tip_table / patterns.alphabet.tip_table.sum(axis=1, keepdims=True)
    table[patterns.alphabet.gap_code] = 0.0
    codes = (np.bincount(row, patterns.weights, minlength=len(table)) for row in patterns.codes)
    return np.array([counts @ table for counts in codes])


def _chi_square_tail(chi2: float, freedom: int) -> float:
    """P(χ² >= chi2) = Q(freedom / 2, chi2 / 2), the regularised upper incomplete gamma function.

    By Q(a + 1, x) = Q(a, x) + x^a e^-x / Γ(a + 1), from Q(1/2, x) = erfc √x or Q(1, x) = e^-x
    (Abramowitz and Stegun 6.5.21).
    """
    x = chi2 / 2.0
    if x <= 0.0:
        return 1.0
    a = 0.5 if freedom % 2 else 1.0
    tail = math.erfc(math.sqrt(x)) if freedom % 2 else math.exp(-x)
    while a < freedom / 2.0:
        tail += math.exp(a * math.log(x) - x - math.lgamma(a + 1.0))
        a += 1.0
    return tail


_DOT = {".": "read as a gap; if it means 'same as the first sequence', write the letters out"}
_SUSPICIOUS = {
    "DNA": _DOT
    | {
        "O": "read as a gap",
        "X": "read as a gap; N is usual in DNA",
        "U": "read as T; the alignment mixes U and T",
    },
    "AA": _DOT | {"*": "a stop codon, read as a gap"},
}


def summarise(alignment: Alignment, patterns: Patterns) -> AlignmentSummary:
    """The facts about an alignment and its patterns."""
    gaps = patterns.codes == patterns.alphabet.gap_code
    taxon_gaps = np.array([patterns.weights[row].sum() for row in gaps]) / patterns.n_sites
    frequencies = patterns.base_frequencies()
    states = patterns.alphabet.states
    return AlignmentSummary(
        path=alignment.path,
        file_format=alignment.file_format,
        datatype=alignment.alphabet.name,
        seen=alignment.seen,
        doubtful=alignment.doubtful,
        taxa=patterns.n_tips,
        sites=patterns.n_sites,
        patterns=patterns.n_patterns,
        gap_share=float(taxon_gaps.mean()),
        ambiguous_share=_ambiguous_share(patterns),
        names=patterns.taxa,
        composition_p_values=tuple(float(p) for p in composition_p_values(patterns)),
        taxon_gap_shares=tuple(float(share) for share in taxon_gaps),
        states=states,
        frequencies=tuple(float(frequency) for frequency in frequencies),
        absent_states=tuple(s for s, f in zip(states, frequencies, strict=True) if f == 0),
        invariant_sites=_weight_of(patterns, _invariant(patterns)),
        informative_sites=_weight_of(patterns, _informative(patterns)),
        identical_sequences=tuple(
            tuple(patterns.taxa[tip] for tip in tips) for tips in identical_taxa([patterns])
        ),
        alike_names=_alike(patterns.taxa),
        gap_taxa=tuple(np.array(patterns.taxa, object)[gaps.all(axis=1)]),
        gap_sites=_sites_of(patterns, gaps.all(axis=0)),
        suspicions=_suspicions(alignment),
        has_parts=alignment.has_parts,
    )


def _ambiguous_share(patterns: Patterns) -> float:
    possible = patterns.alphabet.tip_table.sum(axis=1)
    ambiguous = possible < patterns.alphabet.n_states
    ambiguous[patterns.alphabet.certain_codes] = False
    return float(patterns.code_counts()[ambiguous].sum() / (patterns.n_tips * patterns.n_sites))


def _invariant(patterns: Patterns) -> Bool:
    """Patterns, bool [L], whose tips have one and the same state but for gaps."""
    masks = patterns.alphabet.state_masks.copy()
    masks[patterns.alphabet.gap_code] = 0
    union = np.zeros(patterns.n_patterns, np.uint64)
    for row in patterns.codes:
        union |= masks[row]
    return np.isin(union, masks[patterns.alphabet.certain_codes])


def _informative(patterns: Patterns) -> Bool:
    """Patterns, bool [L], with two or more states that two or more tips have each."""
    repeated = np.zeros(patterns.n_patterns, np.int64)
    for code in patterns.alphabet.certain_codes:
        repeated += np.count_nonzero(patterns.codes == code, axis=0) > 1
    return repeated > 1


def _weight_of(patterns: Patterns, chosen: Bool) -> int:
    return int(patterns.weights[chosen].sum())


def _sites_of(patterns: Patterns, chosen: Bool) -> tuple[int, ...]:
    return tuple(int(site) + 1 for site in np.flatnonzero(chosen[patterns.site_pattern]))


def _alike(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.casefold(), []).append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _suspicions(alignment: Alignment) -> tuple[Suspicion, ...]:
    of_nucleotides = alignment.alphabet.is_spelled_as(DNA)
    reasons = dict(_SUSPICIOUS.get("DNA" if of_nucleotides else alignment.alphabet.name, {}))
    if of_nucleotides and not (alignment.characters == ord("T")).any():
        reasons.pop("U")
    suspicions = [_suspicion(alignment, character, reason) for character, reason in reasons.items()]
    return tuple(suspicion for suspicion in (_match(alignment), *suspicions) if suspicion)


def _match(alignment: Alignment) -> Suspicion | None:
    dots = alignment.dots
    if dots is None:
        return None
    reason = f"read as the character of the first sequence, {alignment.names[0]}"
    return Suspicion(".", dots.count, alignment.names[dots.taxon], dots.site + 1, reason)


def _suspicion(alignment: Alignment, character: str, reason: str) -> Suspicion | None:
    where = alignment.characters == ord(character)
    count = np.count_nonzero(where)
    if not count:
        return None
    taxon, site = divmod(int(where.argmax()), where.shape[1])
    return Suspicion(character, int(count), alignment.names[taxon], site + 1, reason)
