"""The routing trace of a deployment: two halves by request, one to plan on, one to serve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.deployment.ground import Ground, ground_of
from easybalance_sim.errors import UsageError
from easybalance_sim.load.split import FIT, HELD_OUT
from easybalance_sim.replay.traffic import TokenTraffic
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY
from easybalance_sim.trace.synthesis import Recipe, synthesise
from easybalance_sim.trace.synthesis_day import DayRecipe, synthesise_day
from tests.ebsim_process import SAMPLE
from tests.listeners import Heard

RECIPE = Recipe(kind="topic-mixture", layers=3, experts=16, top_k=2, steps=64, tokens_per_step=32, seed=5)
CLUSTER_OF_64 = uniform(4, 4, 16)


@pytest.fixture(scope="module")
def recorded() -> Ground:
    return ground_of([SAMPLE], None, Heard())


def test_no_request_is_planned_on_and_served(recorded: Ground) -> None:
    session = recorded.on(uniform(8, 4, 9), MIXED)
    traffic = recorded.traffic(session)
    assert isinstance(traffic, TokenTraffic) and traffic.split is not None
    fit = set(traffic.split.request[traffic.split.side == FIT].tolist())
    held = set(traffic.split.request[traffic.split.side == HELD_OUT].tolist())
    served = set(recorded.routed.request.tolist())
    assert served <= held and not served & fit and len(fit) + len(held) == 683


def test_a_pool_sees_the_tokens_of_its_phase(recorded: Ground) -> None:
    cluster = uniform(8, 4, 9)
    seen = {}
    for role, mode, phase in (
        (MIXED, "normal", "prefill"),
        (PREFILL_ONLY, "normal", "prefill"),
        (DECODE_ONLY, "low_latency", "decode"),
    ):
        session = recorded.on(cluster, role, rule="vllm")
        assert (session.bench.mode, session.phase, session.bench.rule) == (mode, phase, "vllm")
        seen[role] = int(recorded.traffic(session).fit_windows().tokens.sum())
    assert seen[PREFILL_ONLY] + seen[DECODE_ONLY] == pytest.approx(seen[MIXED], rel=0.01)
    assert recorded.on(cluster, MIXED, mode="low_latency").bench.mode == "low_latency"


def test_experts_shared_by_gpus_are_narrower(recorded: Ground) -> None:
    whole = recorded.on(CLUSTER_OF_64, MIXED)
    half = recorded.on(CLUSTER_OF_64, MIXED, expert_ranks=2)
    assert half.shape.expert_bytes * 2 == whole.shape.expert_bytes
    with pytest.raises(UsageError, match="do not divide"):
        recorded.on(CLUSTER_OF_64, MIXED, expert_ranks=3)


def _synthesised(folder: Path, seed: int, heard: Heard) -> Ground:
    folder.mkdir(exist_ok=True)
    synthesise(RECIPE, folder / "routing.parquet")
    return ground_of([folder / "routing.parquet"], None, heard, seed=seed, folder=folder)


def test_a_trace_in_a_folder_of_its_own_goes_with_who_holds_it(tmp_path: Path) -> None:
    heard = Heard()
    ground = _synthesised(tmp_path / "a", 0, heard)
    assert (tmp_path / "a").exists() and ground.routed.n_experts == 16
    assert any("no prompt tokens" in note for note in heard.notes)
    again, other = _synthesised(tmp_path / "b", 0, Heard()), _synthesised(tmp_path / "c", 1, Heard())
    assert np.array_equal(ground.routed.experts, again.routed.experts)
    assert not np.array_equal(ground.routed.request, other.routed.request)
    del ground
    assert not (tmp_path / "a").exists() and (tmp_path / "b").exists()


def test_the_model_has_to_be_the_traces(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mixtral-8x7b has .* \(32, 8, 2\), the routing trace \(8, 64, 6\)"):
        ground_of([SAMPLE], load_shape("mixtral-8x7b"), Heard())


def test_counts_cannot_serve(tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    synthesise_day(DayRecipe(hours=1, layers=2, experts=16, top_k=2), path)
    with pytest.raises(UsageError, match="counts do not know requests"):
        ground_of([path], None, Heard())
