"""Why a PHYLIP file does not fit its header: the one line that a user needs to mend it."""

from __future__ import annotations

from mltree.alignment.phylip import (
    Header,
    interleaved,
    relaxed_name,
    sequential_spans,
)
from mltree.alignment.reading import Lines, Reading
from mltree.errors import InputError

__all__ = ["phylip_misfit"]


def phylip_misfit(lines: Lines) -> InputError:
    """The likeliest fault of a file that `read_phylip` could not read."""
    header = Header.of(lines.text[0])
    if header is None:
        return lines.error("not a PHYLIP header (numbers of taxa and of sites)", 0)
    if not header.taxa or not header.sites:
        return lines.error(f"the header says {header.taxa} taxa and {header.sites} sites", 0)
    found = len(lines.text) - 1
    as_rows = interleaved(lines, Header(found, header.sites), relaxed_name, "")
    if found != header.taxa and all(len(row) == header.sites for row in as_rows.rows):
        return _wrong_taxa(lines, header, found)
    if found < header.taxa:
        return _wrong_taxa(lines, header, found)
    if found == header.taxa:
        return _wrong_rows(lines, header, as_rows)
    return _wrong_blocks(lines, header)


def _wrong_taxa(lines: Lines, header: Header, found: int) -> InputError:
    return lines.error(
        f"the header says {header.taxa} taxa, but {found} follow",
        found if found < header.taxa else header.taxa + 1,
        hint="the file is truncated or its first line is wrong",
    )


def _wrong_rows(lines: Lines, header: Header, reading: Reading) -> InputError:
    """Rows of the wrong length: all alike (then the header is wrong), or the first such row."""
    lengths = {len(row) for row in reading.rows}
    if len(lengths) == 1 and lengths != {0}:
        return lines.error(
            f"the header says {header.sites} sites, but every row has {lengths.pop()}",
            0,
            hint="correct the first line",
        )
    row = next(row for row, text in enumerate(reading.rows) if len(text) != header.sites)
    length = len(reading.rows[row])
    return _taxon_error(lines, header, reading.names[row], f"has {length}", reading.end_of(row))


def _wrong_blocks(lines: Lines, header: Header) -> InputError:
    """Several lines for each taxon: sequential if the first taxon comes out, else interleaved."""
    spans, missing = sequential_spans(lines, header, relaxed_name)
    last = spans[-1]
    if len(spans) == 1 and (len(lines.text) - 1) % header.taxa == 0:
        return _wrong_rows(lines, header, interleaved(lines, header, relaxed_name, ""))
    name = relaxed_name(lines.text[last.start])[0]
    if missing:
        found = f"has {header.sites - missing}{' or more' if missing < 0 else ''}"
        return _taxon_error(lines, header, name, found, last.stop - 1)
    if len(spans) < header.taxa:
        return _wrong_taxa(lines, header, len(spans))
    return lines.error(
        f"more lines follow the last of the {header.taxa} taxa that the header says",
        last.stop,
        hint="correct the first line, or give one alignment a file",
    )


def _taxon_error(lines: Lines, header: Header, name: bytes, found: str, line: int) -> InputError:
    taxon = name.decode("utf-8", "replace")
    return InputError(
        f"the header says {header.sites} sites, but taxon {taxon} {found}",
        file=lines.path,
        line=lines.numbers[min(line, len(lines.numbers) - 1)],
        taxon=taxon,
        hint="every row must be as long as the header says",
    )
