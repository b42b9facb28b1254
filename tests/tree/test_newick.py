import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from ete3_trees import ete3_distance
from hypothesis import given, settings
from hypothesis import strategies as st

from mltree.system.errors import InputError
from mltree.tree import splits
from mltree.tree.clades import ascii_drawing
from mltree.tree.moves import random_nnis
from mltree.tree.newick import read_newick, read_newicks, write_newick
from mltree.tree.topology import DEFAULT_LENGTH, Forest, Tree, random_topology, tree_from_edges

Mutated = Callable[[bytes, random.Random], bytes]

SEEDS = st.integers(0, 2**32 - 1)
FIVE = ("A", "B", "C", "D", "E")
NAMES = st.lists(
    st.text("abcXYZ019_.-|/ '()[]{}:;,\"é", min_size=1, max_size=8).map(str.strip),
    min_size=4,
    max_size=20,
    unique=True,
).filter(all)


def random_tree(n_tips: int, seed: int) -> Tree:
    rng = np.random.default_rng(seed)
    tree = random_topology(n_tips, rng)
    tree.lengths[:] = rng.exponential(0.1, tree.n_edges)
    return tree


@given(NAMES, SEEDS)
def test_round_trip_with_any_names_is_exact(names: list[str], seed: int) -> None:
    tree = random_tree(len(names), seed)
    text = write_newick(tree, names, digits=None)
    again, notices = read_newick(text, names)
    again.validate()
    assert notices == ()
    assert splits.same_topology(tree, again)
    assert sorted(again.lengths) == sorted(tree.lengths)
    assert write_newick(again, names, digits=None) == text


@given(st.integers(4, 30), SEEDS)
@settings(max_examples=30)
def test_fast_robinson_foulds_equals_ete3(n_tips: int, seed: int) -> None:
    tree = random_tree(n_tips, seed)
    other = tree.copy()
    random_nnis(other, 0.3, np.random.default_rng(seed))
    third = random_tree(n_tips, seed + 1)
    for one, two in ((tree, other), (tree, third), (other, third), (tree, tree)):
        assert ete3_distance(one, two) == splits.robinson_foulds(one, two)


def test_writes_decimals_and_starts_at_the_first_taxon() -> None:
    tree, _ = read_newick("((E:.5,C:1e-7):0.25,D:2,(B:1,A:3):0.125);", FIVE)
    assert (
        write_newick(tree, FIVE, 3) == "(A:3.000,B:1.000,((C:0.000,E:0.500):0.250,D:2.000):0.125);"
    )


TREE = "(A:1,B:2,(C:3,(D:4,E:5):6):7);"


@pytest.mark.parametrize(
    "text",
    [
        "(A:1,B:2,(C:3,(D:4,E:5)0.98:6)100:7)root;",
        "[&R] (A:1[a;b],B:2,('C':3,(\"D\":4,E:5)[x(y]:6):7);",
        "\n( A : 1 ,\r\n B:2,\n(C:3.0,( D:4e0,E:.5e1 ):6):7 ):0.0 ; \n\n",
        "(((((A:1,B:2):0,(C:3,(D:4,E:5):6):7))));",
    ],
)
def test_spellings_of_one_tree(text: str) -> None:
    tree, _ = read_newick(text, FIVE)
    expected, _ = read_newick(TREE, FIVE)
    if ")))));" in text:
        assert splits.same_topology(tree, expected)
    else:
        assert write_newick(tree, FIVE) == write_newick(expected, FIVE)


def test_a_rooted_tree_is_unrooted_with_a_notice() -> None:
    tree, notices = read_newick("((A:1,B:2):3,(C:3,(D:4,E:5):6):4);", FIVE)
    assert write_newick(tree, FIVE, 0) == "(A:1,B:2,(C:3,(D:4,E:5):6):7);"
    assert notices == ("rooted tree: root removed, its two branches merged into one",)


def test_a_root_at_a_tip_and_unary_nodes() -> None:
    tree, notices = read_newick("(A:1,((B:2,((C:3):1,(D:4,E:5):6):7):1):0);", FIVE)
    assert write_newick(tree, FIVE, 0) == "(A:2,B:2,(C:4,(D:4,E:5):6):7);"
    assert len(notices) == 2
    assert "single child" in notices[1]


