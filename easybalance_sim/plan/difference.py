"""Two plan files compared: what changes, what travels, and in which steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.cluster.hardware import HardwareProfile
from easybalance_sim.errors import PlanError
from easybalance_sim.plan import canonical
from easybalance_sim.plan.migration import resident
from easybalance_sim.plan.migration_steps import (
    Limits,
    Links,
    MigrationSteps,
    Step,
    migration_steps,
    slots_by_rank,
)
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument
from easybalance_sim.plan.relabel import nearest_to

FORMAT, VERSION = "ebsim.rollout", 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Difference:
    """old, new: the two files · migration: the steps between them · expert_bytes: weights of one expert in one layer,
    0 = not known · replicas_changed: (layer, expert) pairs with another number of replicas · old_ranks: which rank of
    `old` each rank of `new` was, None = it comes back · by_gain: layers change in the order of what they gain ·
    renamed_moves: experts that would travel if the ranks of `new` were named as is best, layer by layer; None where
    `new` was made for these ranks as they are."""

    old: PlanDocument
    new: PlanDocument
    migration: MigrationSteps
    expert_bytes: int
    replicas_changed: int
    old_ranks: Sequence[int | None]
    by_gain: bool
    renamed_moves: int | None

    @property
    def is_none(self) -> bool:
        """Whether every rank holds the same experts in the same slots."""
        return not self.migration.steps

    def by_path(self) -> Mapping[str, int]:
        """Experts that travel over each path."""
        return Counter(move.path for step in self.migration.steps for move in step.moves)

    def by_layer(self) -> Mapping[int, int]:
        """Experts that travel in each layer (its absolute id), those without any left out."""
        ids = self.new.layer_ids
        found = Counter(ids[move.layer] for step in self.migration.steps for move in step.moves)
        return dict(sorted(found.items()))

    def to_dict(self, *, steps: bool) -> dict[str, Any]:
        """The JSON object of `ebsim diff`."""
        migration = self.migration
        found: dict[str, Any] = {
            "old": _named(self.old),
            "new": _named(self.new),
            "same": self.is_none,
            "moves": migration.moves,
            "moves_if_renamed": self.renamed_moves,
            "moves_by_path": dict(self.by_path()),
            "moves_by_layer": {str(layer): moves for layer, moves in self.by_layer().items()},
            "drops": sum(len(step.drops) for step in migration.steps),
            "local_moves": migration.local,
            "replicas_changed": self.replicas_changed,
            "expert_bytes": self.expert_bytes or None,
            "bytes": migration.bytes if self.expert_bytes else None,
            "seconds": migration.seconds if self.expert_bytes else None,
            "drained": migration.drained,
            "bounced": migration.bounced,
            "old_ranks": list(self.old_ranks),
            "layer_order": "gain" if self.by_gain else "number",
            "staging_slots": max((step.staging_slots for step in migration.steps), default=0),
            "step_count": len(migration.steps),
        }
        if steps:
            found["steps"] = [self._step(number, step) for number, step in enumerate(migration.steps)]
        return found

    def rollout_text(self) -> str:
        """The rollout file: canonical JSON with a sha256 fingerprint over the rest."""
        content = {"format": FORMAT, "version": VERSION, **self.to_dict(steps=True)}
        return canonical.render({**content, "fingerprint": canonical.digest(content)})

    def _step(self, number: int, step: Step) -> dict[str, Any]:
        ids = self.new.layer_ids
        return {
            "step": number,
            "bytes": step.bytes if self.expert_bytes else None,
            "seconds": step.seconds if self.expert_bytes else None,
            "staging_slots": step.staging_slots,
            "moves": [
                {
                    "layer": ids[move.layer],
                    "expert": move.expert,
                    "from_rank": None if move.source < 0 else move.source,
                    "to_rank": move.rank,
                    "slot_of_rank": move.place,
                    "replaces": None if move.replaces < 0 else move.replaces,
                    "path": move.path,
                }
                for move in step.moves
            ],
            "drops": [
                {"layer": ids[drop.layer], "expert": drop.expert, "rank": drop.rank, "slot_of_rank": drop.place}
                for drop in step.drops
            ],
            "local_moves": [
                {
                    "layer": ids[shift.layer],
                    "expert": shift.expert,
                    "rank": shift.rank,
                    "from_slot": shift.place,
                    "to_slot": shift.to,
                }
                for shift in step.shifts
            ],
        }


def difference(
    old: PlanDocument, new: PlanDocument, hardware: HardwareProfile, *, expert_bytes: int, limits: Limits
) -> Difference:
    """What it takes to go from one plan file to another.

    hardware: of the new plan's GPUs, for the speed of links · expert_bytes: 0 = not known; seconds are then no seconds.
    The files may differ in ranks when one was made from the other after a loss of ranks (either way: the ranks that
    come back hold nothing). Raises `PlanError` for plans of different layers, experts or unrelated ranks.
    """
    if old.layer_ids != new.layer_ids or old.experts != new.experts:
        raise PlanError(
            f"the plans are of different models: {len(old.layer_ids)} layers × {old.experts} experts, and "
            f"{len(new.layer_ids)} × {new.experts} or other layer ids",
            where="diff",
            fix="compare plans of one model",
        )
    ranks, after = _old_ranks(old, new), new.plan()
    slots, nothing = slots_by_rank(old.plan()), np.zeros((after.layers, 0), np.int32)
    before = [nothing if rank is None else slots[rank] for rank in ranks]
    order = _most_gain_first(old, new)
    links = Links(
        node_of_rank=np.array(new.topology.node_of_rank),
        nvlink_bytes_per_s=hardware.migration.nvlink_bytes_per_s,
        network_bytes_per_s=hardware.migration.cross_node_bytes_per_s,
    )
    return Difference(
        old=old,
        new=new,
        migration=migration_steps(before, after, links, expert_bytes=expert_bytes or 1, limits=limits, order=order),
        expert_bytes=expert_bytes,
        replicas_changed=int((old.plan().replicas != after.replicas).sum()),
        old_ranks=ranks,
        by_gain=order is not None,
        renamed_moves=_renamed_moves(old, new),
    )


def _old_ranks(old: PlanDocument, new: PlanDocument) -> Sequence[int | None]:
    """Which rank of `old` each rank of `new` was, with ranks lost in between or come back (None)."""
    if new.parent_ranks is not None and new.parent_fingerprint == old.fingerprint():
        return list(new.parent_ranks)
    if old.parent_ranks is not None and old.parent_fingerprint == new.fingerprint():
        place = {rank: at for at, rank in enumerate(old.parent_ranks)}
        return [place.get(rank) for rank in range(new.topology.ranks)]
    if old.topology.ranks != new.topology.ranks:
        raise PlanError(
            f"the plans are for {old.topology.ranks} and {new.topology.ranks} ranks, and neither was made from the "
            "other",
            where="diff",
            fix="compare plans for the same ranks, or a plan made with --lost-ranks and its parent",
        )
    return list(range(new.topology.ranks))


def _renamed_moves(old: PlanDocument, new: PlanDocument) -> int | None:
    """Experts to move with ranks of one node and speed renamed; None when one plan was made from the other."""
    if old.fingerprint() == new.parent_fingerprint or new.fingerprint() == old.parent_fingerprint:
        return None
    was, wanted, topology = old.plan(), new.plan(), new.topology.topology()
    kind = np.unique(np.stack([topology.node_of_rank, topology.speed]), axis=1, return_inverse=True)[1].reshape(-1)
    return int((resident(nearest_to(was, wanted, kind)) & ~resident(was)).sum())


def _most_gain_first(old: PlanDocument, new: PlanDocument) -> Sequence[int] | None:
    """Rows of layers, those first whose mean rank imbalance falls most; None if `new` was not judged against `old`."""
    if new.parent_ranks is not None or new.parent_fingerprint != old.fingerprint():
        return None
    try:
        sides = [new.evidence[side]["rank_imbalance_by_layer"]["mean"] for side in ("baseline", "plan")]
        was, becomes = np.array(sides, np.float64)
    except (KeyError, TypeError, ValueError):
        return None
    fits = was.shape == (len(new.layers),) and bool(np.isfinite(was - becomes).all())
    return np.argsort(becomes - was, kind="stable").tolist() if fits else None


def _named(document: PlanDocument) -> dict[str, Any]:
    plan: Plan = document.plan()
    return {
        "policy": document.policy,
        "generation": document.generation,
        "fingerprint": document.fingerprint(),
        "ranks": plan.ranks,
        "slots": plan.slots,
    }
