"""Checks of steps and ids, and the search for warm-up steps, on bare arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import TokenBatch
from easybalance_sim.trace.validation import alike_tokens, check_batch, check_ids, check_steps
from tests.trace_files import random_ids, token_meta

META = token_meta(layers=(10, 20, 30), experts=8, top_k=2)
BIG = np.iinfo(np.int32).max


@pytest.mark.parametrize(
    ("steps", "previous"), [([0, 0, 1, 7], -1), ([3], 3), ([5, 6], 2), ([0, BIG], -1), ([BIG, BIG], BIG)]
)
def test_steps_that_rise_or_stay(steps: list[int], previous: int) -> None:
    check_steps(np.array(steps, np.int32), previous, "f", 0)


@pytest.mark.parametrize(
    ("steps", "previous", "says"),
    [
        ([0, 2, 1], -1, "row 102: step goes back from 2 to 1"),
        ([4, 5], 5, "row 100: step goes back from 5 to 4"),
        ([-1, 0], -1, "row 100: step goes back from 0 to -1"),
        ([BIG, -BIG - 1], -1, f"row 101: step goes back from {BIG} to -{BIG + 1}"),
    ],
)
def test_steps_that_go_back(steps: list[int], previous: int, says: str) -> None:
    with pytest.raises(TraceError, match=f"^f: column step, {says} — sort"):
        check_steps(np.array(steps, np.int32), previous, "f", 100)


def test_rows_of_long_files_are_counted_per_layer() -> None:
    with pytest.raises(TraceError, match="row 106:"):
        check_steps(np.array([0, 2, 1], np.int32), -1, "f", 100, 3)
    ids = random_ids(np.random.default_rng(0), 4, META)
    ids[2, 1] = 7
    with pytest.raises(TraceError, match="row 107, layer 20: expert 7 stands twice"):
        check_ids(frozen(ids), META, "f", 100, 3)


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ([8, 0], r"row 12, layer 20: id 8 is not in 0\.\.7"),
        ([0, 255], r"row 12, layer 20: id 255 is not in 0\.\.7"),
        ([9, 9], r"row 12, layer 20: id 9 is not in 0\.\.7"),
        ([5, 5], "row 12, layer 20: expert 5 stands twice in one top-2"),
    ],
)
def test_bad_ids(chosen: list[int], says: str) -> None:
    ids = random_ids(np.random.default_rng(0), 5, META)
    check_ids(frozen(ids), META, "f", 10)
    ids[2, 1] = chosen
    with pytest.raises(TraceError, match=says) as caught:
        check_batch(batch([0] * 5, ids), META, "f", 10)
    assert caught.value.fix and caught.value.where == "f"


def test_the_first_fault_counts() -> None:
    ids = random_ids(np.random.default_rng(0), 5, META)
    ids[3, 0], ids[1, 2], ids[1, 1] = 8, 9, [4, 4]
    with pytest.raises(TraceError, match="row 1, layer 20: expert 4"):
        check_ids(frozen(ids), META, "f", 0)


def batch(steps: list[int], ids: AnyArray) -> TokenBatch:
    tokens = len(steps)
    return TokenBatch(
        step=frozen(steps, np.int32),
        request=frozen(np.arange(tokens)),
        position=frozen(np.zeros(tokens), np.int32),
        phase=frozen(np.zeros(tokens), np.uint8),
        source_rank=frozen(np.zeros(tokens), np.int16),
        workload=frozen(np.zeros(tokens), np.int16),
        experts=frozen(ids),
    )


def batches(*alike: tuple[int, bool]) -> Iterator[TokenBatch]:
    """One batch per step of (tokens, whether they all carry the same ids)."""
    for step, (tokens, same) in enumerate(alike):
        ids = random_ids(np.random.default_rng(step), tokens, META)
        yield batch([step] * tokens, ids[:1].repeat(tokens, axis=0) if same else ids)


@pytest.mark.parametrize(
    ("steps", "dropped"),
    [
        ([(4, False), (4, True)], 0),
        ([(4, True), (3, False)], 4),
        ([(4, True), (2, True), (3, False), (4, True)], 6),
        ([(4, True), (1, True), (4, True), (4, False)], 4),
        ([(4, True), (4, True)], 8),
        ([(1, True)], 0),
        ([], 0),
    ],
)
def test_what_leads_and_is_alike(steps: list[tuple[int, bool]], dropped: int) -> None:
    assert alike_tokens(batches(*steps)) == dropped


def test_one_layer_that_differs_is_no_warm_up() -> None:
    ids = random_ids(np.random.default_rng(0), 1, META).repeat(3, axis=0)
    ids[2, 2] = ids[2, 2][::-1]
    assert alike_tokens([batch([0, 0, 0], ids), *batches((2, False))]) == 0


def test_a_later_fault_is_not_looked_for_once_traffic_began() -> None:
    def broken() -> Iterator[TokenBatch]:
        yield from batches((3, True), (3, False))
        raise AssertionError("read on")

    assert alike_tokens(broken()) == 3
