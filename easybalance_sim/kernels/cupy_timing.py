"""Times on a GPU by its own events: the two GEMMs of experts, reads and copies, with nothing of them in its cache.

Before every run memory of several times the L2 cache is read, so that weights come from HBM; it leaves no changed
lines behind that would have to be written back, and while it runs the host queues what is timed, so that launching is
not timed. Runs take other slots in turn. Values are random: multiplying zeros draws less power and clocks higher.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import cupy
import numpy as np

from easybalance_sim.kernels.cupy_tiles import kernel
from easybalance_sim.kernels.measurable import COPY_HOST, COPY_PEER

WARM_UPS = 3
"""Runs before those that count: cuBLAS chooses its kernel, pages are mapped, clocks rise."""

FLUSHED = 8
"""Memory that is read before every run, in sizes of the L2 cache."""

_THREADS, _BLOCKS_PER_PROCESSOR = 256, 8
_ALL = (1 << 64) - 1
# cuBLAS: cudaDataType, then which bits of four random halves stay and which are 1: values of ±2^-6 to 2^-5.
_DTYPES = {
    "bf16": (14, 0x807F_807F_807F_807F, 0x3C80_3C80_3C80_3C80),
    "fp16": (2, 0x83FF_83FF_83FF_83FF, 0x2400_2400_2400_2400),
}

_TRANSPOSED, _AS_IT_IS, _COMPUTE_32F, _ANY_ALGORITHM = 1, 0, 68, -1
_FROM_HOST, _ON_DEVICE = 1, 3


class About(NamedTuple):
    """The GPU's name, its L2 cache, memory in all and free, how many GPUs there are, the driver's CUDA version."""

    name: str
    l2_bytes: int
    memory_bytes: int
    free_bytes: int
    gpus: int
    driver: int


class Gpu:
    """The first GPU. Raises what cupy raises where there is none or a library is missing."""

    def __init__(self) -> None:
        runtime = cupy.cuda.runtime
        about = runtime.getDeviceProperties(0)
        free, total = runtime.memGetInfo()
        self.about = About(
            about["name"].decode(), about["l2CacheSize"], total, free, runtime.getDeviceCount(),
            runtime.driverGetVersion(),
        )  # fmt: skip
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.handle = cupy.cuda.device.get_cublas_handle()
        self._blocks = about["multiProcessorCount"] * _BLOCKS_PER_PROCESSOR
        self._found = cupy.empty(self._blocks * _THREADS, np.uint64)
        self._flushed = self.words(FLUSHED * self.about.l2_bytes)
        self._reached: set[int] = set()

    def experts(self, hidden: int, intermediate: int, matrices: int, slots: int, dtype: str) -> Experts:
        """The weights of `slots` experts in memory. Raises MemoryError."""
        return Experts(self, hidden, intermediate, matrices, slots, dtype)

    def read(self, size: int, repeats: int) -> list[float]:
        """µs to read `size` bytes from memory, of every run. Raises MemoryError."""
        source = self.words(size)
        return [run[0] for run in self.timed(repeats, lambda _: [partial(self._read, source)])]

    def copy(self, what: str, size: int, repeats: int, peer: int = 0) -> list[float]:
        """µs of a copy of `size` bytes, of every run. what: as `timing` names it · peer: the GPU to copy to.

        Raises MemoryError.
        """
        runtime, stream = cupy.cuda.runtime, self.stream.ptr
        target = self._on_peer(peer, size) if what == COPY_PEER else self.words(size)
        source = cupy.cuda.alloc_pinned_memory(size) if what == COPY_HOST else self.words(size)
        if what == COPY_PEER:
            start = partial(runtime.memcpyPeerAsync, target.data.ptr, peer, source.data.ptr, 0, size, stream)
        elif what == COPY_HOST:
            start = partial(runtime.memcpyAsync, target.data.ptr, source.ptr, size, _FROM_HOST, stream)
        else:
            start = partial(runtime.memcpyAsync, target.data.ptr, source.data.ptr, size, _ON_DEVICE, stream)
        return [run[0] for run in self.timed(repeats, lambda _: [start])]

    def reaches(self, peer: int) -> bool:
        """Whether copies to the GPU `peer` go straight there."""
        return bool(cupy.cuda.runtime.deviceCanAccessPeer(0, peer))

    def words(self, size: int, keep: int = _ALL, ones: int = 0) -> Any:
        """At least `size` bytes on the device, random in the bits of `keep` in every eight. Raises MemoryError."""
        filled = cupy.empty(-(-size // 8), np.uint64)
        with self.stream:
            given = (filled, np.int64(filled.size), *(np.uint64(value) for value in (size, keep, ones)))
            self._launch("fill_words", given)
        return filled

    def timed(self, repeats: int, parts: Callable[[int], list[Callable[[], object]]]) -> list[list[float]]:
        """µs of the parts of every run, one after the other in the stream. parts(run): what is launched."""
        runs = []
        with self.stream:
            for run in range(WARM_UPS + repeats):
                self._read(self._flushed)
                moments = [self._moment()]
                for start in parts(run):
                    start()
                    moments.append(self._moment())
                runs.append(moments)
            self.stream.synchronize()
        elapsed = cupy.cuda.get_elapsed_time
        return [[1e3 * float(elapsed(*pair)) for pair in pairwise(moments)] for moments in runs[WARM_UPS:]]

    def _moment(self) -> Any:
        event = cupy.cuda.Event()
        event.record(self.stream)
        return event

    def _read(self, words: Any) -> None:
        self._launch("read_words", (words, np.int64(words.size), self._found))

    def _launch(self, entry: str, given: tuple[Any, ...]) -> None:
        kernel("words", entry)((self._blocks,), (_THREADS,), given, shared_mem=0)

    def _on_peer(self, peer: int, size: int) -> Any:
        if self.reaches(peer) and peer not in self._reached:
            cupy.cuda.runtime.deviceEnablePeerAccess(peer)
            self._reached.add(peer)
        with cupy.cuda.Device(peer):
            return cupy.empty(-(-size // 8), np.uint64)


class Experts:
    """Expert weights as engines hold them, row-major: up [S, (m-1)·I, H] (gate above up), down [S, H, I].

    A layer is two batched GEMMs over the active slots, each with as many tokens; the second reads its rows where an
    activation in place would have left them, in the first I of (m-1)·I columns. Activation, quantisation and the
    moving of rows are not run.
    """

    def __init__(self, gpu: Gpu, hidden: int, intermediate: int, matrices: int, slots: int, dtype: str) -> None:
        self._gpu, self._hidden, self._intermediate, self._slots = gpu, hidden, intermediate, slots
        self._wide = (matrices - 1) * intermediate
        self._type, *self._bits = _DTYPES[dtype]
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        self.given: Any = None
        self.between: Any = None
        self.out: Any = None
        self._up = gpu.words(2 * slots * self._wide * hidden, *self._bits)
        self._down = gpu.words(2 * slots * hidden * intermediate, *self._bits)

    def times(self, active: int, tokens: int, repeats: int) -> list[list[float]]:
        """[repeats, 2] µs of the first and the second GEMM, with `tokens` in each of `active` slots.

        Raises MemoryError.
        """
        try:
            return self._gpu.timed(repeats, self.layer(active, tokens))
        finally:
            self.given = self.between = self.out = None
            cupy.get_default_memory_pool().free_all_blocks()

    def layer(self, active: int, tokens: int) -> Callable[[int], list[Callable[[], object]]]:
        """The GEMMs of a run, ready to be launched. Raises MemoryError."""
        rows = active * tokens
        self.given = self._gpu.words(2 * rows * self._hidden, *self._bits)
        self.between, self.out = (self._gpu.words(2 * rows * width) for width in (self._wide, self._hidden))

        def parts(run: int) -> list[Callable[[], object]]:
            slot, sizes = self.first_slot(run, active), (active, tokens)
            up, down = (self._wide, self._hidden), (self._hidden, self._intermediate)
            return [
                partial(self._multiply, sizes, self._up, slot, up, self.given, self._hidden, self.between),
                partial(self._multiply, sizes, self._down, slot, down, self.between, self._wide, self.out),
            ]

        return parts

    def first_slot(self, run: int, active: int) -> int:
        """The active slots of a run follow those of the last."""
        return run * active % (self._slots - active + 1)

    def _multiply(
        self, sizes: tuple[int, int], weights: Any, slot: int, shape: tuple[int, int], rows: Any, pitch: int, out: Any
    ) -> None:
        """out[s] [tokens, N] = rows[s] [tokens, first K of pitch] · weights[slot + s] [N, K]^T for every active s."""
        (active, tokens), (wide, deep) = sizes, shape
        # cuBLAS thinks in columns: what is row-major here is the transpose to it.
        cupy.cuda.cublas.gemmStridedBatchedEx(
            self._gpu.handle, _TRANSPOSED, _AS_IT_IS, wide, tokens, deep, self._one.ctypes.data,
            weights.data.ptr + 2 * slot * wide * deep, self._type, deep, wide * deep,
            rows.data.ptr, self._type, pitch, tokens * pitch, self._zero.ctypes.data,
            out.data.ptr, self._type, wide, tokens * wide, active, _COMPUTE_32F, _ANY_ALGORITHM,
        )  # fmt: skip
