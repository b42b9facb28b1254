import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.system.errors import InputError
from mltree.tree import newick
from mltree.tree.clades import Clades, read_clades, read_gene_trees, read_labelled, write_clades
from mltree.tree.newick import read_newicks, write_newick
from mltree.tree.splits import splits
from mltree.tree.topology import Tree, random_topology

Mutated = Callable[[bytes, random.Random], bytes]

SEEDS = st.integers(0, 2**32 - 1)
PLAIN = ("a", "b b", "c", "d-", "_e_", "f")
TAXA = ("a", "b b", "c", "d'", "(e)", "f")


def random_trees(count: int, n_tips: int, seed: int) -> list[Tree]:
    rng = np.random.default_rng(seed)
    trees = [random_topology(n_tips, rng) for _ in range(count)]
    for tree in trees:
        tree.lengths[:] = rng.exponential(0.1, tree.n_edges)
    return trees


def sides(clades: Clades) -> list[set[frozenset[int]]]:
    """For every tree the inner splits, each as its side without taxon 0."""
    found: list[set[frozenset[int]]] = [set() for _ in range(clades.n_trees)]
    everybody = frozenset(range(clades.n_tips))
    inner = clades.only(clades.is_inner)
    for tree, first, last in zip(inner.tree, inner.first, inner.last, strict=True):
        side = frozenset(clades.order[tree, first:last].tolist())
        found[tree].add(everybody - side if 0 in side else side)
    return found


def sides_of(tree: Tree) -> set[frozenset[int]]:
    rows = np.unpackbits(splits(tree).view(np.uint8), axis=1, bitorder="little")
    return {frozenset(np.flatnonzero(rows[edge]).tolist()) for edge in tree.inner_edges}


@given(st.integers(3, 70), st.integers(1, 6), SEEDS)
def test_clades_are_those_of_the_trees(n_tips: int, count: int, seed: int) -> None:
    trees = random_trees(count, n_tips, seed)
    taxa = [f"t{k}" for k in range(n_tips)]
    texts = [write_newick(tree, taxa, digits=None) for tree in trees]
    like = read_clades("(" + ",".join(taxa) + ");")
    clades = read_clades("\n\n".join(texts), like=like)
    assert sides(clades) == [sides_of(tree) for tree in trees]
    for k, tree in enumerate(trees):
        at = dict(zip(clades.order[k].tolist(), clades.tip_lengths[k].tolist(), strict=True))
        assert at == {tip: tree.lengths[tree.edge[3 * tip]] for tip in range(n_tips)}
        inner = clades.part(k, k + 1).lengths
        assert sorted(inner) == sorted(tree.lengths[tree.inner_edges])


