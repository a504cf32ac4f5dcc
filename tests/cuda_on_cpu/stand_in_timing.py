"""What `cupy_timing` uses of cupy beyond the other kernels: cuBLAS, copies and peers, with numpy doing the work.

Pointers are addresses inside arrays that exist, and what reaches beyond its array is refused.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray
from tests.cuda_on_cpu.stand_in import DeviceArray, StandIn, Stream

BF16, FP16 = 14, 2
HOST = -1


class Words(DeviceArray):
    """An array that has an address, on a device."""

    device: int

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.memory.ctypes.data)

    @property
    def size(self) -> int:
        return int(self.memory.size)


class Pinned:
    """Page-locked memory: `size` bytes of sevens."""

    device: int

    def __init__(self, size: int) -> None:
        self.memory = np.full(size, 7, np.uint8)
        self.nbytes = size
        self.ptr = self.memory.ctypes.data


class AddressedStream(Stream):
    """A stream that low-level calls know by a number."""

    @property
    def ptr(self) -> int:
        return id(self)


class TimingStandIn(StandIn):
    """gpus: how many there are · reached: peers that may be copied to · copies: (from, to, bytes) of every one made ·
    multiplied: (batch, m, n, k) of every product."""

    def __init__(self, folder: Path, *, gpus: int = 1, l2_bytes: int = 512) -> None:
        super().__init__(folder, padding=0)
        self._known: weakref.WeakValueDictionary[int, Words | Pinned] = weakref.WeakValueDictionary()
        self.copies: list[tuple[int, int, int]] = []
        self.multiplied: list[tuple[int, int, int, int]] = []
        self.reached: list[int] = []
        self.freed = 0
        self._device = 0
        about = {"name": b"a CPU", "multiProcessorCount": 1, "l2CacheSize": l2_bytes}
        self.cuda.runtime = SimpleNamespace(
            getDeviceCount=lambda: gpus,
            getDeviceProperties=lambda _: about,
            memGetInfo=lambda: (1 << 30, 1 << 31),
            driverGetVersion=lambda: 12080,
            memcpyAsync=self._memcpy,
            memcpyPeerAsync=self._memcpy_peer,
            deviceCanAccessPeer=lambda _, peer: int(peer == 1),
            deviceEnablePeerAccess=self.reached.append,
        )
        self.cuda.Stream = AddressedStream
        self.cuda.Device = self._on
        self.cuda.alloc_pinned_memory = lambda size: self._keep(Pinned(size))
        self.cuda.device = SimpleNamespace(get_cublas_handle=lambda: 77)
        self.cuda.cublas = SimpleNamespace(gemmStridedBatchedEx=self._multiply)

    def empty(self, shape: Any, dtype: Any) -> Words:
        array = Words(shape, dtype, self.padding)
        if array.nbytes > self.memory_bytes:
            raise self.cuda.memory.OutOfMemoryError(f"{array.nbytes} bytes")
        self._keep(array)
        return array

    def get_default_memory_pool(self) -> SimpleNamespace:
        return SimpleNamespace(free_all_blocks=self._free)

    def at(self, address: int, size: int, device: int = 0) -> AnyArray:
        """uint8[size] at an address. Raises ValueError unless one array on the device holds all of it."""
        for start, owner in self._known.items():
            if owner.device == device and start <= address and address + size <= start + owner.nbytes:
                return owner.memory.reshape(-1).view(np.uint8)[address - start :][:size]
        raise ValueError(f"{size} bytes at {address} are in no array")

    def _keep(self, array: Any) -> Any:
        self._known[array.memory.ctypes.data] = array
        array.device = HOST if isinstance(array, Pinned) else self._device
        return array

    @contextmanager
    def _on(self, device: int) -> Iterator[None]:
        self._device, before = device, self._device
        yield
        self._device = before

    def _free(self) -> None:
        self.freed += 1

    def _memcpy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self._copy((to, 0), (source, HOST if kind == 1 else 0), size, stream)

    def _memcpy_peer(self, to: int, to_gpu: int, source: int, source_gpu: int, size: int, stream: int) -> None:
        self._copy((to, to_gpu), (source, source_gpu), size, stream)

    def _copy(self, to: tuple[int, int], source: tuple[int, int], size: int, stream: int) -> None:
        """Address and device of both ends, as the caller says them: each must lie where it says."""
        if stream != id(Stream.current[-1]):
            raise ValueError("the copy is in another stream than the one in use")
        target, given = self.at(to[0], size, to[1]), self.at(source[0], size, source[1])
        self.copies.append((source[1], to[1], size))
        Stream.current[-1].waiting.append(lambda: np.copyto(target, given))

    def _multiply(self, handle: int, transposed: int, plain: int, m: int, n: int, k: int, *given: Any) -> None:
        """C[b] = A[b]^T · B[b] as cuBLAS defines it: column-major, of leading dimensions and strides."""
        one, a, a_type, lda, a_stride, b, b_type, ldb, b_stride, zero, c, c_type, ldc, c_stride, batch, compute, _ = (
            given
        )
        if (handle, transposed, plain, compute) != (77, 1, 0, 68) or not (a_type == b_type == c_type):
            raise ValueError("not a product of one type with sums in float32")
        if (self._host(one), self._host(zero)) != (1.0, 0.0):
            raise ValueError("not the product itself")
        self.multiplied.append((batch, m, n, k))
        left, right = self._columns(a, lda, a_stride, k, m, batch), self._columns(b, ldb, b_stride, k, n, batch)
        out = self._columns(c, ldc, c_stride, m, n, batch)

        def work() -> None:
            for each_left, each_right, each_out in zip(left, right, out, strict=True):
                product = floats(each_left, a_type).T @ floats(each_right, a_type)
                each_out[:] = halves(product, a_type)

        Stream.current[-1].waiting.append(work)

    @staticmethod
    def _host(address: int) -> float:
        return float(ctypes.c_float.from_address(address).value)

    def _columns(self, address: int, leading: int, stride: int, rows: int, columns: int, batch: int) -> list[AnyArray]:
        """Views uint16[rows, columns] of every matrix; one that ends beyond its array is refused."""
        if leading < rows:
            raise ValueError(f"a leading dimension of {leading} for {rows} rows")
        views = []
        for each in range(batch):
            size = 2 * (leading * (columns - 1) + rows)
            flat = self.at(address + 2 * each * stride, size).view(np.uint16)
            views.append(np.lib.stride_tricks.as_strided(flat, (rows, columns), (2, 2 * leading)))
        return views


def floats(bits: AnyArray, kind: int) -> FloatArray:
    """float32 of bfloat16 or float16 bits."""
    if kind == FP16:
        return np.ascontiguousarray(bits).view(np.float16).astype(np.float32)
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32)


def halves(values: FloatArray, kind: int) -> AnyArray:
    """Bits of the nearest float16, or of the bfloat16 next to zero."""
    if kind == FP16:
        return values.astype(np.float16).view(np.uint16)
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
