"""A `.npy` array from bytes; nothing in it is ever unpickled."""

from __future__ import annotations

import io
import math
import warnings

import numpy as np

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import TraceError

MAGIC = b"\x93NUMPY"


def array_of(blob: bytes, where: str) -> AnyArray:
    """The array that `numpy.save` wrote. Raises `TraceError` for damage, pickled objects and missing or spare bytes."""
    stream = io.BytesIO(blob)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = read(stream)
    # A damaged header may raise anything from inside NumPy and its parsers.
    except Exception as error:
        raise TraceError(
            f"not a .npy array, or damaged ({type(error).__name__})", where=where, fix="store the whole reply"
        ) from error
    if dtype.hasobject:
        raise TraceError("holds pickled objects, which are never read", where=where, fix="store plain numbers")
    data = blob[stream.tell() :]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise TraceError(
            f".npy array of {str(dtype)[:40]} and shape {str(shape)[:80]} with {len(data):,} bytes",
            where=where,
            fix="store the whole reply",
        )
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
