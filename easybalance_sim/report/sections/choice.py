"""Which plans competed, at what price, and which one was taken?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from easybalance_sim.report import plan_words
from easybalance_sim.report.charts.front import Front, Point
from easybalance_sim.report.content import Figure, Section, Table
from easybalance_sim.report.words import many

TAIL = "expected_imbalance_worst"
ABOVE_LINE = 0.1
"""Share of both ranges by which a point must lie off the straight line between the ends to be a knee."""

ALL_NAMED = 6
"""Candidates; of more, those on the front and the taken one have their names in the drawing, the data name all."""

Row = Mapping[str, Any]


def section(report: Mapping[str, Any]) -> Section | None:
    """A front per price that differs between the candidates; None for a replay, which chooses nothing."""
    if not report.get("candidates"):
        return None
    prices: list[tuple[str, str, str, Callable[[Row], float]]] = [
        ("slots", "expert memory", "slots of a layer", lambda row: float(row["slots"])),
        (
            "node_bytes",
            "bytes between nodes",
            "bytes per token between nodes",
            lambda row: row["cross_node_bytes_per_token"],
        ),
        ("moves", "migration", "MB to move from the baseline", lambda row: row["migration_bytes"] / 1e6),
    ]
    # Without a plan in force nobody pays for moves.
    prices = prices if plan_words.in_force(report) else prices[:-1]
    figures = [_front(report, *price) for price in prices if len({price[3](row) for row in report["candidates"]}) > 1]
    return Section(
        name="choice", title="Why this plan?", lead=_lead(report), blocks=(*figures, _table(report))
    )  # fmt: skip


def _lead(report: Mapping[str, Any]) -> str:
    rows = report["candidates"]
    fastest = min(rows, key=lambda row: float(row["objective_us"]))
    taken = _taken(report)
    if taken is None:
        return f"{many(len(rows), 'plan')} competed."
    said = f"{taken['policy']} is taken of {many(len(rows), 'plan')}"
    evenest = min(rows, key=lambda row: float(row[TAIL]))
    if taken is fastest and taken is evenest:
        return f"{said}: it has the lowest objective and the lowest tail expected of other windows."
    if taken is fastest:
        return f"{said}: it has the lowest objective ({taken['objective_us']:,.1f} µs per step)."
    return (
        f"{said}: {fastest['policy']} has the lowest objective ({fastest['objective_us']:,.1f} µs per step), the taken "
        f"one {taken['objective_us']:,.1f} µs and a worst 5 % of {taken[TAIL]:.3f} expected of other windows, against "
        f"{fastest[TAIL]:.3f}."
    )


def _taken(report: Mapping[str, Any]) -> Row | None:
    return next((row for row in report["candidates"] if row["policy"] == report["plan"]["policy"]), None)


def _front(report: Mapping[str, Any], name: str, title: str, x: str, price: Callable[[Row], float]) -> Figure:
    rows = report["candidates"]
    at = [(round(price(row), 6), float(row[TAIL])) for row in rows]
    front = [not any(_beats(other, one) for other in at) for one in at]
    bend = knee([one for one, kept in zip(at, front, strict=True) if kept])
    points = tuple(
        Point(
            name=row["policy"], x=one[0], y=one[1], on_front=kept, taken=row is _taken(report),
            knee=kept and one == bend, named=len(rows) <= ALL_NAMED or kept or row is _taken(report),
        )
        for row, one, kept in zip(rows, at, front, strict=True)
    )  # fmt: skip
    return Figure(
        name=f"front_{name}",
        title=f"Tail of the imbalance against {title}",
        alt=(
            f"Points of {many(len(rows), 'candidate')}: {x} from {_short(min(at)[0])} to {_short(max(at)[0])}, "
            f"expected imbalance of the worst 5 % from {min(y for _, y in at):.3f} to {max(y for _, y in at):.3f}."
        ),
        conclusion=_told(points, x),
        chart=Front(curves=(("candidates", points),), x=x, y="imbalance expected of the worst 5 %"),
    )


def _told(points: Sequence[Point], x: str) -> str:
    taken = next((point for point in points if point.taken), None)
    best = sorted({point.name for point in points if point.on_front})
    said = f"{many(len(best), 'candidate')} {'is' if len(best) == 1 else 'are'} beaten by none in both"
    bend = next((point for point in points if point.knee), None)
    turn = f" The knee is {bend.name}: beyond it a lower tail costs much more." if bend else " There is no knee."
    if taken is None:
        return f"{said}.{turn}"
    if taken.on_front:
        return f"{said}, the taken one ({taken.name}) among them.{turn}"
    better = min((point for point in points if _beats((point.x, point.y), (taken.x, taken.y))), key=lambda one: one.y)
    return (
        f"{said}. The taken one ({taken.name}) is not: {better.name} has a tail of {better.y:.3f} against "
        f"{taken.y:.3f} at {_short(better.x)} against {_short(taken.x)} {x}; it was taken for its objective.{turn}"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """As good in both, better in one."""
    return one[0] <= other[0] and one[1] <= other[1] and one != other


def knee(front: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The point of a front (price, worth; less is better) that lies farthest below the straight line between its ends,
    both axes scaled to 1; None where that is not far or there are fewer than three points."""
    points = sorted(set(front))
    if len(points) < 3:
        return None
    (left, high), (right, low) = points[0], points[-1]
    if right <= left or high <= low:
        return None
    below = {one: 1 - (one[0] - left) / (right - left) - (one[1] - low) / (high - low) for one in points[1:-1]}
    best = max(below, key=lambda one: below[one])
    return best if below[best] > ABOVE_LINE else None


def _table(report: Mapping[str, Any]) -> Table:
    head, *rows = plan_words.candidates(report)
    return Table(
        name="candidates",
        title="All candidates",
        columns=head,
        rows=tuple(rows),
        note=". ".join(f"{line[0].upper()}{line[1:]}" for line in plan_words.candidate_legend(report)) + ".",
    )
