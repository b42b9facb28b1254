"""Alignments and trees from Python: files, or objects of other libraries in memory.

Libraries are told by what their objects can do; none of them is imported, and none is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from mltree.data.alignments import MemoryAlignment
from mltree.data.source import NEWICK_SPECIAL, tree_name
from mltree.system.errors import InputError
from mltree.tree.newick import quoted, text_of

AlignmentLike: TypeAlias = Any
"""A path; a mapping from names to sequences; pairs of them; NumPy's u8 (ASCII), ``S1`` or ``U1``
[T, sites] with ``taxa``; or an alignment of Biopython, cogent3, scikit-bio or dendropy."""

KNOWN = (
    "a path, a mapping or pairs of names and sequences, a NumPy array with taxa, or an alignment "
    "of Biopython, cogent3, scikit-bio or dendropy"
)


def source_of(alignment: AlignmentLike, taxa: Sequence[str] | None = None) -> str | MemoryAlignment:
    """The file that is named, or the sequences themselves.

    taxa  names of the rows of an array, or instead of those that the alignment has

    Raises:
        InputError: it is no alignment.
    """
    if isinstance(alignment, str | os.PathLike):
        if taxa is not None:
            raise InputError("taxa: a file has names of its own", file=os.fspath(alignment))
        return os.fspath(alignment)
    return given(alignment, taxa)


def given(alignment: AlignmentLike, taxa: Sequence[str] | None = None) -> MemoryAlignment:
    """The sequences of an alignment in memory. Raises: InputError as :func:`source_of`."""
    if isinstance(alignment, np.ndarray):
        if taxa is None:
            raise InputError("an array has no names", hint="name its rows: taxa=[...]")
        pairs = list(zip(taxa, _rows(alignment), strict=False))
        if not len(taxa) == len(alignment) == len(pairs):
            raise InputError(f"{len(taxa)} taxa for {len(alignment)} rows")
    else:
        pairs = list(_pairs(alignment))
        if taxa is not None:
            if len(taxa) != len(pairs):
                raise InputError(f"{len(taxa)} taxa for {len(pairs)} sequences")
            pairs = [(name, row) for name, (_, row) in zip(taxa, pairs, strict=True)]
    return MemoryAlignment(
        tuple(str(name) for name, _ in pairs), tuple(_ascii(name, row) for name, row in pairs)
    )


def _rows(array: np.ndarray[Any, Any]) -> Iterator[bytes]:
    """The rows of characters: numbers are ASCII, else each element is a character."""
    if array.ndim != 2:
        raise InputError(f"an array of {array.ndim} axes: taxa x sites are wanted")
    if array.dtype.kind in "SUO":
        for row in array:
            yield "".join(
                one.decode("latin-1") if isinstance(one, bytes) else str(one) for one in row
            ).encode()
    elif array.dtype == np.uint8:
        for row in array:
            yield row.tobytes()
    else:
        hint = "characters (S1, U1) or their ASCII codes (uint8) are wanted"
        raise InputError(f"an array of {array.dtype}", hint=hint)


def _pairs(alignment: Any) -> Iterable[tuple[Any, Any]]:
    """Names and sequences, whoever made the alignment."""
    if isinstance(alignment, Mapping):
        return alignment.items()
    if hasattr(alignment, "taxon_namespace"):  # dendropy's CharacterMatrix
        return [(taxon.label, alignment[taxon].symbols_as_string()) for taxon in alignment]
    if hasattr(alignment, "coordinates") and hasattr(alignment, "sequences"):  # Bio.Align.Alignment
        names = [getattr(one, "id", n) for n, one in enumerate(alignment.sequences, 1)]
        return [(name, alignment[n]) for n, name in enumerate(names)]
    if hasattr(alignment, "loc") and hasattr(alignment, "index"):  # scikit-bio's TabularMSA
        return [
            (_name(one, label), str(one))
            for label, one in zip(alignment.index, alignment, strict=True)
        ]
    if hasattr(alignment, "to_dict") and hasattr(alignment, "names"):  # cogent3
        sequences = alignment.to_dict()
        return [(name, sequences[name]) for name in alignment.names]
    return _records(alignment)


def _name(sequence: Any, label: Any) -> Any:
    """Name of a scikit-bio sequence: its index where that is made of names, else its ``id``."""
    if isinstance(label, str):
        return label
    return getattr(sequence, "metadata", {}).get("id", label)


def _records(alignment: Any) -> Iterator[tuple[Any, Any]]:
    """Biopython's records, or pairs."""
    try:
        rows = iter(alignment)
    except TypeError:
        raise _no_alignment(alignment) from None
    for row in rows:
        if hasattr(row, "id") and hasattr(row, "seq"):
            yield row.id, row.seq
        elif isinstance(row, Sequence) and not isinstance(row, str | bytes) and len(row) == 2:
            yield row[0], row[1]
        else:
            raise _no_alignment(alignment)


