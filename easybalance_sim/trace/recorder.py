"""Records the routing of a PyTorch model while it runs, as a token trace.

    with record(model, "trace.parquet"):
        model.generate(**inputs)

Every forward pass of `model` is a step, every row of a batch a request; padding is left out. Needs PyTorch (the extra
`[torch]`), which the model brings along.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, IntArray
from easybalance_sim.cluster.shapes import find_shape
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.conversion import with_model
from easybalance_sim.trace.forward_passes import Forward, forward_of, named_arguments
from easybalance_sim.trace.recorded_ids import checked_ids
from easybalance_sim.trace.routers import (
    Choice,
    Router,
    choice_of,
    config_value,
    find_routers,
    joined_choices,
    selection_scores,
)
from easybalance_sim.trace.schema import (
    DECODE,
    NO_WORKLOAD,
    PREFILL,
    SCORES,
    ScoreMeta,
    TokenBatch,
    TraceMeta,
    check_meta,
    id_dtype,
    joined_batches,
)
from easybalance_sim.trace.writer import TokenTraceWriter, token_trace_writer

RUNNERS_UP = 4
"""Runners-up that are kept of each layer, where there are so many."""
WITHOUT = "record without all_scores"
_HELD_BYTES = 1 << 26
_TIE = 1e-3


@contextlib.contextmanager
def record(
    model: Any,
    path: Path | str,
    *,
    top_k: int | None = None,
    routers: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    all_scores: bool = False,
    ranks: int = 0,
    stop_tokens: Sequence[int] | None = None,
) -> Iterator[Recorder]:
    """Record every forward pass of `model` inside the block; the trace appears at `path` when it ends well.

    model: the module that is called, such as a Hugging Face causal LM · top_k, routers, layers: K, names of the router
    modules and ids of their layers, where the model does not show them · all_scores: keep every expert's score, too
    (2·L·E bytes per token) · ranks: source ranks that requests are dealt to, 0 = unknown · stop_tokens: ids that end a
    request, those of the model's generation settings unless said. Raises `UsageError` when the routers cannot be told
    or nothing was recorded, `TraceError` for ids that no trace can hold; then no file is written.
    """
    found = find_routers(model, routers, top_k, layers)
    meta = _meta(model, found, ranks, all_scores)
    names = [NO_WORKLOAD]
    with token_trace_writer(Path(path), meta, names) as writer:
        recorder = Recorder(model, found, meta, writer, names, _stops(model, stop_tokens))
        with recorder.hooked():
            yield recorder
        recorder.finish()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """The rows of a batch. request: int64[B] · ended: rows that are fed on though their request is over."""

    request: IntArray
    workload: int
    ended: set[int]


class Recorder:
    """What is being recorded; made by `record`."""

    def __init__(
        self,
        model: Any,
        routers: Sequence[Router],
        meta: TraceMeta,
        writer: TokenTraceWriter,
        workloads: list[str],
        stops: Sequence[int],
    ) -> None:
        self._model, self._routers, self._meta, self._writer = model, routers, meta, writer
        self._workloads, self._stops = workloads, np.array(stops, np.int64)
        self._said: tuple[IntArray, int] | None = None
        self._rows: _Rows | None = None
        self._forward: Forward | None = None
        self._decided: list[list[Any]] = [[] for _ in routers]
        self._passed: list[list[Any]] = [[] for _ in routers]
        self._held: list[TokenBatch] = []
        self._held_bytes = 0
        self._next_request = 0
        self._scored: bool | None = None
        self.tokens = self.steps = 0

    def requests(self, numbers: Sequence[int], workload: str = NO_WORKLOAD) -> None:
        """Say which requests the rows of the next new batch are, and of what workload; they are numbered on unless
        said."""
        if workload not in self._workloads:
            self._workloads.append(workload)
        self._said = (np.array(numbers, np.int64), self._workloads.index(workload))

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """The model with hooks, which are gone when the block ends."""
        with contextlib.ExitStack() as hooks:
            for router, decided, passed in zip(self._routers, self._decided, self._passed, strict=True):
                hooks.callback(router.module.register_forward_hook(_keeping_output(decided)).remove)
                if router.beside is not None:
                    keep = _keeping_arguments(passed)
                    hooks.callback(router.beside.register_forward_pre_hook(keep, with_kwargs=True).remove)
            begin = self._model.register_forward_pre_hook(self._begin, with_kwargs=True)
            hooks.callback(begin.remove)
            hooks.callback(self._model.register_forward_hook(self._end).remove)
            yield

    def finish(self) -> None:
        """Write what is held. Raises `UsageError` when nothing was recorded at all."""
        if not self.tokens:
            raise UsageError("nothing was recorded", fix="call the model itself, not a part of it, inside the block")
        self._flush()

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        # An earlier pass that ended in an exception may have left some.
        self._forget()
        self._forward = forward_of(named_arguments(model, args, kwargs))

    def _forget(self) -> None:
        for kept in (*self._decided, *self._passed):
            kept.clear()

    def _end(self, model: Any, args: Any, output: Any) -> None:
        forward, self._forward = self._forward, None
        if forward is None:
            return
        rows = self._rows
        goes_on = rows is not None and forward.goes_on and len(rows.request) == len(forward.real)
        if rows is None or not goes_on:
            rows = self._rows = self._new_rows(len(forward.real))
        decode = goes_on and forward.real.shape[1] == 1
        if decode and forward.tokens is not None:
            rows.ended.update(np.flatnonzero(np.isin(forward.tokens[:, 0], self._stops)).tolist())
        real = forward.real.copy()
        real[sorted(rows.ended)] = False
        choices = [self._choice(place, real.size) for place in range(len(self._routers))]
        self._forget()
        if real.any():
            self._append(rows, real, forward.positions[real], DECODE if decode else PREFILL, choices)

    def _new_rows(self, count: int) -> _Rows:
        if self._said is None:
            numbers, workload = np.arange(self._next_request, self._next_request + count), 0
        else:
            (numbers, workload), self._said = self._said, None
        if len(numbers) != count:
            raise UsageError(f"{len(numbers)} requests are named for a batch of {count} rows", fix="name one for each")
        self._next_request = max(self._next_request, int(numbers.max()) + 1)
        return _Rows(request=numbers, workload=workload, ended=set())

    def _choice(self, place: int, tokens: int) -> Choice:
        """The decisions of a router for all tokens of the pass, in their order."""
        router, passed = self._routers[place], self._passed[place]
        calls = self._decided[place]
        given = passed if len(passed) == len(calls) else [None] * len(calls)
        found = [choice_of(router, output, one) for output, one in zip(calls, given, strict=True)]
        seen = sum(len(one.ids) for one in found)
        if seen != tokens:
            raise UsageError(
                f"router {router.name} decided for {seen} of {tokens} tokens of a forward pass",
                fix="record an eager model (no compiled graphs), or name other modules with routers=[…]",
            )
        return joined_choices(found)

    def _append(self, rows: _Rows, real: BoolArray, position: IntArray, phase: int, choices: list[Choice]) -> None:
        row, kept = np.nonzero(real)[0], real.ravel()
        ids, gates = _stacked([one.ids for one in choices], kept), None
        if all(one.gates is not None for one in choices):
            gates = _stacked([one.gates for one in choices], kept).astype(np.float64)
            order = np.argsort(-gates, axis=2, kind="stable")
            ids, gates = np.take_along_axis(ids, order, axis=2), np.take_along_axis(gates, order, axis=2)
        request, ranks = rows.request[row], self._meta.ranks
        batch = TokenBatch(
            step=np.full(len(row), self.steps, np.int32),
            request=request,
            position=position.astype(np.int32),
            phase=np.full(len(row), phase, np.uint8),
            source_rank=(request % ranks if ranks else np.full(len(row), -1)).astype(np.int16),
            workload=np.full(len(row), rows.workload, np.int16),
            experts=checked_ids(ids, self._meta, f"step {self.steps}"),
            gates=None if gates is None else gates.astype(np.float16),
            **self._scores(choices, kept, ids),
        )
        self.tokens, self.steps = self.tokens + batch.tokens, self.steps + 1
        self._hold(batch)

    def _scores(self, choices: list[Choice], kept: BoolArray, ids: AnyArray) -> dict[str, Any]:
        """The score columns of the kept tokens; none when the scores by which experts are chosen are not known."""
        asked = self._meta.all_scores is not msgspec.UNSET
        silent = next((r.name for r, one in zip(self._routers, choices, strict=True) if one.logits is None), None)
        if asked and silent is not None:
            raise UsageError(f"router {silent} does not return the scores of all experts", fix=WITHOUT)
        if self._scored is False or silent is not None:
            return {}
        pairs = zip(self._routers, choices, strict=True)
        scores = _stacked([selection_scores(router, one.logits) for router, one in pairs], kept)
        others = scores.copy()
        np.put_along_axis(others, ids, -np.inf, axis=2)
        chosen = np.take_along_axis(scores, ids, axis=2)
        if not self._explained(chosen, others, asked):
            return {}
        runners_up = min(RUNNERS_UP, self._meta.experts - self._meta.top_k)
        found: dict[str, Any] = {}
        if runners_up:
            best = np.argsort(-others, axis=2, kind="stable")[:, :, :runners_up]
            found = {
                "runner_up": best.astype(self._meta.dtype),
                "runner_up_scores": np.take_along_axis(scores, best, axis=2).astype(np.float16),
                "selection_scores": chosen.astype(np.float16),
            }
        if asked:
            found["all_scores"] = scores.astype(np.float16)
        return found

    def _explained(self, chosen: AnyArray, others: AnyArray, asked: bool) -> bool:
        """Whether the chosen experts have the best scores; the first step decides. [T, L, K] and [T, L, E] scores."""
        free = [place for place, router in enumerate(self._routers) if not router.grouped]
        worst = (others[:, free].max(axis=2) - chosen[:, free].min(axis=2)).max(initial=-np.inf)
        fits = bool(worst <= _TIE)
        if not fits and (asked or self._scored):
            raise UsageError(
                "the routers do not choose by the softmax, or sigmoid and bias, of what they return",
                fix=WITHOUT,
            )
        self._scored = fits
        return fits

    def _hold(self, batch: TokenBatch) -> None:
        self._held.append(batch)
        columns = (getattr(batch, name) for name in ("experts", "gates", *SCORES))
        self._held_bytes += sum(one.nbytes for one in columns if one is not None)
        if self._held_bytes > _HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.append(joined_batches(self._held))
        self._held, self._held_bytes = [], 0


def _keeping_output(kept: list[Any]) -> Any:
    def hook(module: Any, args: Any, output: Any) -> None:
        kept.append(output)

    return hook


def _keeping_arguments(kept: list[Any]) -> Any:
    def hook(module: Any, args: Any, kwargs: Any) -> None:
        kept.append((args, kwargs))

    return hook


def _stacked(tensors: Sequence[Any], kept: BoolArray) -> AnyArray:
    """[T, L, n] of a tensor [N, n] per layer; kept: bool[N]."""
    plain = [one.float() if one.is_floating_point() else one.long() for one in tensors]
    return np.stack([one.cpu().numpy()[kept] for one in plain], axis=1)


def _stops(model: Any, said: Sequence[int] | None) -> list[int]:
    """Ids that end a request."""
    if said is not None:
        return list(said)
    for owner in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        known = getattr(owner, "eos_token_id", None)
        if known is not None:
            return [known] if isinstance(known, int) else list(known)
    return []


def _meta(model: Any, routers: Sequence[Router], ranks: int, all_scores: bool) -> TraceMeta:
    config = getattr(model, "config", None)
    first, groups = routers[0], config_value(config, ("n_group", "num_group")) or 1
    name = getattr(config, "_name_or_path", "") or getattr(config, "model_type", "") or type(model).__name__
    bias = [one.bias for one in routers]
    known = tuple(tuple(one.float().cpu().tolist()) for one in bias) if all(one is not None for one in bias) else ()
    meta = TraceMeta(
        kind="tokens",
        layers=tuple(router.layer for router in routers),
        experts=first.experts,
        top_k=first.top_k,
        dtype=id_dtype(first.experts),
        model=name,
        engine="pytorch",
        recorder="router hooks",
        ranks=ranks,
        groups=groups,
        topk_group=min(groups, config_value(config, ("topk_group",)) or groups),
        hidden=config_value(config, ("hidden_size",)),
        intermediate=config_value(config, ("moe_intermediate_size", "intermediate_size")),
        all_scores=ScoreMeta(bias=known) if all_scores else msgspec.UNSET,
    )
    shape = find_shape(name)
    if shape is not None and (shape.layers, shape.experts, shape.top_k) == (meta.layers, meta.experts, meta.top_k):
        meta = with_model(meta, shape)
    check_meta(meta, name)
    return meta
