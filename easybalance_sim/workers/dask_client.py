"""A client of a Dask scheduler that ends in one line of ours whatever goes wrong, and soon.

Dask's own client tries for long where nobody answers, logs tracebacks and waits again when it is closed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import socket
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from easybalance_sim.errors import UsageError

Answer = TypeVar("Answer")

FLAG = "--dask"
CONNECT_S = 10
ANSWER_S = 30.0
"""How long a scheduler may take to answer; a frozen one never does."""
CLOSE_S = 1.0
_NOISY = ("distributed", "tornado", "asyncio")


def client_of(address: str) -> Any:
    """A `distributed.Client`, closed when the process ends.

    Raises `UsageError` for an address of another kind, without the certificates that it needs, or where no scheduler
    answers.
    """
    from distributed import Client

    _require_scheme(address)
    _require_listener(address)
    _quiet()
    _require_scheduler(address)
    client: Any = Client.__new__(Client)
    atexit.register(_close, client)
    try:
        client.__init__(address, timeout=CONNECT_S, set_as_default=False)
    # Whatever it says: the scheduler that has just answered does not take us.
    except Exception as error:
        raise no_scheduler(address) from error
    return client


def ask(call: Callable[[], Answer]) -> Answer:
    """What `call` returns or raises; `TimeoutError` after `ANSWER_S`: most calls of Dask's client know no limit."""
    answer: Future[Answer] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        # Raised again where the answer is waited for.
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answer.result(ANSWER_S)


def no_scheduler(address: str) -> UsageError:
    """The error where nobody answers, or somebody else."""
    return UsageError(
        f"no Dask scheduler answers at {address}", where=FLAG, fix="start `dask scheduler` or correct the address"
    )


def _require_scheme(address: str) -> None:
    scheme, given, _ = address.rpartition("://")
    if given and scheme not in ("tcp", "tls"):
        raise UsageError(
            f"{address} is no address of a Dask scheduler", where=FLAG, fix="give one like tcp://host:8786"
        )
    if scheme == "tls" and not _connection(address).get("ssl_context"):
        raise UsageError(
            f"{address} needs certificates", where=FLAG, fix="name them in Dask's settings, distributed.comm.tls.client"
        )


def _connection(address: str) -> dict[str, Any]:
    """What Dask's settings say of connections of a client."""
    from distributed import Security

    try:
        found: dict[str, Any] = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise UsageError(f"certificates for {address} cannot be used: {error}", where=FLAG) from error
    return found


def _require_listener(address: str) -> None:
    """Whether anybody listens; Dask would try again and again."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise no_scheduler(address) from error


def _require_scheduler(address: str) -> None:
    """Whether the one who listens is a scheduler."""
    try:
        kind = asyncio.run(asyncio.wait_for(_kind(address), CONNECT_S))
    # A stranger may send anything.
    except Exception as error:
        raise no_scheduler(address) from error
    if kind != "Scheduler":
        raise no_scheduler(address)


async def _kind(address: str) -> str:
    from distributed.core import rpc

    async with rpc(address, timeout=CONNECT_S, connection_args=_connection(address)) as server:  # type: ignore[no-untyped-call]
        found: dict[str, Any] = await server.identity()
        return str(found.get("type"))


def _quiet() -> None:
    """What goes wrong is told in one line of our own; Dask gives levels to single loggers, too."""
    for name in [*_NOISY, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in _NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", message="Sending large graph")


def _close(client: Any) -> None:
    with contextlib.suppress(Exception):
        client.close(timeout=CLOSE_S)
    # Else it is closed once more when it is collected, and waits again.
    client.status = "closed"
