"""What each rank should take: the tokens of a plan on a trace, and the seconds that the cost model gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.planfile import PlanDocument, read_plan
from easybalance_sim.planning.session import Listener, Session, Settings, open_session
from easybalance_sim.planning.whose import tell_of_another_model
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import Dispatched, dispatched, links
from easybalance_sim.trace.dataset import TokenTrace


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """loads: columns step, steps, layer, rank, tokens and us · label: of the cost model."""

    loads: pd.DataFrame
    label: str


def predict(path: Path, settings: Settings, steps: frozenset[int] | None, tell: Listener) -> Predicted:
    """Follow the tokens of a trace under the plan in `path`. steps: those to keep, None = the mean over all.

    The dispatch rule and the cluster are the plan's. Raises `EbsimError` subclasses for what does not fit.
    """
    document = read_plan(path)
    session = open_session(replace(settings, dispatch=document.dispatch), tell, document.topology.topology())
    _require_fits(document, session, path)
    tell_of_another_model(document, session, tell)
    cost = session.bench.cost(document.plan())
    pieces = [
        _frame(step, weight, session.meta.layers, tokens, seconds)
        for step, weight, tokens, seconds in _followed(document, session, cost, steps)
    ]
    if not pieces:
        raise UsageError("has none of the measured steps", where="--trace", fix="give the trace of the measured run")
    return Predicted(loads=pd.concat(pieces, ignore_index=True), label=cost.label)


def rank_seconds(cost: LayerCost, sent: Dispatched) -> FloatArray:
    """float64[W, L, R] expert seconds of every rank; the slowest of them is what a layer waits for."""
    parts = []
    for rank in range(len(cost.speed)):
        first, last = int(cost.slot_start[rank]), int(cost.slot_start[rank + 1])
        seconds, _ = cost.expert.seconds(
            frozen(sent.slot_tokens[:, :, first:last], np.int32),
            frozen(sent.distinct[:, :, rank : rank + 1], np.int32),
            frozen(np.array([0, last - first]), np.int32),
            frozen(cost.speed[rank : rank + 1], np.float64),
        )
        parts.append(seconds)
    stacked: FloatArray = np.stack(parts, axis=2)
    return stacked


def _followed(
    document: PlanDocument, session: Session, cost: LayerCost, steps: frozenset[int] | None
) -> Iterator[tuple[IntArray, int, AnyArray, FloatArray]]:
    """Pieces of the trace: int64[w] steps, how many steps a row is the mean of, float64[w, L, R] tokens and seconds."""
    if not isinstance(session.trace, TokenTrace):
        raise UsageError("is a count trace: times need the tokens of single steps", where="--trace")
    bench, plan = session.bench, document.plan()
    rule = prepare(bench.rule, plan, frozen(session.topology.node_of_rank, np.int32), bench.seed, session.meta.layers)
    chosen = session.selection().of(session.trace.batches())
    for batch, sent in dispatched(chosen, plan, rule, links(session.topology, bench.mode), bench.recorded_ranks):
        step = batch.step[batch.step_starts].astype(np.int64)
        seconds = rank_seconds(cost, sent)
        if steps is None:
            tokens = sent.rank_rows.mean(axis=0, keepdims=True)
            yield step[:1], len(step), tokens, seconds.mean(axis=0, keepdims=True)
            continue
        kept = np.isin(step, list(steps))
        if kept.any():
            yield step[kept], 1, sent.rank_rows[kept], seconds[kept]


def _frame(step: IntArray, weight: int, layers: tuple[int, ...], tokens: AnyArray, seconds: FloatArray) -> pd.DataFrame:
    count, depth, ranks = tokens.shape
    return pd.DataFrame(
        {
            "step": np.repeat(step, depth * ranks),
            "steps": weight,
            "layer": np.tile(np.repeat(layers, ranks), count),
            "rank": np.tile(np.arange(ranks), count * depth),
            "tokens": tokens.ravel().astype(np.float64),
            "us": seconds.ravel() * 1e6,
        }
    )


def _require_fits(document: PlanDocument, session: Session, path: Path) -> None:
    if (document.layer_ids, document.experts) != (session.meta.layers, session.meta.experts):
        raise PlanError(
            f"the plan is for {len(document.layers)} layers × {document.experts} experts, the trace has "
            f"{len(session.meta.layers)} × {session.meta.experts} (or other layer ids)",
            where=str(path),
            fix="give the trace of the measured run",
        )
