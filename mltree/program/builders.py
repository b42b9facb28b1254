"""The programs of a search: which stages make a traversal, a smoothing, a scan.

Each function returns the program, and the branch lengths that it starts from where those are not
simply the trees' own. Trees of one program stand side by side, each in its case; without cases they
are all on the only part, each under the model of its number. Where parts have branch lengths of
their own, a tree's ``lengths`` are f64[parts, E], and lengths and sums come in rows, one a part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property

import numpy as np

from mltree.program import planner
from mltree.program.cases import Cases, Sums, offsets, sums_of
from mltree.program.contract import NO_CELL, RESULT, SPARE_LENGTHS, TRIPLET_CELLS, GroupKind
from mltree.program.ops.edges import EDGE, FLOW, Derive, Evaluate, EvaluateSites, Flow
from mltree.program.ops.operation import CASE, Records, Run, Stage, table
from mltree.program.ops.optimise import Optimise, Repeat
from mltree.program.ops.reduce import RELL, Reduce, Rell
from mltree.program.ops.scan import TRIPLET, Scan, Triplets
from mltree.program.ops.sites import Sites
from mltree.program.ops.sweeps import SWEEP, Sweeps, chain_slots, chain_words
from mltree.program.ops.time_sweeps import TimeSweeps
from mltree.program.ops.time_trees import TimeShape
from mltree.program.ops.walk import WALK, WALK_STEP, Walk
from mltree.program.planner import Piece, ScanTasks
from mltree.program.program import Program
from mltree.system.arrays import Bool, Float64, Int32
from mltree.system.values import Value
from mltree.tree.topology import Forest, Tree, Trees, siblings

# Walks of whole trees: the order of their nodes, so that few results wait for a sibling.
#
# One walk a tree leaves most of a GPU idle where trees and patterns are few. There a tree falls
# into pieces, each walked by itself: what is left of the tree once they are done falls into pieces
# again, tier by tier, until the last one ends at the root. That is then the tip from which no other
# is far, for such walks take the time of the steps that wait for one another.


def walk_stages(
    trees: Sequence[Tree], longest: int, cases: Cases, cells: Int32, sites: bool = False
) -> list[Walk]:
    """Walks of every tree to a tip, the lnL of tree n in cell ``cells[n]``; a stage for each tier.

    ``longest``: steps that two subtrees which meet may have together to be walked as one piece,
    all but one; from T - 2 on every tree is one piece. ``sites``: keep the lnL of every pattern
    too. Pieces leave their results in slots from 0 on.
    """
    shapes = _Shapes.of(trees)
    forest = Forest(shapes.unlike)
    pieces = _Pieces.of(forest, longest)
    steps, first = _steps(forest, pieces)
    walks = _walks(forest, pieces, first)
    first_slot = offsets(pieces.slots[shapes.of_tree])
    shift = offsets(shapes.n_edges) - forest.first_edge[shapes.of_tree]
    tier = pieces.tier[pieces.heads]
    stages = []
    for of_tier in np.split(np.arange(tier.size), np.flatnonzero(np.diff(tier)) + 1):
        its_walks, its_steps = shapes.of_every_tree(walks[of_tier], steps)
        tree = its_walks["case"]
        of_step = np.repeat(tree, its_walks["steps"])
        shift_of_step = shift.take(of_step)
        for side in ("left", "right"):
            operand, matrix = its_steps[side], its_steps[f"{side}_p"]
            if first_slot.any():
                is_slot = (operand >= 0) & (operand != RESULT)
                its_steps[side] = operand + is_slot * first_slot[of_step]
            its_steps[f"{side}_p"] = cases.matrices(matrix + shift_of_step, of_step)
        its_walks["p"] = cases.matrices(its_walks["p"] + shift[tree], tree)
        its_walks["slot"] += first_slot[tree] * (its_walks["slot"] != NO_CELL)
        its_walks["cell"] = np.where(its_walks["slot"] == NO_CELL, cells[tree], NO_CELL)
        cases.fill(its_walks, tree)
        levels = int(pieces.levels[pieces.heads[of_tier]].max())
        stages.append(Walk(its_walks, its_steps, max(0, levels), sites))
    return stages


class _Shapes(Value):
    """Trees that share all arrays but their lengths', as one under many models does."""

    unlike: list[Tree]
    """A tree of every shape."""
    of_tree: Int32
    """int32[n]: the shape of every tree."""
    n_edges: Int32
    """int32[n]: edges of every tree."""

    @classmethod
    def of(cls, trees: Sequence[Tree]) -> _Shapes:
        """Return the shapes of some trees."""
        keys = [(id(tree.twin), id(tree.edge)) for tree in trees]
        unlike = dict(zip(keys, trees, strict=True))
        place = {key: number for number, key in enumerate(unlike)}
        of_tree = np.array([place[key] for key in keys], np.int32)
        edges = np.array([tree.n_edges for tree in trees], np.int32)
        return cls(list(unlike.values()), of_tree, edges)

    def of_every_tree(self, walks: Records, steps: Records) -> tuple[Records, Records]:
        """Walks of a tree of every shape, each once for every tree of the shape; and their steps.

        Cases are the trees'; whatever else is a tree's own is still that of the one.
        """
        copies = np.bincount(self.of_tree).astype(np.int32)
        trees = np.argsort(self.of_tree, kind="stable")
        shape = walks["case"]
        tree = np.repeat(offsets(copies)[shape], copies[shape]) + _within(copies[shape])
        walks = np.repeat(walks, copies[shape])
        walks["case"] = trees[tree]
        step = np.repeat(walks["first_step"], walks["steps"]) + _within(walks["steps"])
        walks["first_step"] = offsets(walks["steps"])
        return walks, steps[step]


