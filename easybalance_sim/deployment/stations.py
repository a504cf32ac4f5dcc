"""A plan in a pool, ready to serve: the seconds of its steps and the cache that its slots leave."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.cost.attention import AttentionCost, OutsideCost, attention_seconds, outside_seconds
from easybalance_sim.cost.kv_room import RankMemory, rank_memory, step_buffers
from easybalance_sim.cost.memory import USABLE_HBM_FRAC
from easybalance_sim.cost.reduction import reduction_seconds
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import Ground
from easybalance_sim.deployment.schedule import Schedule
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.memory import KV_DTYPES
from easybalance_sim.planning.session import Session
from easybalance_sim.simulate.serving.limits import Limits
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds, StepModel
from easybalance_sim.simulate.serving.steps import step_model
from easybalance_sim.simulate.serving.workload import Workload

HIDDEN = {"none": 0.0, "full": 1.0}
"""Share of the communication that hides behind compute, by the scenario's word for it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Station:
    """pool · session: the trace on the pool's cluster · plan · model: of its steps, communication not hidden · limits:
    with the cache that there is · memory: of the fullest GPU, None where the model's is not known · label: of the
    cost model, one line · schedule: of plans that are made anew while they serve, whose rows `model` has one after the
    other, `plan` is the last of them; None = the plan stays."""

    pool: Pool
    session: Session
    plan: Plan
    model: StepModel
    limits: Limits
    memory: RankMemory | None
    label: str
    schedule: Schedule | None = None

    def profiles(self, drawn: Profiles, workload: Workload) -> Profiles:
        """Rows of `model` for requests that stand for these routed ones."""
        if self.schedule is None:
            return drawn
        rows = len(self.model.mean) // len(self.schedule.plans)
        return self.schedule.profiles(drawn, workload.arrival_s, rows)

    @property
    def kv_tokens(self) -> int:
        """Of cache, over all data-parallel ranks."""
        return self.limits.kv_blocks * self.limits.block_tokens * self.pool.data_ranks


def station(
    ground: Ground, pool: Pool, session: Session, plan: Plan, *, prompt_tokens: float, seed: int, layers: int = 0
) -> Station:
    """Make a plan ready. prompt_tokens: of a request that are to be computed, on average · layers: so many of them,
    evenly spread, stand for all (that is quick), 0 = each for itself. Raises `UsageError` when the weights leave no
    room for a cache, or nobody knows how much they leave."""
    cost = session.bench.cost(plan)
    attention, outside = _beside(ground, pool, session)
    summing = reduction_seconds(session.hardware, ground.shape.width, pool.engine.expert_tensor)
    chosen = np.unique(np.linspace(0, plan.layers - 1, min(layers or plan.layers, plan.layers)).round().astype(int))
    model = step_model(
        replace(ground.routed, experts=frozen(ground.routed.experts[:, chosen])),
        replace(plan, expert_of_slot=plan.expert_of_slot[chosen]),
        session.topology,
        cost,
        attention=AttentionSeconds(
            fixed=attention.fixed,
            weights=attention.weights,
            token=attention.token,
            kv=attention.kv,
            pair=attention.pair,
            shared_fixed=attention.shared_fixed,
            shared_weights=attention.shared_weights,
            shared_token=attention.shared_token,
        ),
        outside=OutsideSeconds(
            host=outside.host,
            dense_layers=outside.dense_layers,
            weights=outside.weights,
            token=outside.token,
            head_weights=outside.head_weights,
            head_token=outside.head_token,
        ),
        data_ranks=pool.data_ranks,
        rule=session.bench.rule,
        run_tokens=max(1, min(pool.engine.chunk_tokens, pool.engine.batch_tokens, round(prompt_tokens))),
        layer_ids=tuple(session.meta.layers[at] for at in chosen),
        seed=seed,
        summing=summing,
    )
    model = _over(model, plan.layers)
    memory = _memory(ground, pool, session, plan)
    reasons = dict.fromkeys((*model.reasons, *attention.reasons, *outside.reasons, *summing.reasons))
    return Station(
        pool=pool,
        session=session,
        plan=plan,
        model=replace(
            model,
            reasons=tuple(reasons),
            band_p90=max(model.band_p90, attention.band_p90, summing.band_p90),
        ),
        limits=pool.engine.limits(_blocks(memory, pool, session)),
        memory=memory,
        label=cost.label,
    )


