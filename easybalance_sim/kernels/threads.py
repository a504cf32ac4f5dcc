"""Runs compiled loops that hold no lock on threads: they compile several times faster than parallel loops do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Result = TypeVar("Result")

_mine = threading.local()


def cores() -> int:
    """Threads that kernels called from this thread may use: as many as the process has cores, unless `share` said
    otherwise."""
    return getattr(_mine, "cores", 0) or len(os.sched_getaffinity(0))


def share(count: int) -> None:
    """Kernels called from this thread use `count` threads from now on: other threads call kernels too."""
    _mine.cores = count


def on_threads(work: Callable[[int], Result], parts: int) -> Iterator[Result]:
    """work(0) … work(parts - 1) at once, in order; one after the other where there is one thread to use."""
    return map(work, range(parts)) if parts == 1 or cores() == 1 else _pool().map(work, range(parts))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)))