def _within(counts: Int32) -> Int32:
    """int32[sum]: 0 .. count - 1 for each count, one after the other."""
    within: Int32 = np.arange(counts.sum(), dtype=np.int32) - np.repeat(offsets(counts), counts)
    return within


class _Pieces(Value):
    """Pieces that trees fall into; arrays are over a forest's half-edges that face its roots."""

    roots: Int32
    """The half-edge of the tip, of every tree, where its walks end."""
    waves: list[Int32]
    """The half-edges that face them, nearest first, an array per distance."""
    is_cut: Bool
    """bool: a piece ends there, and another one goes on from its result."""
    steps: Int32
    """Steps of its piece, up to there."""
    tier: Int32
    """Tier of its piece, which needs results of lower tiers only."""
    levels: Int32
    """Levels that its piece needs up to there; -1 of a tip, which never waits."""
    heads: Int32
    """The half-edges where pieces end, in the order of tiers, the longest first."""
    tree: Int32
    """int32[heads]: the tree of each."""

    @classmethod
    def of(cls, forest: Forest, longest: int) -> _Pieces:
        """From the tips to the root: a node goes on with its children's piece where it can.

        Where it has two, and they are long together, both end and a higher tier begins: they can
        then be walked side by side. A lone one grows without end, for its steps wait for each
        other anyway.

        Its levels: the child that needs more is walked first, so that a whole tree needs at most
        log2(T) of them (Sethi and Ullman, 1970).
        """
        is_whole, size = longest >= forest.n_tips.max() - 2, forest.twin.size
        roots = forest.first_half if is_whole else forest.central_tips()
        waves = forest.waves(roots)
        is_cut = np.zeros(size, np.bool_)
        steps, tier, levels = np.zeros((3, size), np.int32)
        levels -= 1
        for wave in reversed(waves):
            children = np.stack([side[wave] for side in forest.behind])
            last = tier[children].max(axis=0)
            stays = tier[children] == last
            meets = (stays & forest.is_inner[children]).all(axis=0)
            is_full = meets & (steps[children].sum(axis=0) >= longest)
            stays &= ~is_full
            is_cut[children] = forest.is_inner[children] & ~stays
            steps[wave] = 1 + (steps[children] * stays).sum(axis=0)
            tier[wave] = last + is_full
            needs = np.where(stays, levels[children], -1)
            levels[wave] = np.maximum(needs.max(axis=0), needs.min(axis=0) + 1)
        heads = np.concatenate([np.flatnonzero(is_cut), forest.twin[roots]])
        heads = heads[np.lexsort((-steps[heads], tier[heads]))]
        heads = heads.astype(np.int32)
        trees = forest.tree_of_half[heads]
        return cls(roots, waves, is_cut, steps, tier, levels, heads, trees)

    @cached_property
    def slots(self) -> Int32:
        """int32[trees]: results of each that other pieces go on from."""
        return np.bincount(self._trees_of_slots, minlength=len(self.roots)).astype(np.int32)

    @cached_property
    def slot(self) -> Int32:
        """int32[heads]: slot of a result among the slots of its tree; NO_CELL at a root."""
        slot = np.full(len(self.heads), NO_CELL, np.int32)
        order = np.argsort(self._trees_of_slots, kind="stable")
        slot[np.flatnonzero(self.is_cut[self.heads])[order]] = _within(self.slots)
        return slot

    @property
    def _trees_of_slots(self) -> Int32:
        return self.tree[self.is_cut[self.heads]]


