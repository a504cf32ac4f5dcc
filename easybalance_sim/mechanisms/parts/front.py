"""What every mechanism gains beside what it costs, lossless ones first, and the front of those that nothing beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.simulate.quality.judged import Judged
from easybalance_sim.simulate.quality.lossless import chance_alone, least_loaded, lossless, placed
from easybalance_sim.simulate.quality.pareto import table_of


def lossless_rows(ready: Prepared) -> list[Judged]:
    """Chance as a floor, the plan, the alternatives; those with replicas with the least loaded one chosen, too."""
    counts, window = ready.scored.counts, ready.window
    chance = chance_alone(ready.scored, ready.plan.ranks, ready.session.settings.seed)
    rows = [lossless("floor: chance alone", chance, ready.plan.slots, window=window, floor=True)]
    for name, plan in {"plan": ready.plan, **ready.others}.items():
        rows.append(placed(name, counts, plan, window))
        if plan.redundant_slots:
            rows.append(least_loaded(name, counts, plan, window))
    return rows


def section(rows: Sequence[Judged]) -> dict[str, Any]:
    """Rows with their fronts."""
    return table_of(rows).to_dict()
