"""BEAST's files: lines that are written one by one are read by this and other programs' readers."""

import numpy as np
import pytest

from mltree.dating.time_trees import TimeTree
from mltree.sampling.beast_files import TREES_END, log_head, log_line, tree_line, trees_head
from mltree.sampling.mrbayes_files import read_rates, read_table, read_trees
from mltree.system.errors import InputError
from mltree.tree.clades import read_written

TREE = TimeTree.of(read_written("((b:2,(c:1,a:1):1):1,d:3);")[0], "abcd")
RATED = TimeTree(("a", "b b", "c", "d"), TREE.parents, TREE.heights, np.arange(7) / 7.0 + 1e-12)


def test_lines_are_as_beast_2_has_them():
    assert log_head(["posterior", "kappa"], ["made"]) == "# made\nSample\tposterior\tkappa\n"
    assert log_line(1000, [-1.5, 1e-20]) == "1000\t-1.5\t1e-20\n"
    assert tree_line(10, TREE) == "tree STATE_10 = [&R] (((1:1,3:1):1,2:2):1,4:3);\n"
    assert tree_line(0, TREE, -2.5).startswith("tree STATE_0 [&lnP=-2.5] = [&R] (")
    assert "[&rate=0.428571428572" in tree_line(0, RATED)
    head = trees_head(["a", "b b"])
    assert head.startswith("#NEXUS\n")
    assert "\t\t1 a,\n\t\t2 'b b'\n;\n" in head


def test_a_file_without_its_end_is_read(tmp_path):
    file = tmp_path / "x.trees"
    lines = [tree_line(number, RATED) for number in range(3)]
    whole = trees_head(RATED.taxa) + "".join(lines)
    for text, count in ((whole + TREES_END, 3), (whole, 3), (whole[:-30], 2)):
        file.write_text(text)
        notices: list[str] = []
        trees, is_rooted = read_trees(str(file), notices)
        assert (trees.n_trees, is_rooted, bool(notices)) == (count, True, count < 3)
        rates = read_rates(str(file), trees, "it")
        assert rates is not None
        assert rates.order.tolist() == trees.order.tolist()
        assert rates.tip_lengths[0].tolist() == RATED.rates[[0, 2, 1, 3]].tolist()
    file.write_text(trees_head(TREE.taxa) + tree_line(0, TREE))
    assert read_rates(str(file), trees, "it") is None


def test_rates_of_other_writers_are_read(tmp_path):
    file = tmp_path / "x.trees"
    body = "tree S [&lnP=-1] = [&R] (1:[&rate=1.5]2,(2[&rate=2.5,x={1,2}]:1,3:1):1[&rate=7])[&r=1];"
    file.write_text("#NEXUS\nbegin trees;\ntranslate 1 a, 2 b, 3 c;\n" + body + "\nend;\n")
    trees, _ = read_trees(str(file), [])
    rates = read_rates(str(file), trees, "it")
    np.testing.assert_array_equal(rates.tip_lengths, [[1.5, 2.5, np.nan]])
    assert rates.lengths.tolist() == [7.0]
    file.write_text("(a[&rate=2]:1,(b[&rate=3]:1,c[&rate=4]:1)[&rate=5]:1);\n")
    trees, is_rooted = read_trees(str(file), [])
    assert is_rooted
    assert read_rates(str(file), trees, "it").tip_lengths.tolist() == [[2.0, 3.0, 4.0]]


def test_tables_are_read(tmp_path):
    file = tmp_path / "x.log"
    file.write_text(log_head(["a", "b"], ["seed 1"]) + log_line(0, [1, 2]) + log_line(5, [3, 4]))
    names, values, generations = read_table(str(file), [])
    assert (names, values.tolist(), generations.tolist()) == (("a", "b"), [[1, 2], [3, 4]], [0, 5])
    file.write_text(log_head(["a", "b"]))
    with pytest.raises(InputError):
        read_table(str(file), [])
