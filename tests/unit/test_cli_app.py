"""An interrupt that other code has swallowed comes again until the program has seen it."""

from __future__ import annotations

import signal
import time

import pytest

from easybalance_sim.cli import app, running
from easybalance_sim.cli.exit_codes import INTERRUPTED
from tests.ebsim_process import ebsim_here, python

PATIENCE_S = 60.0


@pytest.mark.parametrize("polite", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_that_is_swallowed_comes_again(polite: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    swallowed: list[str] = []

    def run(_arguments: list[str]) -> tuple[int, str]:
        for where in ("once", "twice"):
            try:
                if not swallowed:
                    signal.raise_signal(polite)
                time.sleep(PATIENCE_S)
            except KeyboardInterrupt:
                swallowed.append(where)
        time.sleep(PATIENCE_S)
        return 0, ""

    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(app, "TIDYING_S", 0.05)
    done = ebsim_here()
    assert (done.returncode, swallowed) == (INTERRUPTED, ["once", "twice"])
    assert done.stderr == "ebsim: interrupted; no file was left half-written\n"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


SWALLOWING = """
import signal, time
from easybalance_sim.cli import app, running
class Deaf:
    def __init__(self, signals):
        self.signals = signals
    def __del__(self):
        if self.signals:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(60)
        raise ValueError("told")
def run(arguments):
    Deaf(False)
    Deaf(True)
    time.sleep(60)
    return 0, ""
app.TIDYING_S = 0.05
running.run = run
app.start()
"""


def test_an_interrupt_that_is_lost_in_a_callback_is_not_told_of() -> None:
    done = python("-c", SWALLOWING)
    assert (done.returncode, done.stdout) == (INTERRUPTED, "")
    assert done.stderr.endswith("ValueError: told\nebsim: interrupted; no file was left half-written\n")
    assert "KeyboardInterrupt" not in done.stderr


def test_an_interrupt_that_is_seen_does_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_arguments: list[str]) -> tuple[int, str]:
        signal.raise_signal(signal.SIGTERM)
        return 0, ""

    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(app, "TIDYING_S", 0.05)
    assert ebsim_here().returncode == INTERRUPTED
    time.sleep(0.1)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_hang_up_that_was_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_arguments: list[str]) -> tuple[int, str]:
        signal.raise_signal(signal.SIGHUP)
        return 0, ""

    monkeypatch.setattr(running, "run", run)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ebsim_here().returncode == 0
    finally:
        signal.signal(signal.SIGHUP, before)
