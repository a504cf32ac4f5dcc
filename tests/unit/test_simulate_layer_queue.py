"""Micro-batches that contend for ranks, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.cluster import hardware
from easybalance_sim.cluster.shapes import assumed_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.layer_queue import service
from easybalance_sim.simulate.layer_queue.micro_batches import cut, dealt_evenly
from easybalance_sim.simulate.layer_queue.queue import RULES, Jobs, run
from easybalance_sim.simulate.layer_queue.report import simulate_queue
from easybalance_sim.simulate.steps.placements import contiguous
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import DECODE, TraceMeta
from tests.layer_queues import by_tokens


def _jobs(service: object, lane: list[int], delay: float = 0.0) -> Jobs:
    seconds = np.array(service, float)
    return Jobs(
        service=seconds, delay=np.full(seconds.shape[:2], delay), lane=np.array(lane), tokens=np.ones(len(lane))
    )


def test_one_layer_ends_with_its_slowest_part_and_the_way_back() -> None:
    done = run(_jobs([[[3, 1]], [[1, 3]]], [0, 0], delay=0.5), "fifo")
    assert done.finish.tolist() == [3.5, 7.0]
    assert done.start.tolist() == [0.0, 3.5]
    assert done.busy.tolist() == [4.0, 4.0]
    assert done.idle.tolist() == pytest.approx([3 / 7, 3 / 7])


def test_two_in_flight_fill_each_others_gaps() -> None:
    """Rank 0 serves the first while rank 1 has nothing of it: 2 seconds each instead of 4 in turn."""
    jobs = _jobs([[[2, 0], [0, 2]], [[0, 2], [2, 0]]], [0, 1])
    assert run(jobs, "fifo").makespan_s == 4.0
    assert jobs.lower_bound_s == 4.0
    assert run(_jobs(jobs.service, [0, 0]), "fifo").makespan_s == 8.0


def test_first_come_and_oldest_differ() -> None:
    """When rank 0 is free at 2 the part of micro-batch 2 has come before that of micro-batch 0."""
    service = [
        [[1, 0, 0], [0, 1.5, 0], [1, 0, 0]],
        [[2, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[0, 0, 2], [4, 0, 0], [0, 0, 0]],
    ]
    jobs = _jobs(service, [0, 1, 2])
    assert run(jobs, "fifo").finish.tolist() == [8.0, 3.0, 7.0]
    assert run(jobs, "oldest").finish.tolist() == [4.0, 3.0, 8.0]


def test_a_hot_rank_serves_what_is_cold_on_it_first() -> None:
    """At 1 rank 0 chooses between lane 1 (stage 0, hot on rank 0) and lane 0 (stage 1, cold on rank 0)."""
    service = np.array([[[1, 0.0], [1, 2]], [[4, 0], [1, 2]]])
    jobs = _jobs(service, [0, 1])
    assert jobs.hot[0, 0] > 1 > jobs.hot[1, 0]
    assert run(jobs, "heat", heat_s=100.0).finish[0] == 3.0
    assert run(jobs, "fifo").finish[0] == 6.0
    assert run(jobs, "closing").finish[0] == 6.0


def test_the_longest_way_first_goes_by_what_is_left() -> None:
    jobs = _jobs([[[1, 0]], [[1, 0]], [[0, 9]]], [0, 1, 1])
    assert jobs.tail.ravel().tolist() == [0.0, 9.0, 0.0]
    assert run(jobs, "path").makespan_s == 10.0
    assert run(jobs, "oldest").makespan_s == 11.0


def test_an_empty_micro_batch_takes_no_time() -> None:
    assert run(_jobs(np.zeros((2, 2, 2)), [0, 1]), "fifo").makespan_s == 0.0
    assert run(_jobs(np.zeros((2, 2, 2)), [0, 1]), "fifo").idle.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("service", "lane", "line"),
    [
        ([[[-1.0]]], [0], "≥ 0"),
        ([[[np.inf]]], [0], "finite"),
        ([[[1.0]]], [1], "without gaps"),
        (np.zeros((0, 1, 1)), [], "no micro-batch"),
    ],
)
def test_impossible_jobs_are_refused(service: object, lane: list[int], line: str) -> None:
    with pytest.raises(EbsimError, match=line):
        _jobs(service, lane)


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(UsageError, match="use one of fifo"):
        run(_jobs([[[1.0]]], [0]), "luck")
    with pytest.raises(UsageError, match="time > 0"):
        run(_jobs([[[1.0]]], [0]), "heat", heat_s=0.0)


def _steps() -> RecordedSteps:
    """Requests 7, 8, 9; two steps; one layer of four experts, one choice. Request 9 comes in the second step."""
    request = np.array([7, 7, 8, 7, 8, 9])
    return RecordedSteps(
        meta=TraceMeta(kind="tokens", layers=(0,), experts=4, top_k=1, dtype="uint8"),
        step=frozen([0, 1], np.int64),
        start=frozen([0, 3, 6], np.int64),
        experts=frozen(np.array([0, 0, 3, 1, 2, 3]).reshape(6, 1, 1), np.uint8),
        request=frozen(request, np.int64),
        position=frozen([0, 1, 0, 2, 1, 0], np.int32),
        phase=frozen(np.full(6, DECODE), np.uint8),
        workload=frozen(np.zeros(6), np.int16),
        source_rank=frozen([1, 1, -1, 1, -1, -1], np.int16),
        workloads=("all",),
    )


def test_requests_keep_their_lane() -> None:
    batches = cut(_steps(), 2, ranks=2)
    assert batches.lane.tolist() == [0, 1, 0, 1]
    assert batches.counts[:, 0].tolist() == [[2, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert batches.home.tolist() == [[0, 2], [1, 0], [0, 2], [1, 0]]
    assert (batches.first.tolist(), batches.last.tolist()) == ([0, 1, 2], [2, 3, 2])
    with pytest.raises(UsageError, match="at least 1"):
        cut(_steps(), 0, ranks=2)


def test_replicas_take_turns() -> None:
    plan = Plan(expert_of_slot=frozen([[0, 1, 0, 0]], np.int32), slots_per_rank=np.array([2, 2]), experts=2, policy="x")
    assert dealt_evenly(frozen([[[8, 5]]], np.int32), plan).tolist() == [[[3, 5, 3, 2]]]


def _double(tokens: FloatArray) -> FloatArray:
    return 2.0 * tokens


def test_recorded_steps_by_hand() -> None:
    """Rank 0 holds experts 0 and 1. Alone: 4 s and 4 s. Side by side lane 0 keeps rank 0 for 6 s, lane 1 rank 1 for
    4 s, and in the second step of lane 0 the part of request 9 finds rank 1 free."""
    plan = contiguous(1, 4, 2)
    told: list[int] = []
    report = simulate_queue(_steps(), plan, by_tokens(plan, _double), in_flight=(1, 2), advance=told.append)
    assert report.lockstep_s == 8.0
    assert {row.makespan_s for row in report.rows if row.in_flight == 1} == {8.0}
    two = report.row(2, "fifo")
    assert (two.makespan_s, two.tokens_per_s, two.batches_per_s) == (6.0, 1.0, 4 / 6)
    assert (two.busiest_s, two.longest_lane_s, two.gap) == (6.0, 6.0, 0.0)
    assert (two.batch_p50_s, two.request_p50_s) == (2.0, 4.0)
    assert (two.idle, two.busiest_idle) == (0.0, 0.0)
    assert sum(told) == len(report.rows) == 2 * len(RULES)
    assert report.to_dict()["rows"][0]["rule"] == "fifo"
    assert len(report.explained()) == 2
    with pytest.raises(KeyError):
        report.row(4, "fifo")


def test_times_of_the_cost_model_rank_by_rank() -> None:
    """The slowest rank is what the cost model says of the layer."""
    plan, where = contiguous(1, 4, 2), uniform(2, 2, 2)
    cost = layer_cost(
        hardware.load_profile("h200"), assumed_shape((0,), 4, 2), where, plan.slots_per_rank, "normal", "decode"
    )
    times = service.by_cost(cost, plan, where, 2, np.zeros_like)
    slots = frozen([[[900, 0, 5, 5]]], np.int32)
    seconds = times.of(slots, np.array([[300.0, 155.0]]), plan, 2)
    arriving = service.distinct(np.array([[[900.0, 10.0]]]), np.array([455.0]), 2)
    whole, _ = cost.expert.seconds(slots, frozen(np.rint(arriving), np.int32), plan.slot_start, where.speed)
    assert seconds.expert.max() == pytest.approx(whole[0, 0])
    assert seconds.expert[0, 0, 0] > seconds.expert[0, 0, 1] > 0
    assert seconds.dispatch[0, 0, 0] > seconds.dispatch[0, 0, 1] > 0


def test_distinct_tokens_of_independent_choices() -> None:
    """100 tokens of two choices, half of which reach a rank: 100 · (1 - 1/4); one choice each reaches as many."""
    assert service.distinct(np.array([[[100.0]]]), np.array([100.0]), 2).item() == pytest.approx(75.0)
    assert service.distinct(np.array([[[40.0]]]), np.array([100.0]), 1).item() == pytest.approx(40.0)


def test_copies_leave_a_domain_once() -> None:
    rdma, nvlink = service.copies(np.full((1, 1, 4), 50.0), np.array([200.0]), 1, uniform(4, 2, 1))
    assert rdma.tolist() == [[[25, 25, 25, 25]]]
    assert nvlink.tolist() == [[[38, 38, 38, 38]]]
    assert not service.copies(np.full((1, 1, 4), 50.0), np.array([200.0]), 1, uniform(4, 4, 1))[0].any()