@pytest.mark.parametrize(
    ("text", "expected", "branches"),
    [
        ("(A:1,B:1,C:1,D:1,E:1);", "(A:1,B:1,C:1,D:1,E:1);", 5),
        ("((E:1,B:2,C:3):0,D:4,A:5);", "(A:5,(B:2,C:3,E:1):0,D:4);", 6),
        ("((E:1,B:2,A:3):4,(C:1,D:1):5);", "(A:3,B:2,(C:1,D:1):9,E:1);", 6),
    ],
)
def test_polytomies_are_kept(text: str, expected: str, branches: int) -> None:
    tree, _ = read_newick(text, FIVE)
    assert tree.n_branches == branches
    assert write_newick(tree, FIVE, 0) == expected


def test_polytomies_are_resolved_where_a_search_needs_it() -> None:
    tree, _ = read_newick("(A:1,B:0,C:1,D:1,E:1);", FIVE)
    binary = tree.resolved(0.25)
    binary.validate()
    assert sorted(binary.lengths) == [0.0, 0.25, 0.25, 1.0, 1.0, 1.0, 1.0]
    assert binary.inner_edges.size == 2
    assert tree.inner_edges.size == 0


@pytest.mark.cases(10, 300)
def test_a_polytomy_has_no_order(case: int) -> None:
    """However its subtrees stand in the text, it is one topology, of the same text and lengths."""
    rng = np.random.default_rng(case)
    names = [f"t{n}" for n in range(int(rng.integers(5, 40)))]

    def text(of: list[str], shuffled: bool) -> str:
        if len(of) == 1:
            return f"{of[0]}:{0.01 * (names.index(of[0]) + 1):.2f}"
        own = np.random.default_rng([case, *map(names.index, of)])
        count = int(own.integers(2, min(len(of), 6) + 1))
        cuts = np.sort(own.choice(np.arange(1, len(of)), count - 1, replace=False))
        parts = [text(list(part), shuffled) for part in np.split(np.array(of), cuts)]
        if shuffled:
            rng.shuffle(parts)
        return f"({','.join(parts)}):{len(of)}.5"

    tree, other = (read_newick(text(names, some) + ";", names)[0] for some in (False, True))
    keys = Forest([tree, other, tree.resolved(1.0)]).topology_keys()
    assert keys[0] == keys[1]
    assert (keys[0] == keys[2]) == (tree.n_artificial == 0)
    assert write_newick(tree, names) == write_newick(other, names)
    assert splits.robinson_foulds(tree, other) == 0
    assert splits.robinson_foulds(tree, tree.resolved(1.0)) == tree.n_artificial
    np.testing.assert_array_equal(splits.lengths_in(tree, other), tree.lengths)
    assert Forest([other, tree]).tree(1).is_same(tree)


def test_a_large_star_becomes_a_shallow_tree() -> None:
    names = [f"t{i}" for i in range(1000)]
    tree, _ = read_newick(f"({','.join(names)});", names)
    assert Forest([tree]).levels.max() < 25


def test_missing_lengths_get_the_default_with_a_notice() -> None:
    tree, notices = read_newick("((A,B),(C:3,(D,E):6));", FIVE)
    assert notices[1] == f"5 branches without a length set to {DEFAULT_LENGTH:g}"
    assert sorted(set(tree.lengths)) == [DEFAULT_LENGTH, 3.0, 6.0]


