"""What a call shows: nothing, events to a function, lines, or a line of a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import mltree
from mltree.device.discovery import find_devices
from mltree.device.pocl.pocl import CHANGED
from mltree.runs.calls import calling, resources_of
from mltree.system.errors import InputError
from mltree.system.events import AlignmentLoaded, Event, Notice, RoundDone

ENVIRONMENT = """
import os, sys
import pyopencl  # sets one of its own
before = dict(os.environ)
import mltree, mltree.runs.calls, mltree.device.session
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
sequences = dict(row.split("=") for row in sys.argv[1:])
mltree.evaluate(sequences, "{tree}", "JC")
likelihood = mltree.Likelihood(sequences, "{tree}", "JC")
likelihood.gradient()
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
"""

FORKED = """
import os, sys
import mltree
sequences = dict(row.split("=") for row in sys.argv[1:])
likelihood = None

def end(code):
    sys.stdout.flush()
    os._exit(code)  # as multiprocessing does: on NVIDIA's GPUs, freeing the parent's memory ends it

def forked(call):
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        call()
    except mltree.MltreeError as error:
        assert "spawn" in error.hint, error
        end(3)
    end(0)

def evaluate(device=None):
    return mltree.evaluate(sequences, "{tree}", "JC", device=device)

print(forked(evaluate), "before the first call")
likelihood = mltree.Likelihood(sequences, "{tree}", "JC")
likelihood.lnl()
print(forked(evaluate), forked(likelihood.lnl), forked(likelihood.gradient), "after it")
print(forked(lambda: evaluate("reference")), "without a device")
print(forked(lambda: forked(evaluate) == 3 or end(1)), "twice")
likelihood.lnl()
"""

TREE = "(t0,t1,(t2,(t3,(t4,(t5,t6)))));"


def test_events_go_to_a_function(sequences: dict[str, str], capfd: pytest.CaptureFixture) -> None:
    heard: list[Event] = []
    mltree.evaluate(sequences, TREE, "JC", device="reference", progress=heard.append)
    assert isinstance(heard[0], AlignmentLoaded)
    assert heard[0].path == "the alignment"
    assert any("the tree: " in event.text for event in heard if isinstance(event, Notice))
    assert capfd.readouterr() == ("", "")


def test_lines_go_to_standard_error(
    sequences: dict[str, str], capfd: pytest.CaptureFixture
) -> None:
    mltree.evaluate(sequences, TREE, "JC", device="reference", progress=True)
    out, err = capfd.readouterr()
    assert not out
    assert "7 taxa" in err


def test_a_notebook_has_a_line_that_lives(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    shown: list[dict[str, str]] = []

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        shown.append(bundle)
        return SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))

    ipython = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=object()),
        display=SimpleNamespace(display=display),
    )
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with calling(True) as call:
        call(RoundDone(1, 5, 10, 2, -123.456))
        call(RoundDone(2, 5, 10, 2, -120.0))
        assert call.last(RoundDone) == RoundDone(2, 5, 10, 2, -120.0)
        assert call.last(Notice) is None
    assert shown[0] == {"text/plain": "starting"}
    assert "lnL -123.456" in shown[1]["text/plain"]
    assert len(shown) == 2, "not twice in a moment"
    assert capfd.readouterr() == ("", "")


def test_where_it_computes() -> None:
    found = resources_of(1, "mixed", "2G")
    assert (found.device, found.mixed, found.memory_limit) == ("1", True, 2 << 30)
    assert resources_of(None, "double", 5).memory_limit == 5
    with pytest.raises(InputError, match="precision='half' is not one of double, mixed"):
        resources_of(None, "half", None)
    with pytest.raises(InputError, match="'many' is not a memory size"):
        resources_of(None, "double", "many")


def _ran(code: str, sequences: dict[str, str]) -> str:
    command = [sys.executable, "-c", code.format(tree=TREE)]
    rows = [f"{name}={row}" for name, row in sequences.items()]
    environment = {name: text for name, text in os.environ.items() if name not in CHANGED}
    environment["PATH"] = os.defpath
    return subprocess.run(
        [*command, *rows], env=environment, stdout=subprocess.PIPE, text=True, check=True,
        timeout=300,
    ).stdout  # fmt: skip


def test_the_environment_of_the_host_stays_as_it_was(sequences: dict[str, str]) -> None:
    _ran(ENVIRONMENT, sequences)


@pytest.mark.skipif(not find_devices(), reason="no OpenCL device")
def test_a_forked_process_computes_or_is_told_how_to(sequences: dict[str, str]) -> None:
    assert _ran(FORKED, sequences).splitlines() == [
        "0 before the first call",
        "3 3 3 after it",
        "0 without a device",
        "0 twice",
    ]


def test_a_quiet_call_loads_no_command_line() -> None:
    test = (
        "import sys, mltree; mltree.rf('(a,b,(c,d));', '(a,c,(b,d));'); "
        "mltree.search({name: name * 9 for name in 'ACGT'}, 'JC', preset='fast'); "
        "assert not {'rich', 'typer', 'click'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", test], check=True)
