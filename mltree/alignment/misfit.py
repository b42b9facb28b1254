"""Why a PHYLIP file does not fit its header: the one line that a user needs to mend it."""

from __future__ import annotations

from dataclasses import replace

from mltree.alignment.phylip import (
    Header,
    interleaved,
    phylip_readings,
    relaxed_name,
    sequential_spans,
)
from mltree.alignment.reading import Lines, Reading
from mltree.alignment.source import WHITESPACE
from mltree.errors import InputError

__all__ = ["phylip_misfit"]

HEADER_HINT = "the first line must be the number of taxa and the number of sites"


def phylip_misfit(lines: Lines) -> InputError:
    """The likeliest fault of a file that has no reading."""
    header = Header.of(lines.text[0])
    if header is None:
        return lines.error("not a PHYLIP header", 0, hint=HEADER_HINT)
    if not header.taxa or not header.sites:
        return lines.error(
            f"the header says {header.taxa} taxa and {header.sites} sites", 0, hint=HEADER_HINT
        )
    fault = _other_format(lines, header) or _second_alignment(lines)
    return fault or _repeated_names(lines, header) or _wrong_numbers(lines, header)


def _other_format(lines: Lines, header: Header) -> InputError | None:
    """The file fits without its ``I`` or ``S``."""
    fitting = (
        phylip_readings(lines, replace(header, file_format=None)) if header.file_format else []
    )
    if not fitting:
        return None
    return lines.error(
        f"the header says {header.file_format}, but the file only fits as {fitting[0].file_format}",
        0,
        hint="correct the letter behind the two numbers, or take it away",
    )


def _second_alignment(lines: Lines) -> InputError | None:
    """Another header further down."""
    second = next((n for n, line in enumerate(lines.text) if n and Header.of(line)), None)
    if second is None:
        return None
    return lines.error("another alignment begins", second, hint="give one alignment a file")


def _repeated_names(lines: Lines, header: Header) -> InputError | None:
    """Blocks that all begin with the names; PHYLIP's own programs take them for sequence."""
    names = [relaxed_name(line)[0] for line in lines.text[1:]]
    first, rest = names[: header.taxa], names[header.taxa :]
    if not rest or len(rest) % header.taxa or rest != first * (len(rest) // header.taxa):
        return None
    return lines.error(
        "the names are repeated in every block",
        1 + header.taxa,
        hint="only the first block of an interleaved file has names",
    )


def _wrong_numbers(lines: Lines, header: Header) -> InputError:
    """Too many or too few taxa or sites."""
    found = len(lines.text) - 1
    if found < header.taxa or (found > header.taxa and _all_whole(lines, header, found)):
        return _wrong_taxa(lines, header, found, min(found, header.taxa + 1))
    if found == header.taxa or _looks_interleaved(lines, header):
        return _wrong_rows(lines, header, interleaved(lines, header))
    return _wrong_sequence(lines, header)


def _all_whole(lines: Lines, header: Header, found: int) -> bool:
    """Every line is a name and a whole sequence."""
    rows = interleaved(lines, Header(found, header.sites)).rows
    return all(len(row) == header.sites for row in rows)


def _looks_interleaved(lines: Lines, header: Header) -> bool:
    """Blocks of T lines, and the first taxon's lines do not come out if they are read in turn."""
    spans, missing = sequential_spans(lines, header)
    blocks = (len(lines.text) - 1) % header.taxa == 0
    return blocks and len(spans) == 1 and missing != 0


def _wrong_taxa(lines: Lines, header: Header, found: int, line: int) -> InputError:
    return lines.error(
        f"the header says {header.taxa} taxa, but {found} follow",
        line,
        hint="the file is truncated or its first line is wrong",
    )


def _wrong_rows(lines: Lines, header: Header, reading: Reading) -> InputError:
    """Rows of the wrong length: all alike (then the header is wrong), or the first such row."""
    lengths = [len(row) for row in reading.rows]
    if len(set(lengths)) == 1 and lengths[0]:
        return lines.error(
            f"the header says {header.sites} sites, but every row has {lengths[0]}",
            0,
            hint="correct the first line",
        )
    row = next(row for row, length in enumerate(lengths) if length != header.sites)
    line = _odd_line(lines, reading, row, header.sites)
    return _taxon_error(lines, header, reading.names[row], f"has {lengths[row]}", line)


def _odd_line(lines: Lines, reading: Reading, row: int, sites: int) -> int:
    """The line of a row that differs in length from that of a row that is right; else its last."""
    for other, text in enumerate(reading.rows):
        if len(text) == sites:
            mine = reading.piece_lengths(lines, row)
            theirs = reading.piece_lengths(lines, other)
            pairs = zip(reading.pieces[row], mine, theirs, strict=False)
            return next((line for line, a, b in pairs if a != b), reading.end_of(row))
    return reading.end_of(row)


def _wrong_sequence(lines: Lines, header: Header) -> InputError:
    """Several lines a taxon, one taxon after the other: where that stops working."""
    spans, missing = sequential_spans(lines, header)
    last = spans[-1]
    if missing:
        name = relaxed_name(lines.text[last.start])[0]
        return _taxon_error(lines, header, name, _so_far(lines, last, header, missing), last[-1])
    if len(spans) < header.taxa:
        return _wrong_taxa(lines, header, len(spans), last[-1])
    return lines.error(
        f"more lines follow the last of the {header.taxa} taxa that the header says",
        last.stop,
        hint="correct the first line, or give one alignment a file",
    )


def _so_far(lines: Lines, span: range, header: Header, missing: int) -> str:
    """Where a taxon's sites go past the promised number, or that they end before it."""
    total = header.sites - missing
    if missing > 0 or len(span) == 1:
        return f"has {total}"
    before = total - len(lines.text[span[-1]].translate(None, WHITESPACE))
    return f"has {before} up to line {lines.numbers[span[-2]]} and {total} with the next"


def _taxon_error(lines: Lines, header: Header, name: bytes, found: str, line: int) -> InputError:
    taxon = name.decode("utf-8", "replace")
    return InputError(
        f"the header says {header.sites} sites, but taxon {taxon} {found}",
        file=lines.path,
        line=lines.numbers[line],
        taxon=taxon,
        hint="every row must be as long as the header says",
    )
