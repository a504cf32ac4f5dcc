"""A migration in steps: every expert keeps a ready replica, no step takes more memory, bytes or time than it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, Int32Array, IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.exchange import Exchange, exchanges
from easybalance_sim.plan.migration import resident
from easybalance_sim.plan.plan import Plan

NVLINK, NETWORK, OUTSIDE = "nvlink", "network", "outside"
"""How an expert travels: inside the NVLink domain · between domains · from where the weights are stored, because no
rank holds it (timed as the network)."""

MISFITS = 64
"""Exchanges in a row that do not fit before a step counts as full."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """node_of_rank: int64[R] · what a rank sends or receives per second inside its NVLink domain and outside."""

    node_of_rank: IntArray
    nvlink_bytes_per_s: float
    network_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a step may take. staging_slots: experts that a rank can hold beside its slots, 0 = serving stops for the
    whole migration · step_bytes, step_s: of all links together, of the slowest rank; 0 = no limit."""

    staging_slots: int = 1
    step_bytes: int = 0
    step_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Move:
    """One expert that reaches a rank. layer: row of the plan · source: rank, -1 = from outside · place: which of the
    rank's slots it takes, 0-based · replaces: the expert that was there, -1 = the slot was empty."""

    layer: int
    expert: int
    source: int
    rank: int
    place: int
    replaces: int
    path: str


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A slot that is given up without a successor."""

    layer: int
    expert: int
    rank: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """Moves that take effect together. bytes: over all links · seconds: until the slowest rank has sent and received ·
    staging_slots: experts on the fullest rank that wait beside its slots."""

    moves: tuple[Move, ...]
    drops: tuple[Drop, ...]
    bytes: int
    seconds: float
    staging_slots: int


@dataclass(frozen=True, kw_only=True)
class MigrationSteps:
    """drained: serving stops while the only step runs · bounced: experts that a rank has to put aside in host memory
    because they go round in a ring and there is no staging · local: experts that only change their slot on a rank."""

    steps: tuple[Step, ...]
    drained: bool
    bounced: int
    local: int

    @property
    def moves(self) -> int:
        """Experts that travel."""
        return sum(len(step.moves) for step in self.steps)

    @property
    def bytes(self) -> int:
        """Over all links."""
        return sum(step.bytes for step in self.steps)

    @property
    def seconds(self) -> float:
        """One step after the other."""
        return sum(step.seconds for step in self.steps)


def slots_by_rank(plan: Plan) -> list[Int32Array]:
    """int32[L, S_r] experts in the slots of each rank."""
    return [plan.expert_of_slot[:, plan.slot_start[r] : plan.slot_start[r + 1]] for r in range(plan.ranks)]


def migration_steps(
    old: Sequence[Int32Array],
    new: Plan,
    links: Links,
    *,
    expert_bytes: int,
    limits: Limits,
    order: Sequence[int] | None = None,
) -> MigrationSteps:
    """How to get to `new`.

    old: for each rank int32[L, S_r] experts in its slots, see `slots_by_rank`; a rank that comes back has none ·
    expert_bytes: weights of one expert in one layer · order: layers in the order in which they are to change, None = as
    numbered. Between any two steps every expert has at least as many replicas as the smaller of the two placements
    gives it, and no rank holds more experts than its slots in the larger of the two; inside a step the old placement
    serves until all moves have arrived. Experts come from a rank of the same NVLink domain where one holds them, from
    the one that has sent least so far. Raises `UsageError` when a single exchange is more than `limits` allow.
    """
    before = np.zeros((new.layers, new.ranks, new.experts), np.bool_)
    for rank, experts in enumerate(old):
        before[np.arange(new.layers)[:, None], rank, experts] = True
    found = exchanges(before, resident(new), links.node_of_rank)
    turn = {layer: place for place, layer in enumerate(range(new.layers) if order is None else order)}
    waiting = sorted(found, key=lambda exchange: turn[exchange.layer])
    walk = _Walk(before, _Places(old, new), links, expert_bytes)
    steps = []
    while waiting:
        step = _Packing(walk, limits)
        waiting = step.fill(waiting)
        steps.append(step.carried_out())
    return MigrationSteps(
        steps=tuple(steps),
        drained=bool(found) and limits.staging_slots == 0,
        bounced=sum(exchange.ring for exchange in found) if limits.staging_slots == 0 else 0,
        local=_local(old, new),
    )


def _local(old: Sequence[Int32Array], new: Plan) -> int:
    """Experts that stay on a rank and stand in another of its slots."""
    moved = 0
    for had, has in zip(old, slots_by_rank(new), strict=True):
        stays = (had[:, :, None] == has[:, None, :]).any(axis=1)
        same = np.zeros_like(stays)
        shared = min(had.shape[1], has.shape[1])
        same[:, :shared] = had[:, :shared] == has[:, :shared]
        moved += int((stays & ~same).sum())
    return moved


class _Places:
    """Which slot of its rank every expert stands in, as the migration goes on."""

    def __init__(self, old: Sequence[Int32Array], new: Plan) -> None:
        self._old = old
        self._slots = [max(had.shape[1], int(has)) for had, has in zip(old, new.slots_per_rank, strict=True)]
        self._place: dict[tuple[int, int], dict[int, int]] = {}

    def change(self, layer: int, rank: int, leaves: int, arrives: int) -> int:
        """The slot of the rank that `leaves` (-1 = nobody) hands to `arrives` (-1 = nobody)."""
        key = layer, rank
        if key not in self._place:
            self._place[key] = {expert: place for place, expert in enumerate(self._old[rank][layer].tolist())}
        places = self._place[key]
        place = places.pop(leaves) if leaves in places else self._free(rank, places)
        if arrives >= 0:
            places[arrives] = place
        return place

    def _free(self, rank: int, places: dict[int, int]) -> int:
        return min(set(range(self._slots[rank])) - set(places.values()))


@dataclass(kw_only=True)
class _Traffic:
    """Bytes in seconds of each rank's links: float64[R] received and sent."""

    received: FloatArray
    sent: FloatArray

    def seconds(self) -> float:
        """Of the slowest rank; both directions work at the same time."""
        return float(max(self.received.max(), self.sent.max()))


