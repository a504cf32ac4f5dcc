"""A whole layer: three parts with barriers, one label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.cluster.hardware import load_profile, profile_names
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost import profiles
from easybalance_sim.cost.layer import LayerCost, LayerSeconds, layer_cost
from easybalance_sim.errors import ProfileError, UsageError

DSV3 = load_shape("deepseek-v3")
TOPOLOGY = uniform(8, 8, 2)


def _cost(gpu: str = "h200", mode: str = "low_latency", phase: str = "decode", ranks_per_node: int = 8) -> LayerCost:
    topology = uniform(8, ranks_per_node, 2)
    return layer_cost(load_profile(gpu), DSV3, topology, topology.slots_per_rank, mode, phase)


def _seconds(cost: LayerCost, tokens: int) -> LayerSeconds:
    slots = np.full((3, 2, 16), tokens, np.int32)
    per_rank = np.full((3, 2, 8), 2 * tokens, np.int32)
    return cost.seconds(slots, per_rank, 0 * per_rank, per_rank)


def test_total_is_the_sum_of_the_three_parts() -> None:
    found = _seconds(_cost(), 5)
    assert found.serial.shape == (3, 2)
    assert np.array_equal(found.serial, found.dispatch + found.expert + found.combine)
    assert (found.dispatch > 0).all()
    assert (found.combine > found.dispatch).all()
    assert (found.active == 2).all()


def test_label_of_a_measured_layer() -> None:
    cost = _cost()
    assert cost.calibrated
    assert cost.label == "h200 · fp8_block deepgemm_masked · band ±27 %"


def test_label_says_why_a_layer_is_not_calibrated() -> None:
    cost = _cost(ranks_per_node=4)
    assert not cost.calibrated
    assert cost.label.endswith(
        "uncalibrated: no multi-node table of this GPU: parameters of the H100 (same NVLink and RDMA)"
    )


def test_slower_rank_raises_only_the_expert_part() -> None:
    fast = _cost()
    slow = LayerCost(
        profile=fast.profile,
        expert=fast.expert,
        dispatch=fast.dispatch,
        combine=fast.combine,
        slot_start=fast.slot_start,
        speed=np.array([0.5] + [1.0] * 7),
    )
    before, after = _seconds(fast, 5), _seconds(slow, 5)
    assert np.allclose(after.expert, 2 * before.expert)
    assert np.array_equal(after.dispatch, before.dispatch)


def test_unequal_slots_per_rank() -> None:
    cost = layer_cost(load_profile("h200"), DSV3, uniform(2, 8, 3), np.array([1, 3]), "normal", "prefill")
    slots = np.array([[[7, 1, 0, 2]]], np.int32)
    per_rank = np.array([[[7, 3]]], np.int32)
    assert cost.seconds(slots, per_rank, 0 * per_rank, per_rank).active.tolist() == [[[1, 2]]]


def test_full_overlap_hides_the_shorter_half() -> None:
    serial, full = _seconds(_cost(), 5), _seconds(replace(_cost(), overlap="full"), 5)
    assert np.array_equal(full.ranked, np.maximum(serial.dispatch + serial.combine, serial.expert))
    assert np.array_equal(serial.ranked, serial.serial)
    assert (serial.overlapped <= serial.serial).all() and np.array_equal(full.overlapped, serial.overlapped)


def test_two_batches_read_their_weights_twice_and_hide_each_other() -> None:
    """Every slot has an even number of tokens: both halves have all experts and pay all that is fixed."""
    cost = replace(_cost(phase="decode"), overlap="two-batch")
    half = _seconds(_cost(phase="decode"), 4)
    found = _seconds(cost, 8)
    assert np.allclose(found.ranked, 2 * np.maximum(half.dispatch + half.combine, half.expert))
    assert (found.ranked > found.overlapped).all()


def test_an_expert_with_one_token_is_in_one_half_only() -> None:
    cost = replace(_cost(phase="decode"), overlap="two-batch")
    one, ranks = np.ones((1, 1, TOPOLOGY.slots), np.int32), np.ones((1, 1, TOPOLOGY.ranks), np.int32)
    whole = cost.seconds(one, ranks, 0 * ranks, ranks)
    assert whole.stated is not None and whole.stated <= whole.dispatch + whole.combine + whole.expert


def test_unknown_overlap() -> None:
    with pytest.raises(UsageError, match="most: unknown overlap; there are none, two-batch, full"):
        layer_cost(load_profile("h200"), DSV3, TOPOLOGY, TOPOLOGY.slots_per_rank, "normal", "prefill", overlap="most")


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_phase_chooses_the_kernel(gpu: str) -> None:
    """DeepGEMM's contiguous kernel after normal dispatch, its masked one after low latency."""
    assert "fp8_block deepgemm_masked" in _cost(gpu, phase="decode").label
    assert "fp8_block deepgemm_masked" in _cost(gpu, phase="unknown").label
    assert "fp8_block deepgemm_contig" in _cost(gpu, phase="prefill").label


