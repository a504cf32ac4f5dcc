"""A scenario file with what is asked to be different from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.deployment.request import SimulateRequest, scenario_of, tell_changes
from easybalance_sim.errors import UsageError
from tests.listeners import Heard
from tests.small_scenario import TWO_POOLS, small_scenario


def _changed(path: Path, **changes: Any) -> Any:
    return scenario_of(SimulateRequest(scenario=path, **changes))


def test_without_changes_it_is_the_file(tmp_path: Path) -> None:
    found = _changed(small_scenario(tmp_path))
    assert (found.title, found.run.duration_s, found.slo.ttft_s) == ("small", 2.0, 0.05)
    assert [pool.role for pool in found.pools] == ["mixed"]


def test_every_change_takes_its_place(tmp_path: Path) -> None:
    found = _changed(
        small_scenario(tmp_path, TWO_POOLS),
        plan="eplb", baseline="round_robin", trace=(tmp_path / "a.parquet", tmp_path / "b.parquet"), overlap="full",
        seed=7, duration_s=3.0, ttft_s=1.0, tpot_s=0.5,
    )  # fmt: skip
    assert {(pool.placement.before, pool.placement.after) for pool in found.pools} == {("round_robin", "eplb")}
    assert found.routing.traces == (tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert (found.run.overlap, found.run.seed, found.run.duration_s) == ("full", 7, 3.0)
    assert (found.slo.ttft_s, found.slo.tpot_s, found.run.warm_up_s) == (1.0, 0.5, 0.2)


def test_a_shorter_run_keeps_the_share_that_warms_up(tmp_path: Path) -> None:
    found = _changed(small_scenario(tmp_path), duration_s=0.1)
    assert (found.run.duration_s, found.run.warm_up_s) == pytest.approx((0.1, 0.01))


def test_a_warm_up_that_is_cut_is_told(tmp_path: Path) -> None:
    path = small_scenario(tmp_path)
    for duration_s, notes in ((0.1, ["the warm-up is cut from 0.2 to 0.01 s with the run"]), (1.0, [])):
        request, heard = SimulateRequest(scenario=path, duration_s=duration_s), Heard()
        tell_changes(request, scenario_of(request), heard)
        assert [note.partition(",")[0] for note in heard.notes] == notes


def test_requests_come_from_files_instead(tmp_path: Path) -> None:
    path = small_scenario(tmp_path)
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    for file in (one, two):
        file.write_text("arrival_s,prompt_tokens,output_tokens\n0.5,10,3\n1.0,12,4\n")
    assert _changed(path, arrivals={"": one}).workload().requests == 2
    both = _changed(path, arrivals={"python": one, "c": two}).workload()
    assert (both.requests, both.tenants) == (4, ("python", "c"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rate_per_s": 0.0}, "--rate"),
        ({"duration_s": float("inf")}, "--duration"),
        ({"ttft_s": -1.0}, "--ttft-ms"),
        ({"tpot_s": float("nan")}, "--tpot-ms"),
        ({"overlap": "half"}, "--overlap: 'half' is not known"),
        (
            {"plan": "window-search"},
            r"--plan: no policy 'window-search' — did you mean window_search\? use one of auto, ",
        ),
        ({"baseline": "keep"}, "--baseline: policy 'keep' needs a plan in force"),
    ],
)
def test_what_makes_no_sense_is_refused_by_flag(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        _changed(small_scenario(tmp_path), **changes)
