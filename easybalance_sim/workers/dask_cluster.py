"""Workers of a Dask cluster, on this machine or on many; they need easybalance-sim and the trace under the same path.

A worker that dies loses nothing: Dask gives its parts to others, and results are joined in the order of the parts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any

from easybalance_sim import kernels
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.kernels.threads import share
from easybalance_sim.workers import Part, Result
from easybalance_sim.workers.dask_client import ANSWER_S, CONNECT_S, FLAG, ask, client_of
from easybalance_sim.workers.packing import pack, unpack

PARTS_PER_THREAD = 4
POLL_S = 5.0
"""How often a waiting run looks whether there are workers at all."""
PATIENCE_S = 60.0
"""How long it waits for new ones when there are none."""


@cache
def connect(address: str) -> DaskWorkers:
    """The workers of the scheduler at an address like tcp://host:8786; connected once.

    Raises `UsageError` when Dask is not installed, nobody answers, or the workers cannot do the work.
    """
    try:
        client = client_of(address)
    except ModuleNotFoundError as error:
        raise UsageError(
            "Dask is not installed",
            where=FLAG,
            fix="in a clone of ebsim: pip install '.[dask]', here and on the workers",
        ) from error
    workers = DaskWorkers(client, address)
    workers.require_able()
    return workers


class DaskWorkers:
    """The workers of one scheduler. client: a `distributed.Client`."""

    here = False

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address

    def require_able(self) -> None:
        """Raise `UsageError` when there is no worker, or one without this version of easybalance-sim."""
        deadline = time.monotonic() + CONNECT_S
        while not self._threads():
            if time.monotonic() > deadline:
                raise self._no_worker()
            time.sleep(0.1)
        try:
            versions = ask(lambda: self._client.run(_version))
        except OSError as error:
            raise self._gone() from error
        # Whatever a worker's Python says when it cannot import the package.
        except Exception as error:
            raise _unable(error) from error
        for worker, version in sorted(versions.items()):
            _require_same(_version(), worker, version)

    def parts(self, state_bytes: int) -> int:
        """Some per thread; one per worker where a part holds much."""
        threads = self._threads().values()
        return max(1, len(threads) if state_bytes else PARTS_PER_THREAD * sum(threads))

    def run(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> Iterator[Result]:
        """See `Workers`; raises the error of the first part that failed, with the name of its worker."""
        if not parts:
            return
        do = partial(_do, _version(), kernels.device_in_use())
        waiting: deque[Any] = deque()
        most = 2 * self.parts(0)
        # The result of a task and not sent data: should the worker that holds it die, Dask makes it again.
        packed = self._submit(bytes, pack((work, list(parts))))
        try:
            for index in range(len(parts)):
                waiting.append(self._submit(do, packed, index))
                if len(waiting) > most:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            # Dask drops what nobody holds; to cancel would be to wait for a scheduler that may be gone.
            for future in (*waiting, packed):
                with contextlib.suppress(Exception):
                    future.release()

    def _submit(self, function: Callable[..., bytes], *arguments: Any) -> Any:
        try:
            return self._client.submit(function, *arguments, pure=False)
        # A client whose scheduler is gone fails in many ways.
        except Exception as error:
            raise self._gone() from error

    def _result(self, future: Any) -> Any:
        waited_s = 0.0
        while True:
            try:
                packed = future.result(timeout=ANSWER_S if future.status == "finished" else POLL_S)
                break
            # What work raises on a worker may be anything, too.
            except Exception as error:
                if future.status == "error":
                    _tell(error)
                    raise
                if future.status == "cancelled" or not isinstance(error, TimeoutError):
                    raise self._gone() from error
                waited_s = 0.0 if self._threads() else waited_s + POLL_S
                if waited_s >= PATIENCE_S:
                    raise self._no_worker() from error
        return unpack(packed)

    def _threads(self) -> dict[str, int]:
        """Threads by worker."""
        try:
            known: dict[str, int] = ask(lambda: self._client.nthreads())
        # As in `_submit`.
        except Exception as error:
            raise self._gone() from error
        return known

    def _gone(self) -> UsageError:
        return UsageError(
            f"the scheduler at {self._address} is gone", where=FLAG, fix="start it again and repeat the run"
        )

    def _no_worker(self) -> UsageError:
        return UsageError(
            f"the scheduler at {self._address} has no worker", where=FLAG, fix=f"start `dask worker {self._address}`"
        )


def _do(version: str, *terms: Any) -> bytes:
    """On a worker: one part of the work. version: of easybalance-sim where the work comes from; a worker that came
    later was not asked for its own at the beginning, and what `terms` are may differ between versions."""
    from distributed import get_worker

    worker = get_worker()
    _require_same(version, worker.address, _version())
    return _part(worker, *terms)


def _part(worker: Any, device: str, packed: bytes, index: int) -> bytes:
    share(max(1, len(os.sched_getaffinity(0)) // worker.state.nthreads))
    kernels.use(device)
    work, parts = _unpacked(packed)
    try:
        return pack(work(parts[index]))
    except EbsimError as error:
        place = f"{error.where} (read by worker {worker.address})" if error.where else f"worker {worker.address}"
        raise type(error)(error.what, where=place, fix=error.fix) from None


def _tell(error: Exception) -> None:
    """Raise a `UsageError` for the error of a part where it is the cluster's fault."""
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        raise UsageError(
            "a part of the trace killed every worker that tried it",
            where=FLAG,
            fix="give the workers more memory, or look into their logs",
        ) from error
    if isinstance(error, ImportError):
        raise _unable(error) from error


def _unable(error: Exception) -> UsageError:
    return UsageError(f"a worker cannot load easybalance-sim: {error}", where=FLAG, fix="install it on every worker")


def _require_same(version: str, worker: str, found: str) -> None:
    if found != version:
        raise UsageError(
            f"worker {worker} has easybalance-sim {found}, here is {version}",
            where=FLAG,
            fix="install one version everywhere",
        )


@lru_cache(maxsize=2)
def _unpacked(packed: bytes) -> Any:
    return unpack(packed)


def _version() -> str:
    from easybalance_sim import __version__

    return __version__
