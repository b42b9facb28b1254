"""The branches of a tree that a table's features need, and samples as counts on its tips.

The tree is sheared to the features that have counts, and nodes with a single child are merged with
it. Letters: N samples, B branches, T tips left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mltree.diversity.table import CountTable, few, integer_counts
from mltree.system.arrays import Bool, Float64, Index, Int32, Int64
from mltree.system.errors import InputError
from mltree.system.process import map_blocks
from mltree.system.values import Value
from mltree.tree.newick import ParsedTrees, parsed_trees, text_of
from mltree.tree.topology import NONE


class SampleBranches(Value):
    """Branches in postorder, each known by the node below it; the last is above the root."""

    parent: Int32
    """int32 [B]: the branch above; NONE for the last."""
    length: Float64
    """float64 [B]"""
    first: Int32
    """int32 [B]: the first tip below, in the order of the text."""
    last: Int32
    """int32 [B]: the last tip below."""
    tip: Int32
    """int32 [T]: the branch of every tip."""
    names: tuple[str, ...]
    """Names of the tips."""

    @property
    def count(self) -> int:
        """Number of branches, B."""
        return len(self.parent)

    @cached_property
    def depth(self) -> float:
        """Length of the longest path from above the root to a tip."""
        steps = np.bincount(self.first, self.length, len(self.tip) + 1)
        steps -= np.bincount(self.last + 1, self.length, len(self.tip) + 1)
        return float(np.cumsum(steps)[:-1].max())


class Samples(Value):
    """N samples as counts on tips, in the order of the tips."""

    ids: tuple[str, ...]
    branches: SampleBranches
    indptr: Int64
    """int64 [N + 1]"""
    tip: Int32
    """int32: the tip of each entry, rising within a sample."""
    counts: Int64
    """int64: whole numbers of 2^-shift."""
    shift: int

    @property
    def n_samples(self) -> int:
        """Number of samples, N."""
        return len(self.ids)

    @cached_property
    def totals(self) -> Int64:
        """int64 [N]: the sum of each sample's counts."""
        return np.add.reduceat(self.counts, self.indptr[:-1])

    def counts_below(self, rows: slice) -> Int64:
        """int64 [rows, B]: counts below every branch of some samples."""
        first, stop, _ = rows.indices(self.n_samples)
        on_tips = np.zeros((stop - first, len(self.branches.tip) + 1), np.int64)
        entries = slice(self.indptr[first], self.indptr[stop])
        row = np.repeat(np.arange(stop - first), np.diff(self.indptr[first : stop + 1]))
        on_tips[row, self.tip[entries] + 1] = self.counts[entries]
        before = np.cumsum(on_tips, axis=1)
        below: Int64 = before[:, self.branches.last + 1] - before[:, self.branches.first]
        return below


def parsed_tree(source: str) -> tuple[ParsedTrees, str | None]:
    """The first tree of a file or a text, and the file. Raises: InputError: there is none."""
    text, file = text_of(source)
    return next(iter(parsed_trees(text, file))), file


def place(table: CountTable, tree: str) -> Samples:
    """The samples of a table on the branches of a tree.

    tree  a file or its text, Newick or NEXUS

    Raises:
        InputError: the tree cannot be read, lacks features that have counts, names a tip twice, or
            has no length for a branch that is needed, and is not next to the root.
    """
    return placed(table, *parsed_tree(tree))


def placed(table: CountTable, parsed: ParsedTrees, file: str | None) -> Samples:
    """Place a table on a tree that is read already, as :func:`place` does."""
    nodes, parent = parsed.nodes_of(0)
    is_tip = np.bincount(parent[1:], minlength=parent.size)[: parent.size] == 0
    tip_nodes = np.flatnonzero(is_tip)
    names = _labels(parsed, nodes[tip_nodes])
    is_used = np.zeros(len(table.features), bool)
    is_used[table.indices] = True
    used = np.flatnonzero(is_used)
    tips = _tips_of([table.features[column] for column in used.tolist()], names, file)
    is_needed = np.zeros(parent.size, bool)
    is_needed[tip_nodes[tips]] = True
    left = [names[tip] for tip in np.flatnonzero(is_needed[tip_nodes]).tolist()]
    branches = _sheared(parsed, nodes, parent, is_needed, left, file)

    tip_of_feature = np.full(len(table.features), NONE, np.int32)
    tip_of_feature[used] = (np.cumsum(is_needed, dtype=np.int32) - 1)[tip_nodes[tips]]
    counts, shift = integer_counts(table.counts, float(table.totals.max()))
    tip, counts = _in_order(table, tip_of_feature, counts)
    return Samples(table.ids, branches, table.indptr, tip, counts, shift)


SORTED_SAMPLES = 1024
"""Samples whose entries are sorted together; their keys, with tips and places, fit 64 bits."""


BLANK, STAND_IN = 32, "\x01"
"""The last of ASCII's blanks and control characters, and the one that numbers a name in quotes."""


def _labels(parsed: ParsedTrees, gaps: Index) -> list[str]:
    """Names of some gaps, cut from the text as it stands where blanks and coding allow."""
    is_blank = (parsed.codes <= BLANK) & (parsed.codes != ord(STAND_IN))
    is_compact = parsed.text.isascii() and not is_blank[: int(parsed.end[-1])].any()
    if parsed.names is not None or not is_compact:
        return parsed.labels(gaps)
    text = parsed.text.decode("ascii")
    starts, ends = parsed.start[gaps].tolist(), parsed.end[gaps].tolist()
    names = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    if not parsed.quoted:
        return names
    return [parsed.quoted[int(one[1:])] if one[:1] == STAND_IN else one for one in names]


