"""A run that lost or doubled anything is a fault of the engine, and is said to be one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easybalance_sim.simulate.serving import engine
from easybalance_sim.simulate.serving.conservation import require_conserved
from easybalance_sim.simulate.serving.limits import Limits
from tests.serving_models import poisson_workload, random_profiles, skewed_model

Books = tuple[Any, ...]


@pytest.fixture(scope="module")
def books() -> Books:
    """Run, workload, rules and state of a run that was cut short, with preemptions and requests in every stage."""
    kept: list[Books] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "require_conserved", lambda *given: kept.append(given))
        workload = poisson_workload(3, 80, 3000.0, prompt=(1, 60), output=(1, 24), cached_frac=0.5)
        limits = Limits(batch_tokens=24, chunk_tokens=10, running=6, kv_blocks=20, block_tokens=4, waiting=9)
        model = skewed_model(3)
        engine.serve(workload, random_profiles(3, workload, model), limits, model, end_s=0.05)
    return kept[0]


def test_a_run_as_it_is(books: Books) -> None:
    require_conserved(*books)
    run, _, _, state = books
    assert run.preemptions.any() and run.refused.any() and run.finished.any()
    assert set(state.requests["stage"].tolist()) == {0, 1, 2, 3}


TAMPERED: dict[str, tuple[str, Callable[[Any], None]]] = {
    "a finished request not counted": ("requests", lambda state: _add(state.totals, "finished", -1)),
    "a refused request counted twice": ("requests", lambda state: _add(state.totals, "refused", 1)),
    "a request in no stage": ("requests", lambda state: _set(state.requests, "stage", 0)),
    "a token too many in cache": ("tokens", lambda state: _add_to_held(state)),
    "a request in a block too small": ("than blocks", lambda state: _swap_blocks(state)),
    "a block lost": ("blocks", lambda state: _add(state.ranks, "free", -1)),
}


def _add(records: Any, name: str, count: int) -> None:
    records[name][0] += count


def _set(records: Any, name: str, value: int) -> None:
    records[name][records[name] > 0] = value


def _swap_blocks(state: Any) -> None:
    """As many blocks in all, but one request has none of its own."""
    one, other = np.flatnonzero(state.requests["stage"] >= 2)[:2]
    state.requests["blocks"][other] += state.requests["blocks"][one]
    state.requests["blocks"][one] = 0


def _add_to_held(state: Any) -> None:
    state.requests["held"][state.requests["stage"] == 2] += 1


@pytest.mark.parametrize("tampered", TAMPERED)
def test_tampered_state_is_noticed(tampered: str, books: Books) -> None:
    says, tamper = TAMPERED[tampered]
    run, workload, rules, state = books
    copy = state._replace(**{name: getattr(state, name).copy() for name in ("requests", "ranks", "totals")})
    tamper(copy)
    with pytest.raises(RuntimeError, match=says):
        require_conserved(run, workload, rules, copy)


@pytest.mark.parametrize(
    ("name", "says"), [("present_s", "requests in the system"), ("end_s", "requests in the system"), ("idle", "steps")]
)
def test_tampered_seconds_are_noticed(name: str, says: str, books: Books) -> None:
    run, workload, rules, state = books
    wrong = replace(run, seconds=run.seconds | {"idle": 1.0}) if name == "idle" else replace(run, **{name: 1.0})
    with pytest.raises(RuntimeError, match=says):
        require_conserved(wrong, workload, rules, state)


def test_a_part_of_a_step_that_is_missing_is_noticed(books: Books) -> None:
    run, workload, rules, state = books
    with pytest.raises(RuntimeError, match="seconds of parts"):
        require_conserved(replace(run, seconds=run.seconds | {"combine": 0.0}), workload, rules, state)
