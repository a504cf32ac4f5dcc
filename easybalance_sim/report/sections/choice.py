"""Which plans competed, at what price, and which one was taken?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easybalance_sim.planning.candidates import EXCESS_TIE_FRAC, TIE_FRAC
from easybalance_sim.report import plan_words
from easybalance_sim.report.charts.front import Front, Point
from easybalance_sim.report.choosing import knee
from easybalance_sim.report.content import Figure, Section, Table
from easybalance_sim.report.words import many, sentence

TAIL, MEAN = "expected_imbalance_worst", "expected_imbalance_mean"
ALL_NAMED = 6
"""Candidates; of more, those on the front and the taken one have their names in the drawing, the data name all."""

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a lower tail may cost. name: of the figure · x: of its axis · front: as a candidate's `pareto` calls it, ""
    where the run does not reckon that front."""

    name: str
    title: str
    x: str
    front: str
    of: Callable[[Row], float]


PRICES = (
    Price(name="slots", title="expert memory", x="slots of a layer", front="", of=lambda row: float(row["slots"])),
    Price(
        name="node_bytes", title="bytes between nodes", x="bytes per token between nodes", front="cross_node_bytes",
        of=lambda row: float(row["cross_node_bytes_per_token"]),
    ),
    Price(
        name="moves", title="migration", x="MB to move from the baseline", front="migration_bytes",
        of=lambda row: float(row["migration_bytes"]) / 1e6,
    ),
)  # fmt: skip


def section(report: Mapping[str, Any]) -> Section | None:
    """A front per price that differs between the candidates; None for a replay, which chooses nothing."""
    if not report.get("candidates"):
        return None
    # Without a plan in force nobody pays for moves.
    prices = PRICES if plan_words.in_force(report) else PRICES[:-1]
    figures = [_front(report, price) for price in prices if len({price.of(row) for row in report["candidates"]}) > 1]
    return Section(
        name="choice", title="Why this plan?", lead=_lead(report), blocks=(*figures, _table(report))
    )  # fmt: skip


def _lead(report: Mapping[str, Any]) -> str:
    taken, among = _taken(report), many(len(report["candidates"]), "plan")
    if taken is None:
        return f"{among} competed."
    return f"{taken['policy']} is taken of {among}: {_decided(report, taken)}."


def _decided(report: Mapping[str, Any], taken: Row) -> str:
    """Which rule of `planning.candidates.choose` decided; only figures where the report's candidates do not tell."""
    left = _as_fast(report)
    among = (
        f" of the {many(len(left), 'plan')} whose seconds are a tie" if len(left) < len(report["candidates"]) else ""
    )
    if [*map(id, left)] == [id(taken)]:
        return f"no other has as low an objective ({taken['objective_us']:,.1f} µs per step)"
    for name, key in (("tail", TAIL), ("mean imbalance", MEAN)):
        least = min(float(row[key]) - 1 for row in left)
        left = [row for row in left if float(row[key]) - 1 <= least * (1 + EXCESS_TIE_FRAC)]
        if not any(row is taken for row in left):
            return _figures(taken)
        if len(left) == 1:
            return f"it has the lowest {name} expected of other windows ({taken[key]:.3f}){among}"
        among = f" of the {many(len(left), 'plan')} whose {name} is as low"
    if report["model"]["assumed"]:
        return "no other has a lower tail or mean imbalance expected of other windows"
    fastest = taken["objective_us"] <= min(float(row["objective_us"]) for row in left)
    return (
        f"it has the lowest objective ({taken['objective_us']:,.1f} µs per step){among}" if fastest else _figures(taken)
    )


def _as_fast(report: Mapping[str, Any]) -> list[Row]:
    """Those whose seconds are a tie with the fastest; all where seconds decide nothing."""
    rows: list[Row] = list(report["candidates"])
    if report["model"]["assumed"]:
        return rows
    limits = [one["limit"] for one in report["verdict"]["findings"] if one["criterion"] == "p99_layer_time_growth_max"]
    tie = min([TIE_FRAC, *(max(float(limit), 0.0) for limit in limits)])
    fastest = min(float(row["objective_us"]) for row in rows)
    return [row for row in rows if float(row["objective_us"]) <= fastest * (1 + tie)]


def _figures(taken: Row) -> str:
    objective, tail = taken["objective_us"], taken[TAIL]
    return f"its objective is {objective:,.1f} µs per step, its tail expected of other windows {tail:.3f}"


def _taken(report: Mapping[str, Any]) -> Row | None:
    return next((row for row in report["candidates"] if row["policy"] == report["plan"]["policy"]), None)


def _front(report: Mapping[str, Any], price: Price) -> Figure:
    rows = report["candidates"]
    at = [(round(price.of(row), 6), float(row[TAIL])) for row in rows]
    if price.front:
        front = [price.front in row["pareto"] for row in rows]
    else:
        front = [not any(_beats(other, one) for other in at) for one in at]
    bend = knee([(x, -y) for (x, y), kept in zip(at, front, strict=True) if kept])
    points = tuple(
        Point(
            name=row["policy"], x=one[0], y=one[1], on_front=kept, taken=row is _taken(report),
            knee=kept and (one[0], -one[1]) == bend, named=len(rows) <= ALL_NAMED or kept or row is _taken(report),
        )
        for row, one, kept in zip(rows, at, front, strict=True)
    )  # fmt: skip
    return Figure(
        name=f"front_{price.name}",
        title=f"Tail of the imbalance against {price.title}",
        alt=(
            f"Points of {many(len(rows), 'candidate')}: {price.x} from {_short(min(at)[0])} to {_short(max(at)[0])}, "
            f"expected imbalance of the worst 5 % from {min(y for _, y in at):.3f} to {max(y for _, y in at):.3f}."
        ),
        conclusion=_told(points, price),
        chart=Front(curves=(("candidates", points),), x=price.x, y="imbalance expected of the worst 5 %"),
    )


def _told(points: Sequence[Point], price: Price) -> str:
    taken = next((point for point in points if point.taken), None)
    best = sorted({point.name for point in points if point.on_front})
    are = "is" if len(best) == 1 else "are"
    said = f"{many(len(best), 'candidate')} {are} beaten by none in both tail and {price.title}"
    bend = next((point for point in points if point.knee), None)
    turn = f" The knee is {bend.name}: beyond it a lower tail costs much more." if bend else " There is no knee."
    if taken is None:
        return f"{said}.{turn}"
    if taken.on_front:
        return f"{said}, the taken one ({taken.name}) among them.{turn}"
    beating = [point for point in points if _beats((point.x, point.y), (taken.x, taken.y))]
    if not beating:
        return f"{said}; the taken one ({taken.name}) is beaten by less than the figures show.{turn}"
    better = min(beating, key=lambda one: one.y)
    return (
        f"{said}. The taken one ({taken.name}) is not: {better.name} has a tail of {better.y:.3f} against "
        f"{taken.y:.3f} at {_short(better.x)} against {_short(taken.x)} {price.x}.{turn}"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """As good in both, better in one."""
    return one[0] <= other[0] and one[1] <= other[1] and one != other


def _table(report: Mapping[str, Any]) -> Table:
    head, *rows = plan_words.candidates(report)
    return Table(
        name="candidates",
        title="All candidates",
        columns=head,
        rows=tuple(rows),
        note=" ".join(map(sentence, plan_words.candidate_legend(report))),
    )
