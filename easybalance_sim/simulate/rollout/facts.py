"""What a rollout means for the ranks of a real plan: who loads how much, in which memory, for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray, frozen
from easybalance_sim.cluster.hardware import HardwareProfile
from easybalance_sim.cluster.shapes import find_shape, load_shape
from easybalance_sim.cost.memory import USABLE_HBM_FRAC
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.migration import migration, moving_slots, resident
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument
from easybalance_sim.plan.survivors import survivors

WHOLE, BY_LAYER, IN_PLACE = "whole", "by-layer", "in-place"
"""Ways to load: all new experts beside the old ones, then one publication · one layer after the other, each published
on its own · over the old ones while nothing is served."""


@dataclass(frozen=True, kw_only=True)
class Widths:
    """expert_bytes: of one expert in one layer, 0 = not known · moe_layers: of the whole model, all hold experts."""

    expert_bytes: int
    moe_layers: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Before:
    """What ranks hold before the rollout. document: None for what engines start with · held: bool[L, R, E] · slots:
    int64[R] of each rank and layer."""

    document: PlanDocument | None
    held: BoolArray
    slots: IntArray


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to load. staging_bytes: beside the experts of the rank that needs most memory · left_bytes: of what
    engines may use, for KV cache, attention and activations · load_s: until the slowest rank has its experts · pause_s:
    that serving stops, once per publication · publications: how many. None where the model's widths are not known."""

    name: str
    staging_bytes: int | None
    left_bytes: int | None
    load_s: float | None
    pause_s: float | None
    publications: int

    @property
    def fits(self) -> bool | None:
        """Whether the memory is enough; None = not known."""
        return None if self.left_bytes is None else self.left_bytes >= 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """arrivals: int64[L, R] experts that a rank must fetch · cross_node: how many of them come over the network, from
    another NVLink domain or from where weights are stored ·
    widths: of the model · ways: all three."""

    arrivals: IntArray
    cross_node: int
    widths: Widths
    ways: tuple[Way, ...]

    @property
    def per_rank(self) -> IntArray:
        """int64[R] experts to fetch, over all layers."""
        return frozen(self.arrivals.sum(axis=0))

    @property
    def loads(self) -> tuple[bool, ...]:
        """Whether each rank has something to load."""
        return tuple(bool(count) for count in self.per_rank)

    def way(self, name: str) -> Way:
        """One of the three."""
        return next(way for way in self.ways if way.name == name)

    def best(self) -> str:
        """The first way that fits, or is not known not to."""
        return next((way.name for way in self.ways if way.fits is not False), IN_PLACE)

    def to_dict(self) -> dict[str, Any]:
        """The `facts` section of the report."""
        size = self.widths.expert_bytes
        return {
            "ranks": len(self.per_rank),
            "ranks_that_load": sum(self.loads),
            "experts": int(self.arrivals.sum()),
            "cross_node_experts": self.cross_node,
            "expert_bytes": size or None,
            "experts_per_rank": self.per_rank.tolist(),
            "bytes_per_rank": (self.per_rank * size).tolist() if size else None,
            "ways": {way.name: _way_dict(way) for way in self.ways},
            "best_way": self.best(),
        }


def before(new: PlanDocument, current: PlanDocument | None) -> Before:
    """What the ranks of `new` hold: the experts of `current`, or those that an engine starts with.

    Raises `UsageError` when `current` is missing for a plan that has a parent, `PlanError` when the two do not fit.
    """
    if current is None:
        return _engine_start(new)
    if (current.layer_ids, current.experts) != (new.layer_ids, new.experts):
        raise PlanError(
            "layers or experts are not those of PLAN", where="--current", fix="give the plan that it replaces"
        )
    plan = current.plan()
    if new.parent_ranks is not None and current.fingerprint() == new.parent_fingerprint:
        left = survivors(plan, np.array(new.parent_ranks))
        return Before(document=current, held=left.held, slots=left.slots_per_rank)
    if current.parent_ranks is not None and current.parent_fingerprint == new.fingerprint():
        return _come_back(current, new)
    if plan.ranks != new.topology.ranks:
        raise PlanError(
            f"{plan.ranks} ranks, PLAN has {new.topology.ranks}",
            where="--current",
            fix="give the plan that it replaces",
        )
    return Before(document=current, held=resident(plan), slots=plan.slots_per_rank)


def _come_back(current: PlanDocument, new: PlanDocument) -> Before:
    """Ranks that were lost come back with nothing, the others hold what `current`, made for them, gives them."""
    plan, ranks = current.plan(), list(current.parent_ranks or ())
    held = np.zeros((plan.layers, new.topology.ranks, plan.experts), np.bool_)
    held[:, ranks] = resident(plan)
    slots = np.zeros(new.topology.ranks, np.int64)
    slots[ranks] = plan.slots_per_rank
    return Before(document=current, held=held, slots=frozen(slots))


