"""What is said when a cluster cannot do the work; the work itself is done on a real one in `tests/cli/test_dask.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from easybalance_sim import __version__
from easybalance_sim.errors import UsageError
from easybalance_sim.workers import dask_cluster
from easybalance_sim.workers.dask_cluster import DaskWorkers, connect
from easybalance_sim.workers.packing import pack


class Future:
    """Answers in turn."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    def result(self, timeout: float) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Client:
    """A cluster that is told what to say."""

    def __init__(self, threads: list[int], answers: list[Future] | None = None, versions: Any = None) -> None:
        self.threads, self.answers, self.versions = threads, answers or [], versions
        self.cancelled: list[Any] = []

    def nthreads(self) -> dict[str, int]:
        return {f"tcp://w{number}": threads for number, threads in enumerate(self.threads)}

    def wait_for_workers(self, count: int, timeout: float) -> None:
        if len(self.threads) < count:
            raise TimeoutError

    def run(self, function: Callable[[], str]) -> Any:
        if isinstance(self.versions, Exception):
            raise self.versions
        return self.versions

    def submit(self, function: Any, *arguments: Any, pure: bool) -> Future:
        return Future() if function is bytes else self.answers.pop(0)

    def cancel(self, futures: list[Any]) -> None:
        self.cancelled += futures


def results(client: Client, parts: int = 1) -> list[Any]:
    return list(DaskWorkers(client, "tcp://s:1").run(abs, range(parts)))


def test_parts_by_threads_or_by_workers() -> None:
    workers = DaskWorkers(Client([2, 4]), "tcp://s:1")
    assert (workers.parts(0), workers.parts(1 << 30), workers.here) == (24, 2, False)
    assert DaskWorkers(Client([]), "tcp://s:1").parts(0) == 1


def test_results_in_order_and_nothing_left_behind() -> None:
    client = Client([1], [Future(pack(part)) for part in range(9)])
    assert results(client, 9) == list(range(9))
    assert len(client.cancelled) == 1
    assert results(Client([1]), 0) == []


def test_a_slow_part_is_waited_for_while_there_are_workers() -> None:
    assert results(Client([1], [Future(*[TimeoutError()] * 50, pack("done"))])) == ["done"]


def test_no_worker_for_long() -> None:
    client = Client([], [Future(*[TimeoutError()] * 50)])
    with pytest.raises(UsageError, match="the scheduler at tcp://s:1 has no worker — start `dask worker tcp://s:1`"):
        results(client)
    assert len(client.cancelled) == 1


def test_what_the_cluster_says_becomes_one_line() -> None:
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    killed: Any = KilledWorker("part", None, 4)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="killed every worker that tried it — give the workers more memory"):
        results(Client([1], [Future(killed)]))
    with pytest.raises(UsageError, match="the scheduler at tcp://s:1 is gone"):
        results(Client([1], [Future(FutureCancelledError("part", "lost", None))]))


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        ({"tcp://w0": __version__, "tcp://w1": "0.0.1"}, "worker tcp://w1 has easybalance-sim 0.0.1, here is"),
        (ModuleNotFoundError("No module named 'easybalance_sim'"), "a worker cannot load easybalance-sim: No module"),
    ],
)  # fmt: skip
def test_workers_that_cannot_do_the_work(versions: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        DaskWorkers(Client([1], versions=versions), "tcp://s:1").require_able()


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"Dask is not installed — pip install 'easybalance-sim\[dask\]'"):
        connect("tcp://nobody:1")


def test_answers_before_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that comes back resets the clock."""
    monkeypatch.setattr(dask_cluster, "PATIENCE_S", 2 * dask_cluster.POLL_S)
    client = Client([], [Future(TimeoutError(), pack(3))])
    assert results(client) == [3]
