"""Reads arrays from `.npy`, `.npz`, `.safetensors` and `.pt` files; nothing in them is ever unpickled."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.errors import EbsimError, TraceError
from easybalance_sim.trace.npy_bytes import MAGIC
from easybalance_sim.trace.torch_files import read_pt

READABLE = (".npy", ".npz", ".pt", ".safetensors")
_MOST_UNPACKED_BYTES = 2**34
"""Of a .npz: its few bytes may stand for any number of zeros."""
_MOST = 2**45
"""Of one expert: so that ranks and replicas of a damaged file cannot add up to more than 64 bits."""


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """The arrays of a file by name; one that has no name in its format is called "".

    Raises `TraceError` for another ending, a damaged file and one with pickled objects.
    """
    where = str(path)
    if path.suffix not in READABLE:
        raise TraceError(f"{path.suffix or 'no'} ending", where=where, fix=f"give one of {', '.join(READABLE)}")
    if not path.is_file():
        raise TraceError("no such file", where=where, fix="check the path")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _read(path)
    except EbsimError:
        raise
    # A damaged header may raise anything from inside NumPy and its parsers.
    except Exception as error:
        raise TraceError(
            f"not a {path.suffix} file of plain arrays, or damaged ({type(error).__name__})",
            where=where,
            fix="write it again; pickled objects are never read",
        ) from error


def read_only_array(path: Path) -> AnyArray:
    """The single array of a file. Raises `TraceError` when it holds none or several."""
    arrays = read_arrays(path)
    if len(arrays) != 1:
        names = ", ".join(sorted(arrays)) or "none"
        raise TraceError(f"holds {len(arrays)} arrays ({names}), expected one", where=str(path), fix="keep one")
    return next(iter(arrays.values()))


def as_counts(values: Any, where: str, what: str = "counts") -> IntArray:
    """int64[…] of numbers that must be whole, 0 to 2^45. Raises `TraceError` naming the first that is not."""
    if not isinstance(values, np.ndarray):
        raise TraceError(f"{what}: no array", where=where, fix="record it again")
    array: AnyArray = values
    if array.dtype.kind not in "iuf":
        raise TraceError(f"{what}: numbers of type {array.dtype}", where=where, fix="record whole numbers")
    bad = np.argwhere(_no_counts(array))
    if len(bad):
        place = tuple(int(n) for n in bad[0])
        raise TraceError(f"{what}{list(place)}: {array[place]} is not a count", where=where, fix="record it again")
    return array.astype(np.int64)


def _no_counts(array: AnyArray) -> AnyArray:
    odd: AnyArray = ~(array >= 0) | (array > _MOST)
    return odd if array.dtype.kind in "iu" else odd | (array != np.floor(array))


def _read(path: Path) -> dict[str, AnyArray]:
    if path.suffix == ".pt":
        return _of_pt(read_pt(path), str(path))
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return dict(load_file(path))
    if path.suffix == ".npy":
        _require_magic(path)
        # Mapped: a damaged shape must not ask for more memory than the file has bytes.
        return {"": np.array(np.load(path, mmap_mode="r", allow_pickle=False))}
    # NumPy leaves a file that it opened itself open when it is damaged.
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as members:
        unpacked = sum(member.file_size for member in members.zip.infolist())
        if unpacked > _MOST_UNPACKED_BYTES:
            raise TraceError(
                f"unpacks to {unpacked / 1e9:.0f} GB", where=str(path), fix="split it, or give arrays as .npy"
            )
        return {name: np.asarray(members[name]) for name in members.files}


def _require_magic(path: Path) -> None:
    """NumPy opens an archive under the name .npy too, and leaves it open when it is damaged."""
    with path.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ValueError("no .npy array")


def _of_pt(content: Any, where: str) -> dict[str, AnyArray]:
    found = content if isinstance(content, dict) else {"": content}
    if not all(isinstance(name, str) and isinstance(value, np.ndarray) for name, value in found.items()):
        raise TraceError("holds more than tensors", where=where, fix="save one tensor, or a dictionary of tensors")
    return found