def widths_of(model: str, document: PlanDocument) -> Widths:
    """Of --model, else of what the plan was judged with. Raises `UsageError` for the wrong model, `ProfileError` for an
    unknown one."""
    shape = load_shape(model) if model else find_shape(document.model)
    if shape is not None and shape.experts != document.experts:
        if model:
            raise UsageError(
                f"model {shape.name} has {shape.experts} experts, the plan {document.experts}", where="--model"
            )
        shape = None
    judged = document.evidence.get("model")
    said = judged.get("expert_bytes") if isinstance(judged, dict) and not judged.get("assumed", True) else None
    known = said if isinstance(said, int) and said > 0 else 0
    size = shape.expert_bytes if shape is not None and (model or not known) else known
    layers = len(document.layers)
    return Widths(expert_bytes=size, moe_layers=layers if shape is None else max(layers, len(shape.layers)))


def facts(new: PlanDocument, old: Before, hardware: HardwareProfile, widths: Widths) -> Facts:
    """Who loads what. hardware: whose links and memory count (the memory of the plan's cluster first)."""
    plan, topology = new.plan(), new.topology.topology()
    starts = np.cumsum(plan.slots_per_rank) - plan.slots_per_rank
    arrivals = np.add.reduceat(moving_slots(plan, plan, old.held), starts, axis=1, dtype=np.int64)
    moved = migration(
        plan,
        plan,
        expert_bytes=widths.expert_bytes,
        node_of_rank=topology.node_of_rank,
        nvlink_bytes_per_s=hardware.migration.nvlink_bytes_per_s,
        network_bytes_per_s=hardware.migration.cross_node_bytes_per_s,
        held=old.held,
    )
    room = _Room(
        widths=widths,
        usable_bytes=int(USABLE_HBM_FRAC * (topology.hbm_bytes or hardware.hbm_bytes)),
        hbm_bytes_per_s=hardware.hbm_bytes_per_s,
        slots=np.maximum(plan.slots_per_rank, old.slots),
        load_s=moved.seconds,
    )
    none = np.zeros_like(arrivals[0])
    ways = (
        room.way(WHOLE, arrivals.sum(axis=0), 1),
        room.way(BY_LAYER, arrivals.max(axis=0), int((arrivals.sum(axis=1) > 0).sum())),
        room.way(IN_PLACE, none, 1),
    )
    return Facts(arrivals=frozen(arrivals), cross_node=moved.cross_node_moves, widths=widths, ways=ways)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Room:
    """slots: int64[R] of each rank in one layer, the larger of both plans · load_s: of the slowest rank."""

    widths: Widths
    usable_bytes: int
    hbm_bytes_per_s: float
    slots: IntArray
    load_s: float

    def way(self, name: str, staged: IntArray, publications: int) -> Way:
        """staged: int64[R] experts that wait beside the others. They are copied into their slots when published: a
        read and a write of the GPU's memory at its nominal bandwidth."""
        size = self.widths.expert_bytes
        if not size:
            return Way(
                name=name, staging_bytes=None, left_bytes=None, load_s=None, pause_s=None, publications=publications
            )
        taken = (self.slots * self.widths.moe_layers + staged) * size
        copy_s = 2 * int(staged.max()) * size / self.hbm_bytes_per_s
        return Way(
            name=name,
            staging_bytes=int(staged[taken.argmax()]) * size,
            left_bytes=self.usable_bytes - int(taken.max()),
            load_s=self.load_s,
            pause_s=self.load_s if name == IN_PLACE else copy_s,
            publications=publications,
        )


def _engine_start(new: PlanDocument) -> Before:
    """Experts in order and no redundancy, as engines place them without a plan."""
    if new.parent_fingerprint is not None:
        raise UsageError(
            f"the plan replaces {new.parent_fingerprint[:12]}, generation {new.generation - 1}",
            where="--current",
            fix="give that plan's file",
        )
    ranks, experts = new.topology.ranks, new.experts
    slots = np.maximum(experts // ranks + (np.arange(ranks) < experts % ranks), 1)
    row = np.arange(int(slots.sum())) % experts
    plan = Plan(
        expert_of_slot=np.tile(row, (len(new.layers), 1)), slots_per_rank=slots, experts=experts, policy="contiguous"
    )
    return Before(document=None, held=resident(plan), slots=plan.slots_per_rank)


def _way_dict(way: Way) -> Mapping[str, Any]:
    return {
        "staging_bytes": way.staging_bytes,
        "left_bytes": way.left_bytes,
        "fits": way.fits,
        "load_s": None if way.load_s is None else round(way.load_s, 9),
        "pause_s": None if way.pause_s is None else round(way.pause_s, 9),
        "publications": way.publications,
    }
