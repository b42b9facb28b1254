"""The problem of a run: alignment, partitions and model, read and checked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mltree.data.alignments import Alignment, Source, read_alignment
from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.partitions import Partitioned, read_partitioned
from mltree.data.parts import SYNTAX, Scheme, holds_partitions, read_partitions
from mltree.data.patterns import (
    Patterns,
    compress,
    constant_sites,
    identical_taxa,
    refuse_constant,
    with_unseen,
)
from mltree.data.source import expect_file, read_text
from mltree.models.empirical import is_matrix
from mltree.models.grammar import parse_model
from mltree.models.names import PROTEIN_GTR, default_model_name, outside_braces
from mltree.models.partitioned import (
    Linkage,
    PartitionModel,
    alone,
    in_our_words,
    model_alphabet,
    part_models,
    without_models,
)
from mltree.models.substitution import Model
from mltree.report.tables import CORRECTION_HINT, UNCORRECTED, listed, warning_lines
from mltree.system.arrays import Bool, Float64
from mltree.system.errors import InputError, ModelError
from mltree.system.events import AlignmentLoaded, AlignmentSummary, Emit, Notice, Suspicion
from mltree.system.values import Value

# Facts about an alignment before a search, without printing.


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
    return np.array([chi_square_tail(float(chi2), freedom) for chi2 in terms.sum(axis=1)])


def _state_counts(patterns: Patterns) -> Float64:
    """f64 [T, S]: characters of each state in each sequence; gaps count nothing."""
    table = patterns.alphabet.tip_table / patterns.alphabet.tip_table.sum(axis=1, keepdims=True)
    table[patterns.alphabet.gap_code] = 0.0
    codes = (np.bincount(row, patterns.weights, minlength=len(table)) for row in patterns.codes)
    return np.array([counts @ table for counts in codes])


def chi_square_tail(chi2: float, freedom: int) -> float:
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
        renamed=alignment.renamed,
        composition_p_values=tuple(float(p) for p in composition_p_values(patterns)),
        taxon_gap_shares=tuple(float(share) for share in taxon_gaps),
        states=states,
        frequencies=tuple(float(frequency) for frequency in frequencies),
        absent_states=tuple(s for s, f in zip(states, frequencies, strict=True) if f == 0),
        invariant_sites=_weight_of(patterns, _invariant(patterns)),
        lacks_constant=lacks_constant(patterns),
        informative_sites=_weight_of(patterns, _informative(patterns)),
        identical_sequences=tuple(
            tuple(patterns.taxa[tip] for tip in tips) for tips in identical_taxa([patterns])
        ),
        alike_names=_alike(patterns.taxa),
        gap_taxa=tuple(np.array(patterns.taxa, object)[gaps.all(axis=1)]),
        gap_sites=_sites_of(patterns, gaps.all(axis=0)),
        suspicions=_suspicions(alignment),
        has_parts=alignment.has_parts,
        notices=alignment.notices,
    )


def lacks_constant(patterns: Patterns) -> bool:
    """True for nucleotides or characters none of whose sites may be constant.

    Proteins and codons of distant species often have none.
    """
    alphabet = patterns.alphabet
    is_long = alphabet is PROTEIN or alphabet.width > 1
    return not is_long and not patterns.unseen and not constant_sites(patterns).size


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


# ``--model``: a model's string, a file with one, a partition file, or ``auto``.

AUTO = "auto"
"""Value of ``--model`` that asks for a choice of the model."""


def names_parts(model: str) -> bool:
    """Tell if ``--model`` names a partition file, not a matrix or a model file."""
    if not _is_file(model) or is_matrix(read_text(model).decode(errors="replace")):
        return False
    return holds_partitions(model)


_CHOICE = re.compile(rf"{AUTO}(\+ASC\S*)?", re.IGNORECASE)


def is_choice(model: str | None) -> bool:
    """Tell if the model is to be chosen (``--model auto``, ``--model auto+ASC``)."""
    return model is not None and _CHOICE.fullmatch(model.strip()) is not None


def terms_of_choice(model: str | None) -> str | None:
    """Terms of all models among which one is chosen: ``+ASC``; None where there are none."""
    match = _CHOICE.fullmatch(model.strip()) if model else None
    return match[1] if match else None


def read_model(text: str) -> Model:
    """Parse a model's string, or the one in a model file, without any data.

    Raises:
        InputError: the file cannot be used.
        ModelError: the string cannot be used.
    """
    text = model_text(text)
    return parse_model(text, model_alphabet(text) or DNA)


_BRACED = re.compile(r"[{\[].*?([}\]]|$)")
_PATH = re.compile(r"[/\\]|^(?!n?q\.).*\.[a-z]\w*$|^\.", re.IGNORECASE)
"""Marks of a path that a model's string lacks outside braces: a folder, or a file name's ending
(Q.plant has none)."""


def model_text(text: str) -> str:
    """A model's string: the text itself, or that of the file it names.

    A file has one line, or a matrix.
    """
    if not _is_file(text):
        whole = _BRACED.sub("", text)
        paths = [path for path in (whole, whole.split("+")[0]) if _PATH.search(path)]
        if paths and model_alphabet(text) is None:
            expect_file(text if whole in paths else paths[0])
        return text
    content = read_text(text).decode(errors="replace")
    if is_matrix(content):
        return f"{PROTEIN_GTR}{{{text}}}"
    lines = [line for line in content.split("\n") if line.strip()]
    if len(lines) != 1:
        raise InputError("a model file has one model", file=text, hint="as in .bestModel files")
    return outside_braces(lines[0], ",")[0] if "=" in lines[0] else lines[0]


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # no name that a file could have
        return False


class Problem(Value):
    """Data and models that a run starts from."""

    path: str
    """The alignment's file, or a name for it."""
    groups: tuple[Patterns, ...]
    """Patterns of each data type, in parts, over the same taxa."""
    model: PartitionModel
    """Model of all parts, group by group, with empirical frequencies counted."""
    summary: AlignmentSummary | None
    """Facts of `mltree check`; None for a partitioned alignment."""
    data: Partitioned | None = None
    """Parts in their file's order; None without a partition file."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names that the files have for taxa, by those here, where they differ."""

    @property
    def patterns(self) -> Patterns:
        """The patterns of an alignment of one data type.

        Raises: ValueError: there are several.
        """
        (patterns,) = self.groups
        return patterns

    @property
    def taxa(self) -> tuple[str, ...]:
        """T names, sorted."""
        return self.groups[0].taxa

    @property
    def n_sites(self) -> int:
        """Sites of all data types."""
        return sum(patterns.n_sites for patterns in self.groups)

    @property
    def cla_size(self) -> int:
        """Entries of one CLA over all patterns, states and categories."""
        sizes = [
            (part.stop - part.start) * patterns.alphabet.n_states
            for patterns in self.groups
            for part in patterns.parts
        ]
        each = zip(sizes, self.model.categories, strict=True)
        return sum(size * categories for size, categories in each)

    @property
    def n_patterns(self) -> int:
        """Patterns of all data types."""
        return sum(patterns.n_patterns for patterns in self.groups)

    def under(self, names: Sequence[str]) -> Problem:
        """The same data under other models, one string a part in the order of ``model``.

        Raises: ModelError: a string cannot be used.
        """
        numbers = self.data.order if self.data is not None else [0]
        models = [
            parse_model(name, model.alphabet).with_empirical_frequencies(self.part(number))
            for name, model, number in zip(names, self.model.models, numbers, strict=True)
        ]
        return replace(self, model=self.model.with_parts(models))

    def part(self, number: int) -> Patterns:
        """The patterns of a part of the partition file, from 0."""
        return self.patterns if self.data is None else self.data.patterns(number)

    def by_site(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """f64 [sites]: values f64 [L] of all patterns, site by site, in their file's order."""
        ends = np.cumsum([patterns.n_patterns for patterns in self.groups])
        each = zip(self.groups, np.split(values, ends[:-1]), strict=True)
        sites = np.concatenate(
            [part_values[patterns.site_pattern] for patterns, part_values in each]
        )
        if self.data is None:
            return sites
        sizes = [self.data.part_sites[number] for number in self.data.order]
        rows = np.split(sites, np.cumsum(sizes)[:-1])
        return np.concatenate([rows[place] for place in np.argsort(self.data.order)])


def load_problem(
    source: Source,
    model: str | None,
    emit: Emit,
    datatype: str | None = None,
    linkage: Linkage = Linkage.SCALED,
    partitions: str | None = None,
    *,
    chooses: bool = False,
    site_rates: bool = False,
) -> Problem:
    """Read the problem of a run, and emit notices of everything odd in it.

    Raises:
        InputError: as :func:`read_problem`, or a taxon has nothing but gaps.
        ModelError: as :func:`read_problem`.
    """
    problem = read_problem(
        source, model, datatype, linkage, partitions, chooses=chooses, site_rates=site_rates
    )
    emit(_loaded(problem))
    summary = problem.summary
    if summary is None:
        notices: Iterable[str] = () if problem.data is None else part_notices(problem.data)
    else:
        refuse_gap_taxa(problem)
        notices = warning_lines(summary)
    for text in notices:
        emit(Notice(text))
    return problem


def part_notices(data: Partitioned) -> Iterator[str]:
    """Notices of everything odd in the data of parts."""
    yield from data.notices
    lacking = [part.name for n, part in enumerate(data.parts) if lacks_constant(data.patterns(n))]
    if lacking:
        yield f"{UNCORRECTED} in {listed(lacking)}: {CORRECTION_HINT}"


def _loaded(problem: Problem) -> AlignmentLoaded:
    """The facts of the data."""
    facts = problem.summary
    if facts is not None:
        seen, width, gaps = facts.seen, facts.patterns, facts.gap_share
    else:
        sums = (patterns.gap_share * patterns.n_sites for patterns in problem.groups)
        seen, width = "by the partition file", problem.n_patterns
        gaps = sum(sums) / problem.n_sites
    kinds = " + ".join(patterns.alphabet.name for patterns in problem.groups)
    return AlignmentLoaded(
        path=problem.path,
        file_format=facts.file_format if facts else f"{problem.model.n_parts:,} parts",
        data_type=facts.datatype if facts else kinds,
        data_seen=seen,
        taxa=len(problem.taxa),
        sites=facts.sites if facts else problem.n_sites,
        patterns=width,
        gap_share=gaps,
    )


def refuse_gap_taxa(problem: Problem) -> None:
    """Make sure that every taxon has data. Raises: InputError: one has nothing but gaps."""
    taxa = () if problem.summary is None else problem.summary.gap_taxa
    if taxa:
        count = len(taxa)
        raise InputError(
            f"{listed(taxa)} {'is' if count == 1 else 'are'} all gaps and cannot be placed",
            file=problem.path,
            taxon=taxa[0],
            hint=f"remove {'it' if count == 1 else 'them'}",
        )


def read_problem(
    source: Source,
    model: str | None,
    datatype: str | None = None,
    linkage: Linkage = Linkage.SCALED,
    partitions: str | None = None,
    *,
    chooses: bool = False,
    site_rates: bool = False,
    summarises: bool = True,
    computes: bool = True,
) -> Problem:
    """Read an alignment and its model, or the partition file that ``model`` names.

    datatype    ``"dna"``, ``"protein"``, ...; else the model decides, or the characters
    linkage     linkage of the parts' branch lengths
    partitions  partition file, whose parts have ``model`` unless it names their models
    chooses     models are to be chosen: ignore those of the partition file
    site_rates  allow +PSR
    summarises  compute the summary
    computes    compute a single alignment's model here, to report impossible values early

    Raises:
        InputError: the alignment, the model file or the partition file cannot be used.
        ModelError: the model string cannot be used.
    """
    if is_choice(model):
        hint = (
            "`mltree model ALIGNMENT` chooses one; --model takes the .bestFitModel that it writes"
        )
        raise ModelError("--model auto is for a search", hint=hint)
    if partitions is not None:
        problem = _of_parts(source, partitions, model, datatype, linkage, chooses)
    elif model is not None and names_parts(model):
        scheme = in_our_words(read_partitions(model))
        problem = _partitioned(source, scheme, None, datatype, linkage)
    else:
        problem = _of_one_part(source, model, datatype, summarises, computes)
    if problem.model.has_site_rates and not site_rates:
        raise ModelError("+PSR is for search, evaluate and bootstrap", hint="use +G4 here")
    return problem


def _of_one_part(
    source: Source, model: str | None, datatype: str | None, summarises: bool, computes: bool
) -> Problem:
    """The problem of an alignment under one model."""
    text = None if model is None else model_text(model)
    alignment = read_alignment(source, datatype, None if text is None else model_alphabet(text))
    patterns = compress(alignment)
    default = default_model_name(alignment.alphabet)
    name = default if text is None else default + text if text.startswith("+") else text
    parsed = parse_model(name, alignment.alphabet).with_empirical_frequencies(patterns)
    if computes:
        parsed.arrays()
    if parsed.branch_scaler is not None:
        raise ModelError("+B scales the branches of one of several parts", hint="leave it out")
    summary = summarise(alignment, patterns) if summarises else None
    if parsed.ascertainment is not None:
        summary = None if summary is None else replace(summary, lacks_constant=False)
        refuse_constant(constant_sites(patterns), str(source))
        patterns = with_unseen(patterns, [parsed.ascertainment])
    return Problem(str(source), (patterns,), alone(parsed), summary, renamed=alignment.renamed)


def _of_parts(
    source: Source,
    partitions: str,
    model: str | None,
    datatype: str | None,
    linkage: Linkage,
    chooses: bool,
) -> Problem:
    """The problem of a partition file given beside a model."""
    expect_file(partitions)
    if not holds_partitions(partitions):
        raise InputError("names no part", file=partitions, hint=SYNTAX)
    scheme = in_our_words(read_partitions(partitions))
    if chooses:
        return _partitioned(source, without_models(scheme), model, datatype, linkage)
    text = None if model is None else model_text(model)
    if text is not None and model_alphabet(text) is None:
        parse_model(text, DNA)
    return _partitioned(source, scheme, text, datatype, linkage)


def _partitioned(
    source: Source, scheme: Scheme, default: str | None, datatype: str | None, linkage: Linkage
) -> Problem:
    data = read_partitioned(source, scheme, model_alphabet, datatype)
    return in_parts(str(source), data, part_models(data, default), linkage)


def in_parts(path: str, data: Partitioned, models: Sequence[Model], linkage: Linkage) -> Problem:
    """The problem of a partitioned alignment, with models in the file's order."""
    data = data.ascertained([model.ascertainment for model in models])
    parts = [data.parts[number] for number in data.order]
    ordered = [models[number] for number in data.order]
    sites = np.array([data.part_sites[number] for number in data.order], np.float64)
    model = PartitionModel(
        models=tuple(replace(model, branch_scaler=None) for model in ordered),
        names=tuple(part.name for part in parts),
        linkage=linkage,
        scalers=_scalers(data, ordered, linkage, sites / sites.sum()),
        shares=sites / sites.sum(),
    )
    model.arrays()
    model.check_site_rates()
    return Problem(path, data.groups, model, None, data, data.renamed)


def _scalers(
    data: Partitioned, models: Sequence[Model], linkage: Linkage, shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Starting values of the parts' branch length scalers, f64 [P].

    Raises:
        InputError: only some parts have a tree length, or the lengths cannot be used.
        ModelError: a part has a scaler, but the linkage has none.
    """
    parts = [data.parts[number] for number in data.order]
    for part, model in zip(parts, models, strict=True):
        is_asked = part.scaler is not None or model.branch_scaler is not None
        if is_asked and linkage != Linkage.SCALED:
            text = f"part {part.name}: +B scales its branches, --brlen {linkage} has no scale"
            raise ModelError(text, hint="leave +B out, or --brlen scaled")
    lengths = [part.tree_length for part in parts]
    known = [length for length in lengths if length is not None]
    if not known:
        return np.array([part.scaler or 1.0 for part in parts])
    if linkage != Linkage.SCALED:
        scaled = next(part for part in parts if part.tree_length is not None)
        text = f"part {scaled.name} has a tree's length in braces, --brlen {linkage} has no scale"
        raise data.scheme.error(text, scaled, "remove the braces after the sets")
    if len(known) < len(lengths):
        bare = next(part for part in parts if part.tree_length is None)
        text = f"part {bare.name} has no tree's length in braces, but others have"
        raise data.scheme.error(text, bare, "write one after every set, or none")
    scales = np.array(known)
    return np.asarray(scales / (scales * shares).sum())
