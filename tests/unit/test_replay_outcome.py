"""The report section: documented keys, finite numbers, percentiles over the right axes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easybalance_sim.cost.memory import expert_memory_bytes
from easybalance_sim.cost.memory_peak import Peak
from easybalance_sim.plan.bounds import lower_bound
from easybalance_sim.replay.outcome import Outcome, WindowMarks
from tests.replay_cases import random_plan, small_shape

PLAN = random_plan(0, 2, 6, [3, 4])
SHAPE = small_shape(2, 6, 2)
DOCUMENTED = {
    "rank_imbalance": ("mean", "p50", "p95", "p99", "max"),
    "layer_us": ("p50", "p95", "p99"),
    "step_us": ("p50", "p95", "p99"),
    "layer_us_bracket": ("full_overlap", "serial"),
    "step_us_bracket": ("full_overlap", "serial"),
    "active_experts_per_rank": ("mean", "p99"),
    "lower_bound_per_window": ("mean", "p99"),
}
NUMBERS = (
    "cross_node_bytes_per_token", "lower_bound_imbalance", "slots", "redundant_slots", "memory_bytes_per_rank"
)  # fmt: skip


def outcome(**changes: Any) -> Outcome:
    """300 windows × 2 layers whose imbalance runs from 1 to 2, 500 steps."""
    rising = np.linspace(1, 2, 600).reshape(300, 2)
    return replace(
        Outcome(
            plan=PLAN,
            tokens=1000,
            steps=500,
            tokens_per_step=2.0,
            window_imbalance=rising,
            window_marks=WindowMarks(ids=np.arange(300), steps=np.ones(300, np.int64), assignments=np.full(300, 7)),
            window_bound=1 + (rising - 1) / 2,
            layer_seconds=np.arange(1000.0).reshape(500, 2) * 1e-6,
            layer_bracket=np.arange(1000.0).reshape(500, 2, 1) * np.array([0.5e-6, 1e-6]),
            active_slots=np.array([10, 0, 70, 19, 1]),
            phase_share=np.array([0.25, 0.5, 0.25]),
            expert_tokens=np.array([[900, 20, 20, 20, 20, 20], [167] * 5 + [165]]),
            slot_tokens=np.ones((2, PLAN.slots)),
            rank_pairs=np.ones((2, 2)),
            node_pairs=np.array([[500, 300], [100, 1100]]),
            copy_bytes=30.0,
            peak=Peak(),
        ),
        **changes,
    )


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def test_section_has_the_documented_keys_and_is_json() -> None:
    section = outcome().section(SHAPE)
    assert {name: tuple(section[name]) for name in DOCUMENTED} == DOCUMENTED
    assert all(isinstance(section[name], int | float) for name in NUMBERS)
    assert section["policy"] == "random"
    assert json.loads(json.dumps(section, allow_nan=False)) == section


def test_percentiles_are_over_windows_and_layers_and_over_steps_and_layers() -> None:
    section = outcome().section(SHAPE)
    assert section["rank_imbalance"] == pytest.approx(
        {"mean": 1.5, "p50": 1.5, "p95": 1.95, "p99": 1.99, "max": 2.0}, abs=1e-6
    )
    assert section["layer_us"] == pytest.approx({"p50": 499.5, "p95": 949.05, "p99": 989.01})
    # Steps take 1, 5, 9, … µs.
    assert section["step_us"] == pytest.approx({"p50": 999, "p95": 1 + 4 * 0.95 * 499, "p99": 1 + 4 * 0.99 * 499})


def test_by_layer_is_over_windows() -> None:
    by_layer = outcome().section(SHAPE)["rank_imbalance_by_layer"]
    assert by_layer["mean"] == pytest.approx([1.5 - 0.5 / 599, 1.5 + 0.5 / 599], abs=1e-6)
    assert len(by_layer["p99"]) == 2


def test_active_experts_are_read_off_the_histogram() -> None:
    # Of 100 ranks 10 had none, 70 two, 19 three, one four.
    assert outcome().section(SHAPE)["active_experts_per_rank"] == {"mean": 2.01, "p99": 3.0}


def test_bytes_that_leave_a_node() -> None:
    found = outcome()
    assert found.cross_node_bytes == 400 * 30
    assert found.section(SHAPE)["cross_node_bytes_per_token"] == 12


def test_slots_memory_and_bound() -> None:
    section = outcome().section(SHAPE)
    assert (section["slots"], section["redundant_slots"]) == (7, 1)
    assert section["memory_bytes_per_rank"] == expert_memory_bytes(np.array([3, 4]), SHAPE).max()
    bound = lower_bound(np.asarray(outcome().expert_tokens, np.float64), 2, 7)
    assert section["lower_bound_imbalance"] == pytest.approx(bound.mean(), abs=1e-6)
    assert section["lower_bound_per_window"] == pytest.approx({"mean": 1.25, "p99": 1.495}, abs=1e-6)


def test_windows_and_layers_without_traffic_leave_finite_numbers() -> None:
    holes = np.array(outcome().window_imbalance)
    holes[:, 1] = np.nan
    holes[3] = np.nan
    section = outcome(window_imbalance=holes, window_bound=holes).section(SHAPE)
    assert all(math.isfinite(value) for value in leaves(section) if not isinstance(value, str))
    assert section["rank_imbalance_by_layer"]["mean"][1] == 1.0
    assert section["rank_imbalance"]["max"] == pytest.approx(holes[-1, 0], abs=1e-6)
