"""What is said when a cluster cannot do the work; the work itself is done on a real one in `tests/cli/test_dask.py`."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Generator
from typing import Any

import pytest

from easybalance_sim import __version__
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.kernels.threads import cores, share
from easybalance_sim.workers import dask_client, dask_cluster
from easybalance_sim.workers.dask_cluster import DaskWorkers, _do, connect
from easybalance_sim.workers.packing import pack, unpack


class Future:
    """Answers in turn."""

    def __init__(self, *answers: object, ends: str = "error") -> None:
        self._answers, self._ends = list(answers), ends
        self.status, self.released = "pending", False
        self.limits: list[float] = []

    def result(self, timeout: float) -> Any:
        self.limits.append(timeout)
        answer = self._answers.pop(0)
        if not isinstance(answer, Exception):
            return answer
        if not isinstance(answer, TimeoutError) or self._ends == "finished":
            self.status = self._ends
        raise answer

    def release(self) -> None:
        self.released = True


class Client:
    """A cluster that is told what to say."""

    def __init__(self, threads: list[int], answers: list[Future] | None = None, versions: Any = None) -> None:
        self.threads, self.answers, self.versions = threads, answers or [], versions
        self.made: list[Future] = []

    def nthreads(self) -> dict[str, int]:
        return {f"tcp://w{number}": threads for number, threads in enumerate(self.threads)}

    def run(self, function: Callable[[], str]) -> Any:
        if isinstance(self.versions, Exception):
            raise self.versions
        return self.versions

    def submit(self, function: Any, *arguments: Any, pure: bool) -> Future:
        self.made.append(Future() if function is bytes else self.answers.pop(0))
        return self.made[-1]


def results(client: Client, parts: int = 1) -> list[Any]:
    return list(DaskWorkers(client, "tcp://s:1").run(abs, range(parts)))


def test_parts_by_threads_or_by_workers() -> None:
    workers = DaskWorkers(Client([2, 4]), "tcp://s:1")
    assert (workers.parts(0), workers.parts(1 << 30), workers.here) == (24, 2, False)
    assert DaskWorkers(Client([]), "tcp://s:1").parts(0) == 1


def test_results_in_order_and_nothing_left_behind() -> None:
    client = Client([1], [Future(pack(part)) for part in range(9)])
    assert results(client, 9) == list(range(9))
    assert client.made[0].released
    assert results(Client([1]), 0) == []


def test_a_slow_part_is_waited_for_while_there_are_workers() -> None:
    assert results(Client([1], [Future(*[TimeoutError()] * 50, pack("done"))])) == ["done"]


def test_a_result_that_is_long_on_its_way() -> None:
    """It gets more time than a look at the cluster: fetched anew each time, it would never come."""
    future = Future(TimeoutError(), pack("much"), ends="finished")
    assert results(Client([1], [future])) == ["much"]
    assert future.limits == [dask_cluster.POLL_S, dask_client.ANSWER_S]


def test_no_worker_for_long() -> None:
    client = Client([], [Future(*[TimeoutError()] * 50)])
    with pytest.raises(UsageError, match="the scheduler at tcp://s:1 has no worker — start `dask worker tcp://s:1`"):
        results(client)
    assert client.made[0].released


def test_parts_that_nobody_waits_for_are_released() -> None:
    client = Client([1], [Future(pack(part)) for part in range(9)])
    stream = DaskWorkers(client, "tcp://s:1").run(abs, range(9))
    next(stream)
    assert isinstance(stream, Generator)
    stream.close()
    assert len(client.made) == 10 and [made.released for made in client.made] == [True, False, *[True] * 8]


class Lost(Client):
    """A cluster whose scheduler goes after some calls."""

    def __init__(self, calls: int, error: Exception, threads: list[int], answers: list[Future]) -> None:
        super().__init__(threads, answers)
        self.calls, self.error = calls, error

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise self.error

    def nthreads(self) -> dict[str, int]:
        self._count()
        return super().nthreads()

    def submit(self, function: Any, *arguments: Any, pure: bool) -> Future:
        self._count()
        return super().submit(function, *arguments, pure=pure)


GONE = "--dask: the scheduler at tcp://s:1 is gone — start it again and repeat the run"


@pytest.mark.parametrize("error", [OSError("closed"), AttributeError("None"), RuntimeError("loop"), TypeError("tls")])
def test_a_scheduler_that_goes_at_any_call(error: Exception) -> None:
    for calls in range(4):
        with pytest.raises(UsageError) as caught:
            results(Lost(calls, error, [1], [Future(TimeoutError(), TimeoutError())]))
        assert str(caught.value) == GONE


def test_a_frozen_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_client, "ANSWER_S", 0.05)
    thawed = threading.Event()
    client = Client([1])
    monkeypatch.setattr(client, "nthreads", lambda: thawed.wait(20))
    with pytest.raises(UsageError) as caught:
        results(client)
    thawed.set()
    assert str(caught.value) == GONE


def test_what_work_raises_on_a_worker_is_raised_here() -> None:
    """An error of the work is not taken for one of the cluster, of whatever kind it is."""
    for error in (TraceError("bad", where="t"), OSError("disk"), ValueError("bug")):
        with pytest.raises(type(error)) as caught:
            results(Client([1], [Future(error)]))
        assert caught.value is error
    with pytest.raises(UsageError, match="a worker cannot load easybalance-sim: no module"):
        results(Client([1], [Future(ModuleNotFoundError("no module"))]))


def test_what_the_cluster_says_becomes_one_line() -> None:
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    killed: Any = KilledWorker("part", None, 4)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="killed every worker that tried it — give the workers more memory"):
        results(Client([1], [Future(killed)]))
    with pytest.raises(UsageError, match="the scheduler at tcp://s:1 is gone"):
        results(Client([1], [Future(FutureCancelledError("part", "lost", None), ends="cancelled")]))


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


def test_no_worker_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0)
    with pytest.raises(UsageError, match="has no worker"):
        DaskWorkers(Client([]), "tcp://s:1").require_able()


def test_a_scheduler_that_goes_while_versions_are_asked() -> None:
    with pytest.raises(UsageError, match="is gone"):
        DaskWorkers(Client([1], versions=TimeoutError()), "tcp://s:1").require_able()


class At:
    """A worker of `nthreads` threads."""

    def __init__(self, nthreads: int) -> None:
        self.address, self.state = "tcp://w0", types.SimpleNamespace(nthreads=nthreads)


def test_every_part_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the second part in a thread as for the first."""
    import distributed

    monkeypatch.setattr(distributed, "get_worker", lambda: At(4))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    packed = pack((_cores_used, [0]))
    try:
        found = [unpack(_do(__version__, "cpu", packed, 0)) for _ in range(3)]
    finally:
        share(0)
    assert found == [16, 16, 16]


