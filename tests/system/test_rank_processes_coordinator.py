"""The first rank, with a transport to others that do as they are told here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mltree.system.errors import InputError
from mltree.system.rank_processes import (
    DEAD_HINT,
    Coordinator,
    Failure,
    Greeting,
    Message,
    MessageKind,
    _answer_calls,
    _Inbox,
)

CALL, GO, TASK, OVER, ASK, FORGET, END = (
    MessageKind.CALL, MessageKind.GO, MessageKind.TASK, MessageKind.OVER, MessageKind.ASK,
    MessageKind.FORGET, MessageKind.END,
)  # fmt: skip
READY, WANT, RESULT, IDLE, ANSWER, FAILED = (
    MessageKind.READY, MessageKind.WANT, MessageKind.RESULT, MessageKind.IDLE, MessageKind.ANSWER,
    MessageKind.FAILED,
)  # fmt: skip


def squares(tasks: Iterator[int]) -> Iterator[int]:
    for task in tasks:
        yield task * task


def helping() -> Callable[[Iterator[int]], Iterator[int]]:
    return squares


class Others:
    """A transport to ranks that work whenever they are spoken to, so many tasks each."""

    are_alike = True

    def __init__(self, *greetings: Greeting, tasks: int = 2) -> None:
        self.greetings = greetings
        self.tasks = tasks
        self.ended: list[int] = []
        self.asked: dict[int, Iterator[int]] = {}
        self.work: Any = None

    def start(
        self, on_message: Callable[[int, Message], None], on_lost: Callable[[int], None]
    ) -> None:
        self.on_message, self.on_lost = on_message, on_lost

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        if kind == CALL:
            _, number, call = content
            self.work = pickle.loads(call)()
            self.on_message(rank, Message(READY, number))
        elif kind == GO:
            self.call = content
            for _ in range(self.tasks):
                self.on_message(rank, Message(WANT, content))
            self.on_message(rank, Message(IDLE, content))
        elif kind == TASK:
            for result in self.work(iter([content])):
                self.on_message(rank, Message(RESULT, (self.call, result)))
        elif kind == ASK:
            _, number, task = content
            self.on_message(rank, Message(ANSWER, (number - 1, "late")))
            self.on_message(rank, Message(ANSWER, (number, self.work(task))))
        elif kind == END:
            self.ended.append(rank)

    def poll_often(self) -> None:
        pass

    def close(self) -> None:
        pass


def greeting(version: str = "1", command: str = "search") -> Greeting:
    return Greeting("node7", 42, (0,), version, (command,))


def first(*greetings: Greeting, tasks: int = 2) -> tuple[Coordinator, Others]:
    others = Others(*greetings, tasks=tasks)
    return Coordinator(others), others  # type: ignore[arg-type]


def test_every_task_is_done_once() -> None:
    ranks, others = first(*[greeting()] * 3)
    ranks.agree(3)
    for count in (0, 1, 3, 4, 20):
        found = list(ranks.deal(range(count), squares, helping))
        assert sorted(found) == [n * n for n in range(count)]
    assert ranks.text == (
        "3 ranks: 0 is process 42 on node7, 1 is process 42 on node7, 2 is process 42 on node7"
    )
    ranks.dismiss()
    ranks.dismiss()
    assert others.ended == [1, 2]


def test_what_nobody_wants_any_more_is_passed_over() -> None:
    ranks, _ = first(greeting(), greeting())
    results = ranks.deal(range(100), squares, helping)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert sorted(ranks.deal([5, 6, 7], squares, helping)) == [25, 36, 49]


def negative() -> Callable[[int], int]:
    return int.__neg__


def test_answers_come_in_the_order_of_ranks() -> None:
    """Those to an earlier question are passed over."""
    ranks, others = first(*[greeting()] * 4)
    ranks.everywhere(negative)
    for count in (1, 2, 4):
        assert ranks.gather(range(count), lambda task: 100 + task) == [
            100, *(-task for task in range(1, count))
        ]  # fmt: skip
    others.on_lost(3)
    with pytest.raises(InputError, match=r"rank 3 .* has died"):
        ranks.gather(range(4), negative())


class Told:
    """A transport that keeps what a rank says to the first one."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        assert rank == 0
        self.said.append((kind, content))


def test_an_order_that_comes_before_the_end_of_tasks_is_obeyed() -> None:
    """As where the first rank has left a bootstrap that had converged."""
    transport, inbox = Told(), _Inbox()
    for kind, content in (
        (CALL, (0, 4, pickle.dumps(helping))), (GO, 4), (TASK, 3),
        (CALL, (0, 6, pickle.dumps(negative))), (OVER, None), (ASK, (0, 7, 5)),
        (END, None),
    ):  # fmt: skip
        inbox.put(Message(kind, content))
    _answer_calls(transport, inbox)  # type: ignore[arg-type]
    assert transport.said == [
        (READY, 4), (WANT, 4), (RESULT, (4, 9)), (WANT, 4),
        (IDLE, 4), (READY, 6), (ANSWER, (7, -5)),
    ]  # fmt: skip


def test_what_is_kept_outlasts_other_orders_until_it_is_forgotten() -> None:
    transport, inbox = Told(), _Inbox()
    for kind, content in (
        (CALL, (4, 1, pickle.dumps(negative))), (CALL, (0, 2, pickle.dumps(helping))),
        (ASK, (4, 1, 5)), (FORGET, 4), (FORGET, 9), (ASK, (4, 2, 5)),
        (END, None),
    ):  # fmt: skip
        inbox.put(Message(kind, content))
    _answer_calls(transport, inbox)  # type: ignore[arg-type]
    *before, (kind, failure) = transport.said
    assert before == [(READY, 1), (READY, 2), (ANSWER, (1, -5))]
    assert kind == FAILED
    assert failure.is_bug
    assert "KeyError: 4" in failure.text


