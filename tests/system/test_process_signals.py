"""A process that is asked to stop: one line, the right code, and nothing cut in two."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mltree.system.process import ECHO, SIGNALS

Start = Callable[..., subprocess.Popen[str]]

BEGINNING = """
import sys, time
from pathlib import Path
from mltree.system.process import ExitMessage, ignore_signals, install_handlers, on_signal
from mltree.system.process import set_exit_message, uninterrupted
install_handlers()
def ready(): print("ready", flush=True)
"""

LONG = 60.0
"""Seconds that nothing here takes."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(code, options of Popen): a program that listens, once it has said that it is ready."""
    running = []

    def run(code: str, **options: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", BEGINNING + code], cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,  # type: ignore[call-overload]
        )  # fmt: skip
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and what it said."""
    _, said = process.communicate(timeout=LONG)
    return process.returncode, said


@pytest.mark.parametrize("number", SIGNALS)
def test_every_signal_has_its_line_and_its_code(start: Start, number: signal.Signals) -> None:
    process = start("ready(); time.sleep(600)")
    process.send_signal(number)
    assert end_of(process) == (128 + number, f"mltree: stopped by {number.name}\n")


def test_a_main_thread_that_never_comes_back_to_python_is_ended_too(start: Start) -> None:
    process = start(
        "import threading; lock = threading.Lock(); lock.acquire(); ready()\nwith lock: 1"
    )
    process.send_signal(signal.SIGTERM)
    assert end_of(process)[0] == 143


def test_the_last_parting_counts_and_only_while_it_lasts(start: Start) -> None:
    code = """
with on_signal(lambda: ExitMessage("outer")):
    with on_signal(lambda: ExitMessage("inner", 0)): {inside}
    {after}
"""
    wait = "ready(); time.sleep(600)"
    for inside, after, expected in ((wait, "", (0, "inner")), ("pass", wait, (130, "outer"))):
        process = start(code.format(inside=inside, after=after))
        process.send_signal(signal.SIGINT)
        assert end_of(process) == (expected[0], f"mltree: stopped by SIGINT: {expected[1]}\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_an_ignored_signal_is_nobodys_whoever_listens_later(
    start: Start, number: signal.Signals
) -> None:
    """As LLVM does, which then takes back the files that it is writing."""
    process = start(
        "import signal; heard = []\n"
        f"signal.signal({int(number)}, lambda *_: heard.append(1)); ready()\n"
        f"signal.raise_signal({int(number)}); sys.exit(len(heard))",
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
    )
    assert end_of(process) == (0, "")


def test_a_device_that_fails_by_a_signal_gives_way_to_the_stop(start: Start) -> None:
    process = start("""
import signal
from mltree.system.process import wait_for_exit
wait_for_exit()  # nobody has asked for a stop
with on_signal(lambda: ExitMessage("kept")):
    ready()
    signal.raise_signal(signal.SIGTERM)
    wait_for_exit()
    sys.exit(2)
""")
    assert end_of(process) == (143, "mltree: stopped by SIGTERM: kept\n")


def test_a_last_word_outlives_what_was_said_before_it(start: Start) -> None:
    process = start("""
with on_signal(lambda: ExitMessage("unfinished")):
    set_exit_message(ExitMessage("finished", 0))
ready(); time.sleep(600)
""")
    process.send_signal(signal.SIGTERM)
    assert end_of(process) == (0, "mltree: stopped by SIGTERM: finished\n")


def test_what_is_unbroken_is_done_whole(start: Start, tmp_path: Path) -> None:
    process = start("""
with uninterrupted():
    Path("first").touch(); ready(); time.sleep(1); Path("second").touch()
time.sleep(600)
with uninterrupted():
    Path("third").touch()
""")
    process.send_signal(signal.SIGTERM)
    assert end_of(process)[0] == 143
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


def test_a_failing_parting_ends_the_process_too(start: Start) -> None:
    process = start("with on_signal(lambda: 1 / 0): ready(); time.sleep(600)")
    process.send_signal(signal.SIGINT)
    code, said = end_of(process)
    assert code == 130
    assert "ZeroDivisionError" in said


def test_an_echo_changes_nothing_and_a_second_signal_ends_at_once(start: Start) -> None:
    process = start("with uninterrupted(): ready(); time.sleep(600)")
    for _ in range(5):
        process.send_signal(signal.SIGINT)
    time.sleep(2 * ECHO)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert end_of(process) == (143, "")


def test_what_the_parent_ignores_stays_ignored(start: Start) -> None:
    ignoring = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = start("ready(); time.sleep(1); print('over')", preexec_fn=ignoring)
    process.send_signal(signal.SIGHUP)
    assert end_of(process) == (0, "")


def test_signals_change_nothing_once_they_are_ignored(start: Start) -> None:
    """Until the very end, where Python would have its own way with handlers."""
    process = start("import atexit; atexit.register(time.sleep, 1); ignore_signals(); ready()")
    for number in SIGNALS:
        process.send_signal(number)
    assert end_of(process) == (0, "")


def test_a_terminal_that_is_gone_changes_nothing(start: Start) -> None:
    process = start("ready(); time.sleep(600)")
    process.stderr.close()
    process.stderr = None
    process.send_signal(signal.SIGHUP)
    process.wait(timeout=LONG)
    assert process.returncode == 129


def test_a_signal_is_heard_where_no_thread_can_be_started(start: Start) -> None:
    refused = "def refuse(thread): raise RuntimeError\nimport threading\n"
    process = start(f"{refused}threading.Thread.start = refuse\nready(); time.sleep(600)")
    process.send_signal(signal.SIGTERM)
    assert end_of(process) == (128 + signal.SIGTERM, "mltree: stopped by SIGTERM\n")
