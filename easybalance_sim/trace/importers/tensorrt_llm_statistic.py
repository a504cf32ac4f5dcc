"""TensorRT-LLM: folder of EXPERT_STATISTIC_PATH (meta_info.json, rank*.safetensors): one window per iteration.

Every rank counts its own tokens under the keys `{iteration}_{layer}`, so the ranks are added up. With a load balancer
on, slots are counted, and `num_experts` of the folder is their number: `--plan-in-force` leads them back to experts.
Source: tensorrt_llm/_torch/expert_statistic.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.array_files import as_counts, read_arrays
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.count_windows import RecordedCounts, write_counts

META, RANK, RAW = "meta_info.json", re.compile(r"rank(0|[1-9][0-9]{0,4})\.safetensors"), "rank*_raw.safetensors"
KEY = re.compile(r"(0|[1-9][0-9]{0,8})_(0|[1-9][0-9]{0,4})")
_COPY = "copy the whole folder"


class MetaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """meta_info.json. num_experts: length of the counts, slots when a load balancer was on."""

    num_experts: int
    num_experts_per_token: int


def convert(job: Conversion) -> list[Converted]:
    """Write the count trace. Raises `TraceError` for gaps, `UsageError` when the plan in force is needed."""
    folder, where = job.source, str(job.source)
    meta = _meta(folder)
    ranks = _rank_files(folder)
    counts = [_counts(path, meta.num_experts) for path in ranks]
    grid = _grid(counts[0], ranks[0])
    for path, found in zip(ranks, counts, strict=True):
        if found.keys() != counts[0].keys():
            odd = sorted(found.keys() ^ counts[0].keys())[0]
            raise TraceError(
                f"iteration {odd[0]}, layer {odd[1]} is not in all ranks' files", where=str(path), fix=_COPY
            )
    iterations, layers = grid
    total = sum((_stacked(one, iterations, layers) for one in counts), start=np.zeros(1, np.int64))
    experts, notes = _experts(job, total, layers, where)
    raw = len(list(folder.glob(RAW)))
    recorded = RecordedCounts(
        counts=experts,
        layers=_require_layers(job, layers, where),
        engine="TensorRT-LLM",
        recorder="expert_statistic",
        where=where,
        top_k=meta.num_experts_per_token,
        span="iteration",
        notes=(*notes, *((f"{raw} files {RAW} are not read",) if raw else ())),
    )
    return [write_counts(job, recorded)]


def _meta(folder: Path) -> MetaInfo:
    path = folder / META
    if not path.is_file():
        raise TraceError(f"holds no {META}", where=str(folder), fix="give the folder of EXPERT_STATISTIC_PATH")
    try:
        meta = msgspec.json.decode(path.read_bytes(), type=MetaInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise TraceError(f"not the {META} of a recording: {error}", where=str(path), fix=_COPY) from error
    if meta.num_experts < 1 or meta.num_experts_per_token < 1:
        raise TraceError("num_experts and num_experts_per_token must be ≥ 1", where=str(path), fix=_COPY)
    return meta


def _rank_files(folder: Path) -> list[Path]:
    """The files of ranks 0..R-1; those of raw tokens have other names."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := RANK.fullmatch(path.name))}
    if not found:
        raise TraceError("holds no rank*.safetensors", where=str(folder), fix=_COPY)
    missing = sorted(set(range(max(found))) - set(found))
    if missing:
        raise TraceError(f"the file of rank {missing[0]} is missing", where=str(folder), fix=_COPY)
    return [found[rank] for rank in sorted(found)]


def _counts(path: Path, width: int) -> dict[tuple[int, int], IntArray]:
    found = {}
    for key, values in read_arrays(path).items():
        match = KEY.fullmatch(key)
        if match is None:
            raise TraceError(f"key {key[:40]!r} is not ITERATION_LAYER", where=str(path), fix=_COPY)
        counts = as_counts(values, str(path), key)
        if counts.shape != (width,):
            raise TraceError(
                f"{key} has shape {list(counts.shape)}, {META} says {width} experts", where=str(path), fix=_COPY
            )
        found[int(match[1]), int(match[2])] = counts
    if not found:
        raise TraceError("holds no iteration", where=str(path), fix="record while requests are served")
    return found


def _grid(counts: Mapping[tuple[int, int], IntArray], path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Iterations and layers, which must stand in every combination and the iterations without a gap."""
    iterations, layers = (tuple(sorted({key[n] for key in counts})) for n in (0, 1))
    absent = next(((i, layer) for i in iterations for layer in layers if (i, layer) not in counts), None)
    if absent:
        raise TraceError(f"iteration {absent[0]} has no layer {absent[1]}", where=str(path), fix=_COPY)
    if len(iterations) != iterations[-1] - iterations[0] + 1:
        gap = next(i for i in range(iterations[0], iterations[-1]) if i not in iterations)
        raise TraceError(f"iteration {gap} is missing", where=str(path), fix=_COPY)
    return iterations, layers


def _stacked(
    counts: Mapping[tuple[int, int], IntArray], iterations: tuple[int, ...], layers: tuple[int, ...]
) -> IntArray:
    return np.stack([np.stack([counts[i, layer] for layer in layers]) for i in iterations])


def _experts(
    job: Conversion, counts: IntArray, layers: tuple[int, ...], where: str
) -> tuple[IntArray, tuple[str, ...]]:
    """int64[W, L, E], and what to say of slots."""
    width, said = counts.shape[2], job.experts or (job.model.experts if job.model else None)
    if job.slots is not None:
        if job.slots.slots != width:
            raise UsageError(
                f"{META} says {width}, {job.slots.name} has {job.slots.slots} slots",
                where=where,
                fix="give the plan that was in force, or leave --plan-in-force out when no load balancer was on",
            )
        return job.slots.of_layers(layers).counts(counts), ()
    if said is not None and said != width:
        raise UsageError(
            f"holds {width} counts per layer, the model has {said} experts: slots of a load balancer",
            where=where,
            fix="pass --plan-in-force PLAN, the placement at that time",
        )
    note = "ids are taken for experts: with a load balancer on they are slots, and --plan-in-force is needed"
    return counts, (note,)


def _require_layers(job: Conversion, layers: tuple[int, ...], where: str) -> tuple[int, ...]:
    wanted = job.layers or (job.model.layers if job.model else layers)
    if set(wanted) != set(layers):
        odd = sorted(set(wanted) ^ set(layers))[0]
        raise UsageError(
            f"layer {odd} is {'recorded' if odd in layers else 'not recorded'}, the model has "
            f"{'no' if odd in layers else 'an'} MoE layer of this id",
            where=where,
            fix="pass --layers (an MTP layer counts, too), or correct --model",
        )
    return layers
