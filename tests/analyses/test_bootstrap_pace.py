"""The time that a bootstrap still takes, by its pace so far."""

import pytest

from mltree.analyses.bootstrap import Pace
from mltree.system.events import Event, TimeLeft


def test_the_rest_takes_as_long_as_what_was_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten replicates were there before; it is told after every fifty, but not at the end."""
    clock = iter([100.0, 110.0, 130.0])
    monkeypatch.setattr("mltree.analyses.bootstrap.time.perf_counter", lambda: next(clock))
    told: list[Event] = []
    pace = Pace("bootstrap", 10, 200, told.append, at_most=True)
    for done in range(11, 201):
        pace.tell(done, 100)
    assert told == [TimeLeft("bootstrap", pytest.approx(10 / 90 * 100), at_most=True)]
    pace.tell(190, 10)
    assert told[1:] == [TimeLeft("bootstrap", pytest.approx(30 / 180 * 10), at_most=True)]
