"""A report as text for people: verdict first, then plan against baseline, then the findings of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.console import Console, aligned

_ROWS = (
    ("rank imbalance, mean", "rank_imbalance.mean", "{:.3f}"),
    ("  P50", "rank_imbalance.p50", "{:.3f}"),
    ("  P95", "rank_imbalance.p95", "{:.3f}"),
    ("  P99", "rank_imbalance.p99", "{:.3f}"),
    ("  max", "rank_imbalance.max", "{:.3f}"),
    ("layer time P50, µs", "layer_us.p50", "{:.1f}"),
    ("  P99", "layer_us.p99", "{:.1f}"),
    ("MoE time of a step P50, µs", "step_us.p50", "{:.0f}"),
    ("  P99", "step_us.p99", "{:.0f}"),
    ("cross-node bytes per token", "cross_node_bytes_per_token", "{:,.0f}"),
    ("active experts per rank", "active_experts_per_rank.mean", "{:.2f}"),
    ("expert memory per rank, MB", "memory_bytes_per_rank", "{:,.1f}"),
    ("slots per layer", "slots", "{}"),
    ("lower bound, average load", "lower_bound_imbalance", "{:.3f}"),
)


def of_plan(report: Mapping[str, Any]) -> str:
    """The table that `ebsim plan` prints."""
    place = f"written to {report['plan_file']}" if report["plan_file"] else "no plan file written"
    return "\n\n".join([_headline(report, place), _comparison(report), _candidates(report), _findings(report)])


def of_replay(report: Mapping[str, Any]) -> str:
    """The table that `ebsim replay` prints."""
    return "\n\n".join([_headline(report, report["plan_file"]), _comparison(report), _findings(report)])


def warn_of_first_run(console: Console) -> None:
    """Say so when the kernels will have to be compiled: it takes seconds, once."""
    from easybalance_sim import kernels

    if not kernels.compiled_before():
        console.note("first run: compiling kernels, some 20 seconds, once")


def _headline(report: Mapping[str, Any], place: str) -> str:
    verdict, split, cluster = report["verdict"], report["split"], report["cluster"]
    failed = [finding["criterion"] for finding in verdict["findings"] if not finding["ok"]]
    why = f" ({', '.join(failed)})" if failed else ""
    held = f"{split['held_out_windows']} held-out windows of {split['window_steps']} steps"
    return (
        f"{verdict['status'].upper()}{why}: {report['plan']['policy']}, {place}\n"
        f"{cluster['ranks']} ranks on {cluster['nodes']} nodes × {cluster['slots_per_rank']} slots, "
        f"dispatch {report['dispatch']}, split by {split['by']}, {held}, {split['held_out_tokens']:,} tokens\n"
        f"seconds: {report['cost']['label']}"
    )


def _comparison(report: Mapping[str, Any]) -> str:
    before, after = report["baseline"], report["plan"]
    rows = [("", f"{before['policy']} (baseline)", f"{after['policy']} (plan)", "change")]
    for label, path, form in _ROWS:
        old, new = _value(before, path), _value(after, path)
        if path == "memory_bytes_per_rank":
            old, new = old / 1e6, new / 1e6
        rows.append((label, form.format(old), form.format(new), _change(old, new)))
    share = report["gain"]["share_of_possible"]
    moved = report["migration"]
    tail = "" if share is None else f"share of the possible gain reached: {100 * share:.0f} %\n"
    return f"{aligned(rows)}\n{tail}migration: {moved['moves']} experts, {moved['bytes'] / 1e9:.3f} GB, {moved['seconds']:.3f} s"


def _candidates(report: Mapping[str, Any]) -> str:
    rows = [("candidate (fit side)", "slots", "imbalance mean", "P99", "objective, µs/step")]
    for row in sorted(report["candidates"], key=lambda row: float(row["objective_us"])):
        numbers = (f"{row['fit_imbalance_mean']:.3f}", f"{row['fit_imbalance_p99']:.3f}", f"{row['objective_us']:.1f}")
        rows.append((row["policy"], str(row["slots"]), *numbers))
    return aligned(rows)


def _findings(report: Mapping[str, Any]) -> str:
    rows = [("", "criterion", "limit", "observed", "")]
    for finding in report["verdict"]["findings"]:
        observed = "–" if finding["observed"] is None else f"{finding['observed']:.4g}"
        mark = "ok" if finding["ok"] else "NO"
        rows.append((mark, finding["criterion"], f"{finding['limit']:g}", observed, finding["note"]))
    return aligned([row[:4] for row in rows], left=2) if not any(row[4] for row in rows) else aligned(rows, left=5)


def _value(section: Mapping[str, Any], path: str) -> float:
    value: Any = section
    for key in path.split("."):
        value = value[key]
    return float(value) if not isinstance(value, int) else value


def _change(old: float, new: float) -> str:
    if old == new:
        return "–"
    return f"{100 * (new / old - 1):+.1f} %" if old else "new"