def test_several_trees_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "trees.nwk"
    path.write_text(TREE + "\n" + "((A:1,B:1):1,C:1,(D:1,E:1):1);" + TREE)
    trees = read_newicks(path, FIVE)
    assert len(trees) == 3
    assert splits.same_topology(trees[0][0], trees[2][0])
    assert read_newick(str(path), FIVE)[1] == ("the first of 3 trees is used",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(A:1,B:2,(C:3,(D:4,E:-5):6):7);", "length -5 is not a finite number"),
        ("(A:1,B:2,(C:3,(D:4,E:nan):6):7);", "length nan is not a finite"),
        ("(A:1,B:2,(C:3,(D:4,E:inf):6):7);", "length inf is not a finite"),
        ("(A:1,B:2,(C:3,(D:4,E:0.1{3}):6):7);", r"'0\.1\{3\}' is not a number"),
        ("(A:1,B:2,(C:3,(D:4,E:x):6):7);", "'x' is not a number"),
        ("(A:1,B:2,(C:3,(D:4,E:1_0):6):7);", "'1_0' is not a number"),
        ("(A:1,B:2,(C:3,(D:4,E:٣):6):7);", "'٣' is not a number"),
        ("(A:1,B:2,(C:3,(D:4,E:0x1):6):7);", "'0x1' is not a number"),
        ("(A:1,B:2,(C:3,(D:4,E:):6):7);", "no branch length before"),
        ("(A:1,B:2,(C:3,(D:4,E:1e999):6):7);", "length 1e999 is not a finite"),
        ("((A:1,B:2):1e308,(C:3,(D:4,E:5):6):1e308);", "a branch is longer than 1e\\+300"),
        ("(A:1,B:2,(C:3,D:4):7);", "'E' is in the alignment but not in the tree"),
        ("(A:1,B:2,(C:3,(D:4,(E:1,F:5)):6):7);", "'F' is in the tree but not in the alignment"),
        ("(A:1,B:2,(C:3,(D:4,(E:1,A:5)):6):7);", "taxon 'A' is in the tree twice"),
        ("(A:1,B:2,(C:3,(D:4,E:5):6):7)", "does not end with ';'"),
        ("(A:1,B:2,(C:3,(D:4,E:5):6:7);", "two branch lengths at a node"),
        ("(A:1,B:2,(C:3,(D:4,E:5):6)):7);", "parentheses do not match"),
        ("(A:1,B:2(C:3,(D:4,E:5):6):7);", "comma is missing before"),
        ("(A:1,B:2,'C' x:3,(D:4,E:5):6);", "comma is missing before 'x'"),
        ("(A:1,B:2,'C:3,(D:4,E:5):6);", "not closed"),
        ("(A:1,B:2,[C:3,(D:4,E:5):6);", "not closed"),
        ("(A:1,,B:2,(C:3,(D:4,E:5):6):7);", "a tip without a name"),
        ("(A:1,:2,(C:3,(D:4,E:5):6):7);", "a tip without a name"),
        ("(A:1,B::2,(C:3,(D:4,E:5):6):7);", "broken Newick tree"),
        ("();", "a tip without a name"),
        (";", "a tip without a name"),
        ("A;", "broken|not in the tree"),
        ("(A,B,C,D,E),(A,B);", "outside the parentheses"),
    ],
)
def test_bad_trees_are_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_newick(text, FIVE)
    assert "line 1" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no tree"),
        (b" \n", "no tree"),
        (b"\xff\xfe\x00\x01", "not a text file"),
        (b"#NEXUS\nbegin trees;", "NEXUS"),
        (b"ACGT\nACGT\n", "comma is missing|not end with"),
        (b"(A,B,\n\n(C,D:-1),E);", "line 3: branch length -1"),
    ],
)
def test_bad_files_name_the_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.nwk"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_newick(path, FIVE)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["[x].nwk", "(x).nwk", "(A,B).nwk", "a;b.tre", "none"])
def test_what_looks_like_a_file_name_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_newick(name, FIVE)
    (tmp_path / name).write_text(TREE)
    assert splits.same_topology(read_newick(name, FIVE)[0], read_newick(TREE, FIVE)[0])


def test_a_file_comes_before_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "((A,B),C,(D,E));"
    (tmp_path / name).write_text("((A,C),B,(D,E));")
    trees = [read_newick(text, FIVE)[0] for text in (name, name + " ", "((A,C),B,(D,E));")]
    assert splits.same_topology(trees[0], trees[2])
    assert not splits.same_topology(trees[1], trees[2])


def test_a_device_is_no_tree() -> None:
    with pytest.raises(InputError, match="/dev/zero: is a device"):
        read_newick("/dev/zero", FIVE)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.nwk"):
        with pytest.raises(InputError, match=str(path)):
            read_newick(path, FIVE)


@given(st.text("AB(),:;.1e-[]' \n", max_size=25))
def test_any_text_is_a_tree_or_an_input_error(text: str) -> None:
    try:
        tree, _ = read_newick(text + ";", ("A", "B", "1", "11"))
    except InputError:
        return
    tree.validate()


@pytest.mark.cases(20, 1000)
def test_mutated_trees_are_trees_or_input_errors(case: int, mutated: Mutated) -> None:
    rng = random.Random(case)
    names = ["a", "B_1", "x y", "it's", "12"]
    for _ in range(20):
        text = write_newick(random_tree(5, rng.getrandbits(32)), names)
        changed = mutated(text.encode(), rng).decode("utf-8", "replace") + ";"
        with suppress(InputError):
            tree, _ = read_newick(changed, names)
            tree.validate()
            assert np.isfinite(tree.lengths.sum())


