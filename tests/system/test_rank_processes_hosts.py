"""How ranks of one host share out what it has."""

from __future__ import annotations

from mltree.system.rank_processes import Greeting, cpus_of, local_rank


def ranks(*hosts: tuple[str, tuple[int, ...]]) -> list[Greeting]:
    return [Greeting(host, n, cpus, "1", ()) for n, (host, cpus) in enumerate(hosts)]


def test_cpus_that_nobody_bound_are_shared_out() -> None:
    every = ranks(*[("a", tuple(range(8)))] * 3, ("b", tuple(range(4))))
    shares = [cpus_of(n, every) for n in range(4)]
    assert sorted(cpu for own in shares[:3] for cpu in own) == list(range(8))
    assert {len(own) for own in shares[:3]} == {2, 3}
    assert shares[3] == (0, 1, 2, 3)


def test_bound_ranks_keep_what_they_have() -> None:
    every = ranks(("a", (0, 1)), ("a", (2, 3)))
    assert [cpus_of(n, every) for n in range(2)] == [(0, 1), (2, 3)]


def test_more_ranks_than_cpus() -> None:
    every = ranks(*[("a", (4, 6))] * 5)
    assert [cpus_of(n, every) for n in range(5)] == [(4,), (6,), (4,), (6,), (4,)]
    assert cpus_of(0, ranks(("a", ()))) == ()


def test_turns_are_counted_by_host() -> None:
    every = ranks(("a", ()), ("b", ()), ("a", ()), ("b", ()), ("b", ()))
    assert [local_rank(n, every) for n in range(5)] == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
