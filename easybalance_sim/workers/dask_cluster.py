"""Workers of a Dask cluster, on this machine or on many; they need easybalance-sim and the trace under the same path.

A worker that dies loses nothing: Dask gives its parts to others, and results are joined in the order of the parts.
"""

from __future__ import annotations

import atexit
import logging
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any

from easybalance_sim import kernels
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.kernels.threads import cores, share
from easybalance_sim.workers import Part, Result
from easybalance_sim.workers.packing import pack, unpack

FLAG = "--dask"
PARTS_PER_THREAD = 4
CONNECT_S = 10
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
        import distributed
    except ModuleNotFoundError as error:
        raise UsageError(
            "Dask is not installed", where=FLAG, fix="pip install 'easybalance-sim[dask]', here and on the workers"
        ) from error
    _require_answer(address)
    # What goes wrong is told in one line of our own.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="Sending large graph")
    try:
        client: Any = distributed.Client(  # type: ignore[no-untyped-call]
            address, timeout=CONNECT_S, set_as_default=False
        )
    except (OSError, ValueError, TimeoutError) as error:
        raise _no_scheduler(address) from error
    atexit.register(client.close)
    workers = DaskWorkers(client, address)
    workers.require_able()
    return workers


def _require_answer(address: str) -> None:
    """Whether anybody listens: a client of its own would try for long and not end in one line."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise _no_scheduler(address) from error


def _no_scheduler(address: str) -> UsageError:
    return UsageError(
        f"no Dask scheduler answers at {address}", where=FLAG, fix="start `dask scheduler` or correct the address"
    )


class DaskWorkers:
    """The workers of one scheduler. client: a `distributed.Client`."""

    here = False

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address

    def require_able(self) -> None:
        """Raise `UsageError` when there is no worker, or one without this version of easybalance-sim."""
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as error:
            raise self._no_worker() from error
        try:
            versions = self._client.run(_version)
        # Whatever a worker's Python says when it cannot import the package.
        except Exception as error:
            raise UsageError(
                f"a worker cannot load easybalance-sim: {error}", where=FLAG, fix="install it on every worker"
            ) from error
        for worker, version in sorted(versions.items()):
            if version != _version():
                raise UsageError(
                    f"worker {worker} has easybalance-sim {version}, here is {_version()}",
                    where=FLAG,
                    fix="install one version everywhere",
                )

    def parts(self, state_bytes: int) -> int:
        """Some per thread; one per worker where a part holds much."""
        threads = self._threads().values()
        return max(1, len(threads) if state_bytes else PARTS_PER_THREAD * sum(threads))

    def run(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> Iterator[Result]:
        """See `Workers`; raises the error of the first part that failed, with the name of its worker."""
        if not parts:
            return
        # The result of a task and not sent data: should the worker that holds it die, Dask makes it again.
        packed = self._client.submit(bytes, pack((work, list(parts))), pure=False)
        do = partial(_do, device=kernels.device_in_use())
        waiting: deque[Any] = deque()
        most = 2 * self.parts(0)
        try:
            for index in range(len(parts)):
                waiting.append(self._client.submit(do, packed, index, pure=False))
                if len(waiting) > most:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            self._client.cancel([*waiting, packed])

    def _result(self, future: Any) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        waited_s = 0.0
        while True:
            try:
                return unpack(future.result(timeout=POLL_S))
            except EbsimError:
                raise
            except KilledWorker as error:
                raise UsageError(
                    "a part of the trace killed every worker that tried it",
                    where=FLAG,
                    fix="give the workers more memory, or look into their logs",
                ) from error
            except FutureCancelledError as error:
                raise UsageError(
                    f"the scheduler at {self._address} is gone", where=FLAG, fix="start it again and repeat the run"
                ) from error
            except TimeoutError as error:
                waited_s = 0.0 if self._threads() else waited_s + POLL_S
                if waited_s >= PATIENCE_S:
                    raise self._no_worker() from error

    def _threads(self) -> dict[str, int]:
        """Threads by worker."""
        known: dict[str, int] = self._client.nthreads()
        return known

    def _no_worker(self) -> UsageError:
        return UsageError(
            f"the scheduler at {self._address} has no worker", where=FLAG, fix=f"start `dask worker {self._address}`"
        )


def _do(packed: bytes, index: int, *, device: str) -> bytes:
    """On a worker: one part of the work."""
    from distributed import get_worker

    worker = get_worker()
    share(max(1, cores() // worker.state.nthreads))
    kernels.use(device)
    work, parts = _unpacked(packed)
    try:
        return pack(work(parts[index]))
    except EbsimError as error:
        place = f"{error.where} (read by worker {worker.address})" if error.where else f"worker {worker.address}"
        raise type(error)(error.what, where=place, fix=error.fix) from None


@lru_cache(maxsize=2)
def _unpacked(packed: bytes) -> Any:
    return unpack(packed)


def _version() -> str:
    from easybalance_sim import __version__

    return __version__
