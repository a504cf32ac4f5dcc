"""What is said of a plan in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.words import change, duration, many

_ROWS = (
    ("rank imbalance, mean", "rank_imbalance.mean", "{:.3f}"),
    ("  P50", "rank_imbalance.p50", "{:.3f}"),
    ("  P95", "rank_imbalance.p95", "{:.3f}"),
    ("  P99", "rank_imbalance.p99", "{:.3f}"),
    ("  max", "rank_imbalance.max", "{:.3f}"),
    ("layer time P50, µs", "layer_us.p50", "{:.1f}"),
    ("  P99", "layer_us.p99", "{:.1f}"),
    ("  P99, communication hidden", "layer_us_bracket.full_overlap.p99", "{:.1f}"),
    ("MoE time of a step P50, µs", "step_us.p50", "{:.0f}"),
    ("  P99", "step_us.p99", "{:.0f}"),
    ("  P99, communication hidden", "step_us_bracket.full_overlap.p99", "{:.0f}"),
    ("cross-node bytes per token", "cross_node_bytes_per_token", "{:,.0f}"),
    ("active experts per rank", "active_experts_per_rank.mean", "{:.2f}"),
    ("expert memory per rank, MB", "memory_bytes_per_rank", "{:,.1f}"),
    ("slots per layer", "slots", "{}"),
    ("lower bound, average load", "lower_bound_imbalance", "{:.3f}"),
    ("  of each window, mean", "lower_bound_per_window.mean", "{:.3f}"),
    ("  P99", "lower_bound_per_window.p99", "{:.3f}"),
)
_FITTED = ("fit_imbalance_mean", "fit_imbalance_p99", "expected_imbalance_worst")
HARDLY = 0.001
"""Of a time: less is no change."""
ON_FRONT = " *"
"""Behind the name of a candidate that no other beats in both the expected tail and a price."""
FOLDS = ("interleaved", "blocked")
"""Kinds of folds in `fit.cross_validation`: with the topics of the part planned on, and with others."""


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """`STATUS`, and the criteria that were missed."""
    missed = [finding["criterion"] for finding in verdict["findings"] if not finding["ok"]]
    why = f" ({', '.join(missed)})" if missed else ""
    return f"{verdict['status'].upper()}{why}"


def judged_value(criterion: str, value: float | None) -> str:
    """A limit of a criterion, or what was observed, in the unit that people read it in; a dash for None."""
    if value is None:
        return "–"
    if criterion.endswith("_seconds_max"):
        return duration(value)
    if criterion.endswith(("_steps_min", "_windows_min")):
        return f"{value:,g}"
    # Under stress limits are ratios, the gain is in widths of the band.
    if criterion == "time_gain_over_band_min" or (criterion.startswith("stress") and "lost" not in criterion):
        return f"{value:.4g}"
    return in_percent(value, 4)


def in_percent(share: float, digits: int = 2) -> str:
    """With so many digits, whole where there are more before the point; no more of small ones than can be read."""
    value = 100 * share
    if 0 < abs(value) < 0.01:
        return "less than 0.01 %"
    return f"{value:,.0f} %" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g} %"


def written(report: Mapping[str, Any]) -> str:
    """Where a plan was written, or why not."""
    if report["plan_file"]:
        forced = "" if report["verdict"]["status"] == "accepted" else " all the same (--force)"
        return f"written to {report['plan_file']}{forced}"
    if report["verdict"]["status"] == "accepted":
        return "not written (name a file with -o)"
    stays = report["baseline"]["policy"] == "keep" and not report["migration"]["moves"]
    return "not written: the plan in force stays, no other is expected to be better" if stays else "not written"


def ground(report: Mapping[str, Any]) -> str:
    """The cluster and the replica choice that the figures are for."""
    cluster = report["cluster"]
    return (
        f"{many(cluster['ranks'], 'rank')} × {many(cluster['slots_per_rank'], 'slot')} on "
        f"{many(cluster['nodes'], 'node')}, profile {cluster['profile']}, dispatch {report['dispatch']}"
    )


def seconds_label(report: Mapping[str, Any]) -> list[str]:
    """What the seconds are made of, and why they are not calibrated where they are not."""
    model, _, reasons = report["cost"]["label"].partition(" · uncalibrated: ")
    return [model, *([f"uncalibrated: {reasons}"] if reasons else [])]


def no_time_gained(report: Mapping[str, Any]) -> list[str]:
    """A line for an accepted plan that is more even and, by the cost model, no faster."""
    before, after = report["baseline"], report["plan"]
    evener = after["rank_imbalance"]["mean"] < before["rank_imbalance"]["mean"]
    old, new, band = before["layer_us"]["p99"], after["layer_us"]["p99"], report["cost"]["band_p90"]
    if report["verdict"]["status"] != "accepted" or report["model"]["assumed"] or not evener:
        return []
    if new < old * (1 - HARDLY):
        return []
    inside = " (inside the model's error band)" if band and new <= old * (1 + band) else ""
    return [f"balance better, no time gained: layer P99 {old:.1f} → {new:.1f} µs{inside}"]


def left_empty(report: Mapping[str, Any]) -> list[str]:
    """A line where the plan has fewer slots than there is room for."""
    room, filled = report["cluster"]["slots"], report["plan"]["slots"]
    if filled >= room:
        return []
    return [f"the plan fills {filled:,} of the {room:,} slots of a layer, {room - filled:,} stay empty"]


def judged_on(report: Mapping[str, Any]) -> str:
    """The traffic that the figures are of."""
    split = report["split"]
    if not split["held_out_windows"]:
        return f"nothing is held out: figures of the {many(split['fit_tokens'], 'token')} of the fit"
    windows = many(split["held_out_windows"], "window")
    if report["trace"]["kind"] == "counts":
        length = " as recorded"
    elif split["window_seconds"]:
        length = f" of {split['window_seconds']:g} s"
    else:
        length = f" of {many(split['window_steps'], 'step')}"
    drawn = {"all": "all of the trace", "unseen": "all that the plan was not fitted on"}.get(
        split["by"], f"split by {split['by']}"
    )
    return f"judged on {many(split['held_out_tokens'], 'token')}, {windows}{length}, {drawn}"


def room(report: Mapping[str, Any]) -> str:
    """How far the plan is from what no plan with its slots can be under, and from one made for the judged traffic."""
    plan = report["plan"]
    reached, bound = plan["rank_imbalance"]["mean"], plan["lower_bound_per_window"]["mean"]
    floor, share = report["floor"]["rank_imbalance"]["mean"], report["gain"]["share_of_floor"]
    if share is None:
        taken = "nothing can be gained" if report["gain"]["share_of_possible"] is None else "the baseline is no worse"
    else:
        taken = (
            f"this one takes {100 * share:.0f} % of that gain" if share >= 0 else "this one is worse than the baseline"
        )
    return (
        f"mean {reached:.3f}; a plan made from this very traffic reaches {floor:.3f}; {taken} "
        f"(none with {plan['slots']} slots can be under {bound:.3f})"
    )


def promise(report: Mapping[str, Any]) -> list[str]:
    """One line on the folds of the fit side, none where there are none."""
    folds = (report.get("fit") or {}).get("cross_validation")
    if not folds:
        return []
    same, new = (100 * folds[kind]["removed_excess"]["mean"] for kind in FOLDS)
    return [
        "cross-validated on the fit side, of the baseline's excess: "
        f"{same:.0f} % goes on its topics, {new:.0f} % on others"
    ]


def migration(moved: Mapping[str, Any]) -> str:
    """What has to be copied; moved: the `migration` section."""
    if not moved["moves"]:
        return "migration from the baseline: none"
    return (
        f"migration from the baseline: {many(moved['moves'], 'expert')} to copy, {moved['bytes'] / 1e6:,.1f} MB, "
        f"{duration(moved['seconds'])}"
    )


def comparison(report: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What is measured, for the baseline, for the plan, and the change; lines that begin with blanks go on with the one
    above."""
    rows = []
    for label, path, form in _ROWS:
        old, new = (_at(report[side], path) for side in ("baseline", "plan"))
        if path == "memory_bytes_per_rank":
            old, new = old / 1e6, new / 1e6
        rows.append((label, form.format(old), form.format(new), change(old, new)))
    return rows


