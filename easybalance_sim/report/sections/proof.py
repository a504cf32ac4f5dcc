"""Does it hold on traffic that the plan was not made from, and how much more could be had?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report import plan_words
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Block, Figure, Section
from easybalance_sim.report.sections.sides import SIDES, excess_removed, nothing_to_even, percent, side_names, takes

_EXCESS = "the baseline's mean excess over perfect balance"
GAP = 0.2
"""Of the promised share that may be missing before a plan counts as one that fits its own windows only."""


def section(report: Mapping[str, Any]) -> Section:
    """Promised against kept where the fit side is known, and the ceiling."""
    blocks: list[Block] = []
    if report.get("fit"):
        blocks.append(_promised(report))
        if report["fit"].get("cross_validation") and not nothing_to_even(report):
            blocks.append(_folds(report))
    blocks.append(_ceiling(report))
    return Section(
        name="proof",
        title="Does it hold on other traffic?",
        lead=_kept(report),
        blocks=tuple(blocks),
    )


def _held_out(report: Mapping[str, Any]) -> bool:
    return bool(report["split"]["held_out_windows"])


def _removed(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> float | None:
    return excess_removed(before[key]["mean"], after[key]["mean"])


def _kept(report: Mapping[str, Any]) -> str:
    """What was promised off the baseline's excess, and what was kept."""
    if not _held_out(report):
        return "Nothing is held out: this is no proof that the plan holds on other traffic."
    kept, fit = _removed(report["baseline"], report["plan"], "rank_imbalance"), report.get("fit")
    if kept is None:
        return "The baseline is in perfect balance on held-out traffic: there is nothing to prove."
    said = f"On held-out traffic the plan {takes(kept, _EXCESS)}"
    if not fit:
        return f"{said}; what was promised is not known here."
    if fit["baseline"]["policy"] != report["baseline"]["policy"]:
        return f"{said}; the promise was made against another baseline."
    key = "expected_imbalance" if "expected_imbalance" in fit else "rank_imbalance"
    promised = _removed(fit["baseline"], fit, key)
    if promised is None or promised <= 0:
        return f"{said}; nothing was promised."
    if kept >= promised * (1 - GAP):
        return f"{said}, {percent(promised)} was promised: the promise is kept."
    return f"{said}, {percent(promised)} was promised: the plan fits its own windows better than others."


def _promised(report: Mapping[str, Any]) -> Figure:
    fit = report["fit"]
    steps = [("fit side, as planned on", fit["baseline"]["rank_imbalance"], fit["rank_imbalance"])]
    if "expected_imbalance" in fit:
        steps.append(("expected of other windows", fit["baseline"]["expected_imbalance"], fit["expected_imbalance"]))
    if _held_out(report):
        steps.append(("held out", *(report[side]["rank_imbalance"] for side in SIDES)))
    rows = tuple(name for name, _, _ in steps)
    both = [[float(one["mean"]) for one in ones] for ones in list(zip(*steps, strict=True))[1:]]
    series = tuple(Series(name=name, values=tuple(of)) for name, of in zip(side_names(report), both, strict=True))
    pairs = ", ".join(f"{row} {old:.3f} and {new:.3f}" for row, old, new in zip(rows, *both, strict=True))
    moves = ", ".join(f"{old:.3f} → {new:.3f} ({row})" for row, old, new in zip(rows, *both, strict=True))
    return Figure(
        name="promised_and_kept",
        title="Promised and kept: mean rank imbalance",
        alt=f"Bars of mean rank imbalance, baseline and plan: {pairs}.",
        conclusion=f"From baseline to plan: {moves}.",
        chart=Bars(
            rows=rows, row="traffic", series=series, value="mean rank imbalance", form="{:.3f}", start=1.0
        ),
    )  # fmt: skip


def _folds(report: Mapping[str, Any]) -> Figure:
    folds = report["fit"]["cross_validation"]
    found = [
        (name, folds[kind]["removed_excess"])
        for name, kind in zip(("same topics", "other topics"), plan_words.FOLDS, strict=True)
    ]
    if _held_out(report):
        removed = {
            stat: excess_removed(report["baseline"]["rank_imbalance"][stat], report["plan"]["rank_imbalance"][stat])
            or 0.0
            for stat in ("mean", "p99")
        }
        found.append(("held out", removed))
    series = tuple(
        Series(name=name, values=tuple(100 * one[stat] for _, one in found))
        for stat, name in (("mean", "mean"), ("p99", "P99"))
    )
    same, new = (100 * found[place][1]["mean"] for place in (0, 1))
    if same <= 0:
        told = "it wins nothing that lasts"
    elif new >= 0.8 * same:
        told = "the plan hardly depends on the topics that it has seen"
    elif new > 0:
        told = "on topics that it has not seen it is worth less: plan again when they change"
    else:
        told = "on topics that it has not seen it is worth nothing: plan again when they change"
    return Figure(
        name="cross_validation",
        title="Parts of the fit side that were not planned on",
        alt="Bars of the share of the baseline's excess that is gone: "
        + ", ".join(f"{name} {100 * one['mean']:.0f} % of mean, {100 * one['p99']:.0f} % of P99" for name, one in found)
        + ".",
        conclusion="Planned on one part of the fit side and judged on another, the policy "
        f"{takes(same / 100, _EXCESS)} on the same topics and {takes(new / 100, 'it')} on others: {told}.",
        chart=Bars(
            rows=tuple(name for name, _ in found), row="judged on", series=series,
            value="of the baseline's excess gone, %", form="{:.0f}",
        ),
    )  # fmt: skip


def _of_the_way(possible: float) -> str:
    return f"takes {percent(possible)}" if possible > 0 else "takes nothing"


def _ceiling(report: Mapping[str, Any]) -> Figure:
    before, after = (report[side]["rank_imbalance"]["mean"] for side in SIDES)
    floor, bound = report["floor"]["rank_imbalance"]["mean"], report["plan"]["lower_bound_per_window"]["mean"]
    rows = (*side_names(report), "made from this traffic", "lower bound of its slots")
    values = (before, after, floor, bound)
    share, possible = report["gain"]["share_of_floor"], report["gain"]["share_of_possible"]
    if possible is None:
        told = "Nothing can be gained here: no plan with these slots is better than the baseline."
    elif share is None:
        told = (
            "A plan made from this very traffic is no better than the baseline. The bound that no plan with these "
            f"slots goes below leaves room, of which this one {_of_the_way(possible)}."
        )
    elif share <= 0:
        told = "The plan gains nothing of what could be had."
    else:
        told = (
            f"The plan takes {percent(share)} of what one made from this very traffic gains, and {percent(possible)} "
            f"of the way to the bound that no plan with its slots goes below."
        )
        told += " More search is worth little; more slots, or planning again, may be." if share > 0.9 else ""
    return Figure(
        name="ceiling",
        title="How much could be had?",
        alt=f"Bars of mean rank imbalance: {', '.join(map('{} {:.3f}'.format, rows, values))}.",
        conclusion=told,
        chart=Bars(
            rows=rows, row="plan", series=(Series(name="mean rank imbalance", values=values),),
            value="mean rank imbalance", form="{:.3f}", start=1.0,
        ),
    )  # fmt: skip