JOINED = "sum up the entries of the table that have the same sample and feature"


def _in_order(table: CountTable, tip_of_feature: Int32, counts: Int64) -> tuple[Int32, Int64]:
    """Tips of all entries, rising within each sample, and their counts."""
    tips, ordered = np.empty(counts.size, np.int32), np.empty_like(counts)
    n_tips, sizes = len(tip_of_feature) + 1, np.diff(table.indptr)
    longest = int(sizes.max())

    def sort(rows: slice) -> None:
        """A key is a sample, a tip and the place of the entry: sorting keys sorts all."""
        entries = slice(int(table.indptr[rows.start]), int(table.indptr[rows.stop]))
        size = sizes[rows]
        sample = np.repeat(np.arange(size.size), size)
        first = (table.indptr[rows] - entries.start)[sample]
        tip = tip_of_feature[table.indices[entries]]
        keys = (sample * n_tips + tip) * longest + (np.arange(tip.size) - first)
        keys.sort()
        things = keys // longest
        again = np.flatnonzero(things[1:] == things[:-1])
        if again.size:
            twice = table.ids[rows.start + int(sample[again[0]])]
            raise InputError(f"sample {twice!r} has counts of a feature twice", hint=JOINED)
        place = keys - things * longest + first
        tips[entries], ordered[entries] = tip[place], counts[entries][place]

    map_blocks(sort, table.n_samples, SORTED_SAMPLES)
    return tips, ordered


def _tips_of(features: Sequence[str], names: Sequence[str], file: str | None) -> Index:
    """The tip of every feature; blanks and underscores are alike where nothing else fits.

    Raises:
        InputError: there is no such tip, or two.
    """
    tip_of = {name: tip for tip, name in enumerate(names)}
    if len(tip_of) < len(names):
        seen = set[str]()
        again = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"tip {again!r} is in the tree twice", file=file, taxon=again)
    tips = [tip_of.get(name, NONE) for name in features]
    lost = [place for place, tip in enumerate(tips) if tip == NONE]
    if lost:
        blank = {name.replace("_", " "): tip for name, tip in tip_of.items()}
        for feature in lost:
            tips[feature] = blank.get(features[feature].replace("_", " "), NONE)
    missing = [name for name, tip in zip(features, tips, strict=True) if tip == NONE]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        share = f"{len(missing):,} of {len(features):,} features"
        problem = f"{share} {verb} not in the tree: {few(missing)}"
        hint = "give the tree that these features were placed in, or leave them out of the table"
        raise InputError(problem, file=file, taxon=missing[0], hint=hint)
    if len(set(tips)) < len(tips):
        seen_tips = set[int]()
        two = next(tip for tip in tips if tip in seen_tips or seen_tips.add(tip))  # type: ignore[func-returns-value]
        raise InputError(f"two features are tip {names[two]!r} of the tree", file=file)
    return np.array(tips, np.intp)


def _sheared(
    parsed: ParsedTrees, nodes: Index, parent: Int32, is_needed: Bool, names: Sequence[str],
    file: str | None,
) -> SampleBranches:  # fmt: skip
    """The branches above tips that are needed; nodes stand parents before children.

    names  of the tips that are needed
    """
    in_postorder = np.argsort(nodes)
    post = np.empty(nodes.size, np.int64)
    post[in_postorder] = np.arange(nodes.size)
    depth = (parsed.depth - parsed.step)[nodes]
    pre = np.arange(nodes.size)
    end = post + depth + 1  # the node behind a subtree, which has post - pre + depth + 1
    before = np.concatenate(([0], np.cumsum(is_needed)))
    first, last = before[pre], before[end] - 1
    is_kept = last >= first
    n_children = np.bincount(parent[1:][is_kept[1:]], minlength=nodes.size)
    is_left = is_kept & (is_needed | (n_children != 1))
    length = parsed.lengths[nodes]
    is_next_to_root = (last - first == is_needed.sum() - 1) | (parent <= 0)
    length[is_next_to_root & np.isnan(length)] = 0.0  # Greengenes' trees lack a length there
    missing = int(np.isnan(length[is_kept]).sum())
    if missing:
        verb = "branch has" if missing == 1 else "branches have"
        raise InputError(f"{missing:,} {verb} no length", file=file, hint="give each a length")

    left = in_postorder[is_left[in_postorder]]
    above = parent[left].astype(np.int64)
    total = length[left]
    merging = np.flatnonzero((above >= 0) & ~is_left[above])
    while merging.size:
        total[merging] += length[above[merging]]
        above[merging] = parent[above[merging]]
        merging = merging[(above[merging] >= 0) & ~is_left[above[merging]]]
    number = np.full(nodes.size + 1, NONE, np.int32)
    number[left] = np.arange(left.size)
    tip_nodes = np.flatnonzero(is_needed)
    return SampleBranches(
        parent=number[above],
        length=total,
        first=first[left].astype(np.int32),
        last=last[left].astype(np.int32),
        tip=number[tip_nodes],
        names=tuple(names),
    )
