"""The report of `ebsim simulate`, and what it says first."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.cli import simulate_table
from easybalance_sim.deployment.request import SimulateRequest
from easybalance_sim.deployment.run import simulate
from easybalance_sim.deployment.verdict import none_answered, verdict
from tests.ebsim_process import ROOT
from tests.listeners import Heard
from tests.one_text import unbroken
from tests.small_scenario import TWO_POOLS, small_scenario


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = small_scenario(tmp_path_factory.mktemp("one"))
    return simulate(SimulateRequest(scenario=path), Heard())


def _numbers(content: Any) -> Iterator[float]:
    if isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _numbers(inner)
    elif isinstance(content, int | float):
        yield content


def test_it_is_plain_json_with_finite_numbers(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert all(map(math.isfinite, _numbers(report)))


def test_its_figures_belong_together(report: dict[str, Any]) -> None:
    before, after, even = (report[key] for key in ("before", "after", "even"))
    for section in (before, after, even):
        requests = section["requests"]
        assert requests["scored"] == requests["answered"] + requests["refused"] + requests["unfinished"]
        assert section["ttft_ms"]["p50"] <= section["ttft_ms"]["p95"] <= section["ttft_ms"]["p99"]
        (pool,) = section["pools"]
        little = pool["littles_law"]
        assert little["present"] == pytest.approx(little["arrivals_per_s"] * little["time_in_system_s"])
        share = pool["share"]
        parts = sum(share[part] for part in ("attention", "outside", "dispatch", "expert", "combine"))
        assert parts - share["hidden"] == pytest.approx(1.0)
        assert sum(row["steps"] for row in pool["timeline"]) == pool["steps"]
    assert even["pools"][0]["lost_share"] == pytest.approx(0.0, abs=1e-9)
    assert report["ratios"]["tpot_ms.p99"] == pytest.approx(after["tpot_ms"]["p99"] / before["tpot_ms"]["p99"])
    assert len(report["draws"]) == 3 and report["draws"][0] == report["ratios"] != report["draws"][1]
    assert report["bracket"]["after"]["serial"]["tpot_ms"] == after["tpot_ms"]
    assert report["bracket"]["after"]["overlapped"]["tpot_ms"]["mean"] < after["tpot_ms"]["mean"]
    check = report["pools"][0]["after"]["check"]
    assert check["steps"] > 0 and abs(check["mean_error"]) < 0.2


def test_the_table_begins_with_what_requests_get(report: dict[str, Any]) -> None:
    text = simulate_table.of(report)
    head, answer, requests, steps, bracket, trust, words = text.split("\n\n")
    assert head.startswith("small\n") and answer.startswith("inside the SLO (TTFT 50.0 ms, TPOT 10.0 ms): ")
    assert "ranks loaded alike" in answer and "before: contiguous · after: window_search" in answer
    assert "over 3 draws of routing and chance: goodput " in answer and requests.split()[:2] == ["before", "after"]
    assert steps.startswith("Steps of the pool (4 data-parallel of 1 GPU") and "lost to imbalance" in steps
    assert bracket.splitlines()[1].split() == ["none", "hidden", "change", "all", "hidden", "change"]
    assert "token-by-token replay" in trust and "goodput = " in words and "outside the layers = " in words
    assert max(map(len, text.splitlines())) <= 100


def test_a_hundred_columns_whatever_a_scenario_says(report: dict[str, Any]) -> None:
    turned = json.loads(json.dumps(report))
    turned["scenario"] |= {"title": "many words " * 20, "why": "words " * 40}
    turned["plans"]["after"] = "window_search_no_redundancy, eplb_hierarchical, window_search, eplb_no_redundancy"
    turned["reasons"], turned["routing"]["line"] = ["a reason " * 20], "a file " * 30
    turned["slo"] = {"ttft_ms": 123456.0, "tpot_ms": 23456.0}
    turned["pools"][0]["cost"]["label"] = "a profile " * 20
    assert max(map(len, simulate_table.of(turned).splitlines())) <= 100


def test_requests_are_counted_over_the_seconds_that_were_asked_for(report: dict[str, Any]) -> None:
    load, run = report["workload"], report["scenario"]
    assert load["arrivals_s"] > run["duration_s"] and load["span_s"] < load["arrivals_s"]
    assert load["rate_per_s"] == pytest.approx(load["requests"] / load["arrivals_s"])
    assert f"{load['requests']} requests in {load['arrivals_s']:.3g} s ({load['rate_per_s']:.3g}/s)" in (
        simulate_table.of(report)
    )


def test_what_nobody_has_is_a_dash_and_nobody_served_leads(report: dict[str, Any]) -> None:
    turned = json.loads(json.dumps(report))
    for key in ("before", "after"):
        scored = turned[key]["requests"]["scored"]
        turned[key]["requests"] |= {"answered": 0, "refused": scored, "unfinished": 0}
        turned[key]["inside_slo"] = turned[key]["goodput_per_s"] = 0.0
        turned[key]["pools"][0] |= {"refused": scored, "never_fit": scored}
        for name in ("ttft_ms", "tpot_ms", "end_to_end_ms"):
            turned[key][name] = dict.fromkeys(turned[key][name])
    ends = turned["bracket"]
    for key in ends:
        for end in ends[key].values():
            end["tpot_ms"] = dict.fromkeys(end["tpot_ms"])
            end["end_to_end_ms"] = dict.fromkeys(end["end_to_end_ms"])
    turned["verdict"], turned["nothing_served"] = verdict(turned), none_answered(turned)
    text = simulate_table.of(turned)
    assert "nan" not in text.replace("tenant", "") and "TPOT P99 – → – ms" in text
    answer = unbroken(text.split("\n\n")[1])
    assert answer.startswith("before: every scored request was refused, no rank's KV cache ever holds their tokens ")
    assert not none_answered(report)


def test_the_verdict_names_every_plan_that_keeps_nothing(report: dict[str, Any]) -> None:
    turned = json.loads(json.dumps(report))
    turned["before"]["inside_slo"] = turned["after"]["inside_slo"] = 0.0
    assert "no request keeps the SLO: before, after" in _said(turned)
    assert "keeps the SLO" not in _said(report)


def test_too_many_requests_are_found_under_either_plan(tmp_path: Path) -> None:
    """The plan after is a little faster, and as far from keeping up."""
    found = simulate(SimulateRequest(scenario=small_scenario(tmp_path), rate_per_s=9000.0, duration_s=1.0), Heard())
    assert "more requests come than are served: before, after." in _said(found)


def test_few_requests_are_said_to_be_few(report: dict[str, Any]) -> None:
    turned = json.loads(json.dumps(report))
    turned["workload"]["scored"] = 7
    assert "few requests are scored (7): single ones decide the percentiles" in _said(turned)
    turned["workload"]["scored"] = 200
    assert "few requests" not in _said(turned)


def _keys(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for key, inner in content.items():
            yield key
            yield from _keys(inner)
    elif isinstance(content, list):
        for inner in content:
            yield from _keys(inner)


def test_every_key_is_documented(report: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "formats.md").read_text()
    section = text.partition("## Serving simulation (JSON)")[2].partition("\n## ")[0]
    free = {*report["workload"]["tenants"], *report["ratios"], "line"}
    found = set(_keys(report)) - free
    assert len(found) > 100
    assert sorted(key for key in found if not re.search(rf"\b{key}\b", section)) == []


def test_two_pools_have_a_table_each(tmp_path: Path) -> None:
    path = small_scenario(tmp_path, TWO_POOLS)
    found = simulate(SimulateRequest(scenario=path, overlap="full", rate_per_s=40.0, duration_s=1.0), Heard())
    text = simulate_table.of(found)
    assert "Steps of the prefill pool" in text and "Steps of the decode pool" in text
    assert found["workload"]["rate_per_s"] == pytest.approx(40.0)
    assert found["bracket"]["before"]["overlapped"]["tpot_ms"] == found["before"]["tpot_ms"]
    assert [pool["candidates"] for pool in found["pools"]] == [[], []]


def _said(report: dict[str, Any]) -> str:
    return " / ".join(verdict(report))


def test_the_verdict_says_when_requests_end_early(report: dict[str, Any]) -> None:
    run = report["scenario"]
    assert report["workload"]["scored_s"] == [run["warm_up_s"], run["duration_s"]]
    turned = json.loads(json.dumps(report))
    turned["workload"]["scored_s"][1] /= 2
    assert "before the 2 s of the run are over" in _said(turned) and "run are over" not in _said(report)
    turned["workload"]["scored_s"][0] = 0.0
    assert "no request comes after the warm-up of 0.2 s: all are scored" in _said(turned)


def test_the_verdict_names_what_turns_the_answer(report: dict[str, Any]) -> None:
    turned = json.loads(json.dumps(report))
    turned["bracket"]["after"]["serial"]["end_to_end_ms"]["mean"] = 10.0
    turned["bracket"]["before"]["serial"]["end_to_end_ms"]["mean"] = 5.0
    turned["bracket"]["after"]["overlapped"]["end_to_end_ms"]["mean"] = 5.0
    turned["bracket"]["before"]["overlapped"]["end_to_end_ms"]["mean"] = 10.0
    assert "depends on how much communication hides" in _said(turned)
    turned["after"]["pools"][0]["queue_grew"] = True
    assert "more requests come than are served: after." in _said(turned)
    turned["before"]["queue_growth"] = 0.02
    assert "more requests come than are served: before, after." in _said(turned)
    turned["pools"][0]["candidates"] = [
        {"policy": "contiguous", "mean_time_ms": 1.0, "refused": 0.0, "taken": True},
        {"policy": "eplb", "mean_time_ms": 2.0, "refused": 0.0, "taken": False},
    ]
    assert "the plan before stays" in _said(turned)
    pool = turned["after"]["pools"][0]
    pool["seconds"]["dispatch"] += 10.0
    assert "but communication (a token goes to more ranks) +" in _said(turned)
