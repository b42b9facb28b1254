"""ete3's distance between trees, against which mltree's is tested."""

from __future__ import annotations

from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree


def ete3_distance(first: Tree, second: Tree) -> int:
    """Number of splits that only one of two trees over the same tips has, as ete3 counts them."""
    from ete3 import Tree as Ete3Tree

    names = [str(tip) for tip in range(first.n_tips)]
    one, other = (Ete3Tree(write_newick(tree, names), format=1) for tree in (first, second))
    return int(one.robinson_foulds(other, unrooted_trees=True)[0])
