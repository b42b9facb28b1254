"""Trees that a command is given: what had to be mended is told once, however many they are."""

from __future__ import annotations

from mltree.runs.trees import tell_mended
from mltree.system.events import Event, Notice

LENGTHS = "3 branches without a length set to 0.05"


def test_a_notice_a_kind_names_the_first_tree_and_counts_the_others() -> None:
    mended = [(), (LENGTHS,), ("rooted tree: root removed",), (LENGTHS.replace("3", "12"),)]
    mended += [(LENGTHS,)] * 1000
    told: list[Event] = []
    tell_mended("some.trees", mended, told.append)
    assert told == [
        Notice(f"some.trees, tree 2: {LENGTHS} (and the like in 1,001 more)"),
        Notice("some.trees, tree 3: rooted tree: root removed"),
    ]


def test_trees_in_order_need_no_notice() -> None:
    told: list[Event] = []
    tell_mended("some.trees", [(), ()], told.append)
    assert told == []
