"""How sure are the seconds, and what are they made of?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report import plan_words
from easybalance_sim.report.charts.shares import Part, Shares
from easybalance_sim.report.content import Fact, Facts, Figure, Section
from easybalance_sim.report.sections.sides import SIDES, nothing_to_even, side_names
from easybalance_sim.report.words import band_words, change

PARTS = ("dispatch", "expert", "combine")
MORE_BYTES, SAME_SHARE = 0.05, 0.01
"""Bytes that change by so much while their share of the time changes by less are not what takes the time."""


def section(report: Mapping[str, Any]) -> Section:
    """The parts of a layer's time, and where the cost model comes from."""
    return Section(
        name="seconds", title="How sure are the seconds?", lead=_lead(report), blocks=(_parts(report), _facts(report))
    )


def _lead(report: Mapping[str, Any]) -> str:
    cost, band = report["cost"], report["cost"]["band_p90"]
    if report["model"]["assumed"]:
        return "They are not: the model's widths are not known, so only token counts decide (say --model)."
    drawn = "Steps are drawn from counts, so tails are those of the draws. " if cost["expected_values"] else ""
    rows = f"nine of ten measured rows lie within {band_words(band)}." if band else "how far it errs is not known."
    if cost["calibrated"]:
        return f"{drawn}Every part was measured on this GPU and width; {rows}"
    return (
        f"{drawn}They are not calibrated for this model and GPU: trust ratios, not figures. Of the cost model, {rows}"
    )


def _parts(report: Mapping[str, Any]) -> Figure:
    shares = [report[side]["time_share"] for side in SIDES]
    sent = [_communication(report[side]) for side in SIDES]
    told = ", ".join(
        f"{name}: " + ", ".join(f"{part} {100 * one[part]:.0f} %" for part in PARTS)
        for name, one in zip(side_names(report), shares, strict=True)
    )
    return Figure(
        name="time_share",
        title="What a layer's time is made of",
        alt=f"Stacked bars of shares. {told}.",
        conclusion=f"Under the plan {100 * sent[1]:.0f} % of a layer is communication and "
        f"{100 * shares[1]['expert']:.0f} % experts{_decides(report, sent[1])}.",
        chart=Shares(
            rows=side_names(report), row="plan", value="share of the layer time, %", form="{:.0f}",
            parts=tuple(Part(name=part, values=tuple(100 * one[part] for one in shares)) for part in PARTS),
        ),
    )  # fmt: skip


def _decides(report: Mapping[str, Any], sent: float) -> str:
    """What follows from it; sent: share of communication."""
    if report["model"]["assumed"]:
        return ", for widths that are only assumed: nothing follows from it"
    if nothing_to_even(report):
        return ""
    if sent <= 0.5:
        return ": experts decide, balance is worth time"
    shares, (old, new) = [_communication(report[side]) for side in SIDES], [_bytes(report[side]) for side in SIDES]
    if old and abs(new / old - 1) >= MORE_BYTES and abs(shares[1] - shares[0]) < SAME_SHARE:
        return (
            f": communication decides, and its share does not follow the bytes ({change(old, new)}), so it is latency "
            "by the cost model, which neither more balance nor fewer bytes take away"
        )
    return ": communication decides, more even ranks shorten the rest only"


def _communication(side: Mapping[str, Any]) -> float:
    share: float = side["time_share"]["dispatch"] + side["time_share"]["combine"]
    return share


def _bytes(side: Mapping[str, Any]) -> float:
    """Of a token from rank to rank; between nodes where the ranks are too many for a matrix."""
    pairs = side["traffic"].get("rank_bytes_per_token")
    if pairs is None:
        return float(side["cross_node_bytes_per_token"])
    return float(sum(sum(row) - row[place] for place, row in enumerate(pairs)))


def _facts(report: Mapping[str, Any]) -> Facts:
    cost = report["cost"]
    model, *why = plan_words.seconds_label(report)
    return Facts(
        name="cost_model",
        title="Where they come from",
        facts=(
            Fact(label="cost model", value=model),
            Fact(label="calibrated", value="yes" if cost["calibrated"] else "no", note="; ".join(why)),
            Fact(
                label="error band",
                value=band_words(cost["band_p90"]),
                note="90th percentile of the error on rows that it was not fitted on",
            ),
            Fact(label="communication", value=f"{cost['all_to_all']}, {cost['phase']}", note=cost["communication"]),
            Fact(label="overlap", value=cost["overlap"], note="both ends, all hidden and nothing hidden, are reported"),
        ),
    )
