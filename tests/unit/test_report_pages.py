"""Pages of everything but plans: what they say of documents that commands printed, and of odd ones."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from easybalance_sim.cli import capacity_table, offset_table, rollout_table, simulate_table
from easybalance_sim.errors import UsageError
from easybalance_sim.report import rollout_words
from easybalance_sim.report.canvas import inline_svg_of
from easybalance_sim.report.charts.front import Point
from easybalance_sim.report.content import Facts, Figure, MadeBy, Page, Table
from easybalance_sim.report.html.render import html_of
from easybalance_sim.report.pages import offset, page_of
from easybalance_sim.report.sections.control_loops import _beyond
from tests.golden.report.documents.make_golden import FOLDER, SAID, document, documents, said
from tests.offload_reports import example_report as offload_report
from tests.one_text import unbroken
from tests.sweep_reports import example_report as sweep_report

MADE_BY = MadeBy(command="ebsim", versions={"ebsim": "any"})
MOST_BYTES = 3_000_000
PRINTED = {"simulate": simulate_table.of, "claim": offset_table.of_scenario}


def page(report: dict[str, Any]) -> Page:
    return page_of(report, MADE_BY)


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """A document, and what is otherwise."""
    report = document(name)
    change(report)
    return report


def _one_loop(report: dict[str, Any]) -> None:
    report["loops"] = report["loops"][:1]


def _nothing_moved(report: dict[str, Any]) -> None:
    report["loops"] = [loop for loop in report["loops"] if not loop["bytes"]]


def _no_timeline(report: dict[str, Any]) -> None:
    del report["timeline"]


def _nobody_served(report: dict[str, Any]) -> None:
    report["nothing_served"] = True
    report["verdict"] = ["before: every scored request was refused, the queue was full or they never fit"]
    report["plans"]["after"] = report["plans"]["before"]
    for key in ("before", "after"):
        report[key]["inside_slo"] = report[key]["goodput_per_s"] = 0.0
        for name in ("ttft_ms", "tpot_ms", "end_to_end_ms"):
            report[key][name] = dict.fromkeys(report[key][name])
            for end in report["bracket"][key].values():
                end[name] = dict.fromkeys(end[name])
    report["ratios"] = dict.fromkeys(report["ratios"])
    report["draws"] = [report["ratios"]] * 3


def _nothing_known(report: dict[str, Any]) -> None:
    (pool,) = report["pools"]
    pool["candidates"], pool["kv_given"] = [], True
    for key in ("before", "after"):
        pool[key]["memory_bytes"], pool[key]["check"] = None, None


def _no_rate(report: dict[str, Any]) -> None:
    """No rate holds, no cluster can be, and no layout either."""
    stated = report["highest_rate"]["stated"]
    for key in ("before", "after", "even"):
        stated[key] |= {"rate_per_s": 0.0, "at": None}
    stated |= {"gain": None, "told_apart": False}
    report["fewest_gpus"][0] |= {
        "before": {"gpus": None, "at": None}, "after": {"gpus": None, "at": None},
        "tried": [{"gpus": 3, "refused": "3 GPUs do not hold the weights"}],
    }  # fmt: skip
    for found in (*report["replicas"], *report["parallelism"]):
        found["rows"] = [row | {"refused": "cannot be", "before": None, "after": None} for row in found["rows"]]
    report["replicas"][0]["worth_buying"] = None
    report["parallelism"][0]["best"] = {"before": [], "after": []}


def _parts_left_out(report: dict[str, Any]) -> None:
    for name in ("sensing", "feedback", "replicas", "staggering", "queue"):
        report[name] = None
    for front in report["front"]["fronts"]:
        front["knee"] = None


def _one_point() -> dict[str, Any]:
    report = sweep_report(tokens=False)
    for curve in report["curves"]:
        curve["points"] = curve["points"][:1]
        curve["knee"] = {"seconds": None, "imbalance": None}
        curve["held_out_windows"] = 0
    return report


def _no_noise() -> dict[str, Any]:
    report = sweep_report()
    for curve in report["curves"]:
        curve["knee"] = {"seconds": None, "imbalance": None}
        for point in curve["points"]:
            point["gain"] = {key: {"saved": 0.0, "noise": None, "counts": False} for key in point["gain"]}
    return report


def _only_bounds() -> dict[str, Any]:
    report = offload_report()
    report["batches"] = report["batches"][:1]
    report["batches"][0]["curves"] = report["batches"][0]["curves"][:1]
    report["batches"][0]["batch"] = None
    return report


ODD: dict[str, Callable[[], dict[str, Any]]] = {
    "sweep": sweep_report,
    "one point": _one_point,
    "no noise": _no_noise,
    "offload": offload_report,
    "only bounds": _only_bounds,
    "one loop": lambda: changed("rebalance", _one_loop),
    "nothing moved": lambda: changed("rebalance", _nothing_moved),
    "no timeline": lambda: changed("rebalance", _no_timeline),
    "strata": lambda: {
        "by": "phase",
        "strata": {"1st": document("rebalance"), "2nd": document("rebalance")},
        "notes": [],
    },
    "nobody served": lambda: changed("simulate", _nobody_served),
    "nothing known": lambda: changed("simulate", _nothing_known),
    "no rate": lambda: changed("capacity", _no_rate),
    "parts left out": lambda: changed("offset", _parts_left_out),
}
REPORTS: dict[str, Callable[[], dict[str, Any]]] = {**{name: partial(document, name) for name in documents()}, **ODD}


@pytest.mark.parametrize("name", documents())
def test_what_is_said_and_drawn_is_what_it_was(name: str) -> None:
    wanted = json.loads((FOLDER / f"{name}{SAID}").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(said(page(document(name))))) == wanted


@pytest.mark.parametrize("kind", REPORTS)
def test_every_report_has_a_page_whose_words_are_whole(kind: str) -> None:
    found = page(REPORTS[kind]())
    blocks = [block for section in found.sections for block in section.blocks]
    names = [*(block.name for block in blocks), *(section.name for section in found.sections)]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    said = [found.headline.text, *(section.lead for section in found.sections)]
    said += [text for block in blocks if isinstance(block, Figure) for text in (block.alt, block.conclusion)]
    for text in said:
        assert re.fullmatch(r"\S.*[.]", text), text
        assert not re.search(r"\b(nan|inf|None)\b|  |\.\.|\. \.", text), text
    for block in blocks:
        if isinstance(block, Facts):
            assert all(fact.label and fact.value for fact in block.facts)
            continue
        table = block if isinstance(block, Table) else block.chart.table()
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows), block.name


@pytest.mark.parametrize("kind", ["simulate", "one loop", "one point", "only bounds", "no rate", "parts left out"])
def test_odd_figures_are_drawn_and_pages_stay_small(kind: str) -> None:
    assert len(html_of(page(REPORTS[kind]())).encode()) < MOST_BYTES


def test_a_figure_is_the_same_bytes_each_time() -> None:
    for figure in page(document("offset")).figures()[:2]:
        assert inline_svg_of(figure.chart, "a", "") == inline_svg_of(figure.chart, "a", "")


def test_parts_of_the_traffic_with_names_of_other_scripts_have_their_own_figures() -> None:
    run = document("rebalance")
    found = page({"by": "workload", "strata": {"聊天": run, "代码": run, "a": run, "a_step": run}, "notes": []})
    names = [block.name for section in found.sections for block in (section, *section.blocks)]
    assert len(set(names)) == len(names) and "1_x_saved" in names and "2_x_saved" in names


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (lambda point: [point], "There is no knee. "),
        (lambda point: [point, _loop_at(3e9, 40.0)], "The knee is b; c moves 2.0 GB per hour more and saves 20.0 s "),
    ],
)
def test_what_lies_beyond_the_knee_is_named(after: Callable[[Any], list[Any]], said: str) -> None:
    loops = [_loop_at(0.0, 0.0), *after(_loop_at(1e9, 20.0))]
    for loop, name in zip(loops, "abc", strict=False):
        loop["policy"] = name
    report = changed("rebalance", lambda run: run.update(loops=loops))
    (figure,) = [one for one in page(report).figures() if one.name == "front"]
    assert said in figure.conclusion
    assert _beyond((Point(name="a", x=0.0, y=0.0, on_front=True, knee=True),)) == ""


def test_what_more_loss_buys_than_at_the_knee_is_named() -> None:
    report = document("offset")
    knee = next(front["knee"] for front in report["front"]["fronts"] if front["axis"] == "step_p99")
    (figure,) = [one for one in page(report).figures() if one.name == "front_step_p99"]
    assert f"The knee is {knee}; window plan, 8 × 8 + re-route next cap 1.1 goes on from 1.241 to 1.143, at " in (
        figure.conclusion
    )
    rows = [row for row in report["front"]["rows"] if row["name"] == knee]
    assert offset._beyond(rows, rows[0], "step_p99") == ""


@pytest.mark.parametrize(
    ("saved", "word", "said"),
    [
        (
            0.02,
            "LOSSLESS FIRST",
            "replica is more even, 1.081, but its sensor and its choosing take 29.0 µs of a layer ",
        ),
        (50.0, "LOSSLESS FIRST", "replica costs no quality after what its rule takes (its sensor and its choosing "),
        (None, "LOSSLESS FIRST", "replica is more even, 1.081, but what choosing in every step takes is not known "),
    ],
)
def test_a_rule_that_takes_more_than_it_saves_is_not_advised(saved: float | None, word: str, said: str) -> None:
    def priced(report: dict[str, Any]) -> None:
        (rule,) = [one for one in report["replicas"]["rows"] if one["rule"] == "least-loaded"]
        rule["saved_us"] = saved
        rule["net_us"] = None if saved is None else saved - rule["sensor_us"] - rule["budget_us"]

    report = changed("offset", priced)
    found = page(report)
    assert found.headline.word == word and f"window plan, 8 × 10 + least-loaded {said}" in found.headline.text
    assert unbroken(offset_table.of(report)).startswith(f"{word}: {found.headline.text} ")
    advised = next(fact.note for fact in found.key if fact.label.startswith("best lossless"))
    assert advised.startswith("window plan, 8 × 10, ") == (saved != 50.0)


@pytest.mark.parametrize(
    ("needed", "qps", "gains", "word", "mood"),
    [
        (3.4, 43.0, (1.5, 1.5), "RATIO HOLDS, BASELINE DOES NOT", "unsure"),
        (0.9, 43.0, (1.3, 1.5), "RATIO HOLDS WITH LOSS, BASELINE DOES NOT", "unsure"),
        (0.9, 400.0, (1.5, 1.5), "HOLDS", "good"),
        (0.9, 400.0, (1.3, 1.5), "HOLDS WITH LOSS", "unsure"),
        (3.4, 43.0, (1.3, 1.3), "DOES NOT HOLD", "bad"),
    ],
)
def test_a_claim_whose_baseline_cannot_be_does_not_simply_hold(
    needed: float, qps: float, gains: tuple[float, float], word: str, mood: str
) -> None:
    def claimed(report: dict[str, Any]) -> None:
        report["plausibility"]["needed_peak_share"], report["baseline"]["qps"] = needed, qps
        report["lossless_gain"], report["total_gain"] = gains

    report = changed("claim", claimed)
    found = page(report).headline
    assert (found.word, found.mood.value) == (word, mood)
    assert ("The claimed baseline of 500 requests/s asks for" in found.text) == (qps == 43.0)
    assert found.text.endswith("Lossless it holds under 5 of 8 other readings of the claim.")
    assert f"{word}: {found.text} " in unbroken(offset_table.of_scenario(report))


@pytest.mark.parametrize(("name", "word"), [("rollout", "SAFE"), ("broken", "UNSAFE (without verify)")])
def test_a_rollout_is_safe_by_a_protocol_that_engines_do_not_follow(name: str, word: str) -> None:
    def said(report: dict[str, Any]) -> str:
        (found,) = rollout_words.meant(report)
        assert page(report).headline.lines[0] == f"{found}." and found.endswith(
            "Engines do not follow it by themselves"
        )
        assert found in unbroken(rollout_table.of_rollout(report))
        return found

    def stopped(report: dict[str, Any]) -> None:
        report["protocol"]["in_place"] = True

    status, _, without = word.partition(" ")
    start = f"{status} is said of this protocol{without and ' '}{without}: all ranks"
    assert said(document(name)).startswith(f"{start} load beside the old experts and verify, ")
    assert said(changed(name, stopped)).startswith(f"{start} stop, load over the old experts and verify, ")
    assert rollout_words.meant({"outcome": {"status": "does-not-fit"}}) == []


def test_a_plan_that_was_held_against_itself_is_not_told_of_as_a_tolerance() -> None:
    def same(report: dict[str, Any]) -> None:
        report["plans"]["after"] = report["plans"]["before"]
        for ends in (report["highest_rate"]["stated"], *report["highest_rate"]["bracket"].values()):
            ends |= {"after": ends["before"], "gain": 1.0, "told_apart": False}

    report = changed("capacity", same)
    found = page(report)
    (figure,) = [one for one in found.figures() if one.name == "highest_rate"]
    assert found.headline.word == "NO DIFFERENCE" and found.headline.text.endswith(" after: no other plan was taken.")
    assert figure.conclusion == "The plan after is the plan before: no other one was taken."
    text = capacity_table.of(report)
    assert text.count("(no other plan was taken)") == 3 and "told apart" not in text


def test_a_scenarios_background_is_no_part_of_the_verdict_and_both_speeds_say_of_what_they_are() -> None:
    report = document("simulate")
    found, why = page(report), " ".join(report["scenario"]["why"].split())
    (scenario,) = [fact for fact in found.provenance if fact.label == "scenario"]
    assert why and scenario.note == why and why not in found.headline.lines
    (work,) = [section for section in found.sections if section.name == "work"]
    assert work.lead.endswith(
        "The batches after would be done 1.027 times as fast on balanced ranks; the run with ranks alike serves sooner "
        "and so has other batches, too: 1,522 instead of 1,637 tokens in a step, which takes 32.8 ms instead of "
        "35.3 ms."
    )


@pytest.mark.parametrize(("kept", "word"), [(("plan", "EPLB, 8 × 8, every 1 s"), "KEEP THE PLAN"), ((), "LOSSY ONLY")])
def test_what_is_kept_where_nothing_lossless_is_more_even(kept: tuple[str, ...], word: str) -> None:
    report = document("offset")
    for row in report["front"]["rows"]:
        row["remark"] = "" if row["name"] in kept else "left out"
        row["balance"]["step_mean"] -= row["name"] == "plan"
    assert page(report).headline.word == word


def _loop_at(moved: float, saved: float) -> dict[str, Any]:
    """A loop of the document, in an hour of serving."""
    loop: dict[str, Any] = copy.deepcopy(document("rebalance")["loops"][0])
    return loop | {
        "seconds": 3600.0,
        "bytes": moved,
        "saved_s_per_hour": saved,
        "events": [],
        "replans": int(moved > 0),
    }


def test_figures_of_offloading_are_read_off_at_the_answer() -> None:
    report = offload_report()
    (batch,) = report["batches"] = report["batches"][:1]
    for curve in batch["curves"]:
        small = copy.deepcopy(curve["points"][0]) | {"share": 0.05, "added_us": {"mean": 1e4, "p99": 1e4}}
        curve["points"].insert(0, small)
    for share in (0.5, 1.0):
        for curve in batch["curves"]:
            curve["within_from"]["share"] = share
        waits = next(one for one in page(report).figures() if one.name.endswith("_waits"))
        assert waits.conclusion == "With 50 % of the experts there lru is lowest: 0.4 ms."


def test_zero_redundancy_that_wins_has_the_arrow_and_no_two_columns_one_name() -> None:
    report = sweep_report()
    for curve in report["curves"]:
        curve["knee"] = {"seconds": None, "imbalance": None}
    tables = [block for block in page(report).sections[-1].blocks if isinstance(block, Table)]
    assert tables and all([row[0] for row in table.rows].index("→") == 0 for table in tables)
    assert all(len(set(table.columns)) == len(table.columns) for table in tables)


def test_nearly_all_experts_are_not_all() -> None:
    report = offload_report()
    curves = [curve for batch in report["batches"] for curve in batch["curves"]]
    assert page(report).headline.word == "KEEP ALL"
    for curve in curves:
        curve["within_from"] |= {"share": 255 / 256}
    found = page(report)
    assert (found.headline.word, found.key[0].value) == ("99.6 %", "99.6 %")
    for curve in curves:
        curve["within_from"] = None
    assert (page(report).headline.word, page(report).key[0].value) == ("KEEP ALL", "all")


@pytest.mark.parametrize("name", ["simulate", "claim"])
def test_a_band_of_nothing_is_not_known(name: str) -> None:
    def unmeasured(report: dict[str, Any]) -> None:
        report["band_p90"] = 0.0
        for pool in report.get("pools", ()):
            pool["cost"]["band_p90"] = 0.0

    found, text = page(changed(name, unmeasured)), PRINTED[name](changed(name, unmeasured))
    told = " ".join([*found.headline.lines, *(fact.value for fact in found.provenance)])
    for words in (told, unbroken(text)):
        assert "error band not known" in words and "±0 %" not in words and "± 0%" not in words


def test_a_report_without_its_fronts_is_refused() -> None:
    def without(report: dict[str, Any]) -> None:
        report["front"]["fronts"] = []

    with pytest.raises(UsageError, match="'step_mean' is missing"):
        page(changed("offset", without))
