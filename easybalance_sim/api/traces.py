"""`write_trace`: routed experts in arrays as a trace file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from easybalance_sim.api.inputs import PathLike
from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.conversion import with_model
from easybalance_sim.trace.schema import NO_WORKLOAD, PHASES, TokenBatch, TraceMeta, id_dtype
from easybalance_sim.trace.validation import check_ids
from easybalance_sim.trace.writer import token_trace_writer


def write_trace(
    path: PathLike,
    experts: npt.ArrayLike,
    *,
    step: npt.ArrayLike,
    request: npt.ArrayLike,
    position: npt.ArrayLike | None = None,
    phase: str | Sequence[str] = "unknown",
    source_rank: npt.ArrayLike = -1,
    workload: str | Sequence[str] = NO_WORKLOAD,
    model: PathLike = "",
    num_experts: int | None = None,
    layers: Sequence[int] | None = None,
) -> Path:
    """Write a token trace of what a router chose, whole or not at all; rows are put in the order of their steps.

    experts: int[T, L, K] logical ids by falling gate weight · step, request: int[T] engine step and request of a token
    · position: int[T] in its request, None = in the order of the steps · phase (prefill, decode or unknown),
    source_rank, workload: one for all or one each · model: as `ebsim plan --model` takes it, for experts, layer ids and
    widths; without one, num_experts is needed and layers are 0 to L - 1. Raises `UsageError` for columns that do not
    fit together and `TraceError` for ids that no top-k holds.
    """
    ids = np.asarray(experts)
    if ids.ndim != 3 or not np.issubdtype(ids.dtype, np.integer) or not len(ids):
        what = f"array of {ids.dtype} with shape {'×'.join(map(str, ids.shape))}"
        raise UsageError(what, where="experts", fix="give whole numbers, tokens × layers × top-k")
    meta = _meta(ids, str(model), num_experts, layers)
    if ids.min() < 0 or ids.max() >= meta.experts:
        raise UsageError(f"ids are {ids.min()} to {ids.max()}", where="experts", fix=f"give 0 to {meta.experts - 1}")
    numbers = {"step": step, "request": request, "source_rank": source_rank}
    whole = {name: _whole(name, values, len(ids)) for name, values in numbers.items()}
    order = np.argsort(whole["step"], kind="stable")
    ordered = {name: values[order] for name, values in whole.items()}
    place = _places(ordered["request"]) if position is None else _whole("position", position, len(ids))[order]
    names, codes = np.unique(_texts("workload", workload, len(ids)), return_inverse=True)
    batch = TokenBatch(
        step=sealed(ordered["step"].astype(np.int32)),
        request=sealed(ordered["request"]),
        position=sealed(place.astype(np.int32)),
        phase=sealed(_phase_codes(_texts("phase", phase, len(ids)))[order]),
        source_rank=sealed(ordered["source_rank"].astype(np.int16)),
        workload=sealed(codes[order].astype(np.int16)),
        experts=sealed(ids[order].astype(meta.dtype)),
    )
    check_ids(batch.experts, meta, str(path), 0)
    with token_trace_writer(Path(path), meta, names.tolist()) as writer:
        writer.append(batch)
    return Path(path)


def _places(request: AnyArray) -> AnyArray:
    """int[T] how many tokens of the same request came before."""
    return pd.Series(request).groupby(request).cumcount().to_numpy()


def _meta(ids: AnyArray, model: str, experts: int | None, layers: Sequence[int] | None) -> TraceMeta:
    """Raises `UsageError` where array, model and what is said contradict each other."""
    shape = load_shape(model) if model else None
    count = experts or (shape.experts if shape else 0)
    if not count:
        raise UsageError("how many experts has a layer?", where="num_experts", fix="say num_experts or model")
    known = tuple(layers or (shape.layers if shape else range(ids.shape[1])))
    for what, found, wanted in (
        ("layers", ids.shape[1], len(known)),
        ("top-k", ids.shape[2], shape.top_k if shape else ids.shape[2]),
        ("experts", count, shape.experts if shape else count),
    ):
        if found != wanted:
            raise UsageError(f"{what} {found}, not {wanted}", where="experts", fix="correct model, layers or the array")
    meta = TraceMeta(kind="tokens", layers=known, experts=count, top_k=ids.shape[2], dtype=id_dtype(count))
    return meta if shape is None else with_model(meta, shape)


def _whole(name: str, values: npt.ArrayLike, tokens: int) -> AnyArray:
    """int64[T]; a single number is that of every token."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise UsageError(f"holds {array.dtype}", where=name, fix="give whole numbers")
    return _for_each(name, array.astype(np.int64), tokens)


def _texts(name: str, values: str | Sequence[str], tokens: int) -> AnyArray:
    return _for_each(name, np.asarray(values, dtype=object), tokens).astype(str)


def _for_each(name: str, array: AnyArray, tokens: int) -> AnyArray:
    if array.shape not in ((), (tokens,)):
        shape = "×".join(map(str, array.shape))
        raise UsageError(f"has shape {shape} for {tokens} tokens", where=name, fix="give one value per token")
    return np.broadcast_to(array, (tokens,))


def _phase_codes(phases: AnyArray) -> Any:
    unknown = set(phases.tolist()) - set(PHASES)
    if unknown:
        raise UsageError(f"{min(unknown)!r} is no phase", where="phase", fix=f"give {', '.join(PHASES)}")
    return np.array([PHASES.index(phase) for phase in phases.tolist()], np.uint8)
