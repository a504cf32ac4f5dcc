"""How requests come over time: one module per pattern, found by its name.

A module has one class `Pattern`, a `Stream` with the fields of the pattern and its `times`. Patterns whose rate changes
draw a Poisson process at their highest rate and keep an arrival with the share that the rate has of it (Lewis and
Shedler 1979).
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import reduce
from operator import or_
from typing import Any

from easybalance_sim.simulate.serving.arrivals.streams import Stream


def names() -> tuple[str, ...]:
    """All patterns, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def pattern(name: str) -> type[Stream]:
    """The class of one pattern, one of `names`."""
    found: type[Stream] = importlib.import_module(f"{__name__}.{name}").Pattern
    return found


def any_pattern() -> Any:
    """The union of all patterns, told apart by their field `pattern`, for msgspec."""
    return reduce(or_, [pattern(name) for name in names()])
