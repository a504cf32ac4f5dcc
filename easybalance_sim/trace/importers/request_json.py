"""Expert ids of single requests as JSON, per token and layer, one request per document.

Source: `.json` or `.jsonl` files, or a folder whose sub-folders name workloads. A request is either a list of engine
steps, each an object from layer to the ids of its tokens (null: a dense layer), of which the first is the prompt; or
ids as [tokens][layers][top-k], bare or under `experts` beside `prompt_tokens`. Source of the first layout: the data set
MoE_expert_selection_trace of Yu et al. 2025 (arXiv 2510.05497).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.conversion import (
    Conversion,
    Converted,
    refuse_slots,
    settle_experts,
    settle_top_k,
    trace_meta,
)
from easybalance_sim.trace.json_documents import decoded, documents
from easybalance_sim.trace.recorded_ids import checked_ids
from easybalance_sim.trace.schema import TraceMeta
from easybalance_sim.trace.serving import RequestList, id_spool, write_served

FIX = "give a list of steps {layer: [[ids]]}, or ids as [tokens][layers][top-k]"


def convert(job: Conversion) -> list[Converted]:
    """Write the token trace. Raises `TraceError` naming file, token and layer, `UsageError` for an unknown shape."""
    refuse_slots(job)
    found, meta = RequestList(), None
    with id_spool(job) as spool:
        for number, document in enumerate(documents(job.source)):
            request = _request(decoded(document, Any, "JSON"), document.where)
            meta = meta or _meta(job, request, document.where)
            _require_same(request, meta, document.where)
            spool.append(checked_ids(request.ids, meta, document.where))
            found.add(number, np.arange(len(request.ids)), request.prompt, document.workload)
        if meta is None:
            raise TraceError("holds no request", where=str(job.source), fix=FIX)
        return [write_served(job, meta, found.requests(), spool.ids(meta, str(job.source)), found.notes())]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Request:
    """ids: [T, L, K] · layers: of the file, dense ones left out · prompt: tokens, None = not said."""

    ids: AnyArray
    layers: tuple[int, ...]
    prompt: int | None


def _request(content: Any, where: str) -> _Request:
    prompt = None
    if isinstance(content, dict):
        prompt, content = content.get("prompt_tokens"), content.get("experts")
        if prompt is not None and (not isinstance(prompt, int) or isinstance(prompt, bool) or prompt < 0):
            _refuse(f"prompt_tokens is {repr(prompt)[:40]}", where)
    if not isinstance(content, list) or not content:
        _refuse("holds no list of steps or tokens", where)
    if all(isinstance(step, dict) for step in content):
        return _of_steps(content, where)
    return _of_tokens(content, prompt, where)


def _of_steps(steps: list[dict[str, Any]], where: str) -> _Request:
    layers = _layers_of(steps[0], where)
    parts = []
    for number, step in enumerate(steps):
        if _layers_of(step, where) != layers:
            _refuse(f"step {number} holds other layers than step 0", where)
        rows = [_rows(step[str(layer)], f"step {number}, layer {layer}", where) for layer in layers]
        if len({row.shape for row in rows}) > 1:
            _refuse(f"step {number}: layers hold different numbers of tokens or ids", where)
        parts.append(np.stack(rows, axis=1))
    if len({part.shape[2] for part in parts}) > 1:
        _refuse("steps hold different top-k", where)
    return _Request(ids=np.concatenate(parts), layers=layers, prompt=len(parts[0]))


def _layers_of(step: dict[str, Any], where: str) -> tuple[int, ...]:
    names = [name for name, rows in step.items() if rows]
    if not names or not all(name.isascii() and name.isdigit() and str(int(name)) == name for name in names):
        _refuse("a step must map layer numbers to ids", where)
    return tuple(sorted(int(name) for name in names))


def _of_tokens(tokens: list[Any], prompt: int | None, where: str) -> _Request:
    if not isinstance(tokens[0], list) or not tokens[0]:
        _refuse("token 0 is no list of layers", where)
    layers = tuple(layer for layer, ids in enumerate(tokens[0]) if ids)
    rows = []
    for number, token in enumerate(tokens):
        if not isinstance(token, list) or tuple(layer for layer, ids in enumerate(token) if ids) != layers:
            _refuse(f"token {number} holds other layers than token 0", where)
        rows.append(_rows([token[layer] for layer in layers], f"token {number}", where))
    if len({row.shape for row in rows}) > 1:
        _refuse("tokens hold different top-k", where)
    return _Request(ids=np.stack(rows), layers=layers, prompt=prompt)


def _rows(value: Any, place: str, where: str) -> AnyArray:
    """[n, K] ids."""
    try:
        ids = np.asarray(value)
    except (ValueError, OverflowError, RecursionError):
        ids = np.zeros(0)
    if ids.ndim != 2 or ids.dtype.kind != "i" or 0 in ids.shape:
        _refuse(f"{place}: no list of equally many ids per token", where)
    return ids


def _meta(job: Conversion, request: _Request, where: str) -> TraceMeta:
    named = job.layers or (job.model.layers if job.model else request.layers)
    if set(named) != set(request.layers):
        raise UsageError(
            f"holds ids in layers {_span(request.layers)}, not in {_span(named)}",
            where=where,
            fix="correct --layers or --model",
        )
    width = request.ids.shape[2]
    top_k = settle_top_k(job, {"top_k": str(width)}, where)
    experts = settle_experts(job, {}, where)
    if top_k != width or top_k > experts or experts > 65536:
        raise UsageError(
            f"holds {width} ids per token, not top-{top_k} of {experts} experts",
            where=where,
            fix="correct --top-k, --experts or --model",
        )
    return trace_meta(job, "tokens", request.layers, experts, top_k, {})


def _require_same(request: _Request, meta: TraceMeta, where: str) -> None:
    if request.layers != meta.layers or request.ids.shape[2] != meta.top_k:
        raise TraceError(
            f"holds {len(request.layers)} layers × top-{request.ids.shape[2]}, the first request "
            f"{len(meta.layers)} × top-{meta.top_k}, or other layers",
            where=where,
            fix="import requests of one model at a time",
        )


def _refuse(what: str, where: str) -> NoReturn:
    raise TraceError(what, where=where, fix=FIX)


def _span(layers: tuple[int, ...]) -> str:
    return f"{min(layers)}..{max(layers)} ({len(layers)})"
