"""What `ebsim simulate` tells while it runs."""

from __future__ import annotations

from pathlib import Path

from easybalance_sim.deployment.request import SimulateRequest
from easybalance_sim.deployment.run import FIRST_TOKEN, simulate
from easybalance_sim.deployment.scenario import load_scenario
from tests.listeners import Heard
from tests.small_scenario import TWO_POOLS, small_scenario


def test_two_pools_say_when_a_client_has_its_first_token(tmp_path: Path) -> None:
    path, heard = small_scenario(tmp_path, TWO_POOLS), Heard()
    found = simulate(SimulateRequest(scenario=path, rate_per_s=40.0, duration_s=1.0), heard)
    assert heard.notes.count(FIRST_TOKEN) == 1
    travels_ms = 1e3 * load_scenario(path).transfer.latency_s
    assert travels_ms > 0 and found["before"]["ttft_ms"]["p50"] > travels_ms
