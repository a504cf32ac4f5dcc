"""What sections of a plan's page say is so, in cases that are easily told wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from easybalance_sim.cli.phases_table import of_phases
from easybalance_sim.report.content import Figure, Mood, Table
from easybalance_sim.report.plan_words import judged_value, no_time_gained
from easybalance_sim.report.words import band_words
from tests.gate_reports import one_case
from tests.golden.report.make_golden import FOLDER
from tests.plan_reports import changed, even, judged, plan_report, stressed, swapped
from tests.unit.test_report_pages_plan import REPORTS, _phases, _unknown_model, figures, lead, page


def conclusion(report: dict[str, Any], name: str) -> str:
    return figures(report)[name].conclusion


def golden() -> dict[str, Any]:
    report: dict[str, Any] = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))
    return report


def over_time(**changes: Any) -> dict[str, Any]:
    return plan_report(**{f"maps__over_time__{name}": value for name, value in changes.items()})


@pytest.mark.parametrize("kind", [kind for kind in REPORTS if kind != "large"])
def test_captions_repeat_neither_the_lead_nor_the_headline(kind: str) -> None:
    found = page(REPORTS[kind]())
    for section in found.sections:
        above = {sentence.strip(" .") for text in (found.headline.text, section.lead) for sentence in text.split(". ")}
        for block in section.blocks:
            if isinstance(block, Figure):
                assert not above & {sentence.strip(" .") for sentence in block.conclusion.split(". ")}, block.name


def test_tokens_of_a_step_are_means_of_the_judged_ones_and_single_steps_go_beyond() -> None:
    assert conclusion(golden(), "step_tokens") == (
        "On average over a window a step has 18 judged tokens at the median point and 65 at the highest (3.5 times). "
        "Bursts decide memory and buffers; small ones look uneven whatever the plan. Single steps go beyond: in the "
        "fullest, one rank alone has 178 tokens, which its dispatch buffer must hold."
    )
    quiet = over_time(step_tokens=[100.0] * 20, windows_per_point=3)
    assert "On average over 3 windows in a row a step has 100 judged tokens" in conclusion(quiet, "step_tokens")
    assert "one that is shorter than a point cannot be seen here" in conclusion(quiet, "step_tokens")
    assert "Single steps" not in conclusion(quiet, "step_tokens")


@pytest.mark.parametrize(
    ("leading", "says"),
    [
        (None, "Marked: 1 burst."),
        ([""] * 20, "Marked: 1 burst and no workload that has most of the requests."),
        (["", *["code"] * 19], "Marked: 1 burst and one workload that leads (mostly code)."),
        (["code", "", *["chat"] * 18], "Marked: 1 burst and 1 change of the leading workload."),
    ],
)
def test_workloads_are_told_of_where_they_are_known(leading: list[str] | None, says: str) -> None:
    said = conclusion(over_time(leading=leading), "over_time")
    assert said.endswith(says), said


def test_joined_windows_are_named_from_first_to_last() -> None:
    worst = [*[1.5] * 4, 3.0, *[1.5] * 15]
    joined = over_time(windows_per_point=3, window=[*range(0, 60, 3)], windows=60)
    joined["maps"]["over_time"]["plan"]["worst"] = worst
    assert "reaches 3.000 in windows 12 to 14" in conclusion(joined, "over_time")
    joined["maps"]["over_time"]["plan"]["worst"] = worst[5:] + worst[:5]
    assert "reaches 3.000 in the windows from 57 on" in conclusion(joined, "over_time")


def test_half_of_the_time_may_be_even() -> None:
    report = over_time(baseline={"mean": [1.0] * 10 + [1.5] * 10, "worst": [1.6] * 20})
    assert lead(report, "course").endswith("In the first half the baseline leaves nothing to even out.")
    report = over_time(baseline={"mean": [1.0] * 20, "worst": [1.6] * 20})
    assert lead(report, "course").endswith("The baseline leaves nothing to even out.")


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (
            1.2,
            "Experts and staging take 120 % of the GPU's memory, of which engines use 90 %: they do not fit. No step",
        ),
        (0.93, "take 93 % of the GPU's memory, of which engines use 90 %: they do not fit. No step has room."),
        (0.25, "Experts and staging take 25 % of the GPU's memory. No step overflows."),
        (0.0123, "take 1.2 % of the GPU's memory. No step overflows."),
        (1e-7, "take less than 0.01 % of the GPU's memory. No step overflows."),
        (None, "What share of the GPU the experts take is not known. Whether a step overflows is not known."),
    ],
)
def test_memory_that_does_not_fit_or_is_not_known_is_said(share: float | None, says: str) -> None:
    assert says in conclusion(plan_report(memory__expert_memory_frac=share), "memory_of_a_rank")


def case(step: float, noise: float) -> dict[str, Any]:
    return one_case(step_p99=step, step_p99_noise=noise)


@pytest.mark.parametrize(
    ("cases", "says"),
    [
        ([case(1.10, 0.06)], "not to be told from chance in burst (up to +22 %)"),
        ([case(1.00, 0.004)], "within 2 % of the baseline's: it holds up"),
        ([case(1.00, 0.004), case(0.99, 0.04)], "not to be told from chance in burst (up to +7 %)"),
        ([case(1.10, 0.01)], "slower than the baseline's in burst."),
        ([case(0.90, 0.01), case(1.01, 0.0)], "not to be told from chance in burst (up to +1 %)"),
        ([case(0.90, 0.01)], "faster than the baseline's in burst."),
    ],
)
def test_stress_is_within_only_with_its_whole_interval(cases: list[dict[str, Any]], says: str) -> None:
    report = changed(plan_report(), stress={"burst": {"what": "", "not_judged": None, "cases": cases}})
    assert says in lead(report, "stress")


def test_of_two_phases_the_worst_verdict_colours_and_one_plan_may_do_for_both() -> None:
    document = _phases()
    document["phases"] = {"prefill": REPORTS["insufficient"](), "decode": swapped(plan_report())}
    assert page(document).headline.mood == Mood.BAD
    for prefill, decode, says in (
        (0.88, 1.01, "the plan for decode does for both, the one for prefill is the slower one on its own traffic."),
        (0.88, 1.20, "the plan for decode does for both"),
        (0.90, 0.90, "each phase is faster with the plan of the other"),
        (1.20, 1.01, "two plans are worth having for prefill."),
        (1.04, 0.97, "a tie of the cost model (under 5 %), one plan will do."),
    ):
        for traffic, other, share in (("prefill", "decode", prefill), ("decode", "prefill", decode)):
            plans = document["cross"]["on"][traffic]
            one = {**plans[traffic], "layer_us": {"p50": 1.0, "p95": 1.0, "p99": 100.0}}
            foreign = {**one, "layer_us": {**one["layer_us"], "p99": 100.0 * share}}
            document["cross"]["on"][traffic] = {traffic: one, other: foreign}
        assert says in lead(document, "cross")
    assert conclusion(document, "either_traffic") == (
        "P99 layer time: on prefill traffic the plan for prefill is the faster one (100.0 µs), on decode traffic the "
        "plan for prefill is the faster one (97.0 µs)."
    )
    assert "under 5 % is a tie of the cost model" in " ".join(of_phases(document).split())
    document["phases"]["prefill"]["model"]["assumed"] = True
    assert lead(document, "cross").endswith("Seconds do not tell: the model's widths are not known (say --model).")


def test_a_search_that_found_nothing_is_no_proof_that_nothing_can_be_gained() -> None:
    report = plan_report(gain={"share_of_possible": -0.1, "share_of_floor": None})
    said = conclusion(report, "ceiling")
    assert said.startswith("A plan made from this very traffic is no better than the baseline.")
    assert said.endswith("leaves room, of which this one takes nothing.")
    (fact,) = [one for one in page(report).key if one.label == "Share of what could be had"]
    assert (fact.value, fact.note) == ("none", "a plan made from the judged traffic is no better than the baseline")
    (fact,) = [one for one in page(even(plan_report())).key if one.label == "Share of what could be had"]
    assert fact.value == "nothing to gain"


def candidates(*rows: tuple[str, float, float, float], taken: str = "a", **changes: Any) -> dict[str, Any]:
    """Of policies with objective, tail and mean."""
    report = plan_report(plan__policy=taken, **changes)
    report["candidates"] = [
        report["candidates"][1]
        | {
            "policy": name,
            "objective_us": objective,
            "expected_imbalance_worst": tail,
            "expected_imbalance_mean": mean,
        }
        for name, objective, tail, mean in rows
    ]
    return report


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("a", 100.0, 1.5, 1.2), ("b", 110.0, 1.4, 1.1)], "no other has as low an objective (100.0 µs per step)."),
        ([("a", 101.0, 1.4, 1.2), ("b", 100.0, 1.5, 1.1)], "it has the lowest tail expected of other windows (1.400)."),
        (
            [("a", 101.0, 1.4, 1.2), ("b", 100.0, 1.5, 1.1), ("c", 200.0, 1.1, 1.1)],
            "it has the lowest tail expected of other windows (1.400) of the 2 plans whose seconds are a tie.",
        ),
        (
            [("a", 101.0, 1.402, 1.1), ("b", 100.0, 1.4, 1.2)],
            "it has the lowest mean imbalance expected of other windows (1.100) of the 2 plans whose tail is as low.",
        ),
        (
            [("a", 100.0, 1.402, 1.2), ("b", 101.0, 1.4, 1.2)],
            "it has the lowest objective (100.0 µs per step) of the 2 plans whose mean imbalance is as low.",
        ),
        (
            [("a", 120.0, 1.5, 1.2), ("b", 100.0, 1.4, 1.1)],
            "its objective is 120.0 µs per step, its tail expected of other windows 1.500.",
        ),
    ],
)
def test_the_rule_that_decided_is_named(rows: list[tuple[str, float, float, float]], says: str) -> None:
    assert lead(candidates(*rows), "choice") == f"a is taken of {len(rows)} plans: {says}"


def test_a_beaten_plan_has_no_excuse_and_fronts_are_those_of_the_run() -> None:
    report = plan_report(plan__policy="eplb")
    assert conclusion(report, "front_slots").endswith("slots of a layer. There is no knee.")
    report["candidates"][0]["pareto"] = ["migration_bytes"]
    assert conclusion(report, "front_node_bytes").startswith(
        "1 candidate is beaten by none in both tail and bytes between nodes."
    )
    report["candidates"][2] |= {"cross_node_bytes_per_token": 1001.0, "pareto": []}
    report["candidates"][1] |= {"expected_imbalance_worst": 1.3}
    assert "is beaten by less than the figures show" in conclusion(report, "front_node_bytes")


def test_no_conclusion_rests_on_assumed_seconds() -> None:
    report = stressed(_unknown_model(), 1.2)
    report["plan"]["layer_us"] = {"p50": 110.0, "p95": 120.0, "p99": 130.0}
    report["plan"]["active_experts_per_rank"] = {"mean": 3.0, "p99": 4.0}
    report["candidates"][2]["objective_us"] = 500.0
    assert conclusion(report, "time_share").endswith("for widths that are only assumed: nothing follows from it.")
    assert "more experts" not in conclusion(report, "layer_time")
    assert lead(report, "choice").endswith("it has the lowest tail expected of other windows (1.400).")
    assert "P99 rank imbalance is within 2 % of the baseline's" in lead(report, "stress")
    said = " ".join(text for name in ("gain", "choice", "stress", "seconds") for text in (lead(report, name),))
    assert "µs" not in said and "slower" not in said
    (fact,) = [one for one in page(report).key if one.label.startswith("P99 layer time")]
    assert fact.note.endswith("of assumed widths, say --model")


ONE_RANK = "One rank takes all of it: there is nothing to even out."


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: even(plan_report(ranks=1, nodes=1)), ONE_RANK),
        (lambda: even(plan_report()), "Ranks are even under both plans: there is nothing to even out."),
    ],
)
def test_where_ranks_are_even_nothing_is_said_of_evening_out(make: Callable[[], dict[str, Any]], says: str) -> None:
    report = make()
    for name in ("gain", "course", "places"):
        assert lead(report, name) == says
    assert "worst layer reaches" not in conclusion(report, "over_time")
    assert "whatever the plan" not in conclusion(report, "step_tokens")
    assert "balance is worth time" not in conclusion(report, "time_share")
    assert ("replicas are for" in conclusion(report, "expert_load")) == (report["cluster"]["ranks"] > 1)


def links(node: tuple[float, float], rank: tuple[float, float], nodes: int = 2) -> dict[str, Any]:
    """Of two ranks that send as much to one another, before and after."""
    report = plan_report(ranks=2, nodes=nodes)
    for side, *sizes in zip(("baseline", "plan"), node, rank, strict=True):
        for key, size in zip(("node_bytes_per_token", "rank_bytes_per_token"), sizes, strict=True):
            report[side]["traffic"][key] = [[5.0, size], [size, 5.0]]
    if nodes == 1:
        for side in ("baseline", "plan"):
            report[side]["traffic"]["node_bytes_per_token"] = [[10.0]]
    return report


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (
            links((9.0, 4.0), (4.0, 9.0)),
            "The node that takes in most takes in 56 % less: communication can get faster.",
        ),
        (links((2.0, 4.0), (9.0, 4.0)), "The node that takes in most takes in 100 % more: watch communication."),
        (links((4.0, 4.0), (9.0, 4.0)), "takes in as much as before: the plan is no matter for bytes between nodes."),
        (links((0.0, 4.0), (4.0, 4.0)), "Between nodes nothing was sent before: watch communication."),
        (links((0.0, 0.0), (4.0, 8.0)), "The rank that takes in most takes in 100 % more: watch communication."),
        (
            links((4.0, 4.0), (4.0, 8.0), nodes=1),
            "The rank that takes in most takes in 100 % more: watch communication.",
        ),
    ],
)
def test_links_have_one_verdict_from_the_slower_tier(report: dict[str, Any], says: str) -> None:
    assert lead(report, "links").endswith(says)
    assert not any(word in conclusion(report, "rank_bytes") for word in ("watch", "faster", "no matter"))


def test_of_nothing_sent_is_said_so() -> None:
    report = links((0.0, 0.0), (4.0, 8.0))
    assert conclusion(report, "node_bytes") == "No node sends anything to another, with either plan."
    assert "the rank that takes in most: 4 before, 8 after" in conclusion(report, "rank_bytes")


def test_a_band_that_is_not_known_is_not_zero() -> None:
    assert (band_words(0.37), band_words(0.0)) == ("±37 %", "not known")
    (fact,) = [one for one in page(plan_report(cost__band_p90=0.0)).key if one.label.startswith("P99 layer time")]
    assert fact.note.endswith("error band not known")
    slow = judged(plan_report(cost__band_p90=0.0))
    slow["plan"]["layer_us"] = slow["baseline"]["layer_us"]
    assert no_time_gained(slow) and "error band" not in no_time_gained(slow)[0]


def test_a_plan_that_takes_time_where_the_baseline_takes_none_is_told() -> None:
    report = plan_report(baseline__layer_us={"p50": 0.0, "p95": 0.0, "p99": 0.0})
    assert "rises from 0.0 to 108.0 µs: the plan takes time where the baseline takes none." in (
        page(report).headline.text
    )


def test_a_plan_that_makes_even_ranks_uneven_is_told() -> None:
    report = even(plan_report())
    report["plan"]["rank_imbalance"] = dict.fromkeys(("mean", "p50", "p95", "p99", "max"), 1.3)
    assert "rises from 1.000 to 1.300: the plan is less even than the baseline." in page(report).headline.text


def test_layers_are_worth_a_search_where_the_floor_is_lower() -> None:
    report = plan_report()
    report["plan"]["rank_imbalance_by_layer"] = {"mean": [1.3, 1.2, 1.25], "p99": [1.4, 1.9, 1.5]}
    report["floor"]["rank_imbalance_by_layer"] = {"mean": [1.29, 1.1, 1.24], "p99": [1.4, 1.3, 1.5]}
    said = conclusion(report, "layers")
    assert "most uneven layer is 3, where it falls from 1.500 to 1.300; by the P99 it is layer 4." in said
    assert said.endswith("in layer 4: its mean is 1.200, with a plan made from this very traffic 1.100.")
    report["floor"] = report["plan"]
    assert conclusion(report, "layers").endswith("no more even in any layer.")


def test_a_tail_of_small_steps_is_told() -> None:
    report = over_time(step_tokens=[*[40.0] * 18, 3.0, 2.0])
    report["maps"]["over_time"]["plan"]["worst"] = [*[1.3] * 18, 1.6, 2.1]
    said = conclusion(report, "over_time")
    assert "P99 (1.600) is reached in 2 points of small steps (2.5 tokens in the median, 40.0 over all)" in said
    report["maps"]["over_time"]["plan"]["worst"] = [1.7] * 20
    assert "is reached in" not in conclusion(report, "over_time")


def test_what_communication_is_made_of_follows_from_the_bytes() -> None:
    """The sample: 10 % more bytes and the same share."""
    assert "its share does not follow the bytes (+10.0 %), so it is latency" in conclusion(golden(), "time_share")
    shares = {"dispatch": 0.4, "expert": 0.2, "combine": 0.4}
    report = plan_report(plan__time_share=shares)
    assert conclusion(report, "time_share").endswith("communication decides, more even ranks shorten the rest only.")


def test_an_end_that_is_the_p99_itself_is_no_bar_of_its_own() -> None:
    report = plan_report()
    rows = [row[1] for row in figures(report)["layer_time"].chart.table().rows]
    assert "P99, nothing hidden" not in rows and "P99, all communication hidden" in rows
    assert "between the P99, which hides nothing, and all" in conclusion(report, "layer_time")
    report["plan"]["layer_us"] = {"p50": 60.0, "p95": 66.0, "p99": 72.0}
    assert "P99, nothing hidden" in [row[1] for row in figures(report)["layer_time"].chart.table().rows]


def test_replicas_as_chance_would_have_them_say_nothing_of_load() -> None:
    report = plan_report(layers=1, experts=8, ranks=4, nodes=1)
    report["maps"] |= {"replicas": [[2, 1, 1, 2, 2, 2, 1, 1]], "expert_tokens": [[80, 70, 60, 50, 40, 30, 20, 10]]}
    assert "25 % of the experts with several replicas are among the busiest quarter" in conclusion(report, "replicas")
    assert "by chance 25 % would be: the load on the whole does not decide" in conclusion(report, "replicas")
    (section,) = [one for one in page(report).sections if one.name == "replicas"]
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    assert table.note.startswith("4 of 4: most replicas first, of equally many the busiest.")


def test_a_time_that_hardly_falls_is_not_gained() -> None:
    report = plan_report()
    report["baseline"]["layer_us"] = {"p50": 100.0, "p95": 100.0, "p99": 100.0}
    for p99, told in ((99.998, True), (99.8, False)):
        report["plan"]["layer_us"] = {"p50": 100.0, "p95": 100.0, "p99": p99}
        assert bool(no_time_gained(report)) == told


@pytest.mark.parametrize(
    ("criterion", "value", "says"),
    [
        ("kv_cache_loss_max", 2.886e-06, "less than 0.01 %"),
        ("kv_cache_loss_max", 0.1, "10 %"),
        ("p99_imbalance_drop_min", 0.48398665, "48.4 %"),
        ("cross_node_bytes_growth_max", -0.12345, "-12.35 %"),
        ("cross_node_bytes_growth_max", 250.0, "25,000 %"),
        ("migration_seconds_max", 9.199e-06, "9 µs"),
        ("migration_seconds_max", 60.0, "60.0 s"),
        ("held_out_steps_min", 2234, "2,234"),
        ("stress.uniform", 1.000657, "1.001"),
        ("stress_p99_over_baseline_max_of.uniform", 1.15, "1.15"),
        ("stress.lost-experts", 0.410156, "41.02 %"),
        ("time_gain_over_band_min", None, "–"),
    ],
)
def test_findings_are_in_units_of_people(criterion: str, value: float | None, says: str) -> None:
    assert judged_value(criterion, value) == says


def test_the_page_has_the_units() -> None:
    found = {one.criterion: (one.limit, one.observed) for one in page(golden()).findings}
    assert found["kv_cache_loss_max"] == ("10 %", "less than 0.01 %")
    assert found["migration_seconds_max"] == ("60.0 s", "36 µs")
