"""What a conversion is asked for, what it yields, and how the model's shape is settled before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from easybalance_sim.cluster.shapes import ModelShape, find_shape
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.files import LayoutHints
from easybalance_sim.trace.schema import TraceMeta, id_dtype
from easybalance_sim.trace.slot_map import SlotMap

SHAPE_FIX = "pass --model NAME, or --experts and --top-k (and --layers)"


Progress = Callable[[str, int], Callable[[int], None]]
"""Called with a label and a total; what it returns is told of every unit done."""


def silent(label: str, total: int) -> Callable[[int], None]:
    """A `Progress` that shows nothing."""
    return lambda units: None


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """One `convert` job.

    source, output: files or a source folder · concurrency: requests that run at once · order: how requests join the
    queue · arrivals: CSV of arrival times or None · step_s: seconds per step of the arrival clock · ranks: source
    ranks that requests are dealt to · drain: keep the ramp-down · midway: meet the first requests midway · group_by:
    grouping column of a count table · slots: the plan in force where ids are physical · divide_counts: by how much a
    recorder multiplied its counts · counts_only: leave the tokens of a recording that has counts too · model, layers,
    experts, top_k: what the user says of the model, None = not said · progress: told of tokens.
    """

    source: Path
    output: Path
    concurrency: int = 128
    order: str = "shuffled"
    arrivals: Path | None = None
    step_s: float = 0.025
    ranks: int = 8
    seed: int = 0
    drain: bool = False
    midway: bool = False
    group_by: str | None = None
    slots: SlotMap | None = None
    divide_counts: int = 1
    counts_only: bool = False
    model: ModelShape | None = None
    layers: tuple[int, ...] | None = None
    experts: int | None = None
    top_k: int | None = None
    progress: Progress = field(default=silent, compare=False)


@dataclass(frozen=True, kw_only=True)
class Converted:
    """One file that a conversion wrote: kind "tokens" or "counts", its totals, notes for the user."""

    path: Path
    kind: str
    model: str
    tokens: int
    steps: int
    layers: int
    experts: int
    top_k: int
    notes: tuple[str, ...] = ()


def settle_top_k(job: Conversion, says: Mapping[str, str], where: str) -> int:
    """K from --top-k, the model, or the file's own `top_k` metadata. Raises `UsageError` when nobody says."""
    return _settle("top-k", job.top_k, job.model.top_k if job.model else None, says.get("top_k"), where)


def settle_experts(job: Conversion, says: Mapping[str, str], where: str) -> int:
    """E from --experts, the model, or the file's own `num_experts` metadata. Raises `UsageError` when nobody says."""
    return _settle("experts", job.experts, job.model.experts if job.model else None, says.get("num_experts"), where)


def settle_layers(job: Conversion, present: int, where: str) -> tuple[int, ...]:
    """Ids of the `present` layers from --layers or the model, else 0..present-1. Raises `UsageError` on a mismatch."""
    layers = job.layers or (job.model.layers if job.model else None) or tuple(range(present))
    if len(layers) != present:
        raise UsageError(
            f"holds {present} layers, {len(layers)} expected", where=where, fix="correct --model or --layers"
        )
    return layers


def settle_hints(job: Conversion) -> LayoutHints | None:
    """Hints for a trace without metadata; None when the user said nothing. Raises `UsageError` on half an answer."""
    if job.model is None and job.experts is None and job.top_k is None and job.layers is None:
        return None
    layers = job.layers or (job.model.layers if job.model else None)
    if layers is None:
        raise UsageError("layers are unknown", where="--layers", fix="pass --layers 0-23, or --model NAME")
    return LayoutHints(
        layers=layers,
        experts=settle_experts(job, {}, str(job.source)),
        top_k=settle_top_k(job, {}, str(job.source)),
        model=job.model.name if job.model else "unknown",
        groups=job.model.groups if job.model else 1,
        topk_group=job.model.topk_groups if job.model else 1,
    )


def refuse_slots(job: Conversion) -> None:
    """Raise `UsageError` when a plan in force is given for a recording of logical experts."""
    if job.slots is not None:
        raise UsageError("ids are logical experts, not slots", where=str(job.source), fix="leave --plan-in-force out")


def trace_meta(
    job: Conversion, kind: str, layers: tuple[int, ...], experts: int, top_k: int, says: Mapping[str, str]
) -> TraceMeta:
    """The metadata of a converted trace, with the model's widths where a model was named; `origin` has the settings."""
    bare = TraceMeta(
        kind=kind,
        layers=layers,
        experts=experts,
        top_k=top_k,
        dtype=id_dtype(experts),
        model=says.get("model", "unknown"),
        ranks=job.ranks if kind == "tokens" else 0,
        recorder="ebsim trace convert",
        origin=settings(job, kind),
    )
    model = job.model or find_shape(bare.model)
    if model is None or (model.experts, model.top_k) != (experts, top_k):
        return bare
    return with_model(bare, model)


def with_model(meta: TraceMeta, model: ModelShape) -> TraceMeta:
    """`meta` with the name, groups and widths of a model."""
    return msgspec.structs.replace(
        meta,
        model=model.name,
        groups=model.groups,
        topk_group=model.topk_groups,
        hidden=model.hidden,
        intermediate=model.intermediate,
        matrices=model.matrices,
        weight_dtype=model.dtype,
    )


def settings(job: Conversion, kind: str) -> dict[str, str | int | float | bool]:
    """What `origin` records of a job, enough to make the same file again."""
    found: dict[str, str | int | float | bool] = {"source": job.source.name}
    if kind != "tokens":
        return found
    found |= {"concurrency": job.concurrency, "order": job.order, "seed": job.seed, "ranks": job.ranks}
    if job.arrivals is None:
        return found | {"arrivals": "as slots free up", "drain": job.drain, "midway": job.midway}
    return found | {"arrivals": job.arrivals.name, "step_s": job.step_s}


def _settle(name: str, flag: int | None, model: int | None, file_says: str | None, where: str) -> int:
    if flag is not None:
        return flag
    if model is not None:
        return model
    if file_says is not None and file_says.isdigit():
        return int(file_says)
    raise UsageError(f"the number of {name} is unknown", where=where, fix=SHAPE_FIX)
