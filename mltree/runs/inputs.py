"""Alignments, trees and models from Python: files, or objects and numbers in memory.

Libraries are told by what their objects can do; none of them is imported, and none is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mltree.data.alignments import MemoryAlignment, Source
from mltree.data.alphabet import DNA
from mltree.data.source import NEWICK_SPECIAL, tree_name
from mltree.models.grammar import format_model
from mltree.models.names import outside_braces
from mltree.models.partitioned import model_alphabet
from mltree.models.substitution import Model
from mltree.system.arrays import Float64
from mltree.system.errors import InputError, ModelError
from mltree.tree.newick import quoted, text_of

AlignmentLike: TypeAlias = Any
"""A path; a mapping from names to sequences; pairs of them; NumPy's u8 (ASCII), ``S1`` or ``U1``
[T, sites] with ``taxa``; a ``Series`` or ``DataFrame`` of pandas; or an alignment of Biopython,
cogent3, scikit-bio or dendropy."""

KNOWN = (
    "a path, a mapping or pairs of names and sequences, a NumPy array with taxa, a table of "
    "pandas, or an alignment of Biopython, cogent3, scikit-bio or dendropy"
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
    if hasattr(alignment, "loc") and hasattr(alignment, "index"):  # scikit-bio's, or of pandas
        return _rows_of_table(alignment)
    if hasattr(alignment, "to_dict") and hasattr(alignment, "names"):  # cogent3
        sequences = alignment.to_dict()
        return [(name, sequences[name]) for name in alignment.names]
    return _records(alignment)


def _rows_of_table(table: Any) -> Iterable[tuple[Any, Any]]:
    """Names and sequences of scikit-bio's TabularMSA, or of a Series or DataFrame of pandas.

    A DataFrame has a column of names and one of sequences; or names as its index, and sequences or
    a column a site.
    """
    if not hasattr(table, "itertuples"):
        return [
            (_name(one, label), str(one)) for label, one in zip(table.index, table, strict=True)
        ]
    named = [tuple(row) for row in table.itertuples(index=True)]
    if len(table.columns) == 2 and any(len(str(row[-1])) > 1 for row in named):
        return [(name, sequence) for _, name, sequence in named]
    return [(name, "".join(map(str, cells))) for name, *cells in named]


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
    return InputError(f"{type(thing).__name__} is not an alignment", hint=f"known: {KNOWN}")


def _ascii(name: Any, row: Any) -> bytes:
    if isinstance(row, list | tuple):
        row = "".join(map(str, row))
    text = bytes(row) if isinstance(row, bytes | bytearray) else str(row).encode()
    if not text.isascii():
        raise InputError(f"the sequence of {name} has characters that are not ASCII")
    return text


def file_of(source: Source, path: Path) -> str:
    """The file of an alignment; of one in memory the path, where it is written."""
    return written(source, path) if isinstance(source, MemoryAlignment) else str(source)


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
"""Newick, a path, a :class:`mltree.PhyloTree`, a result that has one, or a tree of ete3,
Biopython, dendropy, cogent3 or scikit-bio."""


def newicks_of(trees: TreeLike | Iterable[TreeLike]) -> str:
    """Several trees: a path or a text of them, a bootstrap's, or one by one."""
    trees = getattr(trees, "trees", trees)
    if isinstance(trees, str | os.PathLike) or _text(trees) or _reader(trees) is not None:
        return newick_of(trees)
    return "\n".join(map(_text_of, trees))


def _text_of(tree: TreeLike) -> str:
    """One of several trees, whose file is read."""
    return text_of(newick_of(tree))[0]


def _text(tree: TreeLike) -> str:
    """The Newick of a tree or of a result's tree; empty where neither has one."""
    newick = getattr(tree, "newick", None) or getattr(getattr(tree, "tree", None), "newick", "")
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
        raise InputError(f"{type(tree).__name__} is not a tree", hint=hint)
    return _newick(reader.root(tree), reader)


