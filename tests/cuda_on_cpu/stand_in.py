"""What `cupy_gpu` uses of cupy, on the CPU, as strict as a device.

Copies and kernels wait in their stream until it is synchronised, new memory holds rubbish, a device array is no numpy
array, and a kernel takes only arrays and scalars of exactly its types. Whoever forgets to wait gets wrong numbers here.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from easybalance_sim import kernels
from easybalance_sim.kernels import cuda
from tests.cuda_on_cpu import compiled

HostArray = npt.NDArray[Any]


class OutOfMemoryError(MemoryError):
    """More asked for than `StandIn.memory_bytes`."""


class Stream:
    """Work in the order in which it was given, done when somebody waits for it."""

    current: list[Stream]

    def __init__(self, *, non_blocking: bool = False) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __enter__(self) -> Stream:
        Stream.current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Stream.current.pop()

    def synchronize(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


Stream.current = [Stream()]


class DeviceArray:
    """Memory of the device. padding: bytes that a device would have after it too, so that a kernel with a planted error
    reads zeros instead of ending the program."""

    def __init__(self, shape: Any, dtype: Any, padding: int) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        self._bytes = np.zeros(self.nbytes + padding, np.uint8)
        self._bytes[: self.nbytes] = 0xAB
        self.memory: HostArray = self._bytes[: self.nbytes].view(self.dtype).reshape(self.shape)

    def set(self, values: HostArray, stream: Stream) -> None:
        if values.shape != self.shape or values.dtype != self.dtype:
            raise TypeError(f"{values.dtype}{values.shape} is copied to {self.dtype}{self.shape}")
        stream.waiting.append(lambda: np.copyto(self.memory, values))

    def get(self, stream: Stream | None = None, out: HostArray | None = None) -> HostArray:
        (stream or Stream.current[-1]).synchronize()
        if out is None:
            return self.memory.copy()
        if out.shape != self.shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise TypeError(f"{self.dtype}{self.shape} is copied to {out.dtype}{out.shape}")
        np.copyto(out, self.memory)
        return out

    def __array__(self, *_: object, **__: object) -> HostArray:
        raise TypeError("a device array is not a numpy array")


class Event:
    """A moment in a stream."""

    def __init__(self) -> None:
        self.time_s = float("nan")

    def record(self, stream: Stream) -> None:
        self._stream = stream
        self._stream.waiting.append(self._pass)

    def synchronize(self) -> None:
        self._stream.synchronize()

    def _pass(self) -> None:
        self.time_s = time.perf_counter()


class StandIn:
    """The module's names.

    seed: of the order of threads · memory_bytes: of one allocation, above that there is none ·
    launches: kernels by name · plant: what becomes of a source before it is compiled.
    """

    def __init__(self, folder: Path, *, seed: int = 0, padding: int = 4096, flags: tuple[str, ...] = ()) -> None:
        self.folder, self.seed, self.padding, self.flags = folder, seed, padding, flags
        self.memory_bytes = 1 << 40
        self.launches: list[str] = []
        self.plant: Callable[[str], str] = lambda source: source
        about = {"name": b"a CPU", "multiProcessorCount": 2, "sharedMemPerMultiprocessor": 100 << 10}
        runtime = SimpleNamespace(getDeviceCount=lambda: 1, getDeviceProperties=lambda _: about)
        self.cuda = SimpleNamespace(
            Stream=Stream,
            alloc_pinned_memory=bytearray,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            runtime=runtime,
            Event=Event,
            get_current_stream=lambda: Stream.current[-1],
            get_elapsed_time=lambda begin, end: 1e3 * (end.time_s - begin.time_s),
        )

    def empty(self, shape: Any, dtype: Any) -> DeviceArray:
        array = DeviceArray(shape, dtype, self.padding)
        if array.nbytes > self.memory_bytes:
            raise OutOfMemoryError(f"{array.nbytes} bytes")
        return array

    def zeros(self, shape: Any, dtype: Any) -> DeviceArray:
        array = self.empty(shape, dtype)
        Stream.current[-1].waiting.append(lambda: array.memory.fill(0))
        return array

    def asarray(self, values: HostArray) -> DeviceArray:
        array = self.empty(values.shape, values.dtype)
        array.set(values.copy(), Stream.current[-1])
        return array

    def copyto(self, target: DeviceArray, source: DeviceArray) -> None:
        Stream.current[-1].waiting.append(lambda: np.copyto(target.memory, source.memory))

    def get_default_memory_pool(self) -> SimpleNamespace:
        return SimpleNamespace(free_all_blocks=lambda: None)

    def RawModule(self, *, code: str, options: tuple[str, ...]) -> SimpleNamespace:  # noqa: N802 — cupy's name
        if options != cuda.OPTIONS:
            raise ValueError(f"compiled with {options}")
        entries = compiled.build(self.plant(code), self.folder, self.flags)
        return SimpleNamespace(compile=lambda: None, get_function=lambda name: self._queued(name, entries[name]))

    def _queued(self, name: str, kernel: compiled.Kernel) -> Callable[..., None]:
        def launch(grid: tuple[int], block: tuple[int], given: tuple[Any, ...], *, shared_mem: int) -> None:
            memory = tuple(each.memory if isinstance(each, DeviceArray) else each for each in given)
            self.launches.append(name)
            Stream.current[-1].waiting.append(lambda: kernel(*grid, *block, shared_mem, self.seed, memory))

        return launch


@contextmanager
def gpu_kernels(stand_in: Any) -> Iterator[ModuleType]:
    """`cupy_gpu` as it is with the stand-in for cupy; afterwards both are as before, and a GPU is looked for anew."""
    ours = "easybalance_sim.kernels.cupy_"
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if name == "cupy" or name.startswith(ours)}
    sys.modules["cupy"] = stand_in
    try:
        yield importlib.import_module("easybalance_sim.kernels.cupy_gpu")
    finally:
        for name in [name for name in sys.modules if name == "cupy" or name.startswith(ours)]:
            del sys.modules[name]
        sys.modules.update(before)
        kernels.gpu_fault.cache_clear()
