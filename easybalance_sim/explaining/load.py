"""The load that a plan is explained with: the side of its own trace that it was made from, or another trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.selection import Selection, phase_filter, workload_filter
from easybalance_sim.load.split import make_split
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan.planfile import PlanDocument
from easybalance_sim.planning.session import selected_windows
from easybalance_sim.replay.traffic import CountTraffic, TokenTraffic, split_counts
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.files import file_fingerprints, fingerprint
from easybalance_sim.trace.schema import CountTrace


@dataclass(frozen=True, kw_only=True, eq=False)
class Load:
    """tokens: int64[W, L, E] assignments · files: of the trace · own: whether these are the windows that the plan was
    made from, of its own trace."""

    tokens: IntArray
    files: tuple[str, ...]
    own: bool

    @cached_property
    def total(self) -> IntArray:
        """int64[L, E]."""
        total: IntArray = self.tokens.sum(axis=0)
        return total

    @cached_property
    def over_mean(self) -> FloatArray:
        """float64[L, E] load of an expert over the mean of its layer, 0 in a layer without traffic."""
        mean = self.total.mean(axis=1, keepdims=True)
        ratio: FloatArray = np.divide(self.total, mean, out=np.zeros(self.total.shape), where=mean > 0)
        return ratio

    @cached_property
    def place(self) -> IntArray:
        """int64[L, E] 1 = the busiest expert of its layer; equal ones in the order of their numbers."""
        return _places(self.total)

    @cached_property
    def peak(self) -> FloatArray:
        """float64[L, E] P99 over windows of the load of an expert over the mean of its layer in that window; windows
        without traffic are left out."""
        return np.stack([_peak(self.tokens[:, row]) for row in range(self.tokens.shape[1])])

    @cached_property
    def peak_place(self) -> IntArray:
        """int64[L, E] as `place`, by `peak`."""
        return _places(self.peak)

    def to_dict(self) -> dict[str, object]:
        """The `load` section."""
        return {"files": list(self.files), "made_from": self.own, "windows": len(self.tokens)}


def load_of(document: PlanDocument, traces: Sequence[Path]) -> Load:
    """Count a trace in windows as the plan's. Of the plan's own trace only what it was made from is taken.

    Raises `TraceError` for files that cannot be read, `PlanError` for a trace of another model, `UsageError` when
    nothing is left.
    """
    trace = open_trace(traces)
    meta, paths = trace.meta, [Path(path) for path in trace.paths]
    if (meta.layers, meta.experts) != (document.layer_ids, document.experts):
        raise PlanError(
            f"the plan is for {len(document.layers)} layers × {document.experts} experts, the trace has "
            f"{len(meta.layers)} × {meta.experts} (or other layer ids)",
            where="--trace",
            fix="give a trace of the model that the plan was made for",
        )
    own = document.trace.fingerprint == fingerprint(file_fingerprints(paths))
    windows = _fit(trace, document) if own else _all(trace, document)
    if not windows.tokens.sum():
        raise UsageError("the windows hold no tokens", where="--trace", fix="give a trace with traffic")
    return Load(tokens=windows.tokens, files=tuple(map(str, paths)), own=own)


def _places(weight: FloatArray | IntArray) -> IntArray:
    order = np.argsort(-weight, axis=1, kind="stable")
    place: IntArray = np.argsort(order, axis=1, kind="stable") + 1
    return place


def _peak(tokens: IntArray) -> FloatArray:
    """float64[E] of one layer; tokens: int64[W, E]."""
    mean = tokens.mean(axis=1)
    busy = mean > 0
    if not busy.any():
        return np.zeros(tokens.shape[1])
    peak: FloatArray = np.quantile(tokens[busy] / mean[busy, None], 0.99, axis=0)
    return peak


def _fit(trace: TokenTrace | CountTrace, document: PlanDocument) -> LoadWindows:
    """What the plan was made from, by the split settings in its file."""
    drawn = document.trace.split
    by, held_out, seed = str(drawn["by"]), float(drawn["held_out"]), int(drawn["seed"])
    chosen = Selection(
        phase=phase_filter(drawn["phase"]), workloads=workload_filter(tuple(drawn["workloads"]), trace.workloads)
    )
    if isinstance(trace, CountTrace):
        fit, held = split_counts(trace, selected_windows(trace, chosen), by, held_out, seed)
        return CountTraffic(trace=trace, fit=fit, held=held, settings={}).fit_windows()
    windowing = Windowing(steps=int(drawn["window_steps"]), seconds=float(drawn["window_seconds"]))
    split = make_split(trace.scan(), trace.workloads, by, held_out, seed, windowing.steps, chosen.workloads)
    return TokenTraffic(trace=trace, selection=chosen, split=split, windowing=windowing, settings={}).fit_windows()


def _all(trace: TokenTrace | CountTrace, document: PlanDocument) -> LoadWindows:
    """Everything, in windows of steps: another trace need not have a clock."""
    if isinstance(trace, CountTrace):
        every = np.ones(len(trace.tokens), np.bool_)
        return CountTraffic(trace=trace, fit=every, held=~every, settings={}).fit_windows()
    windowing = Windowing(steps=int(document.trace.split.get("window_steps", 0)) or 16)
    return TokenTraffic(
        trace=trace, selection=Selection(), split=None, windowing=windowing, settings={}
    ).judged_windows()