def test_widths_that_a_kernel_was_not_fitted_on_choose_another() -> None:
    shape = load_shape("qwen3-235b-a22b-fp8")
    for phase in ("prefill", "decode"):
        cost = layer_cost(load_profile("h100"), shape, TOPOLOGY, TOPOLOGY.slots_per_rank, "normal", phase)
        assert "fp8_block trtllm_cutlass" in cost.label
        assert cost.calibrated


def test_named_kernel() -> None:
    cost = layer_cost(
        load_profile("h200"), DSV3, TOPOLOGY, TOPOLOGY.slots_per_rank, "normal", "prefill", kernel="trtllm_cutlass"
    )
    assert "trtllm_cutlass" in cost.label


@pytest.mark.parametrize("gpu", profile_names())
@pytest.mark.parametrize("model", ["deepseek-v3", "gpt-oss-20b", "qwen3-30b-a3b", "kimi-k2.5", "deepseek-v3-nvfp4"])
def test_every_gpu_gives_finite_seconds_and_one_line(gpu: str, model: str) -> None:
    for mode in ("normal", "low_latency"):
        for phase in ("prefill", "decode"):
            cost = layer_cost(load_profile(gpu), load_shape(model), TOPOLOGY, TOPOLOGY.slots_per_rank, mode, phase)
            assert np.isfinite(_seconds(cost, 3).serial).all()
            assert "\n" not in cost.label
            assert cost.calibrated == ("uncalibrated" not in cost.label)


def test_own_table_anchors_the_experts_and_keeps_the_network(tmp_path: Path) -> None:
    """A balanced load costs what the table says."""
    path = tmp_path / "mine.csv"
    path.write_text("tokens,us,slots\n2,50,2\n20,60,2\n200,150,2\n")
    cost = layer_cost(
        profiles.load_profile(str(path)), DSV3, TOPOLOGY, TOPOLOGY.slots_per_rank, "low_latency", "decode"
    )
    found = _seconds(cost, 5)
    assert np.allclose(found.expert, (50 + 10 * 8 / 18) * 1e-6)
    assert np.array_equal(found.dispatch, _seconds(_cost(), 5).dispatch)
    assert (found.active == 2).all()
    assert cost.calibrated
    assert cost.label == "h200 · expert table mine.csv, skew by fp8_block deepgemm_masked · band ±29 %"


def test_table_is_refused_far_beyond_its_end(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("tokens,us\n1,50\n2,60\n")
    cost = layer_cost(profiles.load_profile(str(path)), DSV3, TOPOLOGY, TOPOLOGY.slots_per_rank, "normal", "decode")
    with pytest.raises(ProfileError, match="more than 4 times the table's largest"):
        _seconds(cost, 5)


@pytest.mark.parametrize(("mode", "phase"), [("fast", "decode"), ("normal", "sleep")])
def test_unknown_mode_or_phase(mode: str, phase: str) -> None:
    with pytest.raises(UsageError, match="there are"):
        _cost(mode=mode, phase=phase)
