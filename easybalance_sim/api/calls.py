"""How every function begins: numbers in their range, a listener, and the call as one would write it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any

from easybalance_sim.api.kinds import is_number, require_kind
from easybalance_sim.api.listening import Told
from easybalance_sim.api.results import JudgedResult
from easybalance_sim.errors import UsageError

RANGES: dict[str, tuple[float, float | None]] = {
    "ahead": (1, None),
    "batch": (1, None),
    "budget_s": (0.0, None),
    "certainty": (0.0, None),
    "confirm": (1, None),
    "cooldown": (0, None),
    "delay": (1, None),
    "experts": (1, None),
    "first": (0.01, 0.9),
    "half_life": (0.0, None),
    "hidden_layers": (1, None),
    "horizon": (1, None),
    "hours": (0.0, None),
    "layers": (0, None),
    "max_migration_bytes": (0, None),
    "max_moves": (0, None),
    "min_gain": (0.0, 1.0),
    "min_interval": (1, None),
    "other_ms": (0.0, None),
    "pause_s": (0.0, None),
    "ranks": (1, 1024),
    "ranks_per_node": (1, None),
    "redundancy": (0, 2**16),
    "redundant": (0, None),
    "seed": (0, 2**32 - 1),
    "sensor_ms": (0.001, None),
    "slots_per_rank": (1, 2**16),
    "staging_slots": (0, None),
    "step_limit": (0.0, 1.0),
    "step_mb": (0.0, None),
    "step_ms": (0.001, None),
    "step_tokens": (0, 2**24),
    "warm_up": (0, None),
    "window_seconds": (0.0, None),
    "window_steps": (1, 2**31 - 1),
}
"""Least and most of options, those of the flags; whole numbers where the least is one."""
OWN_RANGES: dict[tuple[str, str], tuple[float, float | None]] = {("diff", "step_ms"): (0.0, None)}
"""Where a name means something else in one function."""


def range_of(function: str, option: str) -> tuple[float, float | None] | None:
    """Least and most of an option of a function; None where it has no range."""
    return OWN_RANGES.get((function, option), RANGES.get(option))


def begun(function: Callable[..., Any], said: Mapping[str, Any]) -> tuple[str, Told]:
    """The call as text, and who hears of the run. said: options by name, as `locals()` gives them at the beginning.

    Raises `UsageError` for a number outside its range, and for what is not of the kind that the option takes.
    """
    for name, parameter in inspect.signature(function).parameters.items():
        given, several = said[name], parameter.annotation == "Numbers"
        span = range_of(function.__name__, name)
        if span is not None and given is not None:
            for value in given if several and isinstance(given, Collection) else (given,):
                _require_in_range(name, value, span)
        else:
            require_kind(name, parameter.annotation, given)
    return call_of(function, said), Told(said.get("progress", False))


def call_of(function: Callable[..., Any], said: Mapping[str, Any]) -> str:
    """The call as one would write it, defaults left out."""
    parts = []
    for name, parameter in inspect.signature(function).parameters.items():
        given, default = said[name], parameter.default
        if name == "progress" or (type(given) is type(default) and given == default):
            continue
        by_position = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        parts.append(_written(given) if by_position else f"{name}={_written(given)}")
    return f"easybalance_sim.{function.__name__}({', '.join(parts)})"


def _require_in_range(name: str, value: Any, span: tuple[float, float | None]) -> None:
    least, most = span
    kind, word = (Integral, "whole number") if isinstance(least, int) else (Real, "number")
    if not is_number(value, kind) or not least <= value or (most is not None and value > most):
        said = f"{least:g} or more" if most is None else f"{least:g} to {most}"
        raise UsageError(f"{value!r} is no {word} of {said}", where=name)


def _written(value: Any) -> str:
    if isinstance(value, JudgedResult):
        return f"<plan {value.fingerprint[:12]}>"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return repr(value)