@given(SEEDS, st.integers(1, 300), st.booleans())
def test_neither_pieces_nor_quotes_and_comments_matter(seed: int, piece: int, odd: bool) -> None:
    trees = random_trees(9, 6, seed)
    texts = [write_newick(tree, PLAIN, digits=3) for tree in trees]
    whole = read_clades("\n".join(texts))
    if odd:
        texts = [text.replace("(", "([&x=(,)] ", 1).replace(":", " : ") for text in texts]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(newick, "PIECE", piece)
        again = read_clades(" \n" + " \n".join(texts) + "\n \n")
    assert again.taxa == whole.taxa
    for name in ("order", "tip_lengths", "tree", "first", "last", "lengths"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


@pytest.mark.cases(2, 100)
def test_mutated_text_is_read_like_any_other_newick_or_refused(
    case: int, mutated: Mutated, tmp_path: Path
) -> None:
    """Where ete3's reader takes a text, so does this one, and sees the same trees."""
    rng = random.Random(case)
    file = tmp_path / "trees.nwk"
    taken = 0
    for number in range(150):
        names = TAXA if number % 2 else PLAIN
        trees = random_trees(2, len(names), case * 1000 + number)
        texts = [write_newick(tree, names, digits=2) for tree in trees]
        file.write_bytes(mutated("\n".join(texts).encode(), rng))
        expected = found = None
        with suppress(InputError):
            expected = [tree for tree, _ in read_newicks(file, names)]
        like = read_clades(write_newick(random_trees(1, len(names), 0)[0], names))
        numbers = [names.index(name) for name in like.taxa]
        try:
            found = read_clades(file, like=like)
        except InputError as error:
            complaint = error.message
        if found is None:
            assert expected is None, (file.read_bytes(), complaint)
        elif expected is not None:
            taken += 1
            for mine, tree in zip(sides(found), expected, strict=True):
                named = {frozenset(numbers[tip] for tip in side) for side in mine}
                assert named <= sides_of(tree), file.read_bytes()
    assert taken > 10


BROKEN = {
    "": "no tree in it",
    "((a,b),c": "the last tree does not end with ';'",
    "((a,b),c);(a,b)": "line 1: the last tree does not end with ';'",
    "((a,b),c));": "line 1: parentheses do not match",
    "((a,b),c;": "line 1: parentheses do not match",
    "(a,b),c;": "line 1: a comma outside the parentheses",
    "((a,b)(c,d));": "line 1: a comma is missing before '('",
    "(a(b,c),d);": "line 1: a comma is missing before '('",
    "((a:1,b:),c);": "line 1: broken Newick tree: no branch length before ')'",
    "((a:1,b:x),c);": "line 1: branch length 'x' is not a number",
    "((a:1,b:1_0),c);": "line 1: branch length '1_0' is not a number",
    "((a:1,b:1 2),c);": "line 1: branch length '1 2' is not a number",
    "((a:1,b:1e999),c);": "line 1: branch length 1e999 is not a finite number",
    "((a:1,b:nan),c);": "line 1: branch length nan is not a finite number",
    "((a:1,b:--1),c);": "line 1: branch length '--1' is not a number",
    "((a:1:2,b),c);": "line 1: broken Newick tree: two branch lengths at a node",
    "(a,b,c);;": "line 1: a tip without a name",
    "((a,),c);": "line 1: a tip without a name",
    "(a,'',c);": "line 1: a tip without a name",
    "(a,b,a);": "line 1: taxon 'a' is in the tree twice",
    "(a,b,c);\n(a,b,\nb);": "line 2: taxon 'b' is in the tree twice",
    "(a,b,c);\n\n(a,b);": "line 3: 'c' is in the first tree but not in this tree",
    "(a,b,c);(a,b,c,d);": "line 1: 'd' is in this tree but not in the first tree",
    "('a',b,c);\n(a,b,'d d');": "line 2: 'd d' is in this tree but not in the first tree",
    "(a,b,c);\n(a,b,'c": 'line 2: unexpected "\'": a quote or bracket that is not closed?',
}


@pytest.mark.parametrize(("text", "message"), BROKEN.items())
def test_what_is_wrong_is_said(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trees.nwk"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_clades(file)
    where = f"{file}, " if message.startswith("line") else f"{file}: "
    expected = where + message if text != "((a,b),c" else f"{file}, line 1: {message}"
    assert caught.value.message == expected


@pytest.mark.parametrize(
    "text", [">a\nACGT\n", "4 8\na ACGTACGT\n", " 12\t898 \n", "CLUSTAL W\n\n", "# STOCKHOLM 1.0\n"]
)
def test_alignments_are_no_trees(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.fa"
    file.write_text(text)
    with pytest.raises(InputError, match="a.fa: an alignment, not a tree"):
        read_clades(file)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_trees_are_read(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    file = tmp_path / "trees.nwk"
    file.write_bytes(pack(b"(a,b,c);\n" * 3))
    assert len(read_clades(file).order) == 3
    file.write_bytes(pack(b"(a,b,c);\n" * 3)[:-9])
    with pytest.raises(InputError, match="truncated or damaged"):
        read_clades(file)


def test_trees_are_compared_with_those_of_another_file() -> None:
    like = read_clades("(a,b,c);")
    with pytest.raises(InputError, match=r"^line 1: 'd' is in this tree but not in x.nwk$"):
        read_clades("(a,d);", like=like, origin="x.nwk")
    assert read_clades("(c,b,a);", like=like).order.tolist() == [[2, 1, 0]]


SHAPES = [
    "(a);",
    "a;",
    "((a:1,b:2):0.5,((c:1)x:3,d:4)y:0.00000012)z:1;",
    "((((a:1,b:1)))u:2,c:-1,d:100000000000000000000);",
    "('a b':1,'it''s','(',x);",
]


@pytest.mark.parametrize("text", SHAPES)
def test_a_tree_is_written_as_it_was_read(text: str) -> None:
    tree = read_clades(text)
    written = write_clades(tree, [""] * tree.tree.size)
    again = read_clades(written, like=tree)
    assert write_clades(again, [""] * tree.tree.size) == written
    for name in ("order", "tip_lengths", "first", "last", "lengths"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tree, name))


def test_lengths_have_no_exponents_and_labels_their_place() -> None:
    tree = read_clades("((a:1e-7,b:2):1.50,c,d:1e3)root:1;")
    assert write_clades(tree, ["99"]) == "((a:0.0000001,b:2)99:1.5,c,d:1000);"


def test_only_the_first_of_several_trees_is_written() -> None:
    trees = read_clades("((a,b),c,d);((a,c),b,d);")
    assert write_clades(trees, ["1"]) == "((a,b)1,c,d);"


def test_a_thousand_taxa_below_each_other() -> None:
    text = "(" * 1000 + "t0" + "".join(f",t{k})" for k in range(1, 1001)) + ";"
    tree = read_clades(text)
    assert tree.is_inner.sum() == 998
    assert write_clades(tree, [""] * tree.tree.size) == text


def test_gene_trees_have_taxa_of_their_own() -> None:
    trees = list(read_gene_trees("((a,b),c);\n('d x',(b,e),a)label:1;\n\n(a,b);"))
    assert [tree.taxa for tree in trees] == [("a", "b", "c"), ("d x", "b", "e", "a"), ("a", "b")]
    assert [tree.n_trees for tree in trees] == [1, 1, 1]
    with pytest.raises(InputError, match="'a' is in the tree twice") as error:
        list(read_gene_trees("(a,b,c);\n((a,b),(a,c));"))
    assert "2" in error.value.message


@pytest.mark.parametrize(
    "text", ["((a,b)99.5:1,((c,d)x,e):2,f);", "(('a',b)99.5:1,((c,d)x,e):2,f);"]
)
def test_labels_are_those_of_the_first_tree(text: str) -> None:
    clades, labels = read_labelled(text + "((a,b)1,c,d,e,f);")
    held = [
        "".join(clades.taxa[taxon] for taxon in clades.order[0, first:last])
        for first, last in zip(clades.first, clades.last, strict=True)
    ]
    assert dict(zip(held, labels, strict=True)) == {"ab": "99.5", "cd": "x", "cde": ""}


@pytest.mark.parametrize(
    "names",
    [
        ("1", "2", "3", "10"), ("0", "1", "12", "7"), ("1", "01", "1.0", "1e0"),
        ("1", "2", "1e1", "10"), ("1", "-1", "+1", "3"), ("9999999", "10000000", "5", "6"),
        ("1", "2", "3", "e"), ("1", "2", "3", "."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lengths", [True, False])
def test_names_that_look_like_numbers_are_names(names: tuple[str, ...], lengths: bool) -> None:
    length = ":0.25" if lengths else ""
    texts = []
    for seed in range(6):
        a, b, c, d = random.Random(seed).sample(names, 4)
        texts.append(f"(({a}{length},{b}{length})0.5{length}, {c}{length},{d}{length} );")
    clades = read_clades("\n".join(texts))
    assert set(clades.taxa) == set(names)
    for text, order in zip(texts, clades.order, strict=True):
        written = text.replace("(", "").replace(")0.5", "").split(",")
        assert [clades.taxa[at] for at in order] == [
            name.partition(":")[0].strip(" );") for name in written
        ]
