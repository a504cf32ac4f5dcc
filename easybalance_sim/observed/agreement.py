"""How well a prediction tells the measured time of ranks.

Groups are the ranks of one step and layer, which wait for each other. What balance is about is the order and the
distances inside a group: `within` is the correlation after each group's own means are taken off, so that steps and
layers of different size do not flatter it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from easybalance_sim.arrays import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Of one prediction with the times.

    pearson, spearman, within: None where either side does not vary · scale: µs per unit by which the prediction was
    multiplied · fixed_us: what the least-squares line adds to a rank without load · bias: predicted over measured
    seconds, less 1 (0 when scaled) · error: mean absolute error over the mean time · slowest_agrees: share of groups in
    which a rank that is predicted busiest is measured slowest, slowest_by_chance: what guessing would have ·
    busiest_time: measured time of the predicted busiest rank over that of the slowest, mean over groups ·
    imbalance, measured_imbalance: max/mean of groups, means.
    """

    pearson: float | None
    spearman: float | None
    within: float | None
    scale: float
    fixed_us: float
    bias: float
    error: float
    slowest_agrees: float
    slowest_by_chance: float
    busiest_time: float
    imbalance: float
    measured_imbalance: float

    def to_dict(self) -> dict[str, Any]:
        """Its numbers, rounded."""
        return {name: None if value is None else round(float(value), 6) for name, value in vars(self).items()}


def agreement(predicted: FloatArray, us: FloatArray, group: IntArray, *, scaled: bool) -> Agreement:
    """predicted, us: float64[n], not all 0 · group: [n] id of the group, of two ranks at least · scaled: the prediction
    is no time but proportional to one, by the factor that gives the same total."""
    scale = float(us.sum() / predicted.sum()) if scaled else 1.0
    times = predicted * scale
    ids: IntArray = np.unique(group, return_inverse=True)[1].astype(np.int64)
    slowest = _slowest(predicted, us, ids)
    return Agreement(
        pearson=correlation(predicted, us),
        spearman=correlation(_ranked(predicted), _ranked(us)),
        within=correlation(_centred(predicted, ids), _centred(us, ids)),
        scale=scale,
        fixed_us=_intercept(predicted, us),
        bias=float(times.sum() / us.sum()) - 1,
        error=float(np.abs(times - us).mean() / us.mean()),
        slowest_agrees=float(slowest["hit"].mean()),
        slowest_by_chance=float(slowest["chance"].mean()),
        busiest_time=float(slowest["time"].mean()),
        imbalance=_max_over_mean(predicted, ids),
        measured_imbalance=_max_over_mean(us, ids),
    )


def correlation(one: FloatArray, other: FloatArray) -> float | None:
    """Pearson's r, None where either side does not vary beyond rounding."""
    first, second = one - one.mean(), other - other.mean()
    sizes = np.sqrt((first**2).sum()), np.sqrt((second**2).sum())
    tiny = 1e-9 * np.sqrt(len(one))
    if sizes[0] <= tiny * max(np.abs(one).max(), 1e-300) or sizes[1] <= tiny * max(np.abs(other).max(), 1e-300):
        return None
    return float(np.clip((first / sizes[0]) @ (second / sizes[1]), -1, 1))


def _slowest(predicted: FloatArray, us: FloatArray, ids: IntArray) -> pd.DataFrame:
    """By group: share of the ranks predicted busiest that are measured slowest, that of any rank, their time share."""
    frame = pd.DataFrame({"id": ids, "predicted": predicted, "us": us})
    most = frame.groupby("id")[["predicted", "us"]].transform("max")
    frame["is_slowest"] = (frame["us"] == most["us"]).astype(np.float64)
    frame["time"] = frame["us"] / most["us"].where(most["us"] > 0, 1.0)
    busiest = frame[frame["predicted"] == most["predicted"]].groupby("id")
    chance = frame.groupby("id")["is_slowest"].mean()
    return pd.DataFrame({"hit": busiest["is_slowest"].mean(), "chance": chance, "time": busiest["time"].mean()})


def _centred(values: FloatArray, ids: IntArray) -> FloatArray:
    frame = pd.Series(values)
    left = (frame - frame.groupby(ids).transform("mean")).to_numpy(np.float64)
    # What rounding leaves of a group of equal values is no difference.
    centred: FloatArray = np.where(np.abs(left) < 1e-9 * np.abs(values).max(), 0.0, left)
    return centred


def _ranked(values: FloatArray) -> FloatArray:
    return pd.Series(values).rank().to_numpy(np.float64).astype(np.float64)


def _max_over_mean(values: FloatArray, ids: IntArray) -> float:
    groups = pd.Series(values).groupby(ids)
    mean = groups.mean()
    return float((groups.max() / mean)[mean > 0].mean())


def _intercept(predicted: FloatArray, us: FloatArray) -> float:
    line = np.stack([predicted, np.ones(len(predicted))], axis=1)
    return float(np.linalg.lstsq(line, us, rcond=None)[0][1])
