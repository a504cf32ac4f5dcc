"""Splits: which side a request is on, near the wanted share, the same for one seed, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen, stream
from easybalance_sim.errors import UsageError
from easybalance_sim.load.split import FIT, HELD_OUT, MODES, Split, make_split
from easybalance_sim.trace.scan import TraceScan
from easybalance_sim.trace.schema import TokenBatch
from tests.trace_files import scanned

WORKLOADS = ("(none)", "chat", "code", "math")


def batch(step: AnyArray, request: AnyArray, workload: AnyArray | None = None) -> TokenBatch:
    tokens = len(step)
    return TokenBatch(
        step=frozen(step, np.int32),
        request=frozen(request, np.int64),
        position=frozen(np.zeros(tokens), np.int32),
        phase=frozen(np.zeros(tokens), np.uint8),
        source_rank=frozen(np.zeros(tokens), np.int16),
        workload=frozen(np.zeros(tokens) if workload is None else workload, np.int16),
        experts=frozen(np.zeros((tokens, 0, 0)), np.uint8),
    )


def queue(requests: int = 200, length: int = 10, first_step: int = 0) -> TokenBatch:
    """One request begins per step and lives `length` steps; ids leave gaps; three workloads in turn."""
    request = np.repeat(np.arange(requests), length)
    step = request + np.tile(np.arange(length), requests) + first_step
    order = np.argsort(step, kind="stable")
    return batch(step[order], request[order] * 7 - 30, request[order] % 3 + 1)


def split_of(traffic: TokenBatch, by: str, held_out: float = 0.5, seed: int = 0, window_steps: int = 1) -> Split:
    return make_split(scan_of(traffic), WORKLOADS, by, held_out, seed, window_steps)


def scan_of(traffic: TokenBatch) -> TraceScan:
    return scanned([traffic])


def sides(split: Split, traffic: TokenBatch) -> tuple[AnyArray, AnyArray]:
    return split.mask(traffic, FIT), split.mask(traffic, HELD_OUT)


@pytest.mark.parametrize("by", MODES)
def test_no_request_on_both_sides(by: str) -> None:
    traffic = queue()
    fit, held = sides(split_of(traffic, by), traffic)
    assert fit.any() and held.any() and not (fit & held).any()
    assert not set(traffic.request[fit]) & set(traffic.request[held])


@pytest.mark.parametrize("by", ["request", "workload"])
def test_every_token_has_a_side_unless_split_by_time(by: str) -> None:
    fit, held = sides(split_of(queue(), by), queue())
    assert (fit | held).all()


@pytest.mark.parametrize("held_out", [0.1, 0.5, 0.8])
def test_share_of_the_held_out_side(held_out: float) -> None:
    traffic = queue()
    _, held = sides(split_of(traffic, "request", held_out), traffic)
    assert held.mean() == pytest.approx(held_out, abs=0.005)
    split = split_of(traffic, "time", held_out)
    assert (209 - split.boundary) / 209 == pytest.approx(held_out, abs=0.01)


def test_whole_workloads_of_about_the_wanted_share() -> None:
    traffic = queue()
    for held_out, workloads in ((0.05, 1), (0.34, 2), (0.6, 2), (0.99, 2)):
        _, held = sides(split_of(traffic, "workload", held_out), traffic)
        assert len(set(traffic.workload[held].tolist())) == workloads
        assert not set(traffic.workload[held].tolist()) & set(traffic.workload[~held].tolist())


def test_time_split_by_hand() -> None:
    """Requests 0 (steps 0-3), 1 (2-5), 2 (6-7): at the boundary 4, request 1 is alive, so its steps 2, 3 are unused."""
    traffic = batch(np.array([0, 1, 2, 2, 3, 3, 4, 5, 6, 7]), np.array([0, 0, 0, 1, 0, 1, 1, 1, 2, 2]))
    split = split_of(traffic, "time")
    fit, held = sides(split, traffic)
    assert split.boundary == 4
    assert np.flatnonzero(fit).tolist() == [0, 1, 2, 4]
    assert np.flatnonzero(held).tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize("first_step", [0, 3, 1000])
def test_boundary_between_windows(first_step: int) -> None:
    split = split_of(queue(first_step=first_step), "time", window_steps=16)
    assert split.boundary % 16 == 0
    assert abs(split.boundary - first_step - 104) <= 16


def test_ids_with_and_without_gaps_are_found() -> None:
    traffic = queue()
    dense = batch(traffic.step, (traffic.request + 30) // 7, traffic.workload)
    for by in MODES:
        for with_gaps, without in zip(
            sides(split_of(traffic, by), traffic), sides(split_of(dense, by), dense), strict=True
        ):
            np.testing.assert_array_equal(with_gaps, without)


@pytest.mark.parametrize("by", ["request", "workload"])
def test_the_seed_decides(by: str) -> None:
    traffic = queue()
    found = [split_of(traffic, by, 0.3, seed).side.tolist() for seed in (*range(8), *range(8))]
    assert found[:8] == found[8:]
    assert len({tuple(side) for side in found}) > 1


def test_the_split_does_not_follow_the_shuffle() -> None:
    """With one seed the order of the queue and the sides must be independent, or the fit side is its first part."""
    for seed in range(3):
        assert not np.array_equal(stream(seed, "split").permutation(200), np.random.default_rng(seed).permutation(200))
        assert not np.array_equal(stream(seed, "split").random(9), stream(seed, "shuffle").random(9))
    assert np.array_equal(stream(1, "split").random(9), stream(1, "split").random(9))


@pytest.mark.parametrize(
    ("traffic", "by", "held_out", "says"),
    [
        (queue(), "layer", 0.5, r"no split 'layer' — choose time, request, workload"),
        (queue(), "time", 0.0, "held-out share 0 is not between 0 and 1"),
        (queue(), "time", 1.0, "held-out share 1 is not"),
        (queue(), "time", float("nan"), "held-out share nan is not"),
        (queue(3), "request", 0.1, "the split by request leaves no request of 3 on the held-out side"),
        (queue(3), "request", 0.9, "no request of 3 on the fit side"),
        (queue(1), "request", 0.5, "leaves no request of 1"),
        (queue(3, length=90), "time", 0.5, "the split by time leaves no request of 3 on the fit side"),
        (batch(np.arange(9), np.arange(9), np.full(9, 2)), "workload", 0.5, r"only one workload \(code\)"),
    ],
)
def test_splits_that_cannot_be_made(traffic: TokenBatch, by: str, held_out: float, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        split_of(traffic, by, held_out)


@pytest.mark.parametrize("by", ["request", "workload"])
@pytest.mark.parametrize("chosen", [(1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_only_the_chosen_workloads_are_divided(by: str, chosen: tuple[int, ...], seed: int) -> None:
    """Divided together with the others, all of what was asked for can end on one side."""
    traffic = queue()
    split = make_split(scan_of(traffic), WORKLOADS, by, 0.5, seed, 16, chosen)
    fit, held = sides(split, traffic)
    assert not (fit & held).any()
    np.testing.assert_array_equal(fit | held, np.isin(traffic.workload, chosen))
    assert held.sum() / (fit | held).sum() == pytest.approx(0.5, abs=0.02)


def test_the_boundary_in_time_is_that_of_the_trace() -> None:
    """So that plans for different workloads are made from the same past."""
    traffic = queue()
    boundary = split_of(traffic, "time").boundary
    split = make_split(scan_of(traffic), WORKLOADS, "time", 0.5, 0, 1, (2,))
    fit, held = sides(split, traffic)
    assert split.boundary == boundary and fit.any() and held.any()
    assert set(traffic.workload[fit | held].tolist()) == {2}
    late = batch(traffic.step, traffic.request, np.where(traffic.step > 150, 2, 1))
    with pytest.raises(UsageError, match=r"by time leaves no request of \d+ on the fit side"):
        make_split(scan_of(late), WORKLOADS, "time", 0.5, 0, 1, (2,))
