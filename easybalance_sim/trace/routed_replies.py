"""The experts of stored replies as a trace: which rows are MoE layers, which tokens are prompt, what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.conversion import (
    Conversion,
    Converted,
    refuse_slots,
    settle_experts,
    settle_top_k,
    trace_meta,
)
from easybalance_sim.trace.engine_replies import Reply, replies
from easybalance_sim.trace.recorded_ids import blank_rows, checked_ids
from easybalance_sim.trace.schema import TraceMeta
from easybalance_sim.trace.serving import IdSpool, RequestList, id_spool, write_served

ENABLE = "start the engine with --enable-return-routed-experts"
Decode = Callable[[bytes, str], AnyArray]
"""Bytes and place to ids: [T, H, K] over all H hidden layers, or flat where the bytes do not say their shape."""


def convert_replies(job: Conversion, engine: str, decode: Decode) -> list[Converted]:
    """Write the token trace of all replies below `job.source`, each a request in a continuous batch.

    Raises `TraceError` naming the reply, the token and the layer, `UsageError` when the shape is unknown.
    """
    refuse_slots(job)
    with id_spool(job) as spool:
        gathered = _Gathered(job=job)
        for reply in replies(job.source):
            gathered.add(reply, decode, spool)
        meta = gathered.meta
        if meta is None:
            raise TraceError("no reply holds routed_experts", where=str(job.source), fix=ENABLE)
        meta = msgspec.structs.replace(meta, engine=engine, recorder="routed_experts")
        ids = spool.ids(meta, str(job.source))
        return [write_served(job, meta, gathered.found.requests(), ids, gathered.notes())]


@dataclass(kw_only=True, eq=False)
class _Gathered:
    """What the replies so far hold; their ids are in the spool. meta: of the first that holds any."""

    job: Conversion
    meta: TraceMeta | None = None
    hidden: int = 0
    found: RequestList = field(default_factory=RequestList)
    empty: int = 0
    lost: int = 0
    cached: int = 0

    def add(self, reply: Reply, decode: Decode, spool: IdSpool) -> None:
        if not reply.blob:
            self.empty += 1
            return
        ids = self._shaped(decode(reply.blob, reply.where), reply)
        start = _start(reply, len(ids))
        blank = blank_rows(ids)
        kept = ~blank.all(axis=1)
        if not kept.any():
            self.empty += 1
            return
        ids, blank, position = ids[kept], blank[kept], start + np.flatnonzero(kept)
        self.meta = self.meta or self._first(ids, blank, reply)
        self.hidden = self.hidden or ids.shape[1]
        if ids.shape[1] != self.hidden:
            raise TraceError(
                f"holds {ids.shape[1]} layers, the first reply {self.hidden}",
                where=reply.where,
                fix="import the replies of one model at a time",
            )
        _require_dense(ids, blank, self.meta, reply.where)
        spool.append(checked_ids(ids[:, list(self.meta.layers)], self.meta, reply.where, position))
        self.found.add(reply.group, position, reply.prompt, reply.workload)
        self.lost += int(np.count_nonzero(~kept))
        self.cached += reply.cached

    def notes(self) -> tuple[str, ...]:
        counted = [
            (self.empty, f"{self.empty:,} replies without routed experts are left out"),
            (self.lost, f"{self.lost:,} tokens that were not recorded (0 or -1 in all layers) are left out"),
            (self.cached, f"{self.cached:,} prompt tokens came from the prefix cache; they count as if computed"),
        ]
        return tuple(note for count, note in counted if count) + self.found.notes()

    def _shaped(self, ids: AnyArray, reply: Reply) -> AnyArray:
        """[T, H, K]."""
        said = {"top_k": str(ids.shape[2])} if ids.ndim == 3 else {}
        top_k = settle_top_k(self.job, said, reply.where)
        if ids.ndim == 3:
            if ids.shape[2] != top_k:
                raise UsageError(
                    f"holds {ids.shape[2]} experts per token, not top-{top_k}",
                    where=reply.where,
                    fix="correct --top-k or --model",
                )
            return ids
        hidden = self.hidden or _hidden_layers(_named(self.job), ids, top_k, reply)
        if ids.size % (hidden * top_k):
            raise TraceError(
                f"{ids.size:,} ids are no whole number of tokens of {hidden} layers × top-{top_k}",
                where=reply.where,
                fix="correct --top-k, --layers or --model",
            )
        return ids.reshape(-1, hidden, top_k)

    def _first(self, ids: AnyArray, blank: BoolArray, reply: Reply) -> TraceMeta:
        hidden, top_k = ids.shape[1:]
        layers = _named(self.job)
        if not layers and top_k == 1:
            raise UsageError(
                "top-1: a dense layer looks like expert 0", where=reply.where, fix="pass --layers or --model"
            )
        layers = layers or tuple(np.flatnonzero(~blank[0]).tolist())
        if max(layers) >= hidden:
            raise UsageError(
                f"holds {hidden} hidden layers, so there is no layer {max(layers)}",
                where=reply.where,
                fix="correct --layers or --model",
            )
        experts = settle_experts(self.job, {}, reply.where)
        if ids.dtype == np.uint8 and experts > 256:
            raise UsageError(
                f"ids are uint8, which vLLM uses up to 256 experts, not for {experts}",
                where=reply.where,
                fix="correct --experts or --model",
            )
        if not 1 <= top_k <= experts <= 65536:
            raise UsageError(f"top-{top_k} of {experts} experts", where=reply.where, fix="correct --experts or --top-k")
        return trace_meta(self.job, "tokens", layers, experts, top_k, {"model": reply.model} if reply.model else {})


def _named(job: Conversion) -> tuple[int, ...]:
    return job.layers or (job.model.layers if job.model else ())


def _hidden_layers(layers: tuple[int, ...], ids: AnyArray, top_k: int, reply: Reply) -> int:
    """H of flat ids: up to the last MoE layer, and further where token counts and blank rows say that there is more."""
    if not layers:
        raise UsageError(
            "raw int32 ids do not say how many layers they hold", where=reply.where, fix="pass --layers or --model"
        )
    least = max(layers) + 1
    if reply.prompt is None or reply.completion is None:
        return least
    rows = reply.prompt + reply.completion - 1 - (reply.start or 0)
    if rows > 0 and ids.size % (rows * top_k) == 0 and ids.size > rows * top_k * least:
        behind = ids.reshape(rows, -1, top_k)[:, least:]
        return least if (behind > 0).any() else ids.size // (rows * top_k)
    return least


def _start(reply: Reply, rows: int) -> int:
    """Position of the first row. The last sampled token is never routed, so a whole reply has one row less."""
    if reply.prompt is None or reply.completion is None:
        return reply.start or 0
    total = reply.prompt + reply.completion - 1
    start = total - rows
    if start < 0 or (reply.start is not None and reply.start != start):
        skipped = f" − {reply.start} skipped" if reply.start else ""
        raise TraceError(
            f"holds {rows} tokens; {reply.prompt} of the prompt + {reply.completion} generated − 1 never "
            f"routed{skipped} are {total - (reply.start or 0)}",
            where=reply.where,
            fix="correct --top-k, --layers or --model, or store the reply as the engine sent it",
        )
    return start


def _require_dense(ids: AnyArray, blank: BoolArray, meta: TraceMeta, where: str) -> None:
    """Raise `TraceError` when a layer that is named dense holds experts, or an MoE layer none at all."""
    dense = np.setdiff1d(np.arange(ids.shape[1]), meta.layers)
    for layer in dense[~((ids[:, dense] == 0) | (ids[:, dense] == -1)).all(axis=(0, 2))].tolist():
        raise TraceError(
            f"layer {layer} holds expert ids but is no MoE layer of the trace",
            where=where,
            fix="correct --layers or --model",
        )
    for index in np.flatnonzero(blank[:, list(meta.layers)].all(axis=0)).tolist():
        raise TraceError(
            f"layer {meta.layers[index]} holds no expert ids: it is dense, or was not recorded",
            where=where,
            fix="correct --layers or --model",
        )
