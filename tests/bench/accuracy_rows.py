"""One line of the accuracy table, and the error measures that it prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.model_shape import WEIGHT_BYTES
from easybalance_sim.profiling.fit import Peaks

DATA = Path(__file__).parents[2].parent / "shared" / "data"
TABLES = DATA / "aiconfigurator_perf"
SYSTEMS = {"h100": "h100_sxm", "h200": "h200_sxm", "gb200": "gb200"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A measured value beside its target; `at_most` says on which side of it the value must lie."""

    item: str
    measured: float
    target: float
    rows: int
    at_most: bool = True
    percent: bool = True

    @property
    def passed(self) -> bool:
        return self.measured <= self.target if self.at_most else self.measured >= self.target

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        sign = "≤" if self.at_most else "≥"
        return (
            self.item,
            f"{sign} {self._text(self.target)}",
            self._text(self.measured),
            f"{self.rows:,}",
            "pass" if self.passed else "MISS",
        )

    def _text(self, value: float) -> str:
        return f"{value:.1f} %" if self.percent else f"{value:.3g}"


def peaks(gpu: str, dtype: str) -> Peaks:
    """Nominal peaks of a shipped profile."""
    profile = load_profile(gpu)
    return Peaks(bytes_per_s=profile.hbm_bytes_per_s, flops=profile.peak_flops[dtype], weight_bytes=WEIGHT_BYTES[dtype])


def errors(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    """Absolute errors in %."""
    return np.abs(predicted / measured - 1) * 100


def error_lines(
    item: str, predicted: FloatArray, measured: FloatArray, mean: float, median: float = 0.0, p90: float = 0.0
) -> list[Line]:
    """MAPE, and median and p90 where they have a target."""
    found = errors(predicted, measured)
    values = ("MAPE", found.mean(), mean), ("median", np.median(found), median), ("p90", np.percentile(found, 90), p90)
    return [
        Line(item=f"{item}, {name}", measured=float(value), target=target, rows=len(found))
        for name, value, target in values
        if target
    ]


def spearman(one: FloatArray, other: FloatArray) -> float:
    """Rank correlation."""
    return float(spearmanr(one, other).statistic)
