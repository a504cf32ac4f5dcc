"""What every cost must satisfy: more work never costs less."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.hardware import ExpertTable, load_profile, profile_names
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cost.anchored import anchored_cost, dealt_evenly
from easybalance_sim.cost.expert import ExpertCost, expert_cost
from easybalance_sim.cost.memory import kv_loss_frac
from easybalance_sim.cost.network import link_cost
from easybalance_sim.cost.objective import objective_seconds
from easybalance_sim.cost.profiles import table_us

ROUNDING = 1 - 1e-12
DSV3 = load_shape("deepseek-v3")
KERNELS = [(gpu, row.kernel) for gpu in ("h200", "gb200", "h20") for row in load_profile(gpu).experts]
counts = st.lists(st.integers(0, 3000), min_size=2, max_size=9)


def _expert_seconds(cost: ExpertCost, slots: list[int]) -> float:
    total = np.array([[[sum(slots)]]], np.int32)
    start = np.array([0, len(slots)], np.int32)
    seconds, _ = cost.seconds(np.array([[slots]], np.int32), total, start, np.ones(1))
    return float(seconds[0, 0])


@settings(max_examples=80, deadline=None)
@given(slots=counts, more=st.integers(1, 200), data=st.data(), kernel=st.sampled_from(KERNELS))
def test_more_tokens_on_a_slot_never_cost_less(
    slots: list[int], more: int, data: st.DataObject, kernel: tuple[str, str]
) -> None:
    cost = expert_cost(load_profile(kernel[0]), DSV3, "decode", kernel[1])
    at = data.draw(st.integers(0, len(slots) - 1))
    fuller = [*slots[:at], slots[at] + more, *slots[at + 1 :]]
    assert _expert_seconds(cost, fuller) >= _expert_seconds(cost, slots) * ROUNDING


@settings(max_examples=80, deadline=None)
@given(slots=counts, kernel=st.sampled_from(KERNELS))
def test_the_same_tokens_on_more_active_slots_never_cost_less(slots: list[int], kernel: tuple[str, str]) -> None:
    cost = expert_cost(load_profile(kernel[0]), DSV3, "decode", kernel[1])
    merged = [slots[0] + slots[1], 0, *slots[2:]]
    assert _expert_seconds(cost, slots) >= _expert_seconds(cost, merged) * ROUNDING


@settings(max_examples=40, deadline=None)
@given(slots=counts, empty=st.integers(1, 8))
def test_slots_without_tokens_cost_nothing(slots: list[int], empty: int) -> None:
    cost = expert_cost(load_profile("h200"), DSV3, "decode")
    assert _expert_seconds(cost, slots + [0] * empty) == _expert_seconds(cost, slots)


@settings(max_examples=60, deadline=None)
@given(slots=counts, factor=st.floats(1, 8), kernel=st.sampled_from(KERNELS))
def test_wider_experts_never_cost_less(slots: list[int], factor: float, kernel: tuple[str, str]) -> None:
    cost = expert_cost(load_profile(kernel[0]), DSV3, "decode", kernel[1])
    wider = replace(cost, shape=replace(DSV3, intermediate=int(DSV3.intermediate * factor)))
    assert _expert_seconds(wider, slots) >= _expert_seconds(cost, slots) * ROUNDING


@settings(max_examples=60, deadline=None)
@given(slots=counts, kernel=st.sampled_from(KERNELS))
def test_the_floor_is_paid_once_there_is_a_token_and_nothing_without(slots: list[int], kernel: tuple[str, str]) -> None:
    cost = expert_cost(load_profile(kernel[0]), DSV3, "decode", kernel[1])
    free = replace(cost, bytes_per_s=1e30, peak_flops=1e30)
    floor = cost.kernel.c0_us * 1e-6 if sum(slots) else 0.0
    assert _expert_seconds(free, slots) == pytest.approx(floor)
    assert _expert_seconds(cost, slots) >= floor


@settings(max_examples=60, deadline=None)
@given(slots=counts, factor=st.floats(1, 8), kernel=st.sampled_from(KERNELS))
def test_a_faster_memory_scales_the_memory_term(slots: list[int], factor: float, kernel: tuple[str, str]) -> None:
    cost = expert_cost(load_profile(kernel[0]), DSV3, "decode", kernel[1])
    reads = replace(cost, kernel=msgspec.structs.replace(cost.kernel, c0_us=0.0), peak_flops=1e30)
    faster = replace(reads, bytes_per_s=reads.bytes_per_s * factor)
    assert _expert_seconds(faster, slots) * factor == pytest.approx(_expert_seconds(reads, slots))


@settings(max_examples=60, deadline=None)
@given(slots=counts, factor=st.floats(1, 8), kernel=st.sampled_from(KERNELS))
def test_a_faster_gpu_never_costs_more(slots: list[int], factor: float, kernel: tuple[str, str]) -> None:
    cost = expert_cost(load_profile(kernel[0]), DSV3, "decode", kernel[1])
    for name in ("bytes_per_s", "peak_flops"):
        faster = replace(cost, **{name: getattr(cost, name) * factor})
        assert _expert_seconds(faster, slots) <= _expert_seconds(cost, slots) / ROUNDING


@settings(max_examples=60, deadline=None)
@given(
    copies=st.tuples(st.integers(0, 100_000), st.integers(0, 100_000)),
    factor=st.floats(1, 8),
    mode=st.sampled_from(["normal", "low_latency"]),
)
def test_faster_links_scale_the_transfer_and_more_bytes_never_take_less(
    copies: tuple[int, int], factor: float, mode: str
) -> None:
    cost = link_cost(load_profile("h100"), DSV3, 4, mode, "dispatch")
    link = msgspec.structs.replace(cost.link, base_us=0.0, per_doubling_us=0.0, notify_us=())
    bare = replace(cost, link=link)
    speeds = {name: getattr(link, name) * factor for name in ("rdma_bytes_per_s", "nvlink_bytes_per_s")}
    faster = replace(bare, link=msgspec.structs.replace(link, **speeds))
    sent = [np.array([[[n]]], np.int32) for n in copies]
    assert faster.seconds(*sent)[0, 0] * factor == pytest.approx(bare.seconds(*sent)[0, 0])
    heavier = replace(cost, copy_bytes=cost.copy_bytes * factor)
    assert heavier.seconds(*sent)[0, 0] >= cost.seconds(*sent)[0, 0] * ROUNDING


@pytest.mark.parametrize("gpu", profile_names())
@pytest.mark.parametrize("mode", ["normal", "low_latency"])
@settings(max_examples=15, deadline=None)
@given(
    rdma=st.integers(0, 200_000),
    nvlink=st.integers(0, 200_000),
    more=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    nodes=st.integers(1, 16),
)
def test_more_copies_never_take_less_time(
    gpu: str, mode: str, rdma: int, nvlink: int, more: tuple[int, int], nodes: int
) -> None:
    for phase in ("dispatch", "combine"):
        cost = link_cost(load_profile(gpu), DSV3, nodes, mode, phase)
        less = cost.seconds(*(np.array([[[n, 0]]], np.int32) for n in (rdma, nvlink)))
        extra = cost.seconds(*(np.array([[[n, 0]]], np.int32) for n in (rdma + more[0], nvlink + more[1])))
        assert extra[0, 0] >= less[0, 0] * ROUNDING


@settings(max_examples=60, deadline=None)
@given(slots=counts.filter(any), kernel=st.sampled_from(KERNELS), factor=st.floats(0.2, 5))
def test_a_table_of_the_formulas_own_balanced_times_changes_nothing_but_the_level(
    slots: list[int], kernel: tuple[str, str], factor: float
) -> None:
    formula = expert_cost(load_profile(kernel[0]), DSV3, "decode", kernel[1])
    arriving = sum(slots)
    even = dealt_evenly(np.array([[[arriving]]]), len(slots))[:, :, 0]
    flat = ExpertTable(tokens=(arriving, 2 * arriving), us=(1, 1), slots=len(slots), calibrated=True, source="t")
    # `level` is the table's time over the formula's.
    us = factor / anchored_cost(flat, formula, 1).level(arriving)
    anchored = anchored_cost(msgspec.structs.replace(flat, us=(us, us)), formula, 1)
    distinct = np.rint(np.array([[[arriving]]]) * anchored.tokens_of_assignment).astype(np.int32)
    start = np.array([0, len(slots)], np.int32)
    for counts in (even, np.array([[slots]], np.int32)):
        level, plain = (model.seconds(counts, distinct, start, np.ones(1))[0][0, 0] for model in (anchored, formula))
        assert level == pytest.approx(factor * plain)
    assert anchored.seconds(0 * even, distinct, start, np.ones(1))[0][0, 0] == 0


@settings(max_examples=60, deadline=None)
@given(
    knots=st.lists(st.integers(1, 500), min_size=2, max_size=8, unique=True).map(sorted),
    us=st.lists(st.floats(1, 1e4), min_size=8, max_size=8).map(sorted),
    tokens=st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted),
)
def test_a_rising_table_gives_rising_times(knots: list[int], us: list[float], tokens: list[float]) -> None:
    table = ExpertTable(tokens=tuple(map(float, knots)), us=tuple(us[: len(knots)]), calibrated=True, source="t")
    less, more = table_us(table, np.array(tokens) * 4 * knots[-1])
    assert more >= less * ROUNDING


@settings(max_examples=40, deadline=None)
@given(baseline=st.integers(1, 20), extra=st.integers(0, 20), hbm_gib=st.integers(1, 200))
def test_kv_loss_is_a_share_that_rises_with_slots(baseline: int, extra: int, hbm_gib: int) -> None:
    slots: list[IntArray] = [np.array([baseline + n]) for n in (0, extra, extra + 1)]
    less, more = (kv_loss_frac(plan, slots[0], DSV3, hbm_gib * 2**30) for plan in slots[1:])
    assert less is not None
    assert more is not None
    assert 0 <= less <= more <= 1


@settings(max_examples=40, deadline=None)
@given(parts=st.tuples(*[st.floats(0, 1e3)] * 3), at=st.integers(0, 2), more=st.floats(0, 1e3))
def test_objective_rises_with_every_part(parts: tuple[float, float, float], at: int, more: float) -> None:
    raised = [part + more * (n == at) for n, part in enumerate(parts)]
    before = objective_seconds(*parts, rdma_bytes_per_s=50e9, ranks=8)
    assert objective_seconds(raised[0], raised[1], raised[2], rdma_bytes_per_s=50e9, ranks=8) >= before