def evened(model: StepModel) -> StepModel:
    """The same step with every rank loaded alike by decree."""
    share = model.mean.mean(axis=2, keepdims=True)
    ranks = (model.layers, model.ranks, model.even_expert_s.shape[1])
    return replace(
        model,
        mean=frozen(np.broadcast_to(share, model.mean.shape), np.float32),
        spread=frozen(np.zeros_like(model.spread), np.float32),
        chance_rows=frozen(np.zeros_like(model.even_expert_s), np.float64),
        expert_s=frozen(np.broadcast_to(model.even_expert_s[:, None], ranks), np.float64),
        arrive_s=frozen(np.broadcast_to(model.even_arrive_s[:, :, None], model.arrive_s.shape), np.float64),
        sum_row_s=np.broadcast_to(model.sum_row_s.mean(axis=1, keepdims=True), model.sum_row_s.shape),
    )


def _over(model: StepModel, layers: int) -> StepModel:
    """The model with each of its layers in place of as many as there are for one."""
    if model.layers == layers:
        return model
    at = np.arange(layers) * model.layers // layers
    return replace(
        model,
        mean=model.mean[:, at],
        spread=model.spread[:, at],
        expert_s=model.expert_s[at],
        chance_rows=model.chance_rows[at],
        even_expert_s=model.even_expert_s[at],
        arrive_s=model.arrive_s[:, at],
        even_arrive_s=model.even_arrive_s[:, at],
        leave_s=model.leave_s[:, at],
        sum_row_s=model.sum_row_s[at],
    )


def _beside(ground: Ground, pool: Pool, session: Session) -> tuple[AttentionCost, OutsideCost]:
    """What each data-parallel rank computes beside its experts."""
    shape, hardware = ground.shape, session.hardware
    tensor_ranks, domains = pool.gpus // pool.data_ranks, _domains(pool, session)
    attention = attention_seconds(
        shape, hardware, tensor_ranks, kv_frac=KV_DTYPES[pool.engine.kv_dtype], domains=domains
    )
    return attention, outside_seconds(shape, hardware, tensor_ranks)


def _domains(pool: Pool, session: Session) -> int:
    """NVLink domains that a data-parallel rank lies in."""
    groups = session.topology.node_of_rank.reshape(pool.data_ranks, -1)
    return max(len(np.unique(group)) for group in groups)


def _memory(ground: Ground, pool: Pool, session: Session, plan: Plan) -> RankMemory | None:
    engine, per_rank = pool.engine, session.topology.ranks // pool.data_ranks
    buffers = step_buffers(
        session.shape,
        -(-engine.batch_tokens // per_rank),
        session.topology.ranks,
        plan.slots,
        session.bench.mode,
    )
    return rank_memory(
        ground.shape,
        session.hbm_bytes * engine.memory_frac / USABLE_HBM_FRAC,
        float(plan.slots_per_rank.max()),
        pool.gpus // pool.data_ranks,
        kv_frac=KV_DTYPES[engine.kv_dtype],
        buffers=buffers or 0.0,
        expert_ranks=engine.expert_tensor,
    )


def _blocks(memory: RankMemory | None, pool: Pool, session: Session) -> int:
    """Blocks that memory has room for, 1 where the scenario says them itself."""
    if pool.engine.kv_blocks:
        return 1
    if memory is None:
        raise UsageError(
            f"what {session.shape.name} leaves of the memory is not known",
            where="engine.kv_blocks",
            fix="say how many blocks of KV cache there are",
        )
    blocks = memory.blocks(pool.engine.block_tokens)
    if not blocks:
        raise UsageError(
            f"weights of {memory.weights / 1e9:,.0f} GB and buffers of {memory.buffers / 1e9:,.1f} GB leave no room "
            f"for KV cache in {memory.usable / 1e9:,.0f} GB",
            where="cluster",
            fix="give fewer slots per rank, or more ranks",
        )
    return blocks
