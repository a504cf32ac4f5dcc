"""The `maps` section of a report: where the load lies, by expert, by rank and over time, for people who look at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.planning.session import Session
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.tally import rank_sums

MOST_CELLS = 1 << 17
"""Of layers × experts or ranks in a report; larger maps are left out."""
MOST_POINTS = 400
"""Over time; of more windows, as many in a row make one point."""


def maps_section(
    session: Session, before: Outcome, after: Outcome, leading: Callable[[IntArray], tuple[str, ...] | None]
) -> dict[str, Any]:
    """All of it is of the traffic that was judged; lists over layers are in the order of `layers` (absolute ids).

    leading: the workload that leads in each of the windows with these ids, None = not known, see `Traffic.leading`.
    """
    return {
        "layers": list(session.meta.layers),
        "rank_speed": [round(float(one), 6) for one in session.topology.speed],
        "expert_tokens": _whole(after.expert_tokens),
        "replicas": _whole(after.plan.replicas),
        "baseline": {"rank_tokens": _whole(rank_sums(before.slot_tokens, before.plan))},
        "plan": {"rank_tokens": _whole(rank_sums(after.slot_tokens, after.plan))},
        "over_time": over_time(before, after, session.meta.top_k, leading(after.window_marks.ids)),
    }


def _whole(values: AnyArray) -> list[list[int]] | None:
    """Rows of whole numbers; None where they are too many."""
    if values.size > MOST_CELLS:
        return None
    rows: list[list[int]] = np.rint(values).astype(np.int64).tolist()
    return rows


def over_time(before: Outcome, after: Outcome, top_k: int, leading: tuple[str, ...] | None) -> dict[str, Any]:
    """Points of one window, or of as many in a row as make at most `MOST_POINTS` of all.

    step_tokens: a mean over a point's steps with traffic, of judged tokens; single steps can have far more.
    """
    marks, joined = after.window_marks, max(1, -(-after.windows // MOST_POINTS))
    starts = np.arange(0, after.windows, joined)
    tokens = np.add.reduceat(marks.assignments, starts) / top_k
    return {
        "windows": after.windows,
        "windows_per_point": joined,
        "window": marks.ids[starts].tolist(),
        "step_tokens": _rounded(tokens / np.maximum(np.add.reduceat(marks.steps, starts), 1), 1),
        "baseline": _course(before.window_imbalance, starts),
        "plan": _course(after.window_imbalance, starts),
        "leading": None if leading is None else [_common(leading[start : start + joined]) for start in starts.tolist()],
    }


def _course(ratios: FloatArray, starts: IntArray) -> dict[str, list[float | None]]:
    """Mean over windows and layers of each point, and the worst layer of its worst window; ratios: float64[w, L], NaN
    without traffic."""
    known = np.isfinite(ratios)
    count = np.add.reduceat(known.sum(axis=1), starts)
    total = np.add.reduceat(np.where(known, ratios, 0.0).sum(axis=1), starts)
    worst = np.maximum.reduceat(np.where(known, ratios, 0.0).max(axis=1), starts)
    none = count == 0
    return {
        "mean": _rounded(np.where(none, np.nan, total / np.maximum(count, 1))),
        "worst": _rounded(np.where(none, np.nan, worst)),
    }


def _common(names: tuple[str, ...]) -> str:
    """The name that leads in more than half of some windows, "" where none does."""
    name, often = Counter(names).most_common(1)[0]
    return name if 2 * often > len(names) else ""


def _rounded(values: FloatArray, digits: int = 6) -> list[float | None]:
    return [round(float(value), digits) if np.isfinite(value) else None for value in values]
