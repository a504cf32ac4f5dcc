"""A stage that takes its time: how far it is, how fast, and for how long it will go on."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator

from easybalance_sim.cli import voice
from easybalance_sim.cli.voice import Level

QUIET_S = 1.0
"""Stages are heard of when they take longer."""
REPEAT_S, REWRITE_S = 5.0, 0.2
"""Between two lines of one stage in a file, and on a terminal."""
RATED_S = 0.5
"""A rate is known when so much time has passed since the first units were done, which may have had to warm up."""

TICK_S = 0.5
"""Between two looks at whether a terminal should be told that the work goes on."""

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_open: list[weakref.ref[Stage]] = []
"""Stages that have begun, the newest last; one that ended before all was done goes with its last reference."""


class Stage:
    """`total` units of work; `advance` is told of those that are done, from any thread.

    On a terminal one line is written anew in place and taken away at the end; stages that run at once do not take it
    from each other. Elsewhere there is a line now and then, and one at the end of a stage that was heard of. With
    --verbose every stage is heard to begin and to end, with its seconds.
    """

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.unit = label, total, str(getattr(total, "unit", ""))
        self._done, self._said, self._ended = 0, 0, False
        self._began = self._last = time.monotonic()
        self._first: tuple[int, float] | None = None
        self._one_at_a_time = threading.Lock()
        self._verbose = voice.level() == Level.VERBOSE
        self._in_place = voice.rewrites()
        _open.append(weakref.ref(self, _open.remove))
        if self._verbose:
            voice.say(f"{label}: {total:,} {self.unit}".rstrip())

    def advance(self, units: int) -> None:
        """So many more are done."""
        with self._one_at_a_time:
            self._done += units
            now = time.monotonic()
            if self._ended:
                return
            self._first = self._first or (self._done, now)
            if self._done >= self.total:
                self._ended = True
                self._end(now)
            elif self._due(now):
                self._said, self._last = self._said + 1, now
                self._tell(now)

    def text(self) -> str:
        """How far it is now; while no rate is known, since when it goes on."""
        now = time.monotonic()
        rate = self._rate(now)
        since = "" if rate > 0 else f", {_seconds(now - self._began, whole=True)} so far"
        return line(self.label, self._done, self.total, self.unit, rate) + since

    @property
    def ended(self) -> bool:
        """Whether all units are done."""
        return self._ended

    def _due(self, now: float) -> bool:
        """After a second, then now and then."""
        if self._said:
            return now - self._last >= (REWRITE_S if self._in_place else REPEAT_S)
        return now - self._began >= QUIET_S

    def _tell(self, now: float) -> None:
        text = line(self.label, self._done, self.total, self.unit, self._rate(now))
        if self._in_place:
            voice.rewrite(text, self)
        else:
            voice.say(text)

    def _rate(self, now: float) -> float:
        """Units per second since the first ones were done; 0 while it is not known."""
        done, since = self._first or (0, now)
        return (self._done - done) / (now - since) if now - since >= RATED_S else 0.0

    def _end(self, now: float) -> None:
        seconds = now - self._began
        rate = self.total / seconds if seconds > 0 else 0.0
        voice.clear(self)
        if self._verbose:
            voice.say(f"{self.label}: took {_seconds(seconds)}{_speed(rate, self.unit)}")
        elif not self._in_place and (self._said or seconds >= QUIET_S):
            voice.say(line(self.label, self.total, self.total, self.unit, rate))


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """While a command runs on a terminal: after a second in which nothing was said, a line says what goes on."""
    if not voice.rewrites():
        yield
        return
    over, began = threading.Event(), time.monotonic()
    threading.Thread(target=_watch, args=(over, began), daemon=True).start()
    try:
        yield
    finally:
        with voice.ALONE:
            over.set()


def _watch(over: threading.Event, began: float) -> None:
    while not over.wait(TICK_S):
        with voice.ALONE:
            if not over.is_set() and voice.level() != Level.QUIET and voice.silent_s() >= QUIET_S:
                _tell_of(_newest(), began)


def _newest() -> Stage | None:
    stages = (one() for one in reversed(_open))
    return next((stage for stage in stages if stage is not None and not stage.ended), None)


def _tell_of(stage: Stage | None, began: float) -> None:
    if stage is None:
        voice.rewrite(f"working, {_seconds(time.monotonic() - began, whole=True)} so far", voice.NOBODY)
    else:
        voice.rewrite(stage.text(), stage)


def line(label: str, done: int, total: int, unit: str, rate: float) -> str:
    """`label: 42 %, 3.1 M tokens/s, 12 s left`; no time is promised without a rate, in units per second."""
    if done >= total:
        return f"{label}: 100 %{_speed(rate, unit)}"
    left = f", {_seconds((total - done) / rate, whole=True)} left" if rate > 0 else ""
    return f"{label}: {100 * done // total} %{_speed(rate, unit)}{left}"


def _speed(rate: float, unit: str) -> str:
    if not unit or rate <= 0:
        return ""
    size, prefix = next(((size, prefix) for size, prefix in _PREFIXES if rate >= size), (1.0, ""))
    short = f"{rate / size:.2g}" if rate < 99.5 * size else f"{rate / size:.0f}"
    return f", {short} {prefix}B/s" if unit == "bytes" else f", {short}{f' {prefix}' if prefix else ''} {unit}/s"


def _seconds(value: float, *, whole: bool = False) -> str:
    if value < 59.5:
        return f"{value:.0f} s" if whole else f"{value:.2f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
