"""Plans that are made anew while they serve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.deployment.prepare import AFTER, BEFORE, Prepared, prepare
from easybalance_sim.deployment.replanning import capped
from easybalance_sim.deployment.scenario import load_scenario
from easybalance_sim.deployment.schedule import joined, under_last
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.serving.pool_run import StepSample
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.trace.synthesis import Recipe, synthesise
from tests.listeners import Heard

LOOP = """
title = "two tenants"
why = "a test"
[model]
name = "toy"
layers = 2
experts = 16
top_k = 2
hidden = 1024
intermediate = 512
dtype = "bf16"
attention = { kind = "gqa", heads = 8, kv_heads = 2, head_dim = 64 }
[cluster]
ranks = 4
ranks_per_node = 4
slots_per_rank = 5
[engine]
kv_blocks = 4000
[routing]
trace = "routing.parquet"
[rebalance]
statistics_window_s = 5
interval_s = 10
max_replicas = 2
[[arrivals.tenants]]
name = "tenant-a"
pattern = "poisson"
rate_per_s = 20
until_s = 14
prompt_tokens = 50
output_tokens = 20
[[arrivals.tenants]]
name = "tenant-b"
pattern = "poisson"
rate_per_s = 20
from_s = 14
prompt_tokens = 50
output_tokens = 20
[slo]
ttft_s = 1
tpot_s = 0.05
[run]
duration_s = 30
"""


def _ready(folder: Path, text: str = LOOP) -> tuple[Prepared, Heard]:
    synthesise(
        Recipe(kind="tenant-shift", layers=2, experts=16, top_k=2, steps=400, tokens_per_step=16, skew=1.5),
        folder / "routing.parquet",
    )
    path, heard = folder / "loop.toml", Heard()
    path.write_text(text, encoding="utf-8")
    return prepare(load_scenario(path), heard), heard


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return _ready(tmp_path_factory.mktemp("loop"))[0]


def test_plans_take_turns_and_a_request_gets_the_one_in_force(ready: Prepared) -> None:
    (station,) = ready.stations(AFTER)
    assert station.schedule is not None
    plans, from_s = station.schedule.plans, station.schedule.from_s
    assert plans[0] is ready.stations(BEFORE)[0].plan
    # Statistics are there at 10 s and 20 s; experts travel for a moment.
    assert from_s[0] == 0 and np.all(from_s[1:] >= [10, 20]) and np.all(from_s[1:] < [10.1, 20.1])
    assert station.schedule.moves[0] == 0 and (station.schedule.moves[1:] > 0).all()
    assert max(int(plan.replicas.max()) for plan in plans) <= 2
    rows = len(station.model.mean) // 3
    drawn = Profiles(prefill=np.zeros(3, np.int32), decode=np.ones(3, np.int32))
    given = station.schedule.profiles(drawn, np.array([3.0, 15.0, 25.0]), rows)
    assert given.prefill.tolist() == [0, rows, 2 * rows]
    assert given.decode.tolist() == [1, rows + 1, 2 * rows + 1]


def test_a_plan_follows_the_tenant_that_was_seen(ready: Prepared) -> None:
    (station,), routed = ready.stations(AFTER), ready.ground.routed
    tenant = np.repeat([routed.workloads[code] for code in routed.workload], 2)
    rows = len(station.model.mean) // 3
    first, second = station.model.mean[rows : 2 * rows], station.model.mean[2 * rows :]

    def imbalance(mean: np.typing.NDArray[np.float32], name: str) -> float:
        load = mean[tenant == name].mean(axis=0)
        return float((load.max(axis=1) / load.mean(axis=1)).mean())

    # The first was made while tenant a was there alone, the second after b had taken its place.
    assert imbalance(first, "tenant-a") < imbalance(second, "tenant-a")
    assert imbalance(second, "tenant-b") < imbalance(first, "tenant-b")


def test_rows_of_each_plan_are_those_of_its_own_model(ready: Prepared) -> None:
    (before,), (after,) = ready.stations(BEFORE), ready.stations(AFTER)
    rows = len(after.model.mean) // 3
    np.testing.assert_array_equal(after.model.mean[:rows], before.model.mean)
    one = joined([before.model])
    np.testing.assert_array_equal(one.expert_s, before.model.expert_s)


def test_the_last_plan_is_checked_on_steps_of_its_own(ready: Prepared) -> None:
    (station,) = ready.stations(AFTER)
    assert station.schedule is not None
    rows = len(station.model.mean) // 3
    one, none = np.ones(2, np.int32), np.zeros(2, np.int32)
    steps = [
        StepSample(step=at, start_s=0.0, seconds={}, request=none, prompt=none, decode=one, row=frozen(row, np.int32))
        for at, row in enumerate(([2 * rows, 3 * rows - 1], [2 * rows, 2 * rows - 1], [0, 1]))
    ]
    (left,), model = under_last(station.schedule, steps, station.model)
    assert (left.step, left.row.tolist()) == (0, [0, rows - 1])
    np.testing.assert_array_equal(model.mean, station.model.mean[2 * rows :])


def test_what_is_simulated_is_said(tmp_path: Path) -> None:
    _, heard = _ready(tmp_path)
    assert any("a new plan every 10 s from the last 5 s: 2 plans" in note for note in heard.notes)


def test_a_plan_file_is_never_made_anew(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a plan file is never made anew"):
        _ready(tmp_path, LOOP.replace("[rebalance]", '[placement]\nafter = "plan.json"\n[rebalance]'))


def test_a_replica_too_many_goes_to_who_has_most_to_do() -> None:
    topology = uniform(4, 4, 2)
    plan = Plan(
        expert_of_slot=frozen(np.array([[0, 1, 0, 2, 0, 3, 0, 4]]), np.int32),
        slots_per_rank=topology.slots_per_rank,
        experts=5,
        policy="eplb",
    )
    load = np.array([[40.0, 1.0, 9.0, 1.0, 20.0]])
    found = capped(plan, load, topology, 3)
    # The fullest rank is the last (10 + 20 of expert 4); expert 4 is there, so 2 gets the slot.
    assert found.expert_of_slot.tolist() == [[0, 1, 0, 2, 0, 3, 2, 4]]
    assert capped(plan, load, topology, 4).expert_of_slot.tolist() == plan.expert_of_slot.tolist()
    with pytest.raises(UsageError, match="allow more, or give fewer slots"):
        capped(plan, load, topology, 1)
