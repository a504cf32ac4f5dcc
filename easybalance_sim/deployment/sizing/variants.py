"""The scenario on other hardware: more or fewer GPUs, slots, and experts or attention that several GPUs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.deployment.fields import Engine, Pool
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY

TABLES = {MIXED: "pool", PREFILL_ONLY: "prefill", DECODE_ONLY: "decode"}
"""Role of a pool → field of a scenario that holds it."""
BLOCK = 128
"""Columns that share a scale in weights of `fp8_block`: a GPU takes whole blocks."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """gpus: of the pool · expert_tensor: GPUs that share every expert of a rank (1 = expert parallel, all of them =
    tensor parallel) · attention_tensor: GPUs of a data-parallel rank of the attention · spare: slots of a rank above
    one for every expert."""

    gpus: int
    expert_tensor: int
    attention_tensor: int
    spare: int

    @property
    def ranks(self) -> int:
        """R, expert-parallel ranks."""
        return self.gpus // self.expert_tensor

    @property
    def data_ranks(self) -> int:
        """D, data-parallel ranks."""
        return self.gpus // self.attention_tensor

    @property
    def experts_name(self) -> str:
        """ "EP8", "TP8" or "EP4 x TP2"."""
        return _name("EP", self.ranks, self.expert_tensor)

    @property
    def attention_name(self) -> str:
        """ "DP8", "TP8" or "DP4 x TP2"."""
        return _name("DP", self.data_ranks, self.attention_tensor)


def _name(apart: str, groups: int, tensor: int) -> str:
    if tensor == 1:
        return f"{apart}{groups}"
    return f"TP{tensor}" if groups == 1 else f"{apart}{groups} x TP{tensor}"


def layout_of(pool: Pool, experts: int) -> Layout:
    """How a scenario has it. Raises `UsageError` for ranks that are not alike and for plans that are files: no other
    number of ranks follows from them."""
    _require_uniform(pool)
    slots = pool.cluster.slots_per_rank
    spare = max(0, int(slots) - -(-experts // pool.cluster.ranks)) if isinstance(slots, int) else 0
    return Layout(
        gpus=pool.gpus,
        expert_tensor=pool.engine.expert_tensor,
        attention_tensor=pool.gpus // pool.data_ranks,
        spare=spare,
    )


def with_layout(scenario: Scenario, role: str, layout: Layout) -> Scenario:
    """The scenario with one of its pools laid out otherwise. What the engine allows a data-parallel rank grows with its
    GPUs, so that a GPU has as many requests and tokens as before. Raises `UsageError` for a layout that there cannot
    be."""
    pool = next(one for one in scenario.pools if one.role == role)
    shape = scenario.shape
    own = layout_of(pool, shape.experts)
    _require_divided(layout, shape)
    slots = -(-shape.experts // layout.ranks) + layout.spare
    if slots > shape.experts:
        raise UsageError(f"a rank with {slots} slots would hold an expert twice", where="layout")
    domain = pool.cluster.ranks_per_node * own.expert_tensor
    cluster = replace(
        pool.cluster,
        ranks=layout.ranks,
        ranks_per_node=max(1, min(domain, layout.gpus) // layout.expert_tensor),
        slots_per_rank=slots,
    )
    engine = _engine(pool.engine, own, layout, shape)
    return replace(scenario, **{TABLES[role]: replace(pool, cluster=cluster, engine=engine)})


def with_plan(scenario: Scenario, role: str, after: str) -> Scenario:
    """The scenario with another plan after in one of its pools."""
    pool = next(one for one in scenario.pools if one.role == role)
    return replace(scenario, **{TABLES[role]: replace(pool, placement=replace(pool.placement, after=after))})


def _engine(engine: Engine, own: Layout, layout: Layout, shape: ModelShape) -> Engine:
    grown = layout.attention_tensor / own.attention_tensor
    more: dict[str, Any] = {name: max(1, round(getattr(engine, name) * grown)) for name in ("running", "batch_tokens")}
    more["chunk_tokens"] = min(engine.chunk_tokens, more["batch_tokens"])
    if engine.waiting:
        more["waiting"] = max(1, round(engine.waiting * grown))
    if engine.kv_blocks:
        more["kv_blocks"] = max(1, round(engine.kv_blocks * _cache_growth(own, layout, shape)))
    return replace(engine, expert_tensor=layout.expert_tensor, data_ranks=layout.data_ranks, **more)


def _cache_growth(own: Layout, layout: Layout, shape: ModelShape) -> float:
    """Tokens in the cache of a data-parallel rank against before: heads are split over its GPUs, MLA's latent cache is
    kept by each."""
    if shape.attention is None:
        return layout.attention_tensor / own.attention_tensor
    values = shape.attention.token_values
    return values(own.attention_tensor) / values(layout.attention_tensor)


def splits(pool: Pool, shape: ModelShape) -> tuple[int, ...]:
    """Numbers of GPUs that may share an expert: inside an NVLink domain, and such that nothing is cut in between."""
    domain = min(pool.gpus, pool.cluster.ranks_per_node * pool.engine.expert_tensor)
    return tuple(
        number
        for number in range(1, domain + 1)
        if not (pool.gpus % number or domain % number or _cut(number, number, shape))
    )


def _cut(expert_tensor: int, attention_tensor: int, shape: ModelShape) -> str:
    """What so many GPUs cannot share, empty when they can."""
    block = BLOCK if shape.dtype == "fp8_block" else 1
    if expert_tensor > 1 and shape.intermediate % (expert_tensor * block):
        return f"experts of width {shape.intermediate}" + (f" in blocks of {block}" if block > 1 else "")
    if shape.attention is not None and shape.attention.heads % attention_tensor:
        return f"{shape.attention.heads} heads"
    return ""


def _require_divided(layout: Layout, shape: ModelShape) -> None:
    if layout.gpus < 1 or layout.gpus % layout.attention_tensor or layout.attention_tensor % layout.expert_tensor:
        raise UsageError(
            f"{layout.gpus} GPUs do not split into groups of {layout.attention_tensor} for attention and "
            f"{layout.expert_tensor} for experts",
            where="layout",
        )
    if cut := _cut(layout.expert_tensor, layout.attention_tensor, shape):
        shared = max(layout.expert_tensor, layout.attention_tensor)
        raise UsageError(f"{cut} do not split over {shared} GPUs", where="layout")


def _require_uniform(pool: Pool) -> None:
    cluster, placement = pool.cluster, pool.placement
    one = {"slots_per_rank": int, "speed": float | int}
    if cluster.node_of_rank is not None or not all(isinstance(getattr(cluster, k), v) for k, v in one.items()):
        raise UsageError(
            "ranks differ or are dealt to nodes by hand, so that no other number of them follows",
            where="cluster",
            fix="give a cluster of equal ranks, or leave out --fewest-gpus, --replicas and --parallel",
        )
    if placement.before.endswith(".json") or placement.after.endswith(".json"):
        raise UsageError(
            "a plan file is of one cluster",
            where="placement",
            fix="name policies, or leave out --fewest-gpus, --replicas and --parallel",
        )
