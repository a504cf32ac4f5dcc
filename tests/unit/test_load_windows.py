"""`LoadWindows` by hand: sums of shards, picks, the trailing window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import EbsimError
from easybalance_sim.load.windows import LoadWindows


def windows(ids: list[int], steps: list[int] | None = None, per_window: int = 4, **more: Any) -> LoadWindows:
    """Window w holds w + 1 tokens in every cell of [2, 3]."""
    tokens = np.array(ids)[:, None, None] + np.ones((len(ids), 2, 3), np.int64)
    return LoadWindows(
        tokens=tokens,
        window=np.array(ids),
        steps=np.array([4] * len(ids) if steps is None else steps),
        steps_per_window=per_window,
        **more,
    )


def test_values_are_read_only_copies() -> None:
    tokens = np.ones((1, 2, 3), np.int64)
    made = LoadWindows(tokens=tokens, window=np.array([5]), steps=np.array([4]), steps_per_window=4)
    tokens[:] = 9
    assert made.tokens.sum() == 6 and not made.tokens.flags.writeable and made.steps.dtype == np.int32


def test_shards_that_share_a_window() -> None:
    both = windows([1, 4], [4, 2]) + windows([0, 4, 7], [1, 1, 4])
    assert both.window.tolist() == [0, 1, 4, 7]
    assert both.steps.tolist() == [1, 4, 3, 4]
    assert both.tokens[:, 0, 0].tolist() == [1, 2, 10, 8]


@pytest.mark.parametrize(
    "other",
    [
        windows([0], per_window=8),
        windows([0], phase="decode"),
        windows([0], workload="chat"),
        LoadWindows(tokens=np.ones((1, 3, 2), np.int64), window=np.array([0]), steps=np.array([4]), steps_per_window=4),
    ],
)
def test_shards_that_do_not_fit(other: LoadWindows) -> None:
    with pytest.raises(EbsimError, match="shards differ"):
        windows([0]) + other


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tokens": np.ones((2, 3))}, r"tokens must be \[W, L, E\]"),
        ({"window": np.array([1])}, "one window id and step count per window"),
        ({"steps": np.array([1])}, "one window id and step count per window"),
        ({"window": np.array([3, 3])}, "window ids must rise, each once"),
        ({"window": np.array([3, 2])}, "window ids must rise, each once"),
    ],
)
def test_windows_that_are_none(changes: dict[str, Any], says: str) -> None:
    known = {"tokens": np.ones((2, 1, 3)), "window": np.array([0, 1]), "steps": np.array([1, 1])}
    with pytest.raises(EbsimError, match=says):
        LoadWindows(**(known | changes), steps_per_window=4)


def test_pick_by_mask_or_slice() -> None:
    made = windows([2, 3, 9], [1, 2, 3], phase="decode", workload="chat")
    for kept in (made.pick(np.array([True, False, True])), made.pick(slice(0, 3, 2))):
        assert (kept.window.tolist(), kept.steps.tolist()) == ([2, 9], [1, 3])
        assert kept.tokens[:, 1, 1].tolist() == [3, 10]
        assert (kept.phase, kept.workload, kept.steps_per_window) == ("decode", "chat", 4)


@pytest.mark.parametrize(
    ("steps", "per_window", "kept"),
    [
        ([4, 4, 3], 4, 2),
        ([4, 4, 4], 4, 3),
        ([2, 2, 2], 4, 3),
        ([2, 3, 2], 4, 2),
        ([1], 4, 1),
        ([10, 12, 11, 6], 0, 3),
        ([10, 12, 11, 11], 0, 4),
        ([3, 3], 0, 2),
        ([2], 0, 1),
    ],
)
def test_a_trailing_window_cut_short(steps: list[int], per_window: int, kept: int) -> None:
    made = windows(list(range(len(steps))), steps, per_window).full_only()
    assert made.window.tolist() == list(range(kept))