def candidates(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The heads, then a row per candidate, the best objective first: fitted figures, the tail expected of other
    windows, and what only some clusters and runs pay (moves, bytes between nodes)."""
    nodes, moving = _prices(report)
    head = ["candidate (fit side)", "slots", "imbalance", "P99", "worst 5 %"]
    head += (["node B/token"] if nodes else []) + (["moves"] if moving else []) + ["µs/step"]
    rows = [tuple(head)]
    for row in sorted(report["candidates"], key=lambda row: float(row["objective_us"])):
        on_front = ("cross_node_bytes" in row["pareto"] and nodes) or ("migration_bytes" in row["pareto"] and moving)
        cells = [row["policy"] + ON_FRONT * on_front, str(row["slots"]), *(f"{row[name]:.3f}" for name in _FITTED)]
        cells += [f"{row['cross_node_bytes_per_token']:,.0f}"] if nodes else []
        cells += [f"{row['moves']:,}"] if moving else []
        rows.append((*cells, f"{row['objective_us']:.1f}"))
    return rows


def candidate_legend(report: Mapping[str, Any]) -> list[str]:
    """What the columns of `candidates` mean."""
    legend = "imbalance: mean, P99, mean of the worst 5 % expected of other windows; µs/step: the objective"
    front = "* Pareto front: no candidate has a lower worst 5 % at as low a price"
    return [legend, front] if any(_prices(report)) else [legend]


def _prices(report: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether bytes between nodes and moves are a price here."""
    return report["cluster"]["nodes"] > 1, in_force(report)


def in_force(report: Mapping[str, Any]) -> bool:
    """Whether the baseline is a plan in force, from which every other has to be reached."""
    return report["baseline"]["policy"] in ("keep", "repair")


def _at(section: Mapping[str, Any], path: str) -> float:
    value: Any = section
    for key in path.split("."):
        value = value[key]
    return float(value) if not isinstance(value, int) else value
