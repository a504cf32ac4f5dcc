"""vllm-ascend: expert hotness tensors [L, R, S] or [stages, L, R, S] of slots, or [L, E] of experts (.pt, .npy, .npz).

vllm-ascend has no dump of its own: it gathers `moe_load` of all ranks to [layers, ranks, slots] (FlashLB: with a stage
axis in front), and its `examples/eplb/eplb_strategy.py` reads a tensor [layers, experts]. Stages become windows.
"""

from __future__ import annotations

from easybalance_sim.arrays import IntArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.array_files import as_counts, read_only_array
from easybalance_sim.trace.conversion import Conversion, Converted, settle_layers
from easybalance_sim.trace.count_windows import RecordedCounts, write_counts


def convert(job: Conversion) -> list[Converted]:
    """Write the count trace. Raises `UsageError` when slots come without the plan in force, or experts with one."""
    where = str(job.source)
    if job.source.suffix == ".json":
        raise TraceError(
            "an expert map is a placement, no load", where=where, fix="save the gathered moe_load as .npy or .pt"
        )
    values = as_counts(read_only_array(job.source), where, "hotness")
    if values.ndim not in (2, 3, 4) or not values.size:
        raise TraceError(
            f"hotness has shape {list(values.shape)}", where=where, fix="give [L, E], [L, R, S] or [stages, L, R, S]"
        )
    layers = _layers(job, values, where)
    recorded = RecordedCounts(
        counts=_experts(job, values, layers, where),
        layers=layers,
        engine="vllm-ascend",
        recorder="moe_load",
        where=where,
        span="stage",
    )
    return [write_counts(job, recorded)]


def _experts(job: Conversion, values: IntArray, layers: tuple[int, ...], where: str) -> IntArray:
    """int64[W, L, E]."""
    if values.ndim == 2:
        if job.slots is not None:
            raise UsageError("[L, E] is of experts, not of slots", where=where, fix="leave --plan-in-force out")
        return values[None]
    ranks, per_rank = values.shape[-2:]
    if job.slots is None:
        raise UsageError(
            f"hotness is of slots, {per_rank} on each of {ranks} ranks",
            where=where,
            fix="pass --plan-in-force PLAN, the placement at that time",
        )
    if job.slots.slots != ranks * per_rank:
        raise UsageError(
            f"holds {ranks * per_rank} slots, {job.slots.name} has {job.slots.slots}",
            where=where,
            fix="give the plan that was in force",
        )
    return job.slots.of_layers(layers).counts(values.reshape(-1, len(layers), ranks * per_rank))


def _layers(job: Conversion, values: IntArray, where: str) -> tuple[int, ...]:
    """Ids of the rows: as the user says, else those of the plan in force where it has as many, else 0, 1, …"""
    rows = values.shape[-2] if values.ndim == 2 else values.shape[-3]
    said = job.layers or job.model
    if said is None and job.slots is not None and len(job.slots.layers) == rows:
        return job.slots.layers
    return settle_layers(job, rows, where)
