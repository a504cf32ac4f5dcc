"""One numbering of steps, requests and time over all files of a trace.

A file whose steps start again is a new recording: it is numbered on, and its clock goes on where it would go back. A
file that begins with the step at which the one before ended goes on with it, unless that is where both begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import TokenBatch


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What a file holds, as it numbers it itself. first_step, last_step · least_request, most_request · begins_s,
    ends_s: time of the first and of the last token, None without times."""

    first_step: int
    last_step: int
    least_request: int
    most_request: int
    begins_s: float | None
    ends_s: float | None


@dataclass(frozen=True, kw_only=True)
class Base:
    """What is added to the steps, requests and times of a file. recording: number of the file with which its recording
    begins."""

    step: int = 0
    request: int = 0
    time_s: float = 0.0
    recording: int = 0

    def of(self, batch: TokenBatch) -> TokenBatch:
        """The batch numbered on."""
        moved: dict[str, AnyArray] = {}
        for name in ("step", "request"):
            ids, base = getattr(batch, name), getattr(self, name)
            if base:
                moved[name] = sealed(ids + ids.dtype.type(base))
        if batch.time_s is not None and self.time_s:
            moved["time_s"] = sealed(batch.time_s + self.time_s)
        return replace(batch, **moved) if moved else batch  # type: ignore[arg-type]


def bases(extents: Sequence[Extent], names: Sequence[str]) -> tuple[Base, ...]:
    """How the files, in order, are numbered on. Raises `TraceError` naming the file whose ids no longer fit."""
    found: list[Base] = []
    base, last_step, last_request, last_time_s, opening = Base(), -1, -1, 0.0, -1
    for extent, name in zip(extents, names, strict=True):
        begin = extent.first_step
        if not found or begin + base.step < last_step or begin == opening:
            opening = begin
            if found:
                behind_s = 0.0 if extent.begins_s is None else max(0.0, last_time_s - extent.begins_s)
                base = Base(step=last_step + 1 - begin, request=last_request + 1, time_s=behind_s, recording=len(found))
        if base.recording:
            _require_room("step", base.step, extent.first_step, extent.last_step, np.int32, name)
            _require_room("request", base.request, extent.least_request, extent.most_request, np.int64, name)
        last_step = extent.last_step + base.step
        last_request = max(last_request, extent.most_request + base.request)
        last_time_s = last_time_s if extent.ends_s is None else extent.ends_s + base.time_s
        found.append(base)
    return tuple(found)


def _require_room(column: str, base: int, least: int, most: int, dtype: type, where: str) -> None:
    if least < 0 or most > np.iinfo(dtype).max - base:
        raise TraceError(
            f"column {column}: ids from {least} to {most} cannot be numbered on after the files before",
            where=where,
            fix=f"number each file's {column} ids from 0",
        )
