"""`ebsim offset` as a user runs it, on the two samples in the repository."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.simulate.quality.lossy_file import read_lossy
from tests.ebsim_process import ROOT, SAMPLE, ebsim, ebsim_here, one_line
from tests.one_text import unbroken

SCORES = ROOT / "traces" / "tinymoe_scores.parquet"
ON_SCORES = (SCORES, "--past", SAMPLE, "--past-steps", "0:900", "--warm-up", "20")
PARTS = ("sensing", "feedback", "rerouting", "replicas", "staggering", "queue", "admission")


def _numbers(content: Any) -> Iterator[float]:
    if isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _numbers(inner)
    elif isinstance(content, int | float):
        yield content


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Every part on the sample that holds scores, on two nodes so that admission takes part."""
    done = ebsim_here("offset", *ON_SCORES, "--ranks-per-node", "4", "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_part_is_there_and_every_number_finite(report: dict[str, Any]) -> None:
    assert set(report) == {"trace", "past", "judged", "plan", "cost", "front", *PARTS, "files", "notes"}
    # The judged sample is too short for requests that neither side knows of.
    assert all(report[part] for part in PARTS if part != "admission")
    assert all(map(math.isfinite, _numbers(report)))
    assert (report["judged"]["first_step"], report["judged"]["last_step"]) == (920, 999)
    assert report["past"]["last_step"] < report["judged"]["first_step"]


def keys_of(content: Any) -> str:
    """As docs/formats.md writes them: a{b,c[{d}]}."""
    if isinstance(content, dict):
        inside = ",".join(name + keys_of(value) for name, value in content.items())
        return f"{{{inside}}}"
    return f"[{keys_of(content[0])}]" if isinstance(content, list) and content and isinstance(content[0], dict) else ""


def test_the_documented_keys_are_those_of_the_report(report: dict[str, Any]) -> None:
    documented = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    for part in ("staggering", "queue"):
        assert f"`{part}{keys_of(report[part])}`" in documented
    replicas = {**report["replicas"], "rows": [dict.fromkeys(report["replicas"]["rows"][0], "")]}
    assert f"`replicas{keys_of(replicas | {'sensors': ''})}`" in documented
    (run, *_), one = report["feedback"]["runs"], report["front"]["rows"][0]
    for names in (report["feedback"], report["trace"], report["past"], report["judged"], report["plan"], run, one):
        assert all(name in documented for name in names)


def test_lossless_stands_beside_lossy_and_the_front_is_in_the_measured_order(report: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in report["front"]["rows"]}
    assert all(row["price"]["loss_nats"]["high_nats"] == 0 for row in rows.values() if row["lossless"])
    lossy = [row for row in rows.values() if not row["lossless"]]
    assert all(row["price"]["loss_nats"]["high_nats"] > 0 for row in lossy) and lossy
    assert all("calibrated on a 14 M model" in row["price"]["loss_nats"]["calibrated"] for row in lossy)
    by_mean = [point["name"] for point in report["front"]["fronts"][0]["points"]]
    wanted = ["window plan, 8 × 8", "window plan, 8 × 8 + re-route next cap 1.1"]
    assert [name for name in by_mean if name in wanted] == wanted
    assert by_mean[-1] == "window plan, 8 × 8 + re-route next cap 1.05"
    assert "window plan, 8 × 10 + least-loaded replica" in by_mean
    for never in ("rotation", "×0.8", "heat max"):
        assert not any(never in name for name in by_mean)
    compared = [row["name"] for row in rows.values() if row["remark"]]
    assert compared == ["plan + heat max alpha=0.1 without clip"]
    assert rows["plan + heat max alpha=0.1"]["balance"]["step_mean"] < rows[compared[0]]["balance"]["step_mean"]


def test_a_windowed_gain_is_not_called_a_gain_in_latency(report: dict[str, Any]) -> None:
    none = report["feedback"]["none"]
    for run in report["feedback"]["runs"]:
        assert run["latency_gain"] == (run["balance"]["step_mean"] < none["step_mean"])
    assert not report["feedback"]["predictability"]["helps"]
    assert report["staggering"]["barrier_gain"] == 0


def test_the_table_says_first_whether_an_offset_helps() -> None:
    done = ebsim("offset", *ON_SCORES, "--part", "feedback")
    head, helps, front, *_ = done.stdout.split("\n\n")
    assert head.startswith("LOSSLESS FIRST: ") and "\ncontiguous on 8 ranks" in head and "steps 920–999" in head
    assert helps.startswith("Will a router offset help? offsets cannot help single steps here")
    assert front.startswith("Balance (max/mean rank load; ") and "*  window plan, 8 × 8 " in front
    assert "UNSTABLE" in done.stdout and "Staggering" not in done.stdout


def test_without_scores_what_is_lossless_is_told_and_what_is_missing_said() -> None:
    done = ebsim_here("offset", SAMPLE, "--part", "feedback", "--part", "staggering")
    assert done.returncode == 0
    assert "note: what a router would choose otherwise is left out" in done.stderr and "all_scores" in done.stderr
    assert "barrier per layer +0, it gains nothing there" in unbroken(done.stdout) and "Price of" not in done.stdout


def test_a_gain_near_instability_is_refused_with_a_safe_one(tmp_path: Path) -> None:
    output = tmp_path / "offsets.json"
    output.write_text("mine")
    flags = (*ON_SCORES, "--part", "feedback", "--controller", "layer-P", "-o", output)
    refused = one_line_after_notes(ebsim_here("offset", *flags, "--gain", "0.4").stderr)
    assert (
        "of what is stable" in refused
        and "refused above 0.3" in refused
        and "safe is layer P g=" in refused
        and output.read_text() == "mine"
    )
    forced = ebsim_here("offset", *flags, "--gain", "0.4", "--force", "--format", "json")
    (run,) = json.loads(forced.stdout)["feedback"]["runs"]
    assert run["refused"] and run["share_of_limit"] > 0.7
    written = read_lossy(output)
    assert written.forced and written.advice.startswith("forced: ") and written.share_of_limit == run["share_of_limit"]


def test_the_article_s_law_is_clipped_when_it_is_chosen(tmp_path: Path) -> None:
    output = tmp_path / "offsets.json"
    flags = ("--part", "feedback", "--controller", "heat-max", "--gain", "0.1", "-o", output, "--format", "json")
    done = ebsim_here("offset", *ON_SCORES, *flags)
    (run,) = json.loads(done.stdout)["feedback"]["runs"]
    assert run["name"] == "plan + heat max alpha=0.1" and not run["remark"]
    written = read_lossy(output)
    assert written.offsets is not None and 0 < written.settings["clip"] < 0.1
    assert max(abs(value) for row in written.offsets for value in row) == pytest.approx(written.settings["clip"])


def one_line_after_notes(stderr: str) -> str:
    """The one error, the last line after notes and progress."""
    *before, error = stderr.splitlines()
    assert error.startswith("ebsim: error: ") and not any(line.startswith("ebsim: ") for line in before)
    return error


def test_lossy_settings_are_a_file_that_no_plan_reader_takes(tmp_path: Path) -> None:
    offsets, cap = tmp_path / "offsets.json", tmp_path / "cap.json"
    done = ebsim_here("offset", *ON_SCORES, "--part", "feedback", "--controller", "layer-I", "-o", offsets)
    assert f"wrote {offsets}: lossy, not a plan" in unbroken(done.stdout)
    ebsim_here("offset", *ON_SCORES, "--part", "rerouting", "--cap", "1.1", "-o", cap)
    table, capped = read_lossy(offsets), read_lossy(cap)
    assert table.offsets is not None and (len(table.offsets), len(table.offsets[0])) == (8, 64)
    assert (capped.cap, capped.rule, capped.offsets) == (1.1, "next", None)
    assert capped.price["loss_nats"]["high_nats"] > 0
    into = ("-o", tmp_path / "x")
    for command in (
        ("export", "sglang", offsets, *into), ("adopt", "sglang", offsets, *into), ("lint", offsets), ("gate", offsets),
        ("lint", offsets, "--engine", "vllm"), ("replay", SAMPLE, "--plan", offsets), ("diff", offsets, offsets),
    ):  # fmt: skip
        refused = ebsim_here(*command)
        assert refused.returncode == 2 and "lossy" in one_line_after_notes(refused.stderr)


def test_the_staggered_plan_is_an_ordinary_plan(tmp_path: Path) -> None:
    plan, staggered = tmp_path / "plan.json", tmp_path / "staggered.json"
    ebsim_here("plan", SAMPLE, "--policy", "eplb", "--slots-per-rank", "8", "--force", "-o", plan)
    done = ebsim_here("offset", SAMPLE, "--plan", plan, "--part", "staggering", "--stagger-output", staggered)
    assert done.returncode == 0 and "lossless" in done.stdout
    before, after = read_plan(plan), read_plan(staggered)
    assert after.parent_fingerprint == before.fingerprint() and after.policy == "eplb+staggered"
    for old, new in zip(before.layers, after.layers, strict=True):
        assert sorted(old.expert_of_slot) == sorted(new.expert_of_slot)
    judged = ebsim_here("replay", SAMPLE, "--plan", staggered, "--baseline", plan, "--format", "json")
    report = json.loads(judged.stdout)
    assert report["plan"]["rank_imbalance"] == report["baseline"]["rank_imbalance"]


def test_choosing_a_replica_is_charged_and_can_be_stated() -> None:
    flags = ("--part", "replicas", "--choice-us", "least-loaded=4", "--format", "json")
    done = ebsim_here("offset", SAMPLE, *flags)
    rows = {row["rule"]: row for row in json.loads(done.stdout)["replicas"]["rows"]}
    stated, local = rows["least-loaded"], rows["least-loaded-local"]
    assert (stated["budget_us"], stated["budget_source"]) == (4.0, "stated")
    assert local["budget_us"] == 1.0 and rows["optimum"]["budget_us"] == 100.0
    for row in rows.values():
        assert row["net_us"] == pytest.approx(row["saved_us"] - row["sensor_us"] - row["budget_us"])


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    figure = tmp_path / "front.svg"
    done = ebsim_here("offset", *ON_SCORES, "--part", "rerouting", "--cap", "1.1", "--figure", figure)
    assert f"drew {figure}" in unbroken(done.stdout) and "re-route next cap 1.1" in figure.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which trace?"),
        ((SCORES, "--part", "magic"), "'magic' is not known"),
        ((SCORES, "--steps", "5"), "'5' is no range of steps"),
        ((SCORES, "--steps", "9:9"), "holds no step"),
        ((SCORES, "--steps", ":9"), "or 100: for all from there on"),
        ((SCORES, "--cap", "0.9"), "a rank cap of 0.9 × the mean leaves no room — give 1 or more"),
        ((SCORES, "--controller", "rank-P"), "no controller 'rank-P'"),
        ((SCORES, "--controller", "heat-max"), "no safe gain to choose"),
        ((SCORES, "--figure", "/nowhere/x.svg"), "choose another --figure"),
        ((SAMPLE, "--stagger-output", SAMPLE), "choose another --stagger-output"),
        ((SCORES, "--gain", "0.1"), "a gain of which controller?"),
        ((SCORES, "--gain", "nan", "--controller", "layer-P"), "no positive number"),
        ((SCORES, "--past-steps", "0:9"), "steps of which past?"),
        ((SCORES, "--controller", "layer-P", "--cap", "1.1"), "not both"),
        ((SCORES, "--choice-us", "least-loaded"), "'least-loaded' is no time of a rule"),
        ((SCORES, "--choice-us", "best=3"), "'best' is not known"),
        ((SCORES, "--choice-us", "optimum=-1"), "-1.0 µs for optimum is no time"),
        ((SCORES, "--choice-us", "optimum=1", "--part", "queue"), "needs the part replicas"),
        ((SCORES, "--cap", "1.1", "--part", "replicas"), "needs the part rerouting"),
        ((SCORES, "--controller", "layer-P", "--part", "sensing"), "needs the part feedback"),
        ((SCORES, "--cap", "1.1", "-o", "x.svg", "--figure", "x.svg"), "two results in one file"),
        (("--scenario", "x.toml", "--ranks", "4"), "brings its own traffic"),
        ((SCORES, "-o", "x.json"), "which mechanism is to be written?"),
        ((SCORES, "--figure", "x.png"), "not an .svg file"),
        ((SCORES, "--past", SAMPLE, "--stagger-output", "x.json"), "first half of its own trace"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str | Path, ...], says: str) -> None:
    done = ebsim_here("offset", *arguments)
    assert done.returncode == 2 and says in one_line(done)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((SCORES,), "sensor windows of 12 steps"),
        ((SCORES, "--past", SCORES, "--warm-up", "20"), "the past holds tokens of step 920, which is scored"),
        ((SCORES, "--past", SAMPLE, "--warm-up", "20"), "which is scored"),
        ((SAMPLE, "--steps", "0:500"), "the second half of the trace is judged, which begins at step"),
        ((SAMPLE, "--controller", "layer-P"), "holds no scores"),
    ],
)
def test_what_only_the_trace_can_tell_is_one_line_too(arguments: tuple[str | Path, ...], says: str) -> None:
    done = ebsim_here("offset", *arguments)
    assert done.returncode == 2 and says in one_line_after_notes(done.stderr)


def test_the_capacity_claim_is_judged_with_the_assumptions_it_hangs_on() -> None:
    scenario = ROOT / "scenarios" / "easybalance-8xa100.toml"
    done = ebsim_here("offset", "--scenario", scenario, "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["claimed_gain"] == pytest.approx(1.4) and all(map(math.isfinite, _numbers(report)))
    documented = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    for names in (report, report["rungs"][0], report["assumptions"][0], report["plausibility"], report["baseline"]):
        assert all(name in documented for name in names)
    rungs = {rung["mechanism"]: rung for rung in report["rungs"]}
    assert rungs["staggering"]["added"] == pytest.approx(1.0, abs=0.005)
    holds = {one["holds_lossless"] for one in report["assumptions"]}
    assert holds == {True, False}
    assert not report["plausibility"]["needed_peak_share"] <= 1
    assert "seconds" not in report["explained"][0] and report["explained"][0].startswith("the claim of x1.40 ")
    refused = ebsim_here("offset", SCORES, "--scenario", scenario)
    assert refused.returncode == 2 and "brings its own traffic" in one_line(refused)
