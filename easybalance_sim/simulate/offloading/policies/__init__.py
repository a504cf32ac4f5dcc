"""Which experts a cache keeps. One module here = one policy, found by its name.

A policy gives every use a value, whatever the size of the cache; a cache keeps what has the highest ones. A module has
`priorities(history) -> Priorities`, and `BOUND = True` when it looks ahead, which nothing that serves can do.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.offloading.uses import Uses


@dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """What a policy may look at. past, judged: uses, one after the other · frequency: float64[L·E] assignments by item
    in requests that are over when the judged steps begin."""

    past: Uses
    judged: Uses
    frequency: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Priorities:
    """Values, the higher the better; of equal ones the lower item is better.

    judged: float64[A] that each judged use gives its item · past: float64[A'] those of the past, by which the cache
    fills; None: it is filled by `first` when the judged steps begin · first: float64[L·E] values then, -inf: not there.
    """

    judged: FloatArray
    past: FloatArray | None = None
    first: FloatArray | None = None


def names() -> tuple[str, ...]:
    """Every policy."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(__path__)))


def priorities(name: str, history: History) -> Priorities:
    """The values that policy `name` gives."""
    made: Priorities = _module(name).priorities(history)
    return made


def is_bound(name: str) -> bool:
    """Whether the policy knows the future."""
    return bool(getattr(_module(name), "BOUND", False))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
