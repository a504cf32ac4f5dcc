"""The scenario on other hardware: more or fewer GPUs, slots, and experts that several GPUs share."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY

TABLES = {MIXED: "pool", PREFILL_ONLY: "prefill", DECODE_ONLY: "decode"}
"""Role of a pool → field of a scenario that holds it."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """gpus: of the pool · expert_tensor: GPUs that share every expert of a rank (1 = expert parallel, all of them =
    tensor parallel) · spare: slots of a rank above one for every expert."""

    gpus: int
    expert_tensor: int
    spare: int

    @property
    def ranks(self) -> int:
        """R, expert-parallel ranks."""
        return self.gpus // self.expert_tensor


def layout_of(pool: Pool, experts: int) -> Layout:
    """How a scenario has it. Raises `UsageError` for ranks with slots of their own."""
    slots = pool.cluster.slots_per_rank
    if not isinstance(slots, int):
        raise UsageError(
            "ranks differ in slots, so no other number of them follows",
            where="cluster.slots_per_rank",
            fix="give one number",
        )
    spare = max(0, slots - -(-experts // pool.cluster.ranks))
    return Layout(gpus=pool.gpus, expert_tensor=pool.engine.expert_tensor, spare=spare)


def with_layout(scenario: Scenario, role: str, layout: Layout) -> Scenario:
    """The scenario with one of its pools laid out otherwise. What the engine allows a data-parallel rank grows with the
    GPUs that are one. Raises `UsageError` for a layout that there cannot be."""
    pool = next(one for one in scenario.pools if one.role == role)
    experts, ranks = scenario.shape.experts, layout.ranks
    _require_uniform(pool)
    if layout.gpus % layout.expert_tensor:
        raise UsageError(f"{layout.expert_tensor} do not divide {layout.gpus} GPUs", where="expert_tensor")
    per_data = pool.gpus // pool.data_ranks
    shared = max(per_data, layout.expert_tensor)
    if layout.gpus % shared:
        raise UsageError(f"groups of {shared} for attention do not fill {layout.gpus} GPUs", where="data_ranks")
    domain = pool.cluster.ranks_per_node * pool.engine.expert_tensor
    cluster = replace(
        pool.cluster,
        ranks=ranks,
        ranks_per_node=max(1, min(domain, layout.gpus) // layout.expert_tensor),
        slots_per_rank=min(experts, -(-experts // ranks) + layout.spare),
    )
    grown = shared / per_data
    engine = replace(
        pool.engine,
        expert_tensor=layout.expert_tensor,
        data_ranks=layout.gpus // shared,
        running=max(1, round(pool.engine.running * grown)),
        batch_tokens=max(1, round(pool.engine.batch_tokens * grown)),
    )
    return replace(scenario, **{TABLES[role]: replace(pool, cluster=cluster, engine=engine)})


def splits(pool: Pool, width: int) -> tuple[int, ...]:
    """Numbers of GPUs that may share an expert: divisors of the GPUs, of the experts' width, inside an NVLink domain."""
    domain = min(pool.gpus, pool.cluster.ranks_per_node * pool.engine.expert_tensor)
    return tuple(
        number for number in range(1, domain + 1) if not (pool.gpus % number or width % number or domain % number)
    )


def _require_uniform(pool: Pool) -> None:
    cluster = pool.cluster
    if cluster.node_of_rank is not None or not isinstance(cluster.speed, float | int):
        raise UsageError(
            "ranks differ in speed or are dealt to nodes by hand, so no other number of them follows",
            where="cluster",
            fix="give a cluster of equal ranks",
        )
    if pool.placement.before.endswith(".json") or pool.placement.after.endswith(".json"):
        raise UsageError("a plan file is of one cluster", where="placement", fix="name policies to size a deployment")