def _no_alignment(thing: Any) -> InputError:
    return InputError(f"{type(thing).__name__} is no alignment", hint=f"known: {KNOWN}")


def _ascii(name: Any, row: Any) -> bytes:
    if isinstance(row, list | tuple):
        row = "".join(map(str, row))
    text = bytes(row) if isinstance(row, bytes | bytearray) else str(row).encode()
    if not text.isascii():
        raise InputError(f"the sequence of {name} has characters that are not ASCII")
    return text


def written(alignment: MemoryAlignment, path: Path) -> str:
    """Write it to a file, for runs whose inputs have to be found again; returns the path.

    Blanks in names, where a file's names end, become ``_``, as they do in Newick.

    Raises:
        InputError: the file cannot be written.
    """
    from mltree.system.files import write_whole

    names = tuple(tree_name(name, kept=NEWICK_SPECIAL) for name in alignment.names)
    write_whole(path, replace(alignment, names=names).fasta().encode())
    return str(path)


# Trees: Newick, a path, or an object of ete3, Biopython, dendropy, cogent3 or scikit-bio, which is
# walked, not printed, so that no digit of a length is lost.

TreeLike: TypeAlias = Any
"""Newick, a path, a :class:`mltree.PhyloTree`, or a tree of ete3, Biopython, dendropy, cogent3 or
scikit-bio."""


def newicks_of(trees: TreeLike | Iterable[TreeLike]) -> str:
    """Several trees: a path or a text of them, or one by one."""
    if isinstance(trees, str | os.PathLike) or _text(trees) or _reader(trees) is not None:
        return newick_of(trees)
    return "\n".join(map(_text_of, trees))


def _text_of(tree: TreeLike) -> str:
    """One of several trees, whose file is read."""
    return text_of(newick_of(tree))[0]


def _text(tree: TreeLike) -> str:
    """The Newick of a tree that has one, such as a result's; empty where it has none."""
    newick = getattr(tree, "newick", "")
    return newick if isinstance(newick, str) else ""


def newick_of(tree: TreeLike) -> str:
    """Return the text of a tree, or the path of its file.

    Raises:
        InputError: it is no tree that is known.
    """
    if isinstance(tree, str | os.PathLike):
        return os.fspath(tree)
    if text := _text(tree):
        return text
    reader = _reader(tree)
    if reader is None:
        hint = "Newick, a path, or a tree of ete3, Biopython, dendropy, cogent3 or scikit-bio"
        raise InputError(f"{type(tree).__name__} is no tree", hint=hint)
    return _newick(reader.root(tree), reader)


@dataclass(frozen=True)
class _Reader:
    """How a library's nodes are asked."""

    root: Callable[[Any], Any]
    children: Callable[[Any], Iterable[Any]]
    name: Callable[[Any], Any]
    length: Callable[[Any], Any]


def _reader(tree: Any) -> _Reader | None:
    """The one that suits a tree; None where nothing does."""
    if hasattr(tree, "seed_node"):  # dendropy
        return _Reader(
            lambda tree: tree.seed_node,
            lambda node: node.child_nodes(),
            lambda node: node.taxon.label if node.taxon is not None else node.label,
            lambda node: node.edge.length,
        )
    if hasattr(tree, "root") and hasattr(tree.root, "clades"):  # Biopython
        return _Reader(
            lambda tree: tree.root,
            lambda node: node.clades,
            lambda node: node.name,
            lambda node: node.branch_length,
        )
    if hasattr(tree, "children") and hasattr(tree, "name"):  # ete3; cogent3 and scikit-bio
        attribute = "dist" if hasattr(tree, "dist") else "length"
        return _Reader(
            lambda tree: tree,
            lambda node: node.children,
            lambda node: node.name,
            lambda node: getattr(node, attribute),
        )
    return None


def _newick(root: Any, reader: _Reader) -> str:
    """The text of a tree, without labels of inner nodes."""
    parts: list[str] = []
    pending: list[Any] = [(root, False)]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        node, has_branch = item
        below = list(reader.children(node))
        branch = _branch(reader.length(node)) if has_branch else ""
        if below:
            parts.append("(")
            pending += [")" + branch, *_between(below)]
        else:
            parts.append(quoted(str(reader.name(node) or "")) + branch)
    return "".join(parts) + ";"


def _between(nodes: list[Any]) -> Iterator[Any]:
    """Nodes with commas between them, the last one first, as a stack wants them."""
    for number, node in enumerate(reversed(nodes)):
        if number:
            yield ","
        yield node, True


def _branch(length: Any) -> str:
    return "" if length is None else f":{float(length)!r}"