@dataclass(frozen=True)
class _Reader:
    """How a library's nodes are asked."""

    root: Callable[[Any], Any]
    children: Callable[[Any], Iterable[Any]]
    name: Callable[[Any], Any]
    length: Callable[[Any], Any]
    label: Callable[[Any], Any]
    """Support of an inner node, or its name."""


def _reader(tree: Any) -> _Reader | None:
    """The one that suits a tree; None where nothing does."""
    if hasattr(tree, "seed_node"):  # dendropy
        return _Reader(
            lambda tree: tree.seed_node,
            lambda node: node.child_nodes(),
            lambda node: node.taxon.label if node.taxon is not None else node.label,
            lambda node: node.edge.length,
            lambda node: node.label,
        )
    if hasattr(tree, "root") and hasattr(tree.root, "clades"):  # Biopython
        return _Reader(
            lambda tree: tree.root,
            lambda node: node.clades,
            lambda node: node.name,
            lambda node: node.branch_length,
            lambda node: node.name if node.confidence is None else node.confidence,
        )
    if hasattr(tree, "children") and hasattr(tree, "name"):  # ete3; cogent3 and scikit-bio
        is_ete3 = hasattr(tree, "dist") and hasattr(tree, "support")
        attribute = "dist" if is_ete3 else "length"
        has_supports = is_ete3 and any(
            node.support != ETE3_SUPPORT for node in tree.traverse() if node.children
        )
        return _Reader(
            lambda tree: tree,
            lambda node: node.children,
            lambda node: node.name,
            lambda node: getattr(node, attribute),
            lambda node: node.support if has_supports else node.name,
        )
    return None


ETE3_SUPPORT = 1.0
"""Support of every node of a tree of ete3 that has none."""

_MADE_NAME = re.compile(r"edge\.\d+|root")
"""Names that cogent3 gives to inner nodes without one."""


def _newick(root: Any, reader: _Reader) -> str:
    """The text of a tree, with labels of inner nodes but the root's."""
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
            label = _label(reader.label(node)) if has_branch else ""
            parts.append("(")
            pending += [")" + label + branch, *_between(below)]
        else:
            parts.append(quoted(str(reader.name(node) or "")) + branch)
    return "".join(parts) + ";"


def _label(label: Any) -> str:
    """The label of an inner node, a number with the digits that it needs; empty without one."""
    if label is None or (isinstance(label, str) and _MADE_NAME.fullmatch(label)):
        return ""
    return quoted(f"{label:.15g}" if isinstance(label, float) else str(label))


def _between(nodes: list[Any]) -> Iterator[Any]:
    """Nodes with commas between them, the last one first, as a stack wants them."""
    for number, node in enumerate(reversed(nodes)):
        if number:
            yield ","
        yield node, True


def _branch(length: Any) -> str:
    return "" if length is None else f":{float(length)!r}"


# Models: text, or a name and numbers.

ModelLike: TypeAlias = Any
"""A model's text, a path, :class:`mltree.ModelParameters`, or a :class:`mltree.ModelChoice`."""

DIGITS = 17
"""Decimals of values, which are mostly about 1: as many as a float64 has."""

_TERMS = {
    "frequencies": re.compile(r"F([CEOU]|[13]X4|EMPIRICAL|OPTIMIZE)?(?=$|[{\[])", re.IGNORECASE),
    "alpha": re.compile(r"G[0-9]*[AM]?(?=$|[{\[])", re.IGNORECASE),
    "pinv": re.compile(r"I[OU]?(?=$|[{\[])", re.IGNORECASE),
    "category_rates": re.compile(r"R[0-9]*(?=$|[{\[])", re.IGNORECASE),
}
"""Terms of a model's text that have the numbers of a field."""


