"""What a sweep over slots comes to in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.words import amount, change, many, microseconds, size

Part = Mapping[str, Any]
BETTER = {"seconds": "MoE time of a step", "imbalance": "rank imbalance"}
GAINS = {"seconds": "step_us_p99", "imbalance": "imbalance_p99"}
"""Of a point's `gain`."""
TOO_FEW, NO_GAIN = "too few windows to tell a gain from noise", "no point gains more than the noise"
HEADS = ("ranks", "planned on", "slots/rank", "step P99, µs", "GPU µs per step", "KV tokens left, all ranks")
COMPARED = "imbalance of windows of different length cannot be compared, µs can · GPU µs = ranks × P50"


def knee_of(curve: Part, by: str) -> Part | None:
    """The point at the knee, None where zero redundancy is best."""
    found = curve["knee"][by]
    point: Part | None = None if found is None else curve["points"][found["point"]]
    return point


def place(curve: Part) -> str:
    """The cluster and the windows of a curve."""
    return f"{many(curve['ranks'], 'rank')}, {curve['windows']}"


def judged_on(curve: Part) -> str:
    """The traffic that the figures of a curve are of."""
    if not curve["held_out_windows"]:
        return f"nothing is held out: figures of the {many(curve['fit_windows'], 'window')} of the fit"
    return f"judged on {curve['held_out_tokens']:,} tokens, {many(curve['held_out_windows'], 'window')}"


def paid(curve: Part, point: Part) -> str:
    """What a point takes of a rank's memory beyond zero redundancy."""
    lost = point["kv_tokens_lost"]
    if lost is not None:
        return f"{lost:,} tokens of KV cache per rank"
    return f"{size(point['memory_bytes_per_rank'] - curve['points'][0]['memory_bytes_per_rank'])} per rank"


def won(curve: Part, point: Part, by: str) -> str:
    """What a point wins over zero redundancy."""
    first = curve["points"][0]
    if by == "seconds":
        old, new = first["step_us"]["p99"], point["step_us"]["p99"]
        return f"P99 of a step {microseconds(old)} → {microseconds(new)} ({change(old, new)})"
    old, new = first["rank_imbalance"]["p99"], point["rank_imbalance"]["p99"]
    return f"P99 imbalance {old:.3f} → {new:.3f}"


def no_knee(curve: Part, by: str) -> str:
    """Why a curve has no knee."""
    points, key = curve["points"][1:], GAINS[by]
    if not points:
        return "nothing but zero redundancy was tried"
    if all(point["gain"][key]["noise"] is None for point in points):
        return TOO_FEW
    if by == "imbalance" and any(point["slower"] and point["gain"][key]["counts"] for point in points):
        return "zero redundancy is best (what gains has a slower step)"
    return f"zero redundancy is best ({NO_GAIN})"


def side_by_side(report: Part) -> list[tuple[str, ...]]:
    """Cells under `HEADS` of every curve at its knee, or at zero redundancy where it has none."""
    rows: list[tuple[str, ...]] = []
    for curve in report["curves"]:
        point = knee_of(curve, report["gain_by"]) or curve["points"][0]
        left = point["kv_tokens_left"]
        rows.append(
            (
                str(curve["ranks"]),
                curve["windows"],
                str(point["slots_per_rank"]),
                f"{point['step_us']['p99']:,.0f}",
                f"{point['step_us']['p50'] * curve['ranks']:,.0f}",
                "–" if left is None else amount(left * curve["ranks"]),
            )
        )
    return rows


def slots_by_layer(row: Part) -> str:
    """Of slots that differ by layer: `4-6`, `4` where they do not. row: a point's `per_layer`."""
    slots = row["slots_per_rank"].values()
    return f"{min(slots)}-{max(slots)}" if min(slots) < max(slots) else f"{min(slots)}"


def figures(row: Part) -> tuple[str, ...]:
    """Balance and seconds of a point as cells: imbalance mean, P99, layer P50, P99, step P99."""
    return (
        f"{row['rank_imbalance']['mean']:.3f}",
        f"{row['rank_imbalance']['p99']:.3f}",
        f"{row['layer_us']['p50']:.1f}",
        f"{row['layer_us']['p99']:.1f}",
        f"{row['step_us']['p99']:,.0f}",
    )
