from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.planning.session import Settings, open_session
from easybalance_sim.rebalancing.load import Load, stretched, windows_over_time
from easybalance_sim.rebalancing.loops import loops
from easybalance_sim.rebalancing.request import NEVER, OURS, STATIC, RebalanceRequest
from easybalance_sim.rebalancing.run import prepare
from easybalance_sim.simulate.rebalance.controllers.guarded import Guard
from easybalance_sim.simulate.rebalance.controllers.periodic import Periodic
from tests.listeners import Heard
from tests.plan_documents import example_document
from tests.skewed_traces import skewed_counts, skewed_trace


def _request(*traces: Path, first: float = 0.1, **changes: Any) -> RebalanceRequest:
    names = {"current", "loops", "step_s", "other_s", "pause_s", "hours", "cold_start", "guard"}
    own = {name: value for name, value in changes.items() if name in names}
    rest = {name: value for name, value in changes.items() if name not in names}
    return RebalanceRequest(
        settings=Settings(traces=traces, ranks=4, slots_per_rank=5, **rest), first=first, **own
    )  # fmt: skip


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_counts(tmp_path_factory.mktemp("load") / "counts.parquet", 40)


def test_seconds_become_steps(counts: Path) -> None:
    session = open_session(_request(counts).settings, Heard())
    load = windows_over_time(session, 0.025)
    # Windows of 1 s and 4000 tokens.
    assert len(load) == 40 and set(load.steps) == {40.0} and set(load.step_tokens) == {100.0}
    one = windows_over_time(session, 5.0)
    assert set(one.steps) == {1.0} and set(one.step_tokens) == {4000.0}


def test_windows_of_a_token_trace_hold_its_steps(tmp_path: Path) -> None:
    session = open_session(_request(skewed_trace(tmp_path / "t.parquet"), window_steps=32).settings, Heard())
    load = windows_over_time(session, 0.025)
    assert len(load) == 10 and set(load.steps) == {32.0} and set(load.step_tokens) == {32.0}
    assert load.tokens.sum() == 320 * 32 * 2 * 2


def test_stretching_changes_steps_and_their_tokens_not_the_counts() -> None:
    load = Load(tokens=np.ones((2, 1, 4), np.int64), steps=np.array([30.0, 10.0]), step_tokens=np.array([10.0, 50.0]))
    longer = stretched(load, _request(Path("x"), hours=1.0, step_s=0.9, step_tokens=40))
    assert longer.steps.tolist() == [3000, 1000] and longer.step_tokens.tolist() == [20, 100]
    assert longer.tokens is load.tokens
    as_recorded = stretched(load, _request(Path("x")))
    assert as_recorded.steps is load.steps and as_recorded.step_tokens is load.step_tokens


def test_loops_are_set_as_the_engines_ship_them(counts: Path) -> None:
    ready = prepare(_request(counts, pause_s=3.0), Heard())
    made = {loop.name: loop for loop in loops(ready.request, ready.service, ready.experts)}
    sglang, vllm = made["sglang"], made["vllm"]
    assert isinstance(sglang, Periodic) and isinstance(vllm, Periodic)
    assert (sglang.interval_steps, sglang.window_steps, sglang.first_steps, sglang.enough) == (1000, 1000, None, 1.0)
    assert (vllm.interval_steps, vllm.window_steps, vllm.first_steps) == (3000, 1000, 750)
    assert sglang.style.stops and sglang.style.measured_s == 3.0 and not vllm.style.stops
    # 2 × 16 experts, where 58 × 256 take SGLang a second.
    estimated = next(loop for loop in loops(_request(counts), ready.service, ready.experts) if loop.name == "sglang")
    assert estimated.style.fixed_s == pytest.approx(32 / (58 * 256)) and estimated.style.measured_s is None


def test_what_every_loop_begins_with(counts: Path) -> None:
    ready = prepare(_request(counts), Heard())
    assert ready.first_plan(NEVER) is ready.start
    assert all(ready.first_plan(name) is ready.offline for name in (STATIC, OURS, "sglang"))
    cold = prepare(_request(counts, cold_start=True, loops=(OURS,)), Heard())
    assert cold.offline is cold.start is cold.first_plan(OURS)
    assert cold.service.topology.slots_per_rank.tolist() == [5] * 4


def test_the_offline_plan_and_the_cost_do_not_see_later_windows(tmp_path: Path) -> None:
    one, other = (prepare(_request(skewed_counts(tmp_path / f"{n}.parquet", n)), Heard()) for n in (40, 44))
    # The same first four windows: a tenth of 40 and of 44.
    assert one.first == other.first == 4 and np.array_equal(one.load.tokens[:4], other.load.tokens[:4])
    assert np.array_equal(one.offline.expert_of_slot, other.offline.expert_of_slot)


def test_a_plan_for_another_model_is_refused(counts: Path, tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", example_document())
    with pytest.raises(UsageError, match="--current: the plan in force is for other layers"):
        prepare(_request(counts, current=tmp_path / "plan.json"), Heard())


@pytest.mark.parametrize(
    "wrong", [{"pause_s": float("nan")}, {"hours": float("inf")}, {"guard": Guard(alarm=float("nan"))}]
)
def test_numbers_have_to_be_finite(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="give a finite number"):
        _request(Path("x"), **wrong)
