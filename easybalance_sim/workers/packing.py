"""Work and results as bytes, with read-only arrays that come out read-only.

Compiled kernels take read-only arrays for another type than writable ones; pickle alone makes every array writable, so
a worker would compile all of them once more.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray


def pack(value: Any) -> bytes:
    """The value as bytes, for `unpack`."""
    stream = io.BytesIO()
    _Packer(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def unpack(packed: bytes) -> Any:
    """What was packed. Only for bytes of one's own: pickle runs what it is told to."""
    return pickle.loads(packed)


class _Packer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or value.flags.writeable or value.dtype.hasobject:
            return NotImplemented
        return _sealed, (value.tobytes(), value.dtype.str, value.shape)


def _sealed(data: bytes, dtype: str, shape: tuple[int, ...]) -> AnyArray:
    array: AnyArray = np.frombuffer(data, dtype).reshape(shape)
    return array