def ladder(n_tips: int) -> Tree:
    inner = range(n_tips, 2 * n_tips - 2)
    ends = [(0, inner[0]), (n_tips - 1, inner[-1])]
    ends += [(tip, inner[tip - 1]) for tip in range(1, n_tips - 1)]
    ends += [(node, node + 1) for node in inner[:-1]]
    return tree_from_edges(ends, 0.1, n_tips)


def test_a_ladder_of_5000_taxa() -> None:
    names = [f"t{i}" for i in range(5000)]
    text = write_newick(ladder(5000), names)
    tree, _ = read_newick(text, names)
    assert write_newick(tree, names) == text


def test_drawing() -> None:
    tree, _ = read_newick(TREE, FIVE)
    names = ("A", "B", "C", "a 'name'", "E")
    lines = ascii_drawing(write_newick(tree, names)).splitlines()
    assert len(lines) == 9
    assert all(any(name in line for line in lines) for name in names)


def test_ete3_is_loaded_without_its_package() -> None:
    script = (
        "import sys; from mltree.tree.clades import ascii_drawing;"
        "before = 'ete3' in sys.modules; ascii_drawing('(A,B,(C,D));');"
        "print(before, any(name.split('.')[0] in ('ete3', 'scipy') for name in sys.modules));"
        "import ete3; print(len(ete3.Tree('(A,(B,C));')))"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False", "3"]


FRAME = "((a:1,b:1):0.5,(c:1,d:1):0.000001,(e:1,f:1):.5);"


@pytest.mark.parametrize(
    ("outgroup", "text"),
    [
        ("a", "(a:1.0,b:1.0,((c:1.0,d:1.0):0.0,(e:1.0,f:1.0):0.5):0.5);"),
        ("ef", "((c:1.0,d:1.0):0.0,(e:1.0,f:1.0):0.5,(a:1.0,b:1.0):0.5);"),
        ("abcd", "(e:1.0,f:1.0,((c:1.0,d:1.0):0.0,(a:1.0,b:1.0):0.5):0.5);"),
        ("ca", "(c:1.0,d:1.0,((e:1.0,f:1.0):0.5,(a:1.0,b:1.0):0.5):0.0);"),
    ],
)
def test_the_tree_is_written_next_to_its_outgroup(outgroup: str, text: str) -> None:
    taxa = tuple("abcdef")
    tree, _ = read_newick(FRAME, taxa)
    written = write_newick(tree, taxa, 1, outgroup=[taxa.index(name) for name in outgroup])
    assert splits.same_topology(read_newick(written, taxa)[0], tree)
    assert written == text


def test_short_inner_branches_can_be_written_as_polytomies() -> None:
    taxa = tuple("abcdef")
    tree, _ = read_newick(FRAME, taxa)
    text = write_newick(tree, taxa, 1, collapse=1e-5)
    assert text == "(a:1.0,b:1.0,(c:1.0,d:1.0,(e:1.0,f:1.0):0.5):0.5);"


def test_labels_stand_at_their_branches() -> None:
    taxa = ["a", "b", "c", "d", "e"]
    tree, _ = read_newick("((a,b),c,(d,e));", taxa)
    labels = {edge: f"{k}/1" for k, edge in enumerate(tree.inner_edges.tolist())}
    text = write_newick(tree, taxa, 1, labels=labels)
    assert sorted(re.findall(r"\)([^:)]*):", text)) == ["0/1", "1/1"]
    assert read_newick(text, taxa)[0].twin.tobytes()
    assert re.sub(r"\)\d/1", ")", text) == write_newick(tree, taxa, 1)


def test_tips_may_be_spelled_as_other_programs_spell_them() -> None:
    tree, _ = read_newick("('A(1)':1,'b c':2,(d_e:3,f:4):5);", ["A_1_", "b_c", "d+e", "f"])
    assert write_newick(tree, ["p", "q", "r", "s"], digits=0) == "(p:1,q:2,(r:3,s:4):5);"
    with pytest.raises(InputError, match="'g' is in the tree but not"):
        read_newick("('A(1)':1,'b c':2,(d_e:3,g:4):5);", ["A_1_", "b_c", "d+e", "f"])
    with pytest.raises(InputError, match="'A_1_' is in the tree twice"):
        read_newick("('A(1)':1,A_1_:2,(d_e:3,f:4):5);", ["A_1_", "b_c", "d+e", "f"])
