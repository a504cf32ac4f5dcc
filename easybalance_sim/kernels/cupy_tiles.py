"""Traffic on the device: tiles in two alternating streams, smaller tiles where memory runs out.

While one tile is counted the next is copied, from page-locked memory so that the copy does not hold the CPU. Tiles of
arrays that are in use stay on the device: replay asks for the same tokens once per plan.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels import cuda

AnyArray = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
Launch = Callable[["Lane", int, int], Callable[[], None]]

TILE_BYTES = 64 << 20
"""Ids copied at once: long enough copies to reach the bus's speed, small enough that two of them do not matter."""

KEPT_BYTES = 1 << 30
"""Tiles that stay on the device."""


SHARED_BYTES = 48 << 10
"""Shared memory that a block has on every device without asking for more."""

_one_at_a_time = threading.RLock()


@cache
def compiled(name: str) -> Any:
    """The module of a source: compiled when first used, kept on disk by cupy."""
    return cupy.RawModule(code=cuda.source(name), options=cuda.OPTIONS)


@cache
def kernel(name: str, entry: str) -> Any:
    """A kernel of a source by its entry."""
    return compiled(name).get_function(entry)


def ints(*values: int) -> list[np.int32]:
    """Scalars of the type that the kernels take: a device checks none."""
    return [np.int32(value) for value in values]


class Lane:
    """A stream with page-locked memory to copy from. What was started on it must be over before it is used again."""

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._pinned: Any = None
        self._bytes = 0

    def upload(self, array: AnyArray) -> Any:
        """A copy on the device, made in the stream; the array itself may change at once."""
        on_device = cupy.empty(array.shape, array.dtype)
        if array.size == 0:
            return on_device
        if self._bytes < array.nbytes:
            self._pinned, self._bytes = cupy.cuda.alloc_pinned_memory(array.nbytes), array.nbytes
        staged = np.frombuffer(self._pinned, array.dtype, array.size).reshape(array.shape)
        np.copyto(staged, array)
        on_device.set(staged, stream=self.stream)
        return on_device


class _Kept:
    """Tiles of read-only arrays that are still in use, by first and last token.

    Of several, because threads that replay parts of a trace side by side take turns on the device.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Callable[[], object], dict[tuple[int, int], Any]]] = {}

    def tile(self, lane: Lane, ids: AnyArray, first: int, last: int) -> Any:
        if ids.flags.writeable:
            return lane.upload(ids[first:last])
        tiles = self._tiles_of(ids)
        if (first, last) not in tiles:
            tile = lane.upload(ids[first:last])
            if tile.nbytes + self._nbytes() > KEPT_BYTES:
                return tile
            tiles[first, last] = tile
        return tiles[first, last]

    def clear(self) -> None:
        self._arrays.clear()

    def _tiles_of(self, ids: AnyArray) -> dict[tuple[int, int], Any]:
        self._arrays = {key: known for key, known in self._arrays.items() if known[0]() is not None}
        return self._arrays.setdefault(id(ids), (weakref.ref(ids), {}))[1]

    def _nbytes(self) -> int:
        return sum(tile.nbytes for _, tiles in self._arrays.values() for tile in tiles.values())


_kept = _Kept()


@cache
def _lanes() -> tuple[Lane, Lane]:
    return Lane(), Lane()


def tile(lane: Lane, ids: AnyArray, first: int, last: int) -> Any:
    """Tokens `first` to `last` of ids [T, L, K] on the device: copied in the lane's stream, or there already."""
    return _kept.tile(lane, ids, first, last)


def tokens_per_tile(experts: AnyArray) -> int:
    """Tokens of ids [T, L, K] that are copied at once."""
    _, layers, top_k = experts.shape
    return max(1, int(TILE_BYTES // (layers * top_k * experts.itemsize)))


def cut_into(starts: IntArray, stops: IntArray, most: int) -> tuple[IntArray, IntArray, IntArray]:
    """Spans cut into pieces of `most`, the last of each shorter: first, last, and which span a piece is of."""
    pieces = -(-(stops - starts) // most)
    span = np.repeat(np.arange(len(starts)), pieces)
    number = np.arange(len(span)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = starts[span] + most * number
    return first, np.minimum(first + most, stops[span]), span


def in_tiles(edges: IntArray, most: int, launch: Launch, on_cpu: Callable[[int, int], None]) -> None:
    """Work through units in order, as many at once as hold at most `most` tokens, two tiles at a time.

    edges: int64[units + 1] first token of each unit and the end · launch(lane, first, last): start units `first` to
    `last` in the lane's stream and return what to call to fetch the result · on_cpu(first, last): the same without the
    device, for a single unit that the device has no memory for.
    """
    with _one_at_a_time:
        _in_tiles(edges, most, launch, on_cpu)


def _in_tiles(edges: IntArray, most: int, launch: Launch, on_cpu: Callable[[int, int], None]) -> None:
    todo, running = deque(_cut(edges, most)), deque[Callable[[], None]]()
    lanes = deque(_lanes())
    while todo:
        first, last = todo.popleft()
        try:
            with lanes[0].stream:
                fetch = launch(lanes[0], first, last)
        except cupy.cuda.memory.OutOfMemoryError:
            _make_room(running)
            if last - first > 1:
                middle = (first + last) // 2
                todo.extendleft([(middle, last), (first, middle)])
            else:
                on_cpu(first, last)
            continue
        lanes.rotate()
        running.append(fetch)
        if len(running) > 1:
            running.popleft()()
    while running:
        running.popleft()()


def _cut(edges: IntArray, most: int) -> Iterator[tuple[int, int]]:
    first, units = 0, len(edges) - 1
    while first < units:
        last = max(first + 1, int(np.searchsorted(edges, edges[first] + most, side="right")) - 1)
        yield first, last
        first = last


def _make_room(running: deque[Callable[[], None]]) -> None:
    while running:
        running.popleft()()
    for lane in _lanes():
        lane.stream.synchronize()
    _kept.clear()
    cupy.get_default_memory_pool().free_all_blocks()
