"""The report of a sweep as text for people: a table per curve, its knee first, then the curves side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.cli.layout import aligned, filled
from easybalance_sim.report.sweep_words import (
    BETTER,
    COMPARED,
    HEADS,
    figures,
    judged_on,
    knee_of,
    no_knee,
    paid,
    side_by_side,
    slots_by_layer,
    won,
)
from easybalance_sim.report.words import amount, many

_BALANCE = (
    "", "extra slots", "slots/rank", "redundant", "imbalance mean", "imbalance P99", "layer P50, µs",
    "layer P99, µs", "step P99, µs",
)  # fmt: skip
_MEMORY = ("", "extra slots", "policy", "experts, MB", "KV tokens lost", "left, at most")


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
        mark = "→" if number == (0 if knee is None else knee["point"]) else ""
        extra = str(point["extra_slots_per_rank"])
        balance.append((mark, extra, str(point["slots_per_rank"]), str(point["redundant_slots"]), *figures(point)))
        memory.append((mark, extra, point["policy"], *_memory(point)))
        if "per_layer" in point:
            row = point["per_layer"]
            balance.append(("", "per layer", slots_by_layer(row), "", *figures(row)))
            same = "same" if row["memory_bytes_per_rank"] == point["memory_bytes_per_rank"] else "less"
            memory.append(("", "per layer", f"{same} memory", *_memory(row)))
    lines = [filled(_place(curve)), *map(filled, _verdict(report, curve)), aligned(balance, left=2), ""]
    lines.append(aligned(memory, left=3))
    if any("per_layer" in point for point in curve["points"]):
        lines.append(filled(f"per layer: {report['per_layer_note']}"))
    return "\n".join(lines)


def _memory(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['memory_bytes_per_rank'] / 1e6:,.1f}",
        _tokens(row["kv_tokens_lost"]),
        _tokens(row["kv_tokens_left"]),
    )


def _tokens(count: int | None) -> str:
    return "–" if count is None else amount(count)


def _place(curve: Mapping[str, Any]) -> str:
    return f"{many(curve['ranks'], 'rank')} on {many(curve['nodes'], 'node')}, {curve['windows']}; {judged_on(curve)}"


def _verdict(report: Mapping[str, Any], curve: Mapping[str, Any]) -> Iterator[str]:
    main = report["gain_by"]
    other = "imbalance" if main == "seconds" else "seconds"
    yield from (_knee(curve, by) for by in (main, other))


def _knee(curve: Mapping[str, Any], by: str) -> str:
    """What the knee costs and gains, or why there is none."""
    point = knee_of(curve, by)
    if point is None:
        return f"by {BETTER[by]}: no knee, {no_knee(curve, by)}"
    slots = point["slots_per_rank"]
    return f"by {BETTER[by]}: knee at {slots} slots per rank, {won(curve, point, by)} for {paid(curve, point)}"


def _side_by_side(report: Mapping[str, Any]) -> str:
    table = aligned([HEADS, *side_by_side(report)], left=0)
    return f"{filled(f'the curves at their knees ({COMPARED})')}\n{table}"
