"""What an option may be: what its annotation says, asked of the value before anything is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any

from easybalance_sim.api.results import JudgedResult
from easybalance_sim.errors import UsageError

OR_NONE = " | None"


def require_kind(name: str, annotation: str, value: Any) -> None:
    """Raise `UsageError` for a value that is not what its annotation says; what has no test here may be anything."""
    kind = annotation.removesuffix(OR_NONE)
    if value is None and (kind != annotation or kind == "Names"):
        return
    if kind in _ONE and not _ONE[kind][0](value):
        raise UsageError(f"{value!r} is no {_ONE[kind][1]}", where=name)
    if kind in _SEVERAL and not _is_one_or_several(_SEVERAL[kind][0], value):
        raise UsageError(f"{value!r} is no {_SEVERAL[kind][1]}, nor several", where=name)


def is_number(value: Any, kind: type) -> bool:
    """Whether it is of a kind of `numbers`, and no truth value."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_plan(value: Any) -> bool:
    return _is_path(value) or (isinstance(value, JudgedResult) and hasattr(value, "document"))


def _is_report(value: Any) -> bool:
    return _is_path(value) or isinstance(value, JudgedResult | Mapping)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return is_number(value, Integral)


def _is_real(value: Any) -> bool:
    return is_number(value, Real)


def _is_one_or_several(is_one: Callable[[Any], bool], value: Any) -> bool:
    # An iterator would be used up by the question.
    return is_one(value) or isinstance(value, Iterator) or (isinstance(value, Iterable) and all(map(is_one, value)))


_ONE: dict[str, tuple[Callable[[Any], bool], str]] = {
    "Mapping[str, Any] | JudgedResult | PathLike": (_is_report, "report, nor the path of one"),
    "PathLike": (_is_path, "path"),
    "PlanLike": (_is_plan, "plan, nor the path of one"),
    "float": (_is_real, "number"),
    "int": (_is_whole, "whole number"),
    "str": (_is_text, "text"),
}
_SEVERAL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "Names": (_is_text, "name"),
    "Numbers": (_is_whole, "whole number"),
    "Traces": (_is_path, "path"),
    "float | Sequence[float]": (_is_real, "number"),
}
