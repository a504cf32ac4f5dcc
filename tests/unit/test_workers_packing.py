"""What is packed comes back equal, and read-only arrays come back read-only."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.errors import TraceError
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.workers.packing import pack, unpack
from tests.replay_cases import random_plan


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "float16", "float64", "bool"])
@pytest.mark.parametrize("shape", [(0,), (5,), (2, 3, 4), (0, 3)])
def test_read_only_arrays_stay_read_only(dtype: str, shape: tuple[int, ...]) -> None:
    array = frozen(np.random.default_rng(0).integers(0, 2, shape), dtype)
    found = unpack(pack({"a": [array]}))["a"][0]
    assert found.dtype == array.dtype and not found.flags.writeable and found.flags.c_contiguous
    np.testing.assert_array_equal(found, array)


def test_a_view_is_packed_as_it_looks() -> None:
    array = frozen(np.arange(24).reshape(4, 6))[::2, 1:5].T
    found = unpack(pack(array))
    np.testing.assert_array_equal(found, array)
    assert not found.flags.writeable


def test_writable_arrays_stay_writable() -> None:
    found = unpack(pack(np.arange(3)))
    found[0] = 7
    assert found.tolist() == [7, 1, 2]


def test_values_of_ours_and_work_on_them() -> None:
    plan = random_plan(0, 2, 8, [3, 3, 3])
    again = unpack(pack(plan))
    assert again.expert_of_slot.tolist() == plan.expert_of_slot.tolist()
    assert not again.expert_of_slot.flags.writeable and not again.replica_slot.flags.writeable
    windows = LoadWindows(
        tokens=np.ones((2, 1, 3), np.int64), window=np.arange(2), steps=np.ones(2, np.int32), steps_per_window=16
    )
    again_windows = unpack(pack(partial(sum, [windows])))
    assert again_windows.args[0][0].tokens.tolist() == windows.tokens.tolist()
    assert not again_windows.args[0][0].tokens.flags.writeable


def test_errors_keep_their_parts() -> None:
    """They cross from worker to caller."""
    error = pickle.loads(pickle.dumps(TraceError("what", where="where", fix="fix")))
    assert (error.what, error.where, error.fix, str(error)) == ("what", "where", "fix", "where: what — fix")
