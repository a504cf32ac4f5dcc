"""Balance against loss: mechanisms beside placements and replica choices that cost no quality, and their front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from easybalance_sim.simulate.quality.front import STEP_MEAN, STEP_P99, Front, front
from easybalance_sim.simulate.quality.judged import Judged


@dataclass(frozen=True, kw_only=True)
class ParetoTable:
    """rows: floors, lossless alternatives, then lossy mechanisms · by_mean, by_p99: fronts of what can be deployed."""

    rows: tuple[Judged, ...]
    by_mean: Front
    by_p99: Front

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "fronts": [self.by_mean.to_dict(), self.by_p99.to_dict()],
        }


def table_of(rows: Sequence[Judged]) -> ParetoTable:
    """The rows with their fronts; what is not offered is no point of them."""
    points = [row.point for row in rows if row.offered]
    return ParetoTable(rows=tuple(rows), by_mean=front(points, STEP_MEAN), by_p99=front(points, STEP_P99))
