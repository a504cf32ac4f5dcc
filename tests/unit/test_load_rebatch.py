"""Requests queued again in topic order: who stands next to whom, and which windows come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.load import rebatch
from easybalance_sim.load.rebatch import Queue, feature_layers, queue_again, queue_of, sampled_requests, topic_order
from easybalance_sim.trace.schema import TokenBatch
from tests.replay_cases import batch_of
from tests.skewed_traces import EXPERTS, LIFE, SLOTS, TOP_K, skewed_columns
from tests.trace_files import Columns, scanned, token_meta


def usage_of_topics(seed: int, topic: AnyArray, experts: int = 40) -> AnyArray:
    """float64[Q, D] counts; each topic has its own eight experts."""
    rng = np.random.default_rng(seed)
    weight = np.full((topic.max() + 1, experts), 1.0)
    for row in range(len(weight)):
        weight[row, 8 * row : 8 * row + 8] = 12
    share = weight / weight.sum(axis=1, keepdims=True)
    return rng.multinomial(200, share[topic]).astype(np.float64)


@pytest.mark.parametrize("seed", range(4))
def test_requests_of_a_topic_become_neighbours(seed: int) -> None:
    topic = np.random.default_rng(seed).permutation(np.repeat(np.arange(5), 30))
    order = topic_order(usage_of_topics(seed, topic), seed)
    assert sorted(order.tolist()) == list(range(150))
    assert np.count_nonzero(np.diff(topic)) > 80
    # Six clusters for five topics: at most one topic is cut in two.
    assert np.count_nonzero(np.diff(topic[order])) <= 5


@pytest.mark.parametrize("shape", [(30, 8), (30, 20), (20, 30)], ids=["few experts", "tall", "wide"])
def test_components_are_the_leading_ones_whichever_side_is_shorter(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).normal(size=shape)
    left, size, _ = np.linalg.svd(rows, full_matrices=False)
    wanted = (left * size)[:, : rebatch.COMPONENTS]
    found = rebatch._components(rows)
    assert np.abs(found) == pytest.approx(np.abs(wanted))


def test_the_order_is_the_seeds() -> None:
    usage = usage_of_topics(0, np.arange(60) % 5)
    assert topic_order(usage, 3).tolist() == topic_order(usage, 3).tolist()
    assert topic_order(usage, 3).tolist() != topic_order(usage, 4).tolist()


@pytest.mark.parametrize(
    "usage",
    [np.ones((10, 8)), np.ones((2, 8)), np.zeros((5, 8)), np.repeat(np.eye(2), 10, axis=0), np.eye(3)],
    ids=["alike", "two alike", "no tokens", "two kinds", "fewer than clusters"],
)
def test_few_kinds_of_requests_are_no_trouble(usage: AnyArray) -> None:
    order = topic_order(usage, 0)
    assert sorted(order.tolist()) == list(range(len(usage)))
    assert np.count_nonzero(np.diff(usage.argmax(axis=1)[order])) <= len(np.unique(usage, axis=0)) - 1


def test_feature_layers_are_spread_and_few() -> None:
    assert feature_layers(24, 32).tolist() == list(range(24))
    assert feature_layers(58, 256).tolist() == np.linspace(0, 57, 16).round().tolist()
    assert feature_layers(3, 10_000).tolist() == [0]


def test_at_most_2048_requests_are_queued_again() -> None:
    few, many = np.arange(5, dtype=np.int64), np.arange(0, 9000, 3, dtype=np.int64)
    assert sampled_requests(few, 0).tolist() == few.tolist()
    chosen = sampled_requests(many, 0)
    assert len(chosen) == len(set(chosen.tolist())) == 2048
    assert (np.diff(chosen) > 0).all() and set(chosen.tolist()) <= set(many.tolist())
    assert chosen.tolist() == sampled_requests(many, 0).tolist() != sampled_requests(many, 1).tolist()


def test_a_queue_worked_out_by_hand() -> None:
    """Lives 3, 1, 2, 4 steps; queue 3, 0, 2, 1 with two at once: 3 in 0-3, 0 in 0-2, 2 in 3-4, 1 in 4; then a slot
    is empty from step 5 on."""
    again = queue_again(
        np.array([3, 0, 2, 1]), np.array([10, 11, 12, 13]), np.array([5, 7, 0, 2]), np.array([7, 7, 1, 5]), 2
    )
    assert again.steps == 5
    assert (again.shift + np.array([5, 7, 0, 2])).tolist() == [0, 4, 3, 0]
    found = again.new_steps(np.array([13, 10, 99, 12, 9]), np.array([5, 6, 0, 1, 0], np.int32))
    assert found.tolist() == [3, 1, -1, 4, -1]


def batches_of(columns: Columns, parts: int = 3) -> Iterator[TokenBatch]:
    """Whole steps, in some batches."""
    for steps in np.array_split(np.unique(columns["step"]), parts):
        rows = np.isin(columns["step"], steps)
        yield batch_of(
            columns["step"][rows], columns["source_rank"][rows], columns["experts"][rows],
            request=columns["request"][rows],
        )  # fmt: skip


def queue(columns: Columns, requests: IntArray, seed: int = 0) -> Queue | None:
    meta = token_meta((3, 5), EXPERTS, TOP_K)
    scan = scanned(batches_of(columns))
    steps = len(np.unique(columns["step"][np.isin(columns["request"], requests)]))
    return queue_of(
        lambda work, _: [work([batch]) for batch in batches_of(columns)],
        meta,
        scan,
        frozen(requests, np.int64),
        steps,
        seed,
    )


def again(columns: Columns, requests: IntArray, n: int, seed: int = 0) -> AnyArray:
    """All windows of the topic order."""
    ready = queue(columns, requests, seed)
    assert ready is not None
    (found,) = ready.windows([(ready.topics, n)], 10_000)
    return found


@pytest.fixture(scope="module")
def columns() -> Columns:
    return skewed_columns(96)


@pytest.mark.parametrize("n", [1, 16])
def test_windows_are_full_and_hold_the_requests_own_tokens(columns: Columns, n: int) -> None:
    requests = np.unique(columns["request"])
    found = again(columns, requests, n)
    assert found.shape[1:] == (2, EXPERTS)
    # Requests whose life is cut by the trace's ends leave the batch a little short of 32 at once, or over.
    at_once = found.sum(axis=2) / TOP_K / n
    assert len(np.unique(at_once)) == 1 and abs(at_once[0, 0] - SLOTS) <= 1
    recorded = np.stack([np.bincount(columns["experts"][:, row].ravel(), minlength=EXPERTS) for row in range(2)])
    assert (found.sum(axis=0) <= recorded).all()
    assert found.sum() > 0.8 * recorded.sum()


def test_windows_equal_a_naive_count(columns: Columns, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same order, walked request by request."""
    requests = np.unique(columns["request"])[5:200:2]
    orders: list[IntArray] = []
    real = rebatch.topic_order

    def remembered(usage: AnyArray, seed: int) -> IntArray:
        orders.append(real(usage, seed))
        return orders[-1]

    monkeypatch.setattr(rebatch, "topic_order", remembered)
    found = again(columns, requests, 4)
    wanted, free = np.zeros_like(found), [0] * round(found[0, 0].sum() / TOP_K / 4)
    for request in requests[orders[0]]:
        rows = np.flatnonzero(columns["request"] == request)
        slot = int(np.argmin(free))
        for row in rows:
            step = free[slot] + columns["step"][row] - columns["step"][rows[0]]
            if step // 4 < len(wanted):
                for layer in range(2):
                    wanted[step // 4, layer, columns["experts"][row, layer]] += 1
        free[slot] += len(rows)
    assert len(found) == min(free) // 4
    np.testing.assert_array_equal(found, wanted)


def test_topic_order_makes_windows_of_one_workload() -> None:
    """Hot experts 0-3 or 8-11: recorded windows have both in equal parts, re-batched ones mostly one."""
    columns = skewed_columns(160)
    found = again(columns, np.unique(columns["request"]), 4)
    left = found[:, :, 0:4].sum(axis=(1, 2)) / (found[:, :, 0:4] + found[:, :, 8:12]).sum(axis=(1, 2))
    assert np.abs(left - 0.5).mean() > 0.2


def test_one_request_or_no_full_window_give_none(columns: Columns) -> None:
    requests = np.unique(columns["request"])
    assert queue(columns, requests[:1]) is None
    assert again(columns, requests[40:80], 10 * LIFE).shape == (0, 2, EXPERTS)


def test_a_sample_of_requests_keeps_the_batch_as_full(columns: Columns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebatch, "MOST_REQUESTS", 200)
    requests = np.unique(columns["request"])
    assert len(requests) > 400
    found = again(columns, requests, 1)
    assert abs(found[0, 0].sum() / TOP_K - SLOTS) <= 1
    assert 0 < len(found) < 96 / 2


def test_few_of_many_windows_are_spread_evenly_and_counted_whole(columns: Columns) -> None:
    ready = queue(columns, np.unique(columns["request"]))
    assert ready is not None
    whole, few = (ready.windows([(ready.topics, 4)], most)[0] for most in (10_000, 5))
    kept = np.linspace(0, len(whole) - 1, 5).round().astype(int)
    np.testing.assert_array_equal(few, whole[kept])


def test_orders_of_some_requests_hold_their_tokens_alone(columns: Columns) -> None:
    """Several orders in one pass give what each gives alone."""
    ready = queue(columns, np.unique(columns["request"]))
    assert ready is not None
    half = np.sort(ready.at_random(np.arange(len(ready.request)), 0)[: len(ready.request) // 2])
    orders = [ready.at_random(half, 1), ready.by_topic(half)]
    together = ready.windows([(order, 4) for order in orders], 10_000)
    assert sorted(orders[1].tolist()) == half.tolist()
    mine = np.isin(columns["request"], ready.request[half])
    held = np.stack([np.bincount(columns["experts"][mine, row].ravel(), minlength=EXPERTS) for row in range(2)])
    for order, found in zip(orders, together, strict=True):
        np.testing.assert_array_equal(ready.windows([(order, 4)], 10_000)[0], found)
        assert (found.sum(axis=0) <= held).all() and found.sum() > 0.6 * held.sum()


@pytest.mark.parametrize(("recorded", "most"), [(5, 40), (24, 40), (500, 40)])
def test_a_quarter_in_topic_order_and_random_orders_fill_up(columns: Columns, recorded: int, most: int) -> None:
    ready = queue(columns, np.unique(columns["request"]))
    assert ready is not None
    found = ready.rebatched(recorded, 2, most)
    assert len(found) == most - min(recorded, most // 2)
    np.testing.assert_array_equal(found[: most // 4], ready.windows([(ready.topics, 2)], most // 4)[0])


@pytest.mark.parametrize(
    ("recorded", "most", "orders"), [(500, 40, 2), (20, 40, 2), (15, 40, 3), (0, 40, 4), (0, 4000, 5)]
)
def test_only_orders_that_are_needed_are_counted(
    columns: Columns, recorded: int, most: int, orders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, windows = queue(columns, np.unique(columns["request"])), Queue.windows
    assert ready is not None
    asked: list[int] = []

    def counted(self: Queue, runs: Sequence[tuple[IntArray, int]], most: int) -> list[IntArray]:
        asked.append(len(runs))
        return windows(self, runs, most)

    monkeypatch.setattr(Queue, "windows", counted)
    ready.rebatched(recorded, 2, most)
    monkeypatch.setattr(rebatch, "FEW_EXPERTS", EXPERTS - 1)
    ready.rebatched(recorded, 2, most)
    assert asked == [orders, min(orders, 3)]


def test_requests_run_again_as_they_came(columns: Columns) -> None:
    ready = queue(columns, np.unique(columns["request"]))
    assert ready is not None
    some = ready.at_random(np.arange(len(ready.request)), 0)[:50]
    order = ready.as_recorded(some)
    assert sorted(order.tolist()) == sorted(some.tolist())
    assert (np.diff(ready.first[order]) >= 0).all()
