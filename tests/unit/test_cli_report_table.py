"""The tables: what a person reads first, and that every sentence fits its numbers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim import kernels
from easybalance_sim.cli import report_table
from easybalance_sim.cli.console import Console
from easybalance_sim.pipeline import make_plan
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from tests.listeners import Heard
from tests.one_text import unbroken
from tests.skewed_traces import skewed_trace


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = skewed_trace(tmp_path_factory.mktemp("table") / "skewed.parquet")
    return make_plan(PlanRequest(settings=Settings(traces=(path,), ranks=4, slots_per_rank=5)), Heard())[0]


@pytest.fixture
def report(made: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(made)
    found["baseline"]["layer_us"]["p99"] = 1.5 * found["plan"]["layer_us"]["p99"]
    return found


def fail(report: dict[str, Any], *criteria: str, status: str = "rejected") -> None:
    report["verdict"]["status"] = status
    for finding in report["verdict"]["findings"]:
        finding["ok"] = finding["criterion"] not in criteria


def head(report: dict[str, Any]) -> list[str]:
    return report_table.of_plan(report).splitlines()[:4]


def test_the_first_lines_say_verdict_cluster_and_evidence(report: dict[str, Any]) -> None:
    report["plan_file"] = "plan.json"
    policy = report["plan"]["policy"]
    assert head(report)[:3] == [
        f"ACCEPTED: {policy}, written to plan.json",
        "4 ranks × 5 slots on 1 node, profile h200, dispatch even",
        f"judged on {report['split']['held_out_tokens']:,} tokens, 10 windows of 16 steps, split by time",
    ]
    assert head(report)[3].startswith("seconds: h200")


def test_an_accepted_plan_without_a_file_says_how_to_write_it(report: dict[str, Any]) -> None:
    assert head(report)[0].endswith("not written (name a file with -o)")


def test_a_refusal_names_what_was_missed(report: dict[str, Any]) -> None:
    fail(report, "fit_gap_max", "p99_imbalance_drop_min")
    assert head(report)[0].startswith("REJECTED (p99_imbalance_drop_min, fit_gap_max): ")
    assert head(report)[0].endswith(", not written")
    report["plan_file"] = "plan.json"
    assert " ".join(head(report)[:2]).endswith("window_search, written to   plan.json all the same (--force)")


def test_a_lack_of_evidence_is_named(report: dict[str, Any]) -> None:
    fail(report, "held_out_steps_min", status="insufficient_evidence")
    assert head(report)[0].startswith("INSUFFICIENT_EVIDENCE (held_out_steps_min): ")


def test_one_is_singular(report: dict[str, Any]) -> None:
    report["cluster"] |= {"ranks": 1, "nodes": 1, "slots_per_rank": 1}
    report["split"] |= {"held_out_windows": 1, "window_steps": 1, "held_out_tokens": 1}
    report["migration"] |= {"moves": 1}
    text = report_table.of_plan(report)
    assert "1 rank × 1 slot on 1 node," in text
    assert "judged on 1 token, 1 window of 1 step, split by time" in text
    assert "1 expert to copy" in text


def test_windows_are_named_as_they_were_made(report: dict[str, Any]) -> None:
    report["split"]["window_seconds"] = 2.5
    assert "10 windows of 2.5 s, " in head(report)[2]
    report["trace"]["kind"] = "counts"
    assert "10 windows as recorded, " in head(report)[2]
    report["split"]["held_out_windows"] = 0
    report["split"] |= {"fit_tokens": 1234}
    assert head(report)[2].startswith("nothing is held out: figures of the 1,234 tokens of the fit")


@pytest.mark.parametrize(
    ("by", "says"), [("all", "all of the trace"), ("unseen", "all that the plan was not fitted on")]
)
def test_replay_says_which_part_of_the_trace(report: dict[str, Any], by: str, says: str) -> None:
    report |= {"split": {**report["split"], "by": by}, "plan_file": "old.json"}
    lines = report_table.of_replay(report).splitlines()
    assert lines[0] == f"ACCEPTED: {report['plan']['policy']}, old.json"
    assert f", {says} seconds:" in unbroken("\n".join(lines))
    assert "candidate" not in "\n".join(lines)


def test_changes_are_percent_of_the_baseline(report: dict[str, Any]) -> None:
    report["baseline"]["lower_bound_imbalance"], report["plan"]["lower_bound_imbalance"] = 2.0, 1.5
    report["baseline"]["cross_node_bytes_per_token"] = 0.0
    report["plan"]["cross_node_bytes_per_token"] = 4096.0
    report["baseline"]["slots"] = report["plan"]["slots"] = 20
    rows = {line[:28].strip(): line.split() for line in report_table.of_plan(report).splitlines() if line}
    assert rows["lower bound, average load"][-4:] == ["2.000", "1.500", "-25.0", "%"]
    assert rows["cross-node bytes per token"][-3:] == ["0", "4,096", "new"]
    assert rows["slots per layer"][-3:] == ["20", "20", "–"]


def test_migration_in_units_that_can_be_read(report: dict[str, Any]) -> None:
    def line(**changes: Any) -> str:
        report["migration"] |= changes
        return next(row for row in report_table.of_plan(report).splitlines() if row.startswith("migration"))

    assert line(moves=1200, bytes=2_500_000_000, seconds=12.34).endswith("1,200 experts to copy, 2,500.0 MB, 12.3 s")
    assert line(seconds=0.0421).endswith("42 ms")
    assert line(seconds=0.00001).endswith("10 µs")
    assert line(moves=0, bytes=0, seconds=0.0) == "migration from the baseline: none"


def test_where_the_room_ends_and_how_much_of_the_way_is_done(report: dict[str, Any]) -> None:
    report["plan"]["rank_imbalance"]["mean"], report["plan"]["lower_bound_per_window"]["mean"] = 1.0971, 1.0109
    report["floor"]["rank_imbalance"]["mean"], report["gain"]["share_of_floor"] = 1.0629, 0.638
    beginning = "mean 1.097; a plan made from this very traffic reaches 1.063; "
    end = f" (none with {report['plan']['slots']} slots can be under 1.011) "
    assert f"{beginning}this one takes 64 % of that gain{end}" in unbroken(report_table.of_plan(report))
    report["gain"]["share_of_floor"] = None
    assert f"{beginning}the baseline is no worse{end}" in unbroken(report_table.of_plan(report))
    report["gain"]["share_of_possible"] = None
    assert f"{beginning}nothing can be gained{end}" in unbroken(report_table.of_plan(report))


def test_the_promise_of_the_folds_where_there_are_any(report: dict[str, Any]) -> None:
    gains = {kind: {"removed_excess": {"mean": share}} for kind, share in (("interleaved", 0.476), ("blocked", 0.26))}
    report["fit"]["cross_validation"] = gains
    line = "cross-validated on the fit side, of the baseline's excess: 48 % goes on its topics, 26 % on others"
    assert all(line in unbroken(show(report)) for show in (report_table.of_plan, report_table.of_replay))
    report["fit"]["cross_validation"] = None
    assert "cross-validated" not in report_table.of_plan(report)
    report["fit"] = None
    assert "cross-validated" not in report_table.of_replay(report)


def test_a_plan_in_force_that_nothing_beats_stays(report: dict[str, Any]) -> None:
    fail(report, "p99_imbalance_drop_min")
    report["verdict"]["status"], report["plan_file"] = "rejected", None
    assert report_table.of_plan(report).splitlines()[0].endswith(", not written")
    report["baseline"]["policy"], report["migration"]["moves"] = "keep", 0
    told = unbroken(report_table.of_plan(report))
    assert ", not written: the plan in force stays, no other is expected to be better 4 ranks" in told


def test_prices_are_shown_where_they_are_paid_and_the_front_is_marked(report: dict[str, Any]) -> None:
    assert "moves" not in report_table.of_plan(report)
    report["cluster"]["nodes"], report["baseline"]["policy"] = 2, "keep"
    for number, row in enumerate(report["candidates"]):
        row |= {"moves": 1000 + number, "cross_node_bytes_per_token": 2000.0 + number, "pareto": []}
    report["candidates"][0]["pareto"] = ["cross_node_bytes"]
    (block,) = (part for part in report_table.of_plan(report).split("\n\n") if "candidate" in part)
    heads = block[: block.index("→")]
    assert all(word in heads for word in ("node", "token", "moves"))
    rows = block.splitlines()
    first = next(row for row in rows if f"{report['candidates'][0]['policy']} * " in row)
    assert "2,000" in first and "1,000" in first
    assert block.count(" * ") == 1 and rows[-1].startswith("* Pareto front")


def test_candidates_are_sorted_and_the_chosen_one_is_marked(report: dict[str, Any]) -> None:
    lines = report_table.of_plan(report).splitlines()
    start = next(row for row, line in enumerate(lines) if "candidate (fit side)" in line)
    table = lines[start + 1 : start + 1 + len(report["candidates"])]
    order = [row["policy"] for row in sorted(report["candidates"], key=lambda row: float(row["objective_us"]))]
    assert [line.replace("→", " ").split()[0] for line in table] == order
    assert [line.split()[1] for line in table if line.startswith("→")] == [report["plan"]["policy"]]


def test_findings_show_what_was_observed(report: dict[str, Any]) -> None:
    fail(report, "fit_gap_max")
    report["verdict"]["findings"][-1] |= {"observed": 0.23456, "limit": 0.15, "note": "mean imbalance 1.0 → 1.2"}
    report["verdict"]["findings"][-2] |= {"observed": None, "note": "not judged: no plan is in force"}
    *_, unjudged, why, missed, note = report_table.of_findings(report["verdict"]).splitlines()
    assert (missed.split(), note) == (["NO", "fit_gap_max", "15", "%", "23.46", "%"], "      mean imbalance 1.0 → 1.2")
    assert (unjudged.split(), why[:11]) == (["–", "migration_seconds_max", "60.0", "s", "–"], "      not j")


def test_a_plan_that_is_no_faster_says_so_under_the_verdict(report: dict[str, Any]) -> None:
    report["baseline"]["layer_us"]["p99"], report["plan"]["layer_us"]["p99"] = 100.0, 101.0
    report["cost"]["band_p90"] = 0.37
    line = "balance better, no time gained: layer P99 100.0 → 101.0 µs"
    assert unbroken("\n".join(head(report)[1:3])) == f"{line} (inside the model's error band)"
    report["cost"]["band_p90"] = 0.005
    assert head(report)[1] == line
    faster, assumed = copy.deepcopy(report), copy.deepcopy(report)
    faster["plan"]["layer_us"]["p99"], assumed["model"]["assumed"] = 99.0, True
    assert all("no time gained" not in report_table.of_plan(other) for other in (faster, assumed))
    fail(report, "fit_gap_max")
    assert "no time gained" not in report_table.of_plan(report)


def test_slots_that_the_plan_leaves_empty_are_said(report: dict[str, Any]) -> None:
    assert "stay empty" not in report_table.of_plan(report)
    report["plan"]["slots"] = 16
    assert head(report)[2] == "the plan fills 16 of the 20 slots of a layer, 4 stay empty"


def test_no_line_is_wider_than_80_columns(report: dict[str, Any]) -> None:
    report["cost"]["label"] += " · uncalibrated: " + "; ".join(["model width 128×64 lies outside"] * 5)
    folds = {kind: {"removed_excess": {"mean": 0.476}} for kind in ("interleaved", "blocked")}
    report["fit"]["cross_validation"] = folds
    report["verdict"]["findings"][-1]["note"] = "excess of the baseline's mean imbalance removed: all of it, " * 2
    report["cluster"]["nodes"], report["baseline"]["policy"] = 2, "keep"
    report["plan"]["policy"] = "window_search_no_redundancy"
    for row in report["candidates"]:
        row |= {"policy": "window_search_no_redundancy", "moves": 12345, "cross_node_bytes_per_token": 22000.0}
        row |= {"pareto": ["migration_bytes"]}
    lines = report_table.of_plan(report).splitlines()
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("warm", [True, False])
def test_the_first_run_says_that_it_compiles(
    warm: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    if warm:
        (tmp_path / "numba_dispatch.dispatch-1.py311.nbi").touch()
    assert kernels.compiled_before() is warm
    report_table.warn_of_first_run(Console())
    assert ("first run: compiling kernels" in capsys.readouterr().err) is not warm
