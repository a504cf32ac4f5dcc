"""Tokens of SGLang's `per_token` recorder mode as a token trace.

The recorder keeps physical slot ids in a table of fixed width 8, -1 where a token has fewer experts or is padding, and
no request ids. Requests are told by their positions: the chunk of a prefill, then the token after it, and so on.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, IntArray, sealed
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.conversion import Conversion, Converted, trace_meta
from easybalance_sim.trace.count_windows import rows_of_model, shape_of
from easybalance_sim.trace.schema import DECODE, NO_WORKLOAD, PREFILL, UNKNOWN_PHASE, TokenBatch, as_ids, check_meta
from easybalance_sim.trace.sglang_dumps import DUMP_AGAIN, Pass, Passes, whole
from easybalance_sim.trace.writer import token_trace_writer

WIDTH = 8
"""Columns of the recorder's table, whatever the model's K."""
EXTEND_MODE, DECODE_MODE, MIXED_MODE = 1, 2, 3
"""`ForwardMode` of SGLang 0.5.23; others (idle, speculative) have no phase of ours."""
_MOST = 2**31 - 1
_AS_WIDE = (
    f"tokens have {WIDTH} experts, as many as the recorder keeps: say --top-k or --model, the model may choose more"
)
_NO_REQUESTS = "request ids are not recorded: requests are told by their positions"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tokens:
    """One pass of one rank: slots int32[T, H, 8], positions int64[T], segments: tokens of each request, in order."""

    record: Pass
    slots: AnyArray
    positions: IntArray
    segments: tuple[int, ...]
    mode: int


@dataclass
class _Requests:
    """Hands out request ids of one rank. waiting: next position → (request, whether it decodes), oldest first."""

    new: Iterator[int]
    waiting: dict[int, deque[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(deque))

    def take(self, first: int) -> tuple[int, bool]:
        """The request whose next token is at position `first`, and whether it was there before."""
        known = self.waiting.get(first)
        if known:
            return known.popleft()[0], True
        return next(self.new), False

    def rest(self, after: Sequence[tuple[int, int, bool]], ended: bool) -> None:
        """End of a pass. after: (next position, request, decodes) of what was in it · ended: others that decode are
        finished, since a decode pass holds all that run."""
        kept: dict[int, deque[tuple[int, bool]]] = defaultdict(deque)
        for position, known in self.waiting.items():
            kept[position].extend(one for one in known if not (ended and one[1]))
        for position, request, decodes in after:
            kept[position].append((request, decodes))
        self.waiting = kept


def write_tokens(job: Conversion, run: Passes) -> Converted:
    """Write the token trace: step = pass, source rank = the rank that recorded.

    Raises `TraceError` naming the record for tokens with more or fewer experts than others, or an expert twice.
    """
    where = str(job.source)
    passes = [_tokens(one, run) for one in run.passes]
    busy: AnyArray = np.zeros(len(run.slots.expert_of_slot), bool)
    for one in passes:
        busy |= (one.slots >= 0).any(axis=(0, 2))
    if not busy.any():
        raise TraceError("holds no token", where=where, fix="record while requests are served")
    layers, said = rows_of_model(job, busy, where)
    top_k = _top_k(job, run, passes, layers)
    ranks = 0 if run.copies > 1 else max(one.rank for one in run.passes) + 1
    meta = trace_meta(replace(job, ranks=ranks), "tokens", layers, run.slots.experts, top_k, {})
    meta = msgspec.structs.replace(
        meta,
        engine="SGLang",
        recorder=f"expert_distribution_recorder {run.mode}",
        ranks=ranks,
        origin={"source": job.source.name},
    )
    check_meta(meta, where)
    batch = _batch(passes, run, layers, top_k)
    with token_trace_writer(job.output, meta, (NO_WORKLOAD,)) as writer:
        writer.append(batch)
    modes = sorted({one.mode for one in passes if len(one.positions)} - {EXTEND_MODE, DECODE_MODE, MIXED_MODE})
    cut = (_AS_WIDE,) if top_k == WIDTH and not (job.top_k or job.model) else ()
    unknown = (f"passes of forward mode {', '.join(map(str, modes))} have no known phase",) if modes else ()
    return Converted(
        path=job.output, kind="tokens", model=meta.model, tokens=batch.tokens, steps=len(batch.step_starts),
        layers=len(layers), experts=meta.experts, top_k=top_k, notes=(*run.notes, *said, *cut, *unknown, _NO_REQUESTS),
    )  # fmt: skip


def _tokens(record: Pass, run: Passes) -> _Tokens:
    content, place = record.content, record.place
    table, positions = content.get("topk_ids_of_layer"), _numbers(content.get("positions"), "positions", place)
    layers = len(run.slots.expert_of_slot)
    if not isinstance(table, np.ndarray) or table.dtype.kind != "i" or table.shape != (layers, len(positions), WIDTH):
        shape = list(table.shape) if isinstance(table, np.ndarray) else type(table).__name__
        raise TraceError(
            f"topk_ids_of_layer is {shape}, expected whole numbers [{layers}, {len(positions)}, {WIDTH}]",
            where=place,
            fix=DUMP_AGAIN,
        )
    mode = whole(content, "forward_mode", _MOST, place)
    return _Tokens(
        record=record,
        slots=np.ascontiguousarray(table.transpose(1, 0, 2)),
        positions=positions,
        segments=_segments(content, mode, len(positions), place),
        mode=mode,
    )


def _numbers(values: Any, name: str, place: str) -> IntArray:
    usable = isinstance(values, list) and all(type(one) is int and 0 <= one <= _MOST for one in values)
    if not usable:
        raise TraceError(f"{name} is no list of whole numbers", where=place, fix=DUMP_AGAIN)
    return np.array(values, np.int64)


def _segments(content: Any, mode: int, tokens: int, place: str) -> tuple[int, ...]:
    lengths = content.get("extend_seq_lens")
    if mode not in (EXTEND_MODE, MIXED_MODE) or lengths is None:
        return (1,) * tokens
    found = _numbers(lengths, "extend_seq_lens", place)
    if found.sum() != tokens:
        raise TraceError(f"extend_seq_lens adds up to {found.sum()}, not {tokens}", where=place, fix=DUMP_AGAIN)
    return tuple(int(length) for length in found if length)


def _top_k(job: Conversion, run: Passes, passes: Sequence[_Tokens], layers: tuple[int, ...]) -> int:
    """K: the ids that every token has in every MoE layer."""
    said = job.top_k or (job.model.top_k if job.model else 0)
    if said > WIDTH:
        raise UsageError(
            f"the recorder keeps {WIDTH} experts of a token, the model chooses {said}",
            where=str(job.source),
            fix="--counts-only imports the counts",
        )
    found = 0
    for one in passes:
        ids = one.slots[:, list(layers)] >= 0
        held = ids.sum(axis=2)[ids.any(axis=(1, 2))]
        found = found or int(held.max(initial=0))
        if (held != found).any() and held.size:
            token, layer = (int(n) for n in np.argwhere(held != found)[0])
            raise TraceError(
                f"token {token}, layer {layers[layer]}: {held[token, layer]} experts, elsewhere {found}",
                where=one.record.place,
                fix="--counts-only imports the counts",
            )
    return shape_of(job, experts=run.slots.experts, top_k=found, where=str(job.source))


def _batch(passes: Sequence[_Tokens], run: Passes, layers: tuple[int, ...], top_k: int) -> TokenBatch:
    new, ranks = iter(range(_MOST)), {one.record.rank for one in passes}
    requests = {rank: _Requests(new) for rank in ranks}
    columns: dict[str, list[AnyArray]] = defaultdict(list)
    for one in passes:
        request, phase = _requests_of(one, requests[one.record.rank])
        kept = (one.slots >= 0).any(axis=(1, 2))
        count = int(kept.sum())
        rank = one.record.rank if run.copies == 1 else -1
        columns["experts"].append(_experts(one, one.slots[kept][:, list(layers)], run, layers, top_k))
        columns["step"].append(np.full(count, one.record.pass_id, np.int32))
        columns["request"].append(request[kept])
        columns["position"].append(one.positions[kept].astype(np.int32))
        columns["phase"].append(phase[kept])
        columns["source_rank"].append(np.full(count, rank, np.int16))
        columns["workload"].append(np.zeros(count, np.int16))
    joined: dict[str, Any] = {name: sealed(np.concatenate(parts)) for name, parts in columns.items()}
    return TokenBatch(**joined)


def _experts(one: _Tokens, slots: AnyArray, run: Passes, layers: tuple[int, ...], top_k: int) -> AnyArray:
    """[T, L, K] experts of the tokens that are no padding. Raises `TraceError` for an expert twice in one token."""
    slots = slots[slots >= 0].reshape(len(slots), len(layers), top_k)
    ids = np.empty(slots.shape, np.int32)
    for column, layer in enumerate(layers):
        ids[:, column] = run.slots.ids(slots[:, column], layer)
    narrow = sealed(as_ids(ids, run.slots.experts))
    token, layer, kind = kernels.load().check_ids(narrow, run.slots.experts)
    if kind:
        raise TraceError(
            f"token {token}, layer {layers[layer]}: one of the experts {ids[token, layer].tolist()} stands twice",
            where=one.record.place,
            fix="--counts-only imports the counts",
        )
    return narrow


def _requests_of(one: _Tokens, requests: _Requests) -> tuple[IntArray, AnyArray]:
    """Request ids int64[T] and phases uint8[T]."""
    ids, phases, after, start = [], [], [], 0
    for length in one.segments:
        request, known = requests.take(int(one.positions[start]))
        # A mixed pass holds chunks of prefills and one token of every request that decodes.
        decodes = one.mode == DECODE_MODE or (one.mode == MIXED_MODE and length == 1 and known)
        prefills = one.mode in (EXTEND_MODE, MIXED_MODE)
        ids += [request] * length
        phases += [DECODE if decodes else PREFILL if prefills else UNKNOWN_PHASE] * length
        after.append((int(one.positions[start + length - 1]) + 1, request, decodes))
        start += length
    requests.rest(after, ended=one.mode == DECODE_MODE)
    return np.array(ids, np.int64), np.array(phases, np.uint8)