def _steps(forest: Forest, pieces: _Pieces) -> tuple[Records, Int32]:
    """The steps of all pieces, and int32[halves]: where each half-edge's part of them starts."""
    needs = np.where(pieces.is_cut, -1, pieces.levels)
    one, other = forest.behind
    swap = needs[other] > needs[one]
    left, right = np.where(swap, other, one), np.where(swap, one, other)
    first = np.zeros(forest.twin.size, np.int32)
    ends = np.cumsum(pieces.steps[pieces.heads])
    first[pieces.heads] = ends - pieces.steps[pieces.heads]
    for wave in pieces.waves:
        begin = first[wave]
        for child in (left[wave], right[wave]):
            goes_on = ~pieces.is_cut[child]
            first[child[goes_on]] = begin[goes_on]
            begin = begin + pieces.steps[child] * goes_on
    every = np.concatenate(pieces.waves)
    at = first[every] + pieces.steps[every] - 1
    operand = np.full(forest.twin.size, RESULT, np.int32)
    operand[forest.tips] = ~(forest.in_tree(forest.tips) // 3)
    is_kept = pieces.slot != NO_CELL
    operand[pieces.heads[is_kept]] = pieces.slot[is_kept]
    steps: Records = np.empty(every.size, WALK_STEP)
    for field, halves in (("left", left[every]), ("right", right[every])):
        steps[field][at] = operand[halves]
        steps[f"{field}_p"][at] = forest.edge[halves]
    return steps, first


def _walks(forest: Forest, pieces: _Pieces, first: Int32) -> Records:
    """A walk to every head, of the tree that its case is."""
    heads, roots, tree = pieces.heads, pieces.roots, pieces.tree
    return table(
        WALK,
        heads.size,
        tip=~(forest.in_tree(roots) // 3)[tree],
        p=forest.edge[roots][tree],
        case=tree,
        slot=pieces.slot,
        first_step=first[heads],
        steps=pieces.steps[heads],
    )


def traversal(
    trees: Sequence[Tree], kind: type[Run] = Evaluate, cases: Cases | None = None
) -> Program:
    """A post-order traversal towards edge 0 and lnL there, for every tree; sum n is tree n's.

    Trees on the same parts take turns in slots that stay in a CPU's caches.
    """
    cases = cases or Cases.alike(len(trees))
    sums, forest = sums_of(_numbers(trees), 1, cases), Forest(trees)
    ends = planner.branch_records(forest, cases, forest.first_edge)
    ends["cell"] = sums.cells
    pieces = [
        planner.sharing_slots(piece, forest, cases)
        for piece in (planner.newviews_towards(trees, 0, cases), _at_edges(kind, ends))
    ]
    sites = planner.sites(pieces, cases, in_turn=True)
    return _summed(forest, sites, sums, cases)


def scoring(trees: Sequence[Tree], longest: int, kind: type[Run], cases: Cases) -> Program:
    """LnL of every tree, by walks of ``longest`` steps or, where that is 0, level by level."""
    if longest:
        return walk(trees, longest, kind, cases)
    return traversal(trees, kind, cases)


def classes(trees: Sequence[Tree], cases: Cases) -> Program:
    """The lnL of every pattern of a lone tree in every case, and of all: sum n is case n's.

    Cases differ in the weights of categories only, so that one traversal does for all.
    """
    (tree,) = trees
    forest, number = Forest([tree]), np.arange(len(cases.records), dtype=np.int32)
    sums = sums_of(number, 1, cases)
    ends = np.repeat(planner.branch_records(forest, cases, number[:1]), len(number))
    cases.fill(ends, number)
    ends["cell"] = sums.cells
    pieces = [planner.newviews_towards([tree], 0, cases), _at_edges(EvaluateSites, ends)]
    return _summed(forest, planner.sites(pieces, cases), sums, cases)


def walk(
    trees: Sequence[Tree], longest: int, kind: type[Run] = Evaluate, cases: Cases | None = None
) -> Program:
    """LnL of every tree from walks (:func:`walk_stages`); sum n is tree n's."""
    cases = cases or Cases.alike(len(trees))
    sums = sums_of(_numbers(trees), 1, cases)
    if len(cases.streams[0]) > 1:  # trees enough to fill the device, and slots would not be shared
        longest = max(tree.n_tips for tree in trees)
    walks = walk_stages(trees, longest, cases, sums.cells, sites=kind.keeps_sites)
    of_edge = np.repeat(_numbers(trees), [tree.n_edges for tree in trees])
    matrices = planner.pmatrices(of_edge, cases)
    return Program((matrices, *walks, sums.reduce), sums.n_cells, cases.records)


def update(trees: Trees, cases: Cases | None = None) -> Program:
    """Every directional CLA of every tree."""
    cases = cases or Cases.alike(len(trees))
    forest = Forest.of(trees)
    sites = planner.sites([planner.newviews(forest, forest.inner, cases)], cases)
    return Program((planner.pmatrices(forest.tree_of_edge, cases), sites), 1, cases.records)


def renewal(before: Trees, trees: Trees, cases: Cases | None = None) -> Program | None:
    """The directional CLAs that differ from those of the trees ``before``; None where none does."""
    cases = cases or Cases.alike(len(trees))
    forest = Forest.of(trees)
    stale = planner.is_stale(Forest.of(before), forest)
    if not stale.any():
        return None
    newviews = planner.newviews(forest, np.flatnonzero(stale).astype(np.int32), cases)
    one, other = forest.siblings
    edges = forest.edge[np.concatenate([one[stale], other[stale]])]
    branch = np.flatnonzero(np.bincount(edges)).astype(np.int32)
    matrices = planner.pmatrices(forest.tree_of_edge, cases, branch)
    return Program((matrices, planner.sites([newviews], cases)), 1, cases.records)


def derivatives(trees: Trees, cases: Cases | None = None, *, grouped: bool = False) -> Program:
    """Every directional CLA, lnL (sum n), and d1, d2 of every branch (sums from len(trees)).

    ``grouped``: a tree is left out once the group of its number moves no more.
    """
    cases = cases or Cases.alike(len(trees))
    number, forest = _numbers(trees), Forest.of(trees)
    widths = np.concatenate([np.ones_like(number), 2 * forest.n_edges])
    sums = sums_of(np.tile(number, 2), widths, cases)
    of_tree, of_branches = np.split(sums.cells, 2)
    derive = planner.branch_records(forest, cases)
    in_tree = np.arange(len(derive), dtype=np.int32) - forest.first_edge[forest.tree_of_edge]
    derive["cell"] = of_branches[forest.tree_of_edge] + 2 * in_tree
    ends = derive[forest.first_edge]
    ends["cell"] = of_tree
    pieces = [
        planner.newviews(forest, forest.inner, cases, by_tree=grouped),
        _at_edges(Evaluate, ends),
        _at_edges(Derive, derive),
    ]
    return _summed(forest, planner.sites(pieces, cases, grouped=grouped), sums, cases)


def flows(tree: Tree, most: int, cases: Cases, at_once: int) -> Program:
    """lnL, and its derivatives in the rate matrices of the classes, in ``most`` sums.

    The derivatives are made ``at_once`` at a time, in the same cells. See
    :mod:`mltree.program.ops.edges`.
    """
    forest, number = Forest([tree]), np.zeros(tree.n_edges, np.int32)
    edges, matrices = planner.branch_records(forest, cases), planner.pmatrices(number, cases)
    lengths = matrices.records
    edges["cell"] = 0
    ends = {name: edges[name] for name in ("x", "y", "case", "model", "weights")}
    length, stride = lengths["length"], lengths["stride"]
    records = table(FLOW, tree.n_edges, **ends, length=length, stride=stride, cell=1)
    pieces = [planner.newviews(forest, forest.inner, cases), _at_edges(EvaluateSites, edges[:1])]
    every = sums_of(number[:1], 1 + most, cases).reduce.records
    stages: list[Stage] = [matrices]
    for first in range(0, most, at_once):
        records["first"], records["cells"] = first, min(at_once, most - first)
        pieces.append(_at_edges(Flow, records.copy()))
        made: Records = every.copy()
        made["cell"] = int(first > 0)  # lnL comes with the first of them
        made["sum"] += made["cell"] + first
        made["count"] = 1 - made["cell"] + records["cells"][0]
        stages += [planner.sites(pieces, cases), Reduce(made)]
        pieces = []
    return Program(tuple(stages), 1 + min(at_once, most), cases.records)


def smoothing(trees: Trees, max_passes: int, cases: Cases | None = None) -> Program:
    """Simultaneous Newton steps on all branches until no tree gains; a group is a tree.

    Artificial edges, the last ones of a tree, are in no group and stay as they are.
    Where lengths are not linked a group is a part of a tree, part by part.
    """
    cases = cases or Cases.alike(len(trees))
    number, forest = _numbers(trees), Forest.of(trees)
    count, edges, first = forest.n_trees, forest.tree_of_edge.size, forest.first_edge
    groups = planner.group_records(
        GroupKind.DIAGONAL, first, forest.n_branches, number, count + 2 * first
    )
    once = derivatives(forest, cases, grouped=not cases.unlinked)
    groups = groups_by_part(groups, cases, edges, count + 2 * edges)
    stages = newton(once.stages, groups, max_passes, alone=False)
    return Program(stages, once.cells, cases.records)


def newton(
    once: Sequence[Stage], groups: Records, passes: int, *, alone: bool = True
) -> tuple[Stage, ...]:
    """Stages, and a step of every group after each of at most ``1 + passes`` passes of them."""
    return (*once, Optimise(groups, alone), Repeat(0, passes, len(groups)))


def groups_by_part(groups: Records, cases: Cases, n_lengths: int, n_sums: int) -> Records:
    """Groups of the lengths and sums of every part, where parts have lengths of their own."""
    if not cases.unlinked:
        return groups
    part = np.repeat(np.arange(cases.parts, dtype=np.int32), len(groups))
    groups = np.tile(groups, cases.parts)
    groups["first_length"] += part * np.int32(n_lengths)
    for field in ("lnl_sum", "first_sum"):
        groups[field] += part * np.int32(n_sums)
    return groups


def join(
    trees: Trees, prunes: Int32, passes: int, cases: Cases | None = None
) -> tuple[Program, Float64]:
    """Newton on the branch that each prune (a half-edge of the forest) leaves behind."""
    cases, forest = cases or Cases.alike(len(trees)), Forest.of(trees)
    operand, number = planner.operand_table(forest, cases), forest.tree_of_half[prunes]
    left, right = siblings(prunes)
    count = len(prunes)
    index = np.arange(count, dtype=np.int32)
    sums = sums_of(np.tile(number, 2), np.repeat([1, 2], count), cases)
    x, y = operand[forest.twin[left]], operand[forest.twin[right]]
    derive = table(EDGE, count, x=x, y=y, p=cases.matrices(index, number))
    cases.fill(derive, number)
    evaluate = derive.copy()
    evaluate["cell"], derive["cell"] = np.split(sums.cells, 2)
    pieces = [_at_edges(Evaluate, evaluate), _at_edges(Derive, derive)]
    groups = planner.group_records(GroupKind.DIAGONAL, index, 1, index, count + 2 * index)
    groups = groups_by_part(groups, cases, count, sums.n_sums)
    matrices = planner.pmatrices(number, cases)
    stages = newton((matrices, planner.sites(pieces, cases), sums.reduce), groups, passes)
    start = forest.lengths[..., forest.edge[left]] + forest.lengths[..., forest.edge[right]]
    return Program(stages, sums.n_cells, cases.records), start.ravel()


def scores(trees: Trees, scan: ScanTasks, cases: Cases | None = None) -> tuple[Program, Float64]:
    """The lnL of every insertion of a scan; sum n is output n."""
    cases = cases or Cases.alike(len(trees))
    is_one = len(cases.streams[0]) == 1  # and it does not matter which tree an output is of
    sums = sums_of(np.zeros(scan.outputs, np.int32) if is_one else scan.tree_of_output, 1, cases)
    cells = None if is_one else sums.cells
    tables = planner.scan_records(Forest.of(trees), scan, cases, cells)
    stages = (tables.pmatrices, Scan(tables.tasks, tables.steps), sums.reduce)
    return Program(stages, sums.n_cells, cases.records), tables.lengths


def near_vectors(
    trees: Trees, scan: ScanTasks, base: int, cases: Cases | None = None
) -> tuple[Program, Float64]:
    """The near vector of every output of a scan, kept in slots from ``base`` on."""
    cases = cases or Cases.alike(len(trees))
    slots = _near_slots(scan, base, cases)
    tables = planner.scan_records(Forest.of(trees), scan, cases, slots)
    stages = (tables.pmatrices, Scan(tables.tasks, tables.steps, stores=True))
    return Program(stages, 1, cases.records), tables.lengths


def triplets(
    trees: Trees, scan: ScanTasks, base: int, passes: int, cases: Cases | None = None
) -> tuple[Program, Float64]:
    """Joint Newton around every output of a scan, from the near vectors in slots from ``base``.

    Starts from the target edge split in half and the pendant length as it is.
    """
    cases, forest = cases or Cases.alike(len(trees)), Forest.of(trees)
    operand, number = planner.operand_table(forest, cases), scan.tree_of_output
    far, prune, count = scan.far_of_output, scan.prune[scan.task_of_output], scan.outputs
    index = np.arange(count, dtype=np.int32)
    sums = sums_of(number, TRIPLET_CELLS, cases)
    branches = (cases.matrices(3 * index + np.int32(leg), number) for leg in range(3))
    records = table(
        TRIPLET,
        count,
        proximal=_near_slots(scan, base, cases),
        distal=operand[far],
        pendant=operand[forest.twin[prune]],
        **dict(zip(("proximal_p", "distal_p", "pendant_p"), branches, strict=True)),
        cell=sums.cells,
        group=NO_CELL if cases.unlinked else index,
    )
    cases.fill(records, number)
    half = forest.lengths[..., forest.edge[far]] / 2
    start = np.stack([half, half, forest.lengths[..., forest.edge[prune]]], axis=-1)
    groups = planner.group_records(GroupKind.TRIPLET, 3 * index, 3, sums.sums, sums.sums + 1)
    groups = groups_by_part(groups, cases, 3 * count, sums.n_sums)
    matrices = planner.pmatrices(np.repeat(number, 3), cases)
    stages = newton((matrices, Triplets(records), sums.reduce), groups, passes)
    return Program(stages, sums.n_cells, cases.records), start.ravel()


def _near_slots(scan: ScanTasks, base: int, cases: Cases) -> Int32:
    """int32[outputs]: slots of near vectors, which those on different parts share."""
    slots: Int32 = np.int32(base) + cases.before(scan.tree_of_output, 1)
    return slots


def rell(rows: int, weights: int, parts: int = 1, first_weights: int = 0) -> Program:
    """LnL of the trees whose site lnL stand in the first rows, under every row of weights.

    Sum ``t * weights + w`` is that of row t under row ``first_weights + w``.
    """
    record = np.array([(0, rows, first_weights, weights, 0, 0, parts)], RELL)
    return Program((Rell(record),), 1)


def sweeps(
    chains: int,
    tips: int,
    parts: int,
    count: int,
    regrafts: int,
    team: int = 1,
    probes: int = 0,
    sets: int = 1,
) -> Program:
    """``count`` sweeps of every chain, a tree of all taxa on all parts, with so many regrafts each.

    Chain n has the models from row ``2 n parts`` on, and behind them those that are proposed. Its
    state lies after those of the chains before it (:func:`mltree.program.ops.sweeps.chain_words`).
    ``team``: work-groups that share a chain (:class:`mltree.program.engine.ChainRoom`). ``sets``:
    of branch lengths that every chain has.

    With ``probes`` chain n has row n of weights. So many rows behind those of all chains are tried
    on its last state, and lnL under them lie behind the states of all chains, f64[chains, probes].
    """
    sizes = chain_words(tips, sets), chain_slots(tips), 2 * tips - 2 + SPARE_LENGTHS
    records, cases = _chains(chains, tips, parts, probes, sizes)
    records["sweeps"], records["regrafts"], records["team"] = count, regrafts, team
    return Program((Sweeps(records),), 1, cases)


def time_sweeps(
    chains: int,
    shape: TimeShape,
    parts: int,
    count: int,
    regrafts: int,
    team: int = 1,
    probes: int = 0,
) -> Program:
    """:func:`sweeps` of trees with a time axis, all of one shape."""
    sizes = shape.words, shape.slots, 2 * shape.nodes + SPARE_LENGTHS
    records, cases = _chains(chains, shape.tips, parts, probes, sizes)
    records["sweeps"], records["regrafts"], records["team"] = count, regrafts, team
    return Program((TimeSweeps(records),), 1, cases)


def _chains(
    chains: int, tips: int, parts: int, probes: int, sizes: tuple[int, int, int]
) -> tuple[Records, Records]:
    """Records of chains and their cases; ``sizes``: words, CLA slots, and P matrices a part."""
    number = np.arange(chains, dtype=np.int32)
    rows = number if probes else 0
    cases = table(CASE, chains, first_part=0, parts=parts, model=2 * parts * number, weights=rows)
    words, slots, matrices = sizes
    matrices *= parts
    records = table(
        SWEEP,
        chains,
        case=number,
        model=cases["model"],
        weights=rows,
        slot=slots * number,
        last_slot=slots * (number + 1) - 1,
        p=matrices * number,
        last_p=matrices * (number + 1) - parts,
        state=words * number,
        last_state=words * (number + 1) - 1,
        tips=tips,
        probe=chains if probes else 0,
        probes=probes,
        log=words * chains + probes * number if probes else 0,
        last_log=words * chains + probes * (number + 1) - 1 if probes else 0,
    )
    return records, cases


def _numbers(trees: Trees) -> Int32:
    return np.arange(len(trees), dtype=np.int32)


def _summed(forest: Forest, sites: Sites, sums: Sums, cases: Cases) -> Program:
    """P matrices of all branches, runs, and the sums that these leave."""
    stages = (planner.pmatrices(forest.tree_of_edge, cases), sites, sums.reduce)
    return Program(stages, sums.n_cells, cases.records)


def _at_edges(kind: type[Run], records: Records) -> Piece:
    """A piece of edges, all on one level: edges do not depend on each other."""
    return Piece(kind, records, records["case"], np.zeros(len(records), np.int32))


# Programs that are kept, for trees of the same topologies ask for them again.

PROGRAMS_KEPT = 8
"""Programs of the latest topologies: model and branches are optimised in turn on one tree."""


class KeptPrograms:
    """The last programs: an engine recognises the object, and takes it in once."""

    def __init__(self) -> None:
        self._programs: dict[Hashable, Program] = {}

    def of(
        self,
        build: Callable[..., Program],
        trees: Trees,
        table: Cases,
        *arguments: Hashable | type[Run],
    ) -> Program:
        """The program for trees of these topologies, whatever their lengths."""
        key = (build, arguments, table.key, *_topologies(trees))
        if key not in self._programs:
            if len(self._programs) == PROGRAMS_KEPT:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = build(trees, *arguments, cases=table)
        return self._programs[key]


def _topologies(trees: Trees) -> tuple[Hashable, ...]:
    """A key of the topologies, made once for trees that share their arrays."""
    if isinstance(trees, Forest):
        arrays = trees.n_tips, trees.n_branches, trees.twin, trees.edge
        return tuple(array.tobytes() for array in arrays)
    keys = [(id(tree.twin), id(tree.edge), tree.n_artificial) for tree in trees]
    unlike = dict(zip(keys, trees, strict=True))
    place = {key: number for number, key in enumerate(unlike)}
    arrays_of = (tree.twin.tobytes() + tree.edge.tobytes() for tree in unlike.values())
    artificial = tuple(tree.n_artificial for tree in unlike.values())
    return tuple(place[key] for key in keys), artificial, *arrays_of
