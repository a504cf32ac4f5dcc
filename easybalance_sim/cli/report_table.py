"""A report as text for people: verdict first, then plan against baseline, then the findings of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.console import Console
from easybalance_sim.cli.layout import aligned, filled, noted, wrapped
from easybalance_sim.cli.memory_table import of_memory
from easybalance_sim.cli.stress_table import of_stress

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


def of_plan(report: Mapping[str, Any]) -> str:
    """The table that `ebsim plan` prints."""
    return "\n\n".join(
        [
            _headline(report, _written(report)),
            _comparison(report),
            of_memory(report["memory"]),
            _candidates(report),
            *of_stress(report),
            of_findings(report["verdict"]),
        ]
    )


def of_replay(report: Mapping[str, Any]) -> str:
    """The table that `ebsim replay` prints."""
    parts = [_headline(report, report["plan_file"]), _comparison(report), of_memory(report["memory"])]
    return "\n\n".join([*parts, *of_stress(report), of_findings(report["verdict"])])


def of_findings(verdict: Mapping[str, Any]) -> str:
    """One line per criterion of a `verdict` section, its note beneath."""
    rows = [("", "criterion", "limit", "observed")]
    for finding in verdict["findings"]:
        observed = "–" if finding["observed"] is None else f"{finding['observed']:.4g}"
        rows.append(("ok" if finding["ok"] else "NO", finding["criterion"], f"{finding['limit']:g}", observed))
    return noted(rows, ["", *(finding["note"] for finding in verdict["findings"])], left=4)


def warn_of_first_run(console: Console, takes: str = "some 10 seconds") -> None:
    """Say so when the kernels will have to be compiled, which takes time: once, or always without a cache."""
    from easybalance_sim import kernels

    if not kernels.keeps_compiled():
        console.note(f"compiling kernels, {takes} in every run: set NUMBA_CACHE_DIR to a folder that can be written")
    elif not kernels.compiled_before():
        console.note(f"first run: compiling kernels, {takes}, once")


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """`STATUS`, and the criteria that were missed."""
    missed = [finding["criterion"] for finding in verdict["findings"] if not finding["ok"]]
    why = f" ({', '.join(missed)})" if missed else ""
    return f"{verdict['status'].upper()}{why}"


def _written(report: Mapping[str, Any]) -> str:
    if report["plan_file"]:
        forced = "" if report["verdict"]["status"] == "accepted" else " all the same (--force)"
        return f"written to {report['plan_file']}{forced}"
    if report["verdict"]["status"] == "accepted":
        return "not written (name a file with -o)"
    stays = report["baseline"]["policy"] == "keep" and not report["migration"]["moves"]
    return "not written: the plan in force stays, no other is expected to be better" if stays else "not written"


def _headline(report: Mapping[str, Any], place: str) -> str:
    cluster, cost = report["cluster"], report["cost"]
    nodes = _many(cluster["nodes"], "node")
    lines = [
        f"{verdict_line(report['verdict'])}: {report['plan']['policy']}, {place}",
        *_no_time_gained(report),
        f"{_many(cluster['ranks'], 'rank')} × {_many(cluster['slots_per_rank'], 'slot')} on {nodes}, "
        f"profile {cluster['profile']}, dispatch {report['dispatch']}",
        *_left_empty(report),
        _judged_on(report),
    ]
    model, _, reasons = cost["label"].partition(" · uncalibrated: ")
    seconds = [model, *([f"uncalibrated: {reasons}"] if reasons else []), cost["communication"]]
    blanks = " " * len("seconds: ")
    lines = [line for text in lines for line in wrapped(text)]
    for number, text in enumerate(seconds):
        lines += wrapped(text, first=blanks if number else "seconds: ", then=blanks)
    return "\n".join(lines)


def _no_time_gained(report: Mapping[str, Any]) -> list[str]:
    """A line for an accepted plan that is more even and, by the cost model, no faster."""
    before, after = report["baseline"], report["plan"]
    evener = after["rank_imbalance"]["mean"] < before["rank_imbalance"]["mean"]
    old, new, band = before["layer_us"]["p99"], after["layer_us"]["p99"], report["cost"]["band_p90"]
    if report["verdict"]["status"] != "accepted" or report["model"]["assumed"] or not evener or new < old:
        return []
    inside = " (inside the model's error band)" if new <= old * (1 + band) else ""
    return [f"balance better, no time gained: layer P99 {old:.1f} → {new:.1f} µs{inside}"]


def _left_empty(report: Mapping[str, Any]) -> list[str]:
    """A line where the plan has fewer slots than there is room for."""
    room, filled = report["cluster"]["slots"], report["plan"]["slots"]
    if filled >= room:
        return []
    return [f"the plan fills {filled:,} of the {room:,} slots of a layer, {room - filled:,} stay empty"]


def _judged_on(report: Mapping[str, Any]) -> str:
    split = report["split"]
    if not split["held_out_windows"]:
        return f"nothing is held out: figures of the {_many(split['fit_tokens'], 'token')} of the fit"
    windows = _many(split["held_out_windows"], "window")
    if report["trace"]["kind"] == "counts":
        length = " as recorded"
    elif split["window_seconds"]:
        length = f" of {split['window_seconds']:g} s"
    else:
        length = f" of {_many(split['window_steps'], 'step')}"
    drawn = {"all": "all of the trace", "unseen": "all that the plan was not fitted on"}.get(
        split["by"], f"split by {split['by']}"
    )
    return f"judged on {_many(split['held_out_tokens'], 'token')}, {windows}{length}, {drawn}"


def _comparison(report: Mapping[str, Any]) -> str:
    before, after = report["baseline"], report["plan"]
    rows = [("", "baseline", "plan", "change")]
    for label, path, form in _ROWS:
        old, new = _value(before, path), _value(after, path)
        if path == "memory_bytes_per_rank":
            old, new = old / 1e6, new / 1e6
        rows.append((label, form.format(old), form.format(new), _change(old, new)))
    names = f"baseline: {before['policy']} · plan: {after['policy']}"
    below = (_room(after, report), *_promise(report), _migration(report["migration"]))
    return "\n".join([filled(names), aligned(rows), *map(filled, below)])


def _room(plan: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """How far the plan is from what no plan with its slots can be under, and from one made for the judged traffic."""
    reached, bound = plan["rank_imbalance"]["mean"], plan["lower_bound_per_window"]["mean"]
    floor, share = report["floor"]["rank_imbalance"]["mean"], report["gain"]["share_of_floor"]
    taken = "there was nothing to gain" if share is None else f"this one takes {100 * share:.0f} % of that gain"
    if share is not None and share < 0:
        taken = "this one is worse than the baseline"
    return (
        f"mean {reached:.3f}; a plan made from this very traffic reaches {floor:.3f}; {taken} "
        f"(none with {plan['slots']} slots can be under {bound:.3f})"
    )


def _promise(report: Mapping[str, Any]) -> list[str]:
    """One line on the folds of the fit side, none where there are none."""
    folds = (report.get("fit") or {}).get("cross_validation")
    if not folds:
        return []
    same, new = (100 * folds[kind]["removed_excess"]["mean"] for kind in ("interleaved", "blocked"))
    return [
        "cross-validated on the fit side, of the baseline's excess: "
        f"{same:.0f} % goes on its topics, {new:.0f} % on others"
    ]


def _migration(moved: Mapping[str, Any]) -> str:
    if not moved["moves"]:
        return "migration from the baseline: none"
    return (
        f"migration from the baseline: {_many(moved['moves'], 'expert')} to copy, {moved['bytes'] / 1e6:,.1f} MB, "
        f"{_time(moved['seconds'])}"
    )


def _candidates(report: Mapping[str, Any]) -> str:
    """Fitted figures, the tail expected of other windows, and what only some clusters and runs pay: moves, node bytes.

    * marks the plans that no other beats in both the expected tail and a price (moved bytes, bytes between nodes).
    """
    nodes, moving = report["cluster"]["nodes"] > 1, report["baseline"]["policy"] in ("keep", "repair")
    head = ["", "candidate (fit side)", "slots", "imbalance", "P99", "worst 5 %"]
    head += (["node B/token"] if nodes else []) + (["moves"] if moving else []) + ["µs/step"]
    rows = [tuple(head)]
    for row in sorted(report["candidates"], key=lambda row: float(row["objective_us"])):
        on_front = ("cross_node_bytes" in row["pareto"] and nodes) or ("migration_bytes" in row["pareto"] and moving)
        cells = ["→" if row["policy"] == report["plan"]["policy"] else "", row["policy"] + " *" * on_front]
        cells += [str(row["slots"]), *(f"{row[name]:.3f}" for name in _FITTED)]
        cells += [f"{row['cross_node_bytes_per_token']:,.0f}"] if nodes else []
        cells += [f"{row['moves']:,}"] if moving else []
        rows.append((*cells, f"{row['objective_us']:.1f}"))
    legend = "imbalance: mean, P99, mean of the worst 5 % expected of other windows; µs/step: the objective"
    front = ["* Pareto front: no candidate has a lower worst 5 % at as low a price"] if nodes or moving else []
    return "\n".join([aligned(rows, left=2), *map(filled, [legend, *front])])


def _value(section: Mapping[str, Any], path: str) -> float:
    value: Any = section
    for key in path.split("."):
        value = value[key]
    return float(value) if not isinstance(value, int) else value


def _change(old: float, new: float) -> str:
    if old == new:
        return "–"
    return f"{100 * (new / old - 1):+.1f} %" if old else "new"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