def _cores_used(_: int) -> int:
    return cores()


def test_a_late_worker_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    import distributed

    monkeypatch.setattr(distributed, "get_worker", lambda: At(1))
    with pytest.raises(UsageError, match=f"worker tcp://w0 has easybalance-sim {__version__}, here is 0.0.1 — install"):
        _do("0.0.1", "terms", "of another version")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("foo://h:1", "foo://h:1 is no address of a Dask scheduler — give one like tcp://host:8786"),
        ("tls://h:1", "tls://h:1 needs certificates — name them in Dask's settings, distributed.comm.tls.client"),
        ("tcp://127.0.0.1:99999", "no Dask scheduler answers at tcp://127.0.0.1:99999"),
        ("host", "no Dask scheduler answers at host — start `dask scheduler` or correct the address"),
    ],
)
def test_addresses_that_lead_nowhere(address: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"^--dask: {says}"):
        connect(address)


def test_certificates_that_cannot_be_used() -> None:
    import dask

    with (
        dask.config.set({"distributed.comm.tls.client": {"cert": "/no/such", "key": None}}),
        dask.config.set({"distributed.comm.tls.ca-file": "/no/such"}),
        pytest.raises(UsageError, match="certificates for tls://h:1 cannot be used: "),
    ):
        connect("tls://h:1")


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"Dask is not installed — in a clone of ebsim: pip install '\.\[dask\]'"):
        connect("tcp://nobody:1")


def test_answers_before_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that comes back resets the clock."""
    monkeypatch.setattr(dask_cluster, "PATIENCE_S", 2 * dask_cluster.POLL_S)
    client = Client([], [Future(TimeoutError(), pack(3))])
    assert results(client) == [3]
