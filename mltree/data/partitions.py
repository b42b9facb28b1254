"""Partitioned alignments: one `Patterns` for each data type, with its parts side by side.

The sites of all parts may be of one file, of mixed data types even, or every part has a file of its
own. Taxa are matched by name; one that a file does not have is a row of gaps in its parts.

A part's data type is the word that the partition file has for it, else what its model is for, else
what its letters tell; where they leave a doubt, what those of all such parts together tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path

import numpy as np

from mltree.data.alignments import Sequences, Source, read_sequences, refuse_few, renaming
from mltree.data.alphabet import PROTEIN, UNKNOWN, Alphabet
from mltree.data.codons import refuse_broken
from mltree.data.datatype import PLAIN_SHARE, Letters, alphabet_named
from mltree.data.parts import Part, Scheme, fit
from mltree.data.patterns import (
    Ascertainment,
    Patterns,
    compress_parts,
    constant_sites,
    refuse_constant,
    with_unseen,
)
from mltree.system.arrays import Bool, UInt8
from mltree.system.errors import InputError
from mltree.system.files import is_there
from mltree.system.values import Value

AlphabetOf = Callable[[str], Alphabet | None]
"""The alphabet that a model's string is for; None where it is for none that is known."""


class Partitioned(Value, eq=False):
    """An alignment in parts. Letters: P parts, T taxa."""

    scheme: Scheme
    """The P parts in the order of their file, their runs ended."""
    groups: tuple[Patterns, ...]
    """The parts of each data type, in the order of the file; the same taxa in all groups."""
    group_of_part: tuple[int, ...]
    """P: which of `groups` holds the part."""
    place_in_group: tuple[int, ...]
    """P: which of that group's `Patterns.parts` it is."""
    has_data: Bool
    """bool [P, T]: whether a taxon has any character but gaps in a part."""
    notices: tuple[str, ...]
    """Notices for the user, one line each."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The files' names of taxa by those here, where they differ."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The P parts."""
        return self.scheme.parts

    @property
    def taxa(self) -> tuple[str, ...]:
        """Names of the T taxa, sorted."""
        return self.groups[0].taxa

    @cached_property
    def order(self) -> tuple[int, ...]:
        """P: the parts, group by group."""
        places = zip(self.group_of_part, self.place_in_group, strict=True)
        return tuple(number for _, number in sorted((at, n) for n, at in enumerate(places)))

    @property
    def n_sites(self) -> int:
        """Number of sites in parts."""
        return sum(self.part_sites)

    @cached_property
    def part_sites(self) -> tuple[int, ...]:
        """P: number of sites of each part; of codons a third of the file's."""
        each = enumerate(self.parts)
        return tuple(part.n_sites // self.alphabet(number).width for number, part in each)

    def alphabet(self, part: int) -> Alphabet:
        """The alphabet of a part."""
        return self.groups[self.group_of_part[part]].alphabet

    def patterns(self, part: int) -> Patterns:
        """The patterns of one part; arrays are views of its group's."""
        number = self.group_of_part[part]
        group = self.groups[number]
        where = group.parts[self.place_in_group[part]]
        first = self._first_sites[part]
        sites = group.site_pattern[first : first + self.part_sites[part]]
        return replace(
            group,
            codes=group.codes[:, where],
            weights=group.weights[where],
            site_pattern=sites - np.int32(where.start),
            ends=(),
            unseen=tuple(
                replace(unseen, part=0, first=unseen.first - where.start)
                for unseen in group.unseen
                if unseen.part == self.place_in_group[part]
            ),
        )

    def ascertained(self, of_parts: Sequence[Ascertainment | None]) -> Partitioned:
        """A copy for parts without constant sites, by the models' ascertainment of the P parts.

        Raises: InputError: there are such sites after all.
        """
        for number, (part, ascertainment) in enumerate(zip(self.parts, of_parts, strict=True)):
            if ascertainment is not None:
                sites = part.sites[:: self.alphabet(number).width]
                sites = sites[constant_sites(self.patterns(number))]
                refuse_constant(sites, part.file or self.scheme.path, part.name)
        if not any(of_parts):
            return self
        groups = []
        for number, group in enumerate(self.groups):
            members = [n for n in self.order if self.group_of_part[n] == number]
            groups.append(with_unseen(group, [of_parts[n] for n in members]))
        return replace(self, groups=tuple(groups))

    @cached_property
    def _first_sites(self) -> list[int]:
        before, first = [0] * len(self.groups), []
        for sites, group in zip(self.part_sites, self.group_of_part, strict=True):
            first.append(before[group])
            before[group] += sites
        return first


def read_partitioned(
    alignment: Source, scheme: Scheme, alphabet_of: AlphabetOf, datatype: str | None = None
) -> Partitioned:
    """The data of the parts that a scheme names.

    ``alignment``: of all parts that have none of their own. ``datatype``: of parts for
    which the scheme has no word, whatever their models.

    Raises:
        InputError: a file cannot be read, the parts do not fit it, a character is not of its part's
            data type, a part has nothing but gaps, or a taxon has no data in any part.
    """
    stated_alphabet = partial(
        _alphabet_by_words, scheme=scheme, alphabet_of=alphabet_of, datatype=datatype
    )
    sources = {}
    for file in dict.fromkeys(part.file for part in scheme.parts):
        judge = partial(_judged, file=file, scheme=scheme, stated=stated_alphabet)
        sources[file] = read_sequences(_file_of(file, scheme) if file else alignment, judge)
    fitted, notices = fit(scheme, {file: source.n_sites for file, source in sources.items()})
    if None not in sources:
        notices = (*notices, f"{alignment} is not read: every part has a file of its own")
    blocks = [_block(part, sources[part.file].characters) for part in fitted.parts]
    alphabets = _alphabets(fitted, blocks, list(map(stated_alphabet, fitted.parts, blocks)))
    return _assembled(fitted, sources, blocks, alphabets, notices)


def _file_of(file: str, scheme: Scheme) -> str:
    """A part's file, beside the partition file where the working folder has none of that name."""
    places = (Path(file), Path(scheme.path).parent / file)
    path = next((place for place in places if is_there(place)), None)
    if path is None:
        part = next(part for part in scheme.parts if part.file == file)
        hint = "it is looked for in the working folder and beside the partition file"
        raise scheme.error(f"part {part.name}: there is no file {file}", part, hint)
    return str(path)


def _alphabet_by_words(
    part: Part, block: UInt8, scheme: Scheme, alphabet_of: AlphabetOf, datatype: str | None
) -> Alphabet | None:
    """The alphabet that words or the model say of a part's columns; None where they say none."""
    word = part.datatype or datatype
    if word is None:
        return alphabet_of(part.model) if part.model else None
    try:
        return alphabet_named(word, block)
    except InputError as error:
        hint = error.hint or ""
        raise scheme.error(f"part {part.name}: {error.message}", part, hint) from None


def _judged(
    characters: UInt8,
    file: str | None,
    scheme: Scheme,
    stated: Callable[[Part, UInt8], Alphabet | None],
) -> int:
    """True where the columns of each part of a file fit one alphabet: a `Judge`."""
    parts = tuple(part for part in scheme.parts if part.file == file)
    fitted, _ = fit(replace(scheme, parts=parts), {file: characters.shape[1]})
    for part in fitted.parts:
        block = _block(part, characters)
        alphabet = stated(part, block) or Letters.of(block).looks_like
        if (alphabet.covering([block]).encode(block) == UNKNOWN).any():
            return 0
    return 1


def _block(part: Part, characters: UInt8) -> UInt8:
    """u8 [T, sites]: a part's columns; a view where they lie side by side."""
    if len(part.runs) > 1:
        return np.take(characters, part.sites, axis=1)
    (run,) = part.runs
    columns = characters[:, run.start : run.stop : run.step]
    return columns if run.step == 1 else np.ascontiguousarray(columns)


def _alphabets(
    scheme: Scheme, blocks: Sequence[UInt8], stated: Sequence[Alphabet | None]
) -> list[Alphabet]:
    rows = list(zip(scheme.parts, blocks, stated, strict=True))
    for part, block, alphabet in rows:
        if alphabet is PROTEIN and part.model and not part.datatype:
            _refuse_nucleotides(scheme, part, Letters.of(block))
    guessed = {part.name: Letters.of(block) for part, block, alphabet in rows if alphabet is None}
    together = sum(guessed.values(), start=Letters.none()).looks_like
    alphabets = [alphabet or _guess(guessed[part.name], together) for part, _, alphabet in rows]
    for (part, block, _), alphabet in zip(rows, alphabets, strict=True):
        refuse_broken(alphabet, block.shape[1], f"part {part.name}", scheme.path)
    blocks_of: dict[Alphabet, list[UInt8]] = {}
    for block, alphabet in zip(blocks, alphabets, strict=True):
        blocks_of.setdefault(alphabet, []).append(block)
    covering = {alphabet: alphabet.covering(some) for alphabet, some in blocks_of.items()}
    return [covering[alphabet] for alphabet in alphabets]


def _guess(letters: Letters, together: Alphabet) -> Alphabet:
    return together if not letters.sure and letters.fits(together) else letters.looks_like


def _refuse_nucleotides(scheme: Scheme, part: Part, letters: Letters) -> None:
    share = letters.share("ACGTU")
    if share >= PLAIN_SHARE and letters.sure:
        problem = f"is for proteins, but {share:.0%} of its letters are ACGT"
        message = f"part {part.name}: model {part.model} {problem}"
        raise scheme.error(message, part, "correct its sites or its model")


def _assembled(
    scheme: Scheme,
    sources: Mapping[str | None, Sequences],
    blocks: Sequence[UInt8],
    alphabets: Sequence[Alphabet],
    notices: tuple[str, ...],
) -> Partitioned:
    taxa = tuple(sorted({name for source in sources.values() for name in source.names}))
    refuse_few(taxa, scheme.path)
    row_of = {name: row for row, name in enumerate(taxa)}
    rows = {file: [row_of[name] for name in source.names] for file, source in sources.items()}
    kinds = list(dict.fromkeys(alphabets))
    groups, places = [], [0] * len(alphabets)
    for kind in kinds:
        members = [number for number, alphabet in enumerate(alphabets) if alphabet is kind]
        sizes = [scheme.parts[number].n_sites // kind.width for number in members]
        ends = list(accumulate(sizes))
        codes = np.full((len(taxa), ends[-1]), kind.gap_code, np.uint8)
        for place, (number, size, end) in enumerate(zip(members, sizes, ends, strict=True)):
            part = scheme.parts[number]
            encoded = kind.encode(blocks[number])
            if (encoded == UNKNOWN).any():
                sources[part.file].refuse_unknown(kind, part.sites, part.name)
            codes[rows[part.file], end - size : end] = encoded
            places[number] = place
        groups.append(compress_parts(taxa, codes, kind, ends))
    numbers = tuple(kinds.index(alphabet) for alphabet in alphabets)
    has_data = _has_data(groups, numbers, places)
    _refuse_without_data(scheme, taxa, has_data)
    renamed = {new: old for source in sources.values() for new, old in source.renamed.items()}
    changed = (notice for source in sources.values() for notice in source.lines.notices)
    notices = (*renaming(renamed), *changed, *notices)
    return Partitioned(scheme, tuple(groups), numbers, tuple(places), has_data, notices, renamed)


def _has_data(groups: Sequence[Patterns], numbers: Sequence[int], places: Sequence[int]) -> Bool:
    parts = [group.parts for group in groups]
    shares = (
        groups[g].codes[:, parts[g][place]] != groups[g].alphabet.gap_code
        for g, place in zip(numbers, places, strict=True)
    )
    return np.array([share.any(axis=1) for share in shares])


def _refuse_without_data(scheme: Scheme, taxa: Sequence[str], has_data: Bool) -> None:
    for number in np.flatnonzero(~has_data.any(axis=1)):
        part = scheme.parts[number]
        raise scheme.error(f"part {part.name} has nothing but gaps", part, "remove it")
    empty = np.flatnonzero(~has_data.any(axis=0))
    if len(empty):
        taxon, more = taxa[empty[0]], f", nor have {len(empty) - 1:,} more" * (len(empty) > 1)
        message = f"taxon {taxon} has no data in any part{more}"
        hint = "it cannot be placed; remove it"
        raise InputError(message, file=scheme.path, taxon=taxon, hint=hint)


def table_of_tips(loci: Sequence[Patterns]) -> Patterns:
    """The patterns of loci of one alphabet, a part each, in their order; none with ``unseen``.

    Tip i of a locus' tree is row i; rows behind the taxa of a locus are gaps, and not used. Loci of
    one genetic code may have codes for other ambiguous triplets.
    """
    alphabets = dict.fromkeys(locus.alphabet for locus in loci)
    written = [a.decode(np.arange(a.n_codes, dtype=np.uint8)[None]) for a in alphabets]
    alphabet = loci[0].alphabet.covering(written)
    tips = max(locus.n_tips for locus in loci)
    ends = np.cumsum([locus.n_patterns for locus in loci]).tolist()
    codes = np.full((tips, ends[-1]), alphabet.gap_code, np.uint8)
    sites, first = [], 0
    for locus, end in zip(loci, ends, strict=True):
        codes_of_locus = locus.codes
        if locus.alphabet is not alphabet:
            codes_of_locus = alphabet.encode(locus.alphabet.decode(locus.codes))
        codes[: locus.n_tips, first:end] = codes_of_locus
        sites.append(locus.site_pattern + np.int32(first))
        first = end
    return Patterns(
        taxa=tuple(f"tip {number}" for number in range(1, tips + 1)),
        codes=codes,
        weights=np.concatenate([locus.weights for locus in loci]),
        site_pattern=np.concatenate(sites),
        alphabet=alphabet,
        ends=tuple(ends) if len(ends) > 1 else (),
    )


Subsets = Sequence[Sequence[int]]
"""Numbers of parts, which are of one data type in each."""


def refuse_files(scheme: Scheme) -> None:
    """Check that all parts are of one file, so that any two can be merged.

    Raises: InputError: they are of several.
    """
    first, *others = scheme.parts
    for part in others:
        if part.file != first.file:
            message = f"parts {first.name} and {part.name} are of two files, and cannot be merged"
            raise scheme.error(message, part, "put all genes into one alignment")


def merged(data: Partitioned, subsets: Subsets) -> Partitioned:
    """The same sites in fewer parts, one for each subset, in the order of the subsets' first parts.

    Raises: ValueError where a part is in no subset, or in two.
    """
    subsets = sorted(sorted(subset) for subset in subsets)
    if sorted(number for subset in subsets for number in subset) != list(range(len(data.parts))):
        raise ValueError("every part belongs in one subset")
    parts = _named([[data.parts[number] for number in subset] for subset in subsets])
    group_of = [data.group_of_part[subset[0]] for subset in subsets]
    groups, places = [], [0] * len(subsets)
    for number, group in enumerate(data.groups):
        members = [n for n, at in enumerate(group_of) if at == number]
        for place, n in enumerate(members):
            places[n] = place
        columns = [data.patterns(part).expand() for n in members for part in subsets[n]]
        ends = [*accumulate(parts[n].n_sites // group.alphabet.width for n in members)]
        codes = np.concatenate(columns, axis=1)
        groups.append(compress_parts(group.taxa, codes, group.alphabet, ends))
    has_data = np.array([data.has_data[subset].any(axis=0) for subset in subsets])
    scheme, numbers = replace(data.scheme, parts=parts), tuple(group_of)
    return Partitioned(
        scheme, tuple(groups), numbers, tuple(places), has_data, data.notices, data.renamed
    )


def _named(subsets: Sequence[Sequence[Part]]) -> tuple[Part, ...]:
    """A part for each subset, named after its parts as by IQ-TREE: ``gene1_gene7``.

    Raises: InputError where that is another one's name.
    """
    parts = []
    for subset in subsets:
        name = "_".join(part.name for part in subset)
        runs = tuple(run for part in subset for run in part.runs)
        parts.append(replace(subset[0], name=name, runs=runs, model=None, scaler=None))
    name, times = Counter(part.name for part in parts).most_common(1)[0]
    if times > 1:
        hint = "give the parts other names"
        raise InputError(f"two subsets of parts would be called {name}", hint=hint)
    return tuple(parts)


def only(patterns: Patterns, parts: Sequence[int]) -> Patterns:
    """The patterns of some parts, still in parts; their sites are not known."""
    where = [patterns.parts[part] for part in parts]
    ends = tuple(accumulate(span.stop - span.start for span in where))
    return replace(
        patterns,
        codes=np.concatenate([patterns.codes[:, span] for span in where], axis=1),
        weights=np.concatenate([patterns.weights[span] for span in where]),
        site_pattern=np.empty(0, np.int32),
        ends=ends if len(ends) > 1 else (),
        unseen=(),
    )


def side_by_side(patterns: Patterns, parts: Sequence[int]) -> Patterns:
    """The patterns of some parts as one part; patterns that two parts share occur twice."""
    return replace(only(patterns, parts), ends=())