@dataclass(frozen=True, eq=False, init=False)
class ModelParameters:
    """A substitution model with numbers in place of values in braces.

    Numbers that are given stay as they are; what is left out is estimated, as the name says it.
    Every function that takes a model takes this one, and results have theirs:

        ModelParameters("HKY+G4", rates=2.5, frequencies=[0.3, 0.2, 0.2, 0.3], alpha=0.5)
    """

    name: str
    """Model with its terms (``GTR+FO+I+G4``); docs/models.md has them all."""
    rates: Float64 | None = None
    """f64 [n]: exchangeabilities, one a class of the model (GTR: AC AG AT CG CT GT), or κ alone of
    HKY and K80; ω, or ω and κ, of codons. Made from a symmetric matrix [S, S], too."""
    frequencies: Float64 | None = None
    """f64 [S]: of the states, ACGT or, of proteins, in PAML's order. Made from a mapping, too."""
    alpha: float | None = None
    """Shape of the gamma distribution of rates among sites."""
    pinv: float | None = None
    """Proportion of invariable sites."""
    category_rates: Float64 | None = None
    """f64 [K]: rates of +R."""
    category_weights: Float64 | None = None
    """f64 [K]: proportions of sites with these rates."""

    def __init__(
        self,
        name: str,
        rates: ArrayLike | None = None,
        frequencies: ArrayLike | Mapping[str, float] | None = None,
        alpha: float | None = None,
        pinv: float | None = None,
        category_rates: ArrayLike | None = None,
        category_weights: ArrayLike | None = None,
    ) -> None:
        """Take a model's name and the numbers that are known. Raises: ModelError."""
        object.__setattr__(self, "name", str(name))
        self._set("rates", rates, (1, 2), self._array)
        self._set("frequencies", frequencies, (1,), self._array)
        self._set("alpha", alpha, (0,), lambda value: float(np.squeeze(value)))
        self._set("pinv", pinv, (0,), lambda value: float(np.squeeze(value)))
        self._set("category_rates", category_rates, (1,), self._array)
        self._set("category_weights", category_weights, (1,), self._array)
        if (self.category_rates is None) != (self.category_weights is None):
            raise ModelError("category_rates= and category_weights= go together")

    def _set(
        self, name: str, value: Any, axes: tuple[int, ...], convert: Callable[[Any], Any]
    ) -> None:
        """Set a field; ``axes``: how many its numbers may have."""
        object.__setattr__(self, name, None)
        if value is None:
            return
        try:
            numbers = convert(value)
        except (TypeError, ValueError):
            raise ModelError(f"{name}={value!r}: numbers, please") from None
        if not np.isfinite(numbers).all() or np.ndim(numbers) not in axes:
            wanted = "finite numbers in a row" if max(axes) else "one finite number"
            raise ModelError(f"{name}={value!r}: {wanted}, please")
        if np.ndim(numbers) == 2:
            numbers = _upper_triangle(numbers)
        object.__setattr__(self, name, numbers)

    def _array(self, values: ArrayLike | Mapping[str, float]) -> Float64:
        if isinstance(values, Mapping):
            states = (model_alphabet(self.name) or DNA).states
            if values.keys() != set(states):
                raise ModelError(f"frequencies of {''.join(values)}: of {''.join(states)}, please")
            values = [values[state] for state in states]
        return np.atleast_1d(np.array(values, np.float64))

    @classmethod
    def of(cls, model: Model) -> ModelParameters:
        """The name and the numbers of a model as it was fitted."""
        terms = outside_braces(format_model(model, DIGITS), "+")
        values: dict[str, Any] = {}
        if model.mixture is None:
            if model.frequency_mode == "FC":
                values["frequencies"] = model.frequencies
            terms[0], *numbers = _apart(terms[0])
            values |= dict(zip(["rates"], numbers, strict=False))
        for field, term in _TERMS.items():
            for place, text in enumerate(terms[1:], 1):
                if not term.match(text) or (field == "frequencies" and model.mixture is not None):
                    continue
                terms[place], *numbers = _apart(text)
                named = (field, "category_weights") if field == "category_rates" else (field,)
                values |= dict(zip(named, numbers, strict=False))
        return cls("+".join({"FU": "FO", "IU": "I"}.get(term, term) for term in terms), **values)

    @property
    def text(self) -> str:
        """The model as commands take it, with all digits of its numbers. Raises: ModelError."""
        head, *terms = outside_braces(self.name, "+")
        if self.rates is not None:
            if head.upper().startswith("MIX"):
                raise ModelError("rates= are of a model with one matrix", hint="not of a mixture")
            head = re.split(r"[{\[]", head)[0] + _braces(self.rates)
        for field, usual in (("frequencies", "FU"), ("pinv", "IU"), ("alpha", "G4")):
            value = getattr(self, field)
            if value is None:
                continue
            place = next((n for n, text in enumerate(terms) if _TERMS[field].match(text)), None)
            if place is None:
                place, terms = len(terms), [*terms, usual]
            is_named = field == "alpha"
            name = re.split(r"[{\[]", terms[place])[0] if is_named else usual
            terms[place] = name + _braces(value)
        if self.category_rates is not None and self.category_weights is not None:
            terms = [text for text in terms if not _TERMS["category_rates"].match(text)]
            values = _braces(self.category_rates) + _braces(self.category_weights)
            terms.append(f"R{self.category_rates.size}{values}")
        return "+".join([head, *terms])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        shown = (f"{name}={_shown(value)}" for name, value in self._given())
        return f"ModelParameters({', '.join([repr(self.name), *shown])})"

    def to_dict(self) -> dict[str, Any]:
        """Numbers that are known, by their names, as plain values."""
        plain = {name: np.asarray(value).tolist() for name, value in self._given()}
        return {"name": self.name, **plain}

    def _given(self) -> list[tuple[str, Any]]:
        named = [(one.name, getattr(self, one.name)) for one in fields(self)[1:]]
        return [(name, value) for name, value in named if value is not None]

    def _repr_html_(self) -> str:
        rows = [("model", self.name), *((name, _shown(value)) for name, value in self._given())]
        cells = (f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in rows)
        return f"<table>{''.join(cells)}</table>"


