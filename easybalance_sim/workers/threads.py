"""Threads of this process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from easybalance_sim.kernels.threads import cores, share
from easybalance_sim.workers import Part, Result

PARTS_PER_CORE = 4
"""So that no core is idle for long while the last part is worked on."""
STATE_BYTES = 256 << 20
"""What the parts worked on at once may hold together."""

_mine = threading.local()


class StoppedError(Exception):
    """Nobody waits for this part any more."""


class Threads:
    """As many threads as the process has cores. They share them: kernels of a part use what is left for it."""

    here = True

    def parts(self, state_bytes: int) -> int:
        """One where there is one core, or no memory for two."""
        at_once = cores()
        if state_bytes:
            at_once = max(1, min(at_once, STATE_BYTES // state_bytes))
        return at_once * PARTS_PER_CORE if at_once > 1 and not state_bytes else at_once

    def run(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> Iterator[Result]:
        """See `Workers`. A caller that stops waiting stops the parts at their next `require_wanted`."""
        at_once = min(len(parts), cores())
        if at_once < 2:
            yield from map(work, parts)
            return
        stop = threading.Event()
        with ThreadPoolExecutor(at_once, initializer=_begin, initargs=(cores() // at_once, stop)) as pool:
            waiting: deque[Future[Result]] = deque()
            try:
                for part in parts:
                    waiting.append(pool.submit(work, part))
                    if len(waiting) > 2 * at_once:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                stop.set()
                for one in waiting:
                    one.cancel()


def require_wanted() -> None:
    """Raise `StoppedError` in a part that nobody waits for."""
    stop: threading.Event | None = getattr(_mine, "stop", None)
    if stop is not None and stop.is_set():
        raise StoppedError


def ahead(items: Iterable[Result]) -> Iterator[Result]:
    """The same items, the next one made while the last is looked at."""
    stream, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, stream, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, stream, end)
            yield item  # type: ignore[misc]


def _begin(kernel_cores: int, stop: threading.Event) -> None:
    share(kernel_cores)
    _mine.stop = stop
