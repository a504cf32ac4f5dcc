"""The report of a sweep as text for people: a table per curve, its knee first, then the curves side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.cli.layout import aligned, amount, filled

_BALANCE = (
    "", "extra slots", "slots/rank", "redundant", "imbalance mean", "P99", "layer P50, µs", "P99", "step P99, µs",
)  # fmt: skip
_MEMORY = ("", "extra slots", "policy", "experts, MB", "KV tokens lost", "left, at most")
_BETTER = {"seconds": "MoE time of a step", "imbalance": "rank imbalance"}


def of_sweep(report: Mapping[str, Any]) -> str:
    """The text that `ebsim sweep` prints."""
    parts = [_headline(report), *(_curve(report, curve) for curve in report["curves"])]
    if len(report["curves"]) > 1:
        parts.append(_side_by_side(report))
    return "\n\n".join(parts)


def _headline(report: Mapping[str, Any]) -> str:
    kv_bytes = report["model"]["kv_bytes_per_token"]
    cache = f"{kv_bytes:,} bytes per token" if kv_bytes else "unknown for this model, expert bytes are shown"
    lines = (
        f"{report['model']['name'] or 'unnamed model'}: {report['trace']['layers']} MoE layers of "
        f"{report['trace']['experts']} experts, profile {report['profile']}, dispatch {report['dispatch']}, "
        f"split by {report['split']['by']}",
        f"seconds: {report['cost']['label']}",
        f"KV cache: {cache}",
    )
    return "\n".join(map(filled, lines))


def _curve(report: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    """The knee, balance and seconds, then what it takes of the memory."""
    knee = curve["knee"][report["gain_by"]]
    balance: list[tuple[str, ...]] = [_BALANCE]
    memory: list[tuple[str, ...]] = [_MEMORY]
    for number, point in enumerate(curve["points"]):
        mark = "→" if knee is not None and knee["point"] == number else ""
        extra = str(point["extra_slots_per_rank"])
        balance.append((mark, extra, str(point["slots_per_rank"]), str(point["redundant_slots"]), *_balance(point)))
        memory.append((mark, extra, point["policy"], *_memory(point)))
        if "per_layer" in point:
            row = point["per_layer"]
            balance.append(("", "per layer", _span(row), "", *_balance(row)))
            same = "same" if row["memory_bytes_per_rank"] == point["memory_bytes_per_rank"] else "less"
            memory.append(("", "per layer", f"{same} memory", *_memory(row)))
    lines = [filled(_place(curve)), *map(filled, _verdict(report, curve)), aligned(balance, left=2), ""]
    lines.append(aligned(memory, left=3))
    if any("per_layer" in point for point in curve["points"]):
        lines.append(filled(f"per layer: {report['per_layer_note']}"))
    return "\n".join(lines)


def _span(row: Mapping[str, Any]) -> str:
    slots = row["slots_per_rank"].values()
    return f"{min(slots)}-{max(slots)}" if min(slots) < max(slots) else f"{min(slots)}"


def _balance(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['rank_imbalance']['mean']:.3f}",
        f"{row['rank_imbalance']['p99']:.3f}",
        f"{row['layer_us']['p50']:.1f}",
        f"{row['layer_us']['p99']:.1f}",
        f"{row['step_us']['p99']:,.0f}",
    )


def _memory(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['memory_bytes_per_rank'] / 1e6:,.1f}",
        _tokens(row["kv_tokens_lost"]),
        _tokens(row["kv_tokens_left"]),
    )


def _tokens(count: int | None) -> str:
    return "–" if count is None else amount(count)


def _place(curve: Mapping[str, Any]) -> str:
    nodes = curve["nodes"]
    judged = (
        f"judged on {curve['held_out_tokens']:,} tokens, {_many(curve['held_out_windows'], 'window')}"
        if curve["held_out_windows"]
        else f"nothing is held out: figures of the {_many(curve['fit_windows'], 'window')} of the fit"
    )
    return f"{_many(curve['ranks'], 'rank')} on {_many(nodes, 'node')}, {curve['windows']}; {judged}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _verdict(report: Mapping[str, Any], curve: Mapping[str, Any]) -> Iterator[str]:
    main = report["gain_by"]
    other = "imbalance" if main == "seconds" else "seconds"
    yield from (_knee(curve, by) for by in (main, other))


def _knee(curve: Mapping[str, Any], by: str) -> str:
    """What the knee costs and gains, or that there is none."""
    knee, first = curve["knee"][by], curve["points"][0]
    if knee is None:
        return f"by {_BETTER[by]}: no knee, {_why_none(curve, by)}"
    point = curve["points"][knee["point"]]
    if by == "seconds":
        before, after = first["step_us"]["p99"], point["step_us"]["p99"]
        gain = f"P99 {before:,.0f} → {after:,.0f} µs ({100 * (after / before - 1):+.1f} %)"
    else:
        gain = f"P99 {first['rank_imbalance']['p99']:.3f} → {point['rank_imbalance']['p99']:.3f}"
    lost = point["kv_tokens_lost"]
    paid = f"{lost:,} tokens of KV cache" if lost is not None else f"{_extra_mb(first, point):,.1f} MB"
    return f"by {_BETTER[by]}: knee at {knee['slots_per_rank']} slots per rank, {gain} for {paid} per rank"


def _why_none(curve: Mapping[str, Any], by: str) -> str:
    key = {"seconds": "step_us_p99", "imbalance": "imbalance_p99"}[by]
    points = curve["points"][1:]
    if points and all(point["gain"][key]["noise"] is None for point in points):
        return "too few windows to tell a gain from noise"
    why = "no point gains more than the noise"
    if by == "imbalance" and any(point["slower"] and point["gain"][key]["counts"] for point in points):
        why = "what gains has a slower step"
    return f"zero redundancy is best ({why})"


def _extra_mb(first: Mapping[str, Any], point: Mapping[str, Any]) -> float:
    return float(point["memory_bytes_per_rank"] - first["memory_bytes_per_rank"]) / 1e6


def _side_by_side(report: Mapping[str, Any]) -> str:
    """The knee of every curve, or its zero redundancy; µs compare across windows and ranks, imbalance does not."""
    rows = [("ranks", "window", "slots/rank", "step P99, µs", "GPU µs per step", "KV tokens left, all ranks")]
    for curve in report["curves"]:
        knee = curve["knee"][report["gain_by"]]
        point = curve["points"][0 if knee is None else knee["point"]]
        left = point["kv_tokens_left"]
        rows.append(
            (
                str(curve["ranks"]),
                str(curve["window_steps"]),
                str(point["slots_per_rank"]),
                f"{point['step_us']['p99']:,.0f}",
                f"{point['step_us']['p50'] * curve['ranks']:,.0f}",
                _tokens(None if left is None else left * curve["ranks"]),
            )
        )
    title = (
        "the curves at their knees (imbalance of windows of different length cannot be compared, µs can; "
        "GPU µs = ranks × P50)"
    )
    return f"{filled(title)}\n{aligned(rows, left=0)}"