def model_of(model: ModelLike) -> str:
    """The text of a model, or the path of its file.

    Raises: ModelError: it is none.
    """
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    if isinstance(model, ModelParameters):
        return model.text
    name = getattr(model, "name", None)  # a choice's
    if isinstance(name, str) and hasattr(model, "choice"):
        return name
    hint = "text such as 'GTR+G4', mltree.ModelParameters or what mltree.model returns"
    raise ModelError(f"{type(model).__name__} is not a model", hint=hint)


def _upper_triangle(matrix: Float64) -> Float64:
    """By rows. Raises: ModelError where the matrix is not symmetric."""
    rows, columns = matrix.shape
    off = ~np.eye(rows, dtype=bool) if rows == columns else None
    if off is None or not np.allclose(matrix[off], matrix.T[off], atol=0.0):
        raise ModelError("rates= of a matrix: a square and symmetric one is wanted")
    return matrix[np.triu_indices(rows, 1)]


def _apart(text: str) -> list[Any]:
    """A term without its braces, and the numbers in each pair of them."""
    name, *inside = re.split(r"[{}]+", text)
    return [name, *(np.array(list(map(float, one.split("/")))) for one in inside if one)]


def _braces(values: ArrayLike) -> str:
    return "{" + "/".join(map(repr, np.atleast_1d(values).tolist())) + "}"


def _shown(value: ArrayLike) -> str:
    """Numbers with the digits that a reader wants."""
    numbers = [f"{number:.6g}" for number in np.atleast_1d(value).tolist()]
    return numbers[0] if np.ndim(value) == 0 else f"[{', '.join(numbers)}]"
