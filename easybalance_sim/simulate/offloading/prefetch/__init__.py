"""What is fetched ahead of a layer. One module here = one predictor, found by its name (`previous_layer` is
`previous-layer`).

A module has `chances(view) -> Iterator[tuple[int, FloatArray]]`: layers with float64[S, E], how likely each expert is
needed in each judged step. `BOUND = True`: it looks at what it predicts.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from easybalance_sim.arrays import Int32Array, IntArray, frozen
from easybalance_sim.simulate.offloading.uses import Sides, Uses

NONE = "none"
LEAST_CHANCE = 0.5
"""Below it an expert is not fetched ahead: a wrong transfer holds up what a layer lacks. (Of 0.4 to 0.9 on requests of
gpt-oss-20b in another order than the reported one, least waiting; flat between 0.4 and 0.6.)"""


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What a predictor may look at. past, judged: uses of the two `sides` · ahead: layers between the layer that is
    running and the one that is predicted."""

    sides: Sides
    past: Uses
    judged: Uses
    ahead: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """Items to fetch ahead, likeliest first. start: int64[P+1] first of each position · item: int32[...]."""

    start: IntArray
    item: Int32Array


def names() -> tuple[str, ...]:
    """Every predictor, and `none`."""
    return (NONE, *sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(__path__)))


def is_bound(name: str) -> bool:
    """Whether the predictor knows what it predicts."""
    return name != NONE and bool(getattr(_module(name), "BOUND", False))


def wanted(name: str, view: View) -> Wanted:
    """What predictor `name` wants ahead of every judged layer; nothing of `none`."""
    layers, experts, steps = view.judged.layers, view.judged.experts, view.judged.steps
    positions, items = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for layer, chance in () if name == NONE else _module(name).chances(view):
        order = np.argsort(-chance, axis=1, kind="stable")
        step, rank = np.nonzero(np.take_along_axis(chance, order, axis=1) >= LEAST_CHANCE)
        positions.append(step * layers + layer)
        items.append(layer * experts + order[step, rank])
    position = np.concatenate(positions)
    by_position = np.argsort(position, kind="stable")
    each = np.bincount(position, minlength=steps * layers)
    return Wanted(
        start=frozen(np.concatenate([[0], np.cumsum(each)]), np.int64),
        item=frozen(np.concatenate(items)[by_position], np.int32),
    )


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