def test_the_end_is_heard_amid_tasks() -> None:
    transport, inbox = Told(), _Inbox()
    call = 0, 3, pickle.dumps(helping)
    for kind, content in ((CALL, call), (GO, 3), (END, None)):
        inbox.put(Message(kind, content))
    _answer_calls(transport, inbox)  # type: ignore[arg-type]
    assert transport.said[1:] == [(WANT, 3), (IDLE, 3)]


@pytest.mark.parametrize(
    ("others", "launched", "said"),
    [
        ([greeting("2")], 2, r"rank 1 \(process 42 on node7\) is mltree 2, rank 0 is 1"),
        ([greeting(), greeting("1", "run")], 3, r"rank 2 \(.*\) was given another command than"),
        ([greeting()], 3, "3 processes were launched, but MPI joins 2"),
    ],
)
def test_ranks_that_do_not_belong_together(
    others: list[Greeting], launched: int, said: str
) -> None:
    ranks, _ = first(greeting(), *others)
    with pytest.raises(InputError, match=said):
        ranks.agree(launched)


@pytest.mark.parametrize(
    ("failure", "error", "said"),
    [
        (Failure("cannot take part: no disk", "buy one"), InputError, r"\) cannot take part: no"),
        (Failure("Traceback ...", is_bug=True), RuntimeError, "Traceback"),
        (None, InputError, "has died"),
    ],
)
def test_what_goes_wrong_elsewhere_is_told_with_the_ranks_name(
    failure: Failure | None, error: type[Exception], said: str
) -> None:
    ranks, others = first(greeting(), greeting(), tasks=0)
    if failure is None:
        others.on_lost(1)
    else:
        others.on_message(1, Message(FAILED, failure))
    with pytest.raises(error, match=rf"^rank 1 \(process 42 on node7.*{said}") as caught:
        list(ranks.deal([1], squares, helping))
    if isinstance(caught.value, InputError):
        assert caught.value.hint == ("buy one" if failure else DEAD_HINT)


def test_a_line_that_fails_ends_the_run() -> None:
    ranks, others = first(greeting(), greeting(), tasks=0)
    others.on_lost(0)
    with pytest.raises(InputError, match=r"^rank 0 .* cannot speak to the others any more"):
        list(ranks.deal([1], squares, helping))


class Slow(Others):
    """Ranks that are not ready before they are told to be."""

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        if kind == CALL:
            self.calls = [*getattr(self, "calls", []), (rank, content)]
        else:
            super().send(rank, kind, content)

    def get_ready(self, count: int) -> None:
        """Answer so many calls."""
        for rank, content in self.calls[:count]:
            super().send(rank, CALL, content)
        self.calls = self.calls[count:]


def test_the_first_rank_begins_while_others_get_ready() -> None:
    transport = Slow(greeting(), greeting())
    results = Coordinator(transport).deal(range(20), squares, helping)  # type: ignore[arg-type]
    assert next(results) == 0
    transport.get_ready(1)
    assert sorted([0, *results]) == [n * n for n in range(20)]


def test_a_rank_that_was_late_for_other_tasks_gets_none_of_these() -> None:
    """It answers an earlier call: it has not heard what these tasks are about."""
    transport = Slow(greeting(), greeting())
    ranks = Coordinator(transport)  # type: ignore[arg-type]
    earlier = ranks.deal(range(100), squares, helping)
    next(earlier)
    earlier.close()  # type: ignore[attr-defined]
    later = ranks.deal([5, 6, 7], squares, helping)
    assert next(later) == 25
    transport.get_ready(1)
    assert next(later) == 36
    transport.get_ready(1)
    assert list(later) == [49]


def test_ranks_that_were_launched_are_ready_before_any_begins() -> None:
    """Their devices may not go together."""
    transport = Slow(greeting(), greeting())
    transport.are_alike = False
    ranks = Coordinator(transport)  # type: ignore[arg-type]
    begun = []

    def noted(tasks: Iterator[int]) -> Iterator[int]:
        begun.append(len(transport.calls))
        yield from squares(tasks)

    transport.on_message(1, Message(FAILED, Failure("has other devices")))
    with pytest.raises(InputError, match="rank 1 .* has other devices"):
        list(ranks.deal(range(3), noted, helping))
    assert not begun


def test_ranks_that_were_launched_begin_once_all_are_ready() -> None:
    ranks, others = first(greeting(), greeting())
    others.are_alike = False
    for count in (1, 20):
        assert sorted(ranks.deal(range(count), squares, helping)) == [n * n for n in range(count)]


def test_a_rank_that_works_on_earlier_tasks_gets_none_of_these() -> None:
    """And what it still finds of those is passed over."""
    ranks, others = first(greeting(), greeting(), tasks=0)
    earlier = ranks.deal(range(100), squares, helping)
    next(earlier)
    earlier.close()  # type: ignore[attr-defined]
    before = others.call
    later = ranks.deal([5, 6], squares, helping)
    assert next(later) == 25
    others.on_message(1, Message(WANT, before))
    others.on_message(1, Message(RESULT, (before, -1)))
    others.on_message(1, Message(IDLE, before))
    assert list(later) == [36]
