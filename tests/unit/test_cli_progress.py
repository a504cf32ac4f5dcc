"""Progress: silent for a second, then how far, how fast and how long yet; one line in place on a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from easybalance_sim.amounts import Amount
from easybalance_sim.cli import voice
from easybalance_sim.cli.console import Console
from easybalance_sim.cli.progress import Stage, line
from easybalance_sim.cli.voice import Level


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that stages see; tests put it forward."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """stderr is a terminal without colours; call the result for what it was sent since the last call."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(voice, "sys", mock.Mock(stderr=stream))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")

    def sent() -> str:
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        return text

    return sent


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    voice.begin()
    yield
    voice.begin()


def test_short_stages_are_silent(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    advance = Console().progress("replay", 10)
    clock[0] += 0.9
    for _ in range(10):
        advance(1)
    assert tuple(capsys.readouterr()) == ("", "")


def test_long_stages_report_after_a_second_then_now_and_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    advance = Console().progress("replay", Amount(20, "steps"))
    for _ in range(20):
        clock[0] += 1
        advance(1)
    assert capsys.readouterr().err.splitlines() == [
        "replay: 5 %",
        "replay: 30 %, 1 steps/s, 14 s left",
        "replay: 55 %, 1 steps/s, 9 s left",
        "replay: 80 %, 1 steps/s, 4 s left",
        "replay: 100 %, 1 steps/s",
    ]


def test_the_end_of_a_long_stage_is_said_once(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    advance = Console().progress("choosing a plan", 3)
    for seconds in (2.0, 0.1, 0.1, 9.0):
        clock[0] += seconds
        advance(1)
    assert capsys.readouterr().err.splitlines() == ["choosing a plan: 33 %", "choosing a plan: 100 %"]


@pytest.mark.parametrize("total", [0, 3])
def test_progress_never_passes_100(clock: list[float], capsys: pytest.CaptureFixture[str], total: int) -> None:
    advance = Console().progress("replay", total)
    clock[0] += 2
    advance(7)
    assert capsys.readouterr().err == "replay: 100 %\n"


@pytest.mark.parametrize(
    ("done", "total", "unit", "rate", "says"),
    [
        (0, 10, "tokens", 0.0, "x: 0 %"),
        (42, 100, "tokens", 0.0, "x: 42 %"),
        (42, 100, "", 58.0, "x: 42 %, 1 s left"),
        (6_200_000, 10_000_000, "tokens", 3.1e6, "x: 62 %, 3.1 M tokens/s, 1 s left"),
        (1_000_000_000, 4_000_000_000, "bytes", 5e8, "x: 25 %, 500 MB/s, 6 s left"),
        (1, 200, "searches", 1 / 3, "x: 0 %, 0.33 searches/s, 9 min 57 s left"),
        (1, 2001, "plans", 0.25, "x: 0 %, 0.25 plans/s, 2 h 13 min left"),
        (999, 1000, "steps", 99.9, "x: 99 %, 100 steps/s, 0 s left"),
        (5, 5, "folds", 2.5, "x: 100 %, 2.5 folds/s"),
        (7, 5, "folds", 0.0, "x: 100 %"),
    ],
)
def test_a_line_says_how_far_how_fast_and_how_long_yet(
    done: int, total: int, unit: str, rate: float, says: str
) -> None:
    assert line("x", done, total, unit, rate) == says


def test_the_first_units_which_may_warm_up_are_not_in_the_rate(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    advance = Stage("replay", Amount(100, "steps")).advance
    clock[0] += 10
    advance(10)
    clock[0] += 5
    advance(10)
    assert capsys.readouterr().err.splitlines() == ["replay: 10 %", "replay: 20 %, 2 steps/s, 40 s left"]


def test_a_terminal_has_one_line_that_goes_at_the_end(clock: list[float], terminal: Callable[[], str]) -> None:
    advance = Stage("replay", Amount(4, "steps")).advance
    for _ in range(4):
        clock[0] += 1
        advance(1)
    shown = [
        "replay: 25 %",
        "replay: 50 %, 1 steps/s, 2 s left",
        "replay: 75 %, 1 steps/s, 1 s left",
    ]
    assert terminal() == "".join(f"\r{text}\x1b[K" for text in shown) + "\r\x1b[K"


def test_what_is_said_meanwhile_takes_the_place_of_the_line(clock: list[float], terminal: Callable[[], str]) -> None:
    advance = Stage("replay", 4).advance
    clock[0] += 1
    advance(1)
    Console().note("odd")
    assert terminal() == "\rreplay: 25 %\x1b[K\r\x1b[Knote: odd\n"


def test_a_note_is_broken_between_words(terminal: Callable[[], str]) -> None:
    Console().note("word " * 20 + "and/a/path/" + "x" * 90)
    assert terminal() == f"note:{' word' * 15}\n     {' word' * 5}\n      and/a/path/{'x' * 90}\n"


def test_two_stages_do_not_fight_for_the_line(clock: list[float], terminal: Callable[[], str]) -> None:
    first, second = Stage("one", 100).advance, Stage("two", 100).advance
    clock[0] += 1
    for _ in range(3):
        first(1)
        second(1)
        clock[0] += 0.3
    assert "two" not in terminal()
    clock[0] += voice.OWNED_S
    second(1)
    assert terminal().startswith("\rtwo: 4 %")


def test_any_stage_takes_the_line_of_nobody(clock: list[float], terminal: Callable[[], str]) -> None:
    advance = Stage("one", 100).advance
    clock[0] += 1
    voice.rewrite("working", voice.NOBODY)
    advance(1)
    assert terminal() == "\rworking\x1b[K\rone: 1 %\x1b[K"


def test_a_line_is_cut_to_the_width(clock: list[float], terminal: Callable[[], str]) -> None:
    advance = Stage("x" * 200, 4).advance
    clock[0] += 1
    advance(1)
    assert terminal() == f"\r{'x' * 79}\x1b[K"


def test_a_dumb_terminal_gets_whole_lines(
    clock: list[float], terminal: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    advance = Stage("replay", 2).advance
    clock[0] += 1
    advance(1)
    assert terminal() == "replay: 50 %\n"


def test_verbose_hears_every_stage_begin_and_end(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    voice.choose(Level.VERBOSE)
    for label, total in (("scanning", Amount(3000, "tokens")), ("staggering", 2)):
        advance = Console().progress(label, total)
        clock[0] += 0.25
        advance(total)
    assert capsys.readouterr().err.splitlines() == [
        "scanning: 3,000 tokens",
        "scanning: took 0.25 s, 12 k tokens/s",
        "staggering: 2",
        "staggering: took 0.25 s",
    ]