@dataclass
class _Walk:
    """The placement between two steps (bool[L, R, E], changed in place) and what links cost."""

    held: BoolArray
    places: _Places
    links: Links
    expert_bytes: int
    sent: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.sent = np.zeros(self.held.shape[1], np.int64)

    def source(self, layer: int, expert: int, rank: int) -> tuple[int, str]:
        """(rank, path) that an expert is read from; the same node first, then who has sent least."""
        holders = np.flatnonzero(self.held[layer, :, expert])
        if not len(holders):
            return -1, OUTSIDE
        near = holders[self.links.node_of_rank[holders] == self.links.node_of_rank[rank]]
        path = NVLINK if len(near) else NETWORK
        candidates = near if len(near) else holders
        return int(candidates[self.sent[candidates].argmin()]), path

    def seconds(self, path: str) -> float:
        """Of one expert over a path."""
        rate = self.links.nvlink_bytes_per_s if path == NVLINK else self.links.network_bytes_per_s
        return self.expert_bytes / rate


class _Packing:
    """One step being filled with exchanges that fit beside each other."""

    def __init__(self, walk: _Walk, limits: Limits) -> None:
        ranks = walk.held.shape[1]
        self._walk, self._limits = walk, limits
        self._chosen: list[tuple[Exchange, list[tuple[int, str]]]] = []
        self._waits = np.zeros(ranks, np.int64)
        self._traffic = _Traffic(received=np.zeros(ranks), sent=np.zeros(ranks))
        self._bytes = 0

    def fill(self, waiting: list[Exchange]) -> list[Exchange]:
        """Take what fits, in order; returns what is left. Raises `UsageError` when not even the first does."""
        left: list[Exchange] = []
        for place, exchange in enumerate(waiting):
            if not self._take(exchange):
                left.append(exchange)
                if len(left) >= MISFITS:
                    return left + waiting[place + 1 :]
        if not self._chosen:
            self._refuse(waiting[0])
        return left

    def carried_out(self) -> Step:
        """The step, after which the placement is as it leaves it."""
        moves, drops = [], []
        for exchange, sources in self._chosen:
            # All that leave go before any arrives: a slot is never counted twice.
            for change, (source, path) in zip(exchange.changes, sources, strict=True):
                layer, rank = exchange.layer, change.rank
                place = self._walk.places.change(layer, rank, change.leaves, change.arrives)
                if change.leaves >= 0:
                    self._walk.held[layer, rank, change.leaves] = False
                if change.arrives >= 0:
                    moves.append(
                        Move(
                            layer=layer,
                            expert=change.arrives,
                            source=source,
                            rank=rank,
                            place=place,
                            replaces=change.leaves,
                            path=path,
                        )
                    )
                else:
                    drops.append(Drop(layer=layer, expert=change.leaves, rank=rank))
            for change in exchange.changes:
                if change.arrives >= 0:
                    self._walk.held[exchange.layer, change.rank, change.arrives] = True
        return Step(
            moves=tuple(moves),
            drops=tuple(drops),
            bytes=self._bytes,
            seconds=self._traffic.seconds(),
            staging_slots=int(self._waits.max()) if self._limits.staging_slots else 0,
        )

    def _take(self, exchange: Exchange) -> bool:
        """Whether the exchange fits; then it is taken."""
        arriving = [change for change in exchange.changes if change.arrives >= 0]
        ranks = [change.rank for change in arriving]
        if self._limits.staging_slots and any(self._waits[ranks] >= self._limits.staging_slots):
            return False
        size = len(arriving) * self._walk.expert_bytes
        if self._limits.step_bytes and self._limits.staging_slots and self._bytes + size > self._limits.step_bytes:
            return False
        sources = [(-1, "") for _ in exchange.changes]
        received, sent, given = self._traffic.received.copy(), self._traffic.sent.copy(), self._walk.sent.copy()
        for at, change in enumerate(exchange.changes):
            if change.arrives < 0:
                continue
            source, path = self._walk.source(exchange.layer, change.arrives, change.rank)
            sources[at] = source, path
            received[change.rank] += self._walk.seconds(path)
            if source >= 0:
                sent[source] += self._walk.seconds(path)
                self._walk.sent[source] += 1
        traffic = _Traffic(received=received, sent=sent)
        if self._limits.step_s and self._limits.staging_slots and traffic.seconds() > self._limits.step_s:
            self._walk.sent = given
            return False
        self._traffic, self._bytes = traffic, self._bytes + size
        self._waits[ranks] += 1
        self._chosen.append((exchange, sources))
        return True

    def _refuse(self, exchange: Exchange) -> None:
        arriving = [change for change in exchange.changes if change.arrives >= 0]
        size = len(arriving) * self._walk.expert_bytes
        slowest = max(self._walk.seconds(NVLINK), self._walk.seconds(NETWORK))
        raise UsageError(
            f"{len(arriving)} experts have to change at once, {size / 1e6:.4g} MB, up to {slowest * 1e3:.3g} ms each",
            where=f"layer row {exchange.layer}",
            fix="allow more bytes or time per step",
        )
