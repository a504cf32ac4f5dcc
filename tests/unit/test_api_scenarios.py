"""What is served, and a claim taken apart: the reports are those of the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import easybalance_sim as ebs
from tests.ebsim_process import ROOT, ebsim_here
from tests.small_scenario import small_scenario

CLAIM = ROOT / "scenarios" / "easybalance-8xa100.toml"
SHORT: dict[str, Any] = {"duration": 1.0, "ttft_ms": 4, "tpot_ms": 5}
FLAGS = ("--duration", "1", "--ttft-ms", "4", "--tpot-ms", "5")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    return small_scenario(tmp_path)


def printed(*arguments: str | Path) -> dict[str, Any]:
    """What the command prints as JSON."""
    found: dict[str, Any] = json.loads(ebsim_here(*arguments, "--format", "json").stdout)
    return found


def test_a_claim_is_no_scenario_to_serve(scenario: Path) -> None:
    for serve in (ebs.simulate, ebs.capacity):
        with pytest.raises(ebs.UsageError, match="is a capacity claim"):
            serve(CLAIM)
    with pytest.raises(ebs.UsageError):
        ebs.claim(scenario)
    with pytest.raises(ebs.UsageError, match="seed: -1 is no whole number of 0 to"):
        ebs.simulate(scenario, seed=-1)


def test_requests_that_come_from_files(scenario: Path, tmp_path: Path) -> None:
    rows = "\n".join(f"{at / 50},40,8" for at in range(60))
    file = tmp_path / "requests.csv"
    file.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    served = ebs.simulate(scenario, plan="contiguous", baseline="contiguous", arrivals={"python": file}, duration=1.0)
    assert list(served.report["workload"]["tenants"]) == ["python"]
    assert (served.report["before"], served.report["plans"]["after"]) == (served.report["after"], "contiguous")
    table: Any = served.table()
    assert list(table.columns) == ["before", "after", "even", "change"]
    assert table.loc["ttft_ms.p99", "before"] == served.report["before"]["ttft_ms"]["p99"]


@pytest.mark.slow
def test_served_requests_are_those_of_the_command(scenario: Path) -> None:
    served = ebs.simulate(scenario, plan="eplb", seed=3, **SHORT)
    assert served.report == printed("simulate", scenario, "--plan", "eplb", "--seed", "3", *FLAGS)
    assert served.figures and served._repr_html_().startswith("<div")
    found = ebs.capacity(scenario, plan="eplb", replicas=[0, 2], tolerance=0.3, **SHORT)
    flags = ("--plan", "eplb", "--replicas", "0,2", "--tolerance", "0.3")
    assert found.report == printed("capacity", scenario, *flags, *FLAGS)
    table: Any = found.table()
    assert table.loc[("stated", "after"), "rate_per_s"] == found.report["highest_rate"]["stated"]["after"]["rate_per_s"]


@pytest.mark.slow
def test_a_claim_is_that_of_the_command() -> None:
    taken = ebs.claim(CLAIM)
    assert json.loads(json.dumps(taken.report)) == printed("offset", "--scenario", CLAIM)
    assert len(taken.table()) == len(taken.report["rungs"]) and taken.figures
