"""Axis letters, dtype aliases and the one place where arrays are checked and made read-only.

T tokens · K top-k · W windows (or steps) · L MoE layers · E logical experts · P physical slots · R ranks ·
S slots per rank · N nodes (NVLink domains) · G expert groups · C candidate plans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from easybalance_sim.errors import EbsimError

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int16Array = npt.NDArray[np.int16]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]


def frozen(values: Any, dtype: npt.DTypeLike | None = None) -> AnyArray:
    """A C-contiguous read-only array; copies only when the input is writable or has another layout."""
    array: AnyArray = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        shared = isinstance(values, np.ndarray) and np.may_share_memory(array, values)
        array = sealed(array.copy() if shared else array)
    return array


def sealed(array: AnyArray) -> AnyArray:
    """The same array marked read-only, for one that nobody else holds."""
    if array.flags.writeable:
        array.flags.writeable = False
    return array


def require_shape(name: str, array: AnyArray, shape: tuple[int | None, ...]) -> None:
    """Raise `EbsimError` unless `array` has `shape`; None stands for any length."""
    fits = array.ndim == len(shape) and all(w is None or w == g for w, g in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = "×".join("any" if n is None else str(n) for n in shape)
        got = "×".join(str(n) for n in array.shape)
        raise EbsimError(f"array has shape {got}, expected {wanted}", where=name)


def numbers_at(seed: int, purpose: str, first: int, count: int) -> FloatArray:
    """float64[count] in [0, 1) of one purpose: those at places `first` and on of an endless row, whoever asks."""
    per_block = 4
    source = np.random.Philox(np.random.SeedSequence([seed, *purpose.encode()])).advance(first // per_block)
    skipped = first % per_block
    return np.random.Generator(source).random(skipped + count)[skipped:]


def mixed(numbers: IntArray) -> AnyArray:
    """uint64[…] well-mixed bits of each number ≥ 0 (the finaliser of MurmurHash3, Appleby 2011): for choices without a
    rhythm that everybody makes alike."""
    x: AnyArray = np.asarray(numbers).astype(np.uint64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    bits: AnyArray = x ^ (x >> np.uint64(33))
    return bits


def stream(seed: int, purpose: str) -> np.random.Generator:
    """The random numbers of one purpose: with one seed, two purposes never draw the same permutation."""
    return np.random.default_rng([seed, *purpose.encode()])
