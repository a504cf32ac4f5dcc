"""Threads that share the cores: order, errors, and what happens when nobody waits any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from easybalance_sim.kernels import threads as kernel_threads
from easybalance_sim.workers import threads
from easybalance_sim.workers.threads import StoppedError, Threads, ahead, require_wanted


@pytest.fixture(params=[1, 2, 5])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    count: int = request.param
    monkeypatch.setattr(threads, "cores", lambda: count)
    return count


def test_results_come_in_the_order_of_the_parts(cores: int) -> None:
    def work(part: int) -> int:
        time.sleep(0.002 * (part % 3))
        return part * part

    assert list(Threads().run(work, range(20))) == [part * part for part in range(20)]
    assert list(Threads().run(work, [])) == []


def test_the_first_error_is_raised(cores: int) -> None:
    def work(part: int) -> int:
        if part in (3, 7):
            time.sleep(0.02 if part == 3 else 0)
            raise ValueError(f"part {part}")
        return part

    with pytest.raises(ValueError, match="part 3"):
        list(Threads().run(work, range(10)))


def test_kernels_of_a_part_use_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 6)
    assert list(Threads().run(lambda _: kernel_threads.cores(), range(2))) == [3, 3]
    assert set(Threads().run(lambda _: kernel_threads.cores(), range(9))) == {1}
    assert list(Threads().run(lambda _: kernel_threads.cores(), [0])) == [kernel_threads.cores()]


def test_parts_that_nobody_waits_for_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)
    stopped, begun = threading.Event(), threading.Event()

    def work(part: int) -> int:
        if part == 0:
            begun.wait(10)
            raise ValueError("no")
        begun.set()
        try:
            for _ in range(10_000):
                time.sleep(0.001)
                require_wanted()
        except StoppedError:
            stopped.set()
            raise
        return part

    with pytest.raises(ValueError, match="no"):
        list(Threads().run(work, range(2)))
    assert stopped.is_set()


def test_more_parts_than_cores_but_few_of_much_memory(cores: int) -> None:
    workers = Threads()
    assert workers.here
    assert workers.parts(0) == (1 if cores == 1 else 4 * cores)
    assert workers.parts(threads.STATE_BYTES // 2) == min(cores, 2)
    assert workers.parts(10 * threads.STATE_BYTES) == 1


def test_reading_ahead_changes_nothing() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for item in range(5):
            made.append(item)
            yield item

    stream = ahead(items())
    assert next(stream) == 0 and list(stream) == [1, 2, 3, 4] and made == [0, 1, 2, 3, 4]
    assert list(ahead([])) == []


def test_an_error_ahead_comes_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("late")

    stream = ahead(items())
    assert next(stream) == 1
    with pytest.raises(KeyError, match="late"):
        next(stream)
