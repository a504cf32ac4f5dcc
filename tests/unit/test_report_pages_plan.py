"""Pages of plans: every kind of report has one, and what figures say is so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.report.content import Facts, Figure, MadeBy, Mood, Page, Table
from easybalance_sim.report.html.render import html_of
from easybalance_sim.report.pages import page_of
from tests.plan_reports import changed, counted, even, plan_report, stressed, swapped

MADE_BY = MadeBy(command="ebsim plan toy.parquet", versions={"ebsim": "0"})
MOST_BYTES = 3_000_000


def _no_held_out() -> dict[str, Any]:
    return plan_report(split__held_out_windows=0, split__held_out_steps=0, split__held_out_tokens=0)


def _replay() -> dict[str, Any]:
    report = plan_report(fit=None, split__fit_windows=None, split__by="all")
    return {name: value for name, value in report.items() if name != "candidates"}


def _unknown_model() -> dict[str, Any]:
    return plan_report(
        model__assumed=True, model__name="", trace__model="",
        memory={
            **plan_report()["memory"], "kv_cache_loss_frac": None, "kv_tokens_lost": None, "expert_memory_frac": None,
            "bytes_per_redundant_slot": None, "staging_bytes": None, "activation_bytes": None,
            "dispatch_buffer": {"sent_per_rank": 1, "tokens_per_rank": 1, "tokens_per_expert": 1, "bytes": None},
        },
    )  # fmt: skip


def _without_maps() -> dict[str, Any]:
    return {name: value for name, value in plan_report().items() if name != "maps"}


def _large(**sizes: int) -> dict[str, Any]:
    return plan_report(layers=61, experts=384, ranks=288, nodes=36, windows=400, **sizes)


def _unjudged_stress() -> dict[str, Any]:
    return changed(plan_report(), stress={"burst": {"what": "", "not_judged": "nothing is held out", "cases": []}})


def _idle_layer() -> dict[str, Any]:
    report = plan_report()
    report["maps"]["expert_tokens"][1] = [0] * 8
    for side in ("baseline", "plan"):
        report["maps"][side]["rank_tokens"][1] = [0] * 4
        report["maps"]["over_time"][side]["mean"][2] = report["maps"]["over_time"][side]["worst"][2] = None
    return report


def _phases() -> dict[str, Any]:
    report = plan_report()
    figures = {
        name: report["plan"][name] for name in ("policy", "rank_imbalance", "layer_us", "active_experts_per_rank")
    }
    on = {traffic: dict.fromkeys(("prefill", "decode"), figures) for traffic in ("prefill", "decode")}
    cross = {"differing_experts": 3, "placed_experts": 36, "on": on}
    return {"phases": {"prefill": report, "decode": swapped(plan_report())}, "cross": cross, "notes": []}


REPORTS: dict[str, Callable[[], dict[str, Any]]] = {
    "accepted": plan_report,
    "rejected": lambda: swapped(plan_report()),
    "insufficient": lambda: plan_report(split__held_out_windows=2),
    "nothing held out": _no_held_out,
    "nothing to gain": lambda: even(plan_report()),
    "one rank": lambda: even(plan_report(ranks=1, nodes=1)),
    "one node": lambda: plan_report(nodes=1),
    "one layer": lambda: plan_report(layers=1),
    "one window": lambda: plan_report(windows=1),
    "one expert": lambda: even(plan_report(layers=1, experts=1, ranks=1, nodes=1, windows=1)),
    "many nodes": lambda: plan_report(ranks=160, nodes=80, layers=2),
    "counts": lambda: counted(plan_report()),
    "replay": _replay,
    "stress": lambda: stressed(plan_report(), 1.2),
    "no stress": _unjudged_stress,
    "unknown model": _unknown_model,
    "no maps": _without_maps,
    "idle layer": _idle_layer,
    "in force": lambda: plan_report(baseline__policy="keep", migration={"moves": 0, "bytes": 0, "seconds": None}),
    "phases": _phases,
    "one phase": lambda: {"phases": {"decode": plan_report()}, "cross": None, "notes": []},
    "large": _large,
}


def page(report: dict[str, Any]) -> Page:
    return page_of(report, MADE_BY)


def figures(report: dict[str, Any]) -> dict[str, Figure]:
    return {figure.name: figure for figure in page(report).figures()}


def lead(report: dict[str, Any], name: str) -> str:
    return next(section.lead for section in page(report).sections if section.name == name)


def sentences(found: Page) -> list[str]:
    """All that is said in whole sentences."""
    said = [found.headline.text, *found.headline.lines]
    for section in found.sections:
        said.append(section.lead)
        said += [
            text for block in section.blocks if isinstance(block, Figure) for text in (block.alt, block.conclusion)
        ]
    return said


@pytest.mark.parametrize("kind", REPORTS)
def test_every_report_has_a_page_whose_words_are_whole(kind: str) -> None:
    found = page(REPORTS[kind]())
    blocks = [block for section in found.sections for block in section.blocks]
    names = [block.name for block in blocks]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    assert len({section.name for section in found.sections}) == len(found.sections)
    for text in sentences(found):
        assert re.fullmatch(r"\S.*[.]", text), text
        assert not re.search(r"\b(nan|inf|None)\b|  |\.\.|\. \.", text), text
    for block in blocks:
        if isinstance(block, Facts):
            assert all(fact.label and fact.value for fact in block.facts)
            continue
        table = block if isinstance(block, Table) else block.chart.table()
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows), block.name


def test_the_verdict_is_the_headline_and_what_was_missed_comes_first() -> None:
    for kind, mood, word in (
        ("accepted", Mood.GOOD, "ACCEPTED"),
        ("rejected", Mood.BAD, "REJECTED"),
        ("insufficient", Mood.UNSURE, "INSUFFICIENT EVIDENCE"),
    ):
        found = page(REPORTS[kind]())
        assert (found.headline.mood, found.headline.word) == (mood, word)
        assert (found.findings[0].ok is False) == (kind != "accepted")
        assert ("Missed: " in " ".join(found.headline.lines)) == (kind != "accepted")
    assert page(_phases()).headline.word == "prefill: ACCEPTED, decode: REJECTED"
    assert page(_phases()).headline.mood == Mood.BAD


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("accepted", "falls from 1.900 to 1.600: 33 % of what is above perfect balance (1.0) is gone."),
        ("rejected", "rises from 1.600 to 1.900: the plan is less even than the baseline."),
        ("nothing to gain", "stays at 1.000: ranks are even without the plan, there is nothing to gain."),
    ],
)
def test_what_is_said_of_balance_is_so(kind: str, says: str) -> None:
    assert f"P99 rank imbalance {says}" in page(REPORTS[kind]()).headline.text


def test_what_is_said_of_time_is_so() -> None:
    for us, band, says in (
        (
            90.0,
            0.2,
            "falls from 120.0 to 108.0 µs (-10.0 %), a smaller change than the cost model's own error (±20 %).",
        ),
        (90.0, 0.05, "falls from 120.0 to 108.0 µs (-10.0 %), a larger change than the cost model's own error (±5 %)."),
        (90.0, 0.0, "falls from 120.0 to 108.0 µs (-10.0 %), by a cost model whose error is not known."),
        (110.0, 0.2, "rises from 120.0 to 132.0 µs (+10.0 %), a smaller change than"),
        (100.0, 0.2, "stays at 120.0 µs: no time is gained or lost."),
        (100.08, 0.2, "hardly changes (120.0 → 120.1 µs): no time is gained or lost."),
    ):
        found = page(plan_report(plan__layer_us={"p50": us, "p95": us, "p99": us * 1.2}, cost__band_p90=band))
        assert f"P99 layer time {says}" in found.headline.text
    assert "Seconds decide nothing here" in page(_unknown_model()).headline.text


def test_a_slower_plan_whose_ranks_read_more_experts_says_so() -> None:
    slower = plan_report(plan__layer_us={"p50": 110.0, "p95": 120.0, "p99": 130.0})
    assert "more experts" not in figures(slower)["layer_time"].conclusion
    slower["plan"]["active_experts_per_rank"] = {"mean": 3.0, "p99": 4.0}
    assert "more experts in a step (2.00 → 3.00)" in figures(slower)["layer_time"].conclusion


def test_promises_are_compared_with_what_was_kept() -> None:
    assert lead(plan_report(), "proof") == (
        "On held-out traffic the plan takes 60 % off the baseline's mean excess over perfect balance, 58 % was "
        "promised: the promise is kept."
    )
    assert "the plan adds 150 % to the baseline's mean excess" in lead(swapped(plan_report()), "proof")
    broken = plan_report(fit__expected_imbalance={"mean": 1.05, "p99": 1.1})
    assert "the plan fits its own windows better than others" in lead(broken, "proof")
    assert "no proof" in lead(_no_held_out(), "proof")
    assert "against another baseline" in lead(plan_report(baseline__policy="keep"), "proof")
    assert "promised_and_kept" not in figures(_replay())


def test_the_ceiling_says_how_much_is_left() -> None:
    assert "takes 75 % of what one made from this very traffic gains" in figures(plan_report())["ceiling"].conclusion
    assert "gains nothing" in figures(swapped(plan_report()))["ceiling"].conclusion
    assert "Nothing can be gained here" in figures(even(plan_report()))["ceiling"].conclusion


def test_time_tells_whether_the_gain_lasts_and_names_events() -> None:
    lasting, said = figures(plan_report())["over_time"], lead(plan_report(), "course")
    assert "more even in 20 of 20 windows" in said and "the gain lasts" in said
    assert "Marked: 1 burst and 1 change of the leading workload." in lasting.conclusion
    rows = lasting.chart.table().rows
    assert {(row[2], row[3]) for row in rows if row[1] == "event"} == {
        ("mostly code", 0.0), ("mostly chat", 10.0), ("burst, 3.5 times", 19.0)
    }  # fmt: skip
    fading = plan_report()
    fading["maps"]["over_time"]["plan"]["mean"][10:] = [1.55] * 10
    assert "the gain wears off" in lead(fading, "course")
    late = plan_report()
    late["maps"]["over_time"]["plan"]["mean"][:10] = [1.7] * 10
    assert "the gain comes late" in lead(late, "course")
    assert "no gain at any time" in lead(swapped(plan_report()), "course")
    assert "over_time" not in figures(plan_report(windows=1))


def test_large_matrices_are_left_out_and_the_page_says_so() -> None:
    found = page(REPORTS["many nodes"]())
    (links,) = [section for section in found.sections if section.name == "links"]
    assert links.blocks == () and "Matrices of 80 nodes and of 160 ranks are too large" in links.lead
    assert {"node_bytes", "rank_bytes"} <= set(figures(plan_report()))
    assert "node_bytes" not in figures(plan_report(nodes=1))
    assert "links" not in {section.name for section in page(REPORTS["one rank"]()).sections}


def test_an_even_plan_has_no_layer_to_work_on_and_lost_folds_are_no_gain() -> None:
    assert "No layer is left with anything to even out." in figures(even(plan_report()))["layers"].conclusion
    assert "By the mean the plan's most uneven layer is 5, where it falls from 1.520 to 1.220, by the P99, too." in (
        figures(plan_report())["layers"].conclusion
    )
    lost = {kind: {"removed_excess": {"mean": -0.1, "p99": 0.0}} for kind in ("interleaved", "blocked")}
    assert (
        "it wins nothing that lasts" in figures(plan_report(fit__cross_validation=lost))["cross_validation"].conclusion
    )


def test_heat_maps_are_loads_over_their_mean() -> None:
    report = plan_report(layers=1, experts=4, ranks=2, nodes=1)
    report["maps"] |= {"expert_tokens": [[10, 30, 20, 20]], "plan": {"rank_tokens": [[60, 20]]}}
    found = figures(report)
    assert [row[-1] for row in found["expert_load"].chart.table().rows] == [0.5, 1.5, 1.0, 1.0]
    ranks = [row for row in found["rank_load"].chart.table().rows if row[0] == "plan"]
    assert [row[-1] for row in ranks] == [1.5, 0.5]
    report["maps"]["rank_speed"] = [1.5, 0.5]
    ranks = [row for row in figures(report)["rank_load"].chart.table().rows if row[0] == "plan"]
    assert [row[-1] for row in ranks] == [1.0, 1.0]


def test_the_front_marks_what_is_beaten_by_none_and_the_taken_plan() -> None:
    rows = {row[1]: row[4:] for row in figures(plan_report())["front_slots"].chart.table().rows}
    assert rows == {"contiguous": (1, 0, 0), "eplb": (0, 0, 0), "window_search": (1, 1, 0)}
    assert "front_moves" not in figures(plan_report())
    assert "front_moves" in figures(plan_report(baseline__policy="keep"))
    beaten = plan_report(plan__policy="eplb")
    assert "The taken one (eplb) is not: window_search has a tail of 1.400 against 1.600" in (
        figures(beaten)["front_slots"].conclusion
    )


def test_stress_says_where_the_plan_is_slower() -> None:
    assert "slower than the baseline's in mix-change, burst, uniform and 2 more" in lead(
        stressed(plan_report(), 1.2), "stress"
    )
    assert "it holds up, and wins no time" in lead(stressed(plan_report(), 1.0), "stress")
    assert "faster than the baseline's" in lead(stressed(plan_report(), 0.8), "stress")
    (section,) = [one for one in page(_unjudged_stress()).sections if one.name == "stress"]
    assert section.lead == "Nothing was judged: burst: nothing is held out." and section.blocks == ()


def test_replicas_and_why() -> None:
    report = plan_report(layers=1, experts=4, ranks=2, nodes=1)
    report["maps"] |= {"replicas": [[1, 3, 2, 1]], "expert_tokens": [[10, 60, 5, 25]]}
    (section,) = [one for one in page(report).sections if one.name == "replicas"]
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert [row[:3] for row in table.rows] == [("3", "1", "3"), ("3", "2", "2")]
    assert table.rows[0][3:7] == ("60.00 %", "2.40", "0.80", "1 of 4")
    report["maps"]["replicas"] = [[1, 1, 1, 1]]
    (section,) = [one for one in page(report).sections if one.name == "replicas"]
    assert section.blocks == () and section.lead.startswith("Nobody: ")


def test_notes_of_the_machine_and_clock_times_are_no_part_of_a_page() -> None:
    report = plan_report()
    assert page(report).notes == ("a note",)
    short, long = (page({**report, "timing_s": {"total": seconds}}) for seconds in (3.0, 4.0))
    assert (sentences(short), short.provenance, short.key) == (sentences(long), long.provenance, long.key)


def test_the_page_of_a_large_model_is_the_same_bytes_each_time_and_small() -> None:
    """61 layers × 384 experts on 288 ranks."""
    text = html_of(page(_large()))
    assert len(text.encode()) <= MOST_BYTES
    assert 'id="expert_load"' in text and "Matrices of 288 ranks are too large" in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in REPORTS if kind != "large"])
def test_every_page_can_be_drawn_and_is_the_same_bytes_each_time(kind: str) -> None:
    report = REPORTS[kind]()
    assert html_of(page(report)) == html_of(page(report))


@pytest.mark.parametrize("part", ["baseline", "gain", "memory", "split"])
def test_a_report_without_a_part_is_refused_in_one_line(part: str) -> None:
    report = {name: value for name, value in plan_report().items() if name != part}
    with pytest.raises(UsageError) as refused:
        page_of(report, MADE_BY, "saved.json")
    assert str(refused.value).startswith("saved.json: ")
