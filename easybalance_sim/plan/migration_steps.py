"""A migration in steps: every expert keeps a ready replica, no step takes more memory, bytes or time than it may."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, Int32Array, IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.exchange import Exchange, exchanges
from easybalance_sim.plan.migration import resident
from easybalance_sim.plan.places import Places, Shift, cycles
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
    """What a step may take. staging_slots: experts that a rank can hold beside its slots, 0 = none, serving stops for
    every step · step_bytes, step_s: of all links together, of the slowest rank; 0 = no limit."""

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
    """A slot that is given up without a successor; the rest as of `Move`."""

    layer: int
    expert: int
    rank: int
    place: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """Moves that take effect together. bytes: over all links · seconds: until the slowest rank has sent and received ·
    staging_slots: experts on the fullest rank that wait beside its slots · shifts: of ranks whose layer is complete,
    done after the moves and drops."""

    moves: tuple[Move, ...]
    drops: tuple[Drop, ...]
    bytes: int
    seconds: float
    staging_slots: int
    shifts: tuple[Shift, ...] = ()

    @property
    def layers(self) -> frozenset[int]:
        """Rows of the layers that it changes."""
        return frozenset(change.layer for part in (self.moves, self.drops, self.shifts) for change in part)


@dataclass(frozen=True, kw_only=True)
class MigrationSteps:
    """drained: serving stops while a step runs · bounced: experts that a rank has to put aside in host memory because
    they go round in a ring and there is no staging."""

    steps: tuple[Step, ...]
    drained: bool
    bounced: int

    @property
    def moves(self) -> int:
        """Experts that travel."""
        return sum(len(step.moves) for step in self.steps)

    @property
    def local(self) -> int:
        """Experts that are copied to another slot of their own GPU."""
        return sum(len(step.shifts) for step in self.steps)

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
    serves until all moves have arrived. After the last one every slot is filled as in `new`. Experts come from a rank
    of the same NVLink domain where one holds them, from the one that has sent least so far. Raises `UsageError` when
    `limits` do not allow a single expert, or a ring of them that has to change at once.
    """
    before = np.zeros((new.layers, new.ranks, new.experts), np.bool_)
    for rank, experts in enumerate(old):
        before[np.arange(new.layers)[:, None], rank, experts] = True
    found = exchanges(before, resident(new), links.node_of_rank, _stood(old, new))
    turn = {layer: place for place, layer in enumerate(range(new.layers) if order is None else order)}
    waiting = sorted(found, key=lambda exchange: turn[exchange.layer])
    walk = _Walk(before, Places(old, slots_by_rank(new)), links, expert_bytes)
    steps = []
    while waiting:
        step = _Packing(walk, limits)
        waiting = step.fill(waiting)
        steps.append(step.carried_out())
    shifts = walk.places.shifts()
    rings = sum(exchange.ring for exchange in found) + cycles(shifts)
    return MigrationSteps(
        steps=_with_shifts(steps, shifts),
        drained=bool(found or shifts) and limits.staging_slots == 0,
        bounced=rings if limits.staging_slots == 0 else 0,
    )


def _stood(old: Sequence[Int32Array], new: Plan) -> Int32Array:
    """int32[L, R, E] the old expert in the slot of a rank that an expert gets, -1 = none."""
    stood = np.full((new.layers, new.ranks, new.experts), -1, np.int32)
    for rank, (had, has) in enumerate(zip(old, slots_by_rank(new), strict=True)):
        shared = min(had.shape[1], has.shape[1])
        stood[np.arange(new.layers)[:, None], rank, has[:, :shared]] = had[:, :shared]
    return stood


def _with_shifts(steps: Sequence[Step], shifts: Sequence[Shift]) -> tuple[Step, ...]:
    """Each shift in the step that completes its layer on its rank; in the first where nothing else changes there."""
    done: dict[tuple[int, int], int] = defaultdict(int)
    for number, step in enumerate(steps):
        done.update({(move.layer, move.rank): number for move in step.moves})
        done.update({(drop.layer, drop.rank): number for drop in step.drops})
    due: dict[int, list[Shift]] = defaultdict(list)
    for shift in shifts:
        due[done[shift.layer, shift.rank]].append(shift)
    if shifts and not steps:
        steps = [Step(moves=(), drops=(), bytes=0, seconds=0.0, staging_slots=0)]
    return tuple(replace(step, shifts=tuple(due[number])) for number, step in enumerate(steps))


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
    places: Places
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
        """Take what fits, in order; returns what is left. Raises `UsageError` when nothing fits."""
        left: list[Exchange] = []
        misfits = 0
        for place, exchange in enumerate(waiting):
            taken = self._take(exchange)
            if taken < len(exchange.changes):
                left.append(replace(exchange, changes=exchange.changes[taken:]) if taken else exchange)
                misfits += not taken
            if misfits >= MISFITS:
                left += waiting[place + 1 :]
                break
        if not self._chosen:
            self._refuse(waiting)
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
                    drops.append(Drop(layer=layer, expert=change.leaves, rank=rank, place=place))
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

    def _take(self, exchange: Exchange) -> int:
        """Take as many changes of an exchange as fit, from its start: a chain may stop between any two of them, since
        what a rank gives up has arrived elsewhere by then. A ring changes as a whole or not at all."""
        sources: list[tuple[int, str]] = []
        received, sent, given = self._traffic.received.copy(), self._traffic.sent.copy(), self._walk.sent.copy()
        for change in exchange.changes:
            source = -1, ""
            if change.arrives >= 0:
                if not self._has_room(change.rank):
                    break
                source = self._walk.source(exchange.layer, change.arrives, change.rank)
                if not self._has_time(change.rank, *source):
                    break
                self._count(change.rank, *source)
            sources.append(source)
        if exchange.ring and len(sources) < len(exchange.changes):
            for change in exchange.changes[: len(sources)]:
                self._waits[change.rank] -= 1
            self._bytes -= len(sources) * self._walk.expert_bytes
            self._traffic, self._walk.sent = _Traffic(received=received, sent=sent), given
            return 0
        if sources:
            self._chosen.append((replace(exchange, changes=exchange.changes[: len(sources)]), sources))
        return len(sources)

    def _has_room(self, rank: int) -> bool:
        limits = self._limits
        if limits.staging_slots and self._waits[rank] >= limits.staging_slots:
            return False
        return not limits.step_bytes or self._bytes + self._walk.expert_bytes <= limits.step_bytes

    def _has_time(self, rank: int, source: int, path: str) -> bool:
        traffic = self._traffic
        busiest = max(traffic.received[rank], traffic.sent[source] if source >= 0 else 0.0)
        return not self._limits.step_s or bool(busiest + self._walk.seconds(path) <= self._limits.step_s)

    def _count(self, rank: int, source: int, path: str) -> None:
        """One expert more that travels in this step."""
        self._traffic.received[rank] += self._walk.seconds(path)
        if source >= 0:
            self._traffic.sent[source] += self._walk.seconds(path)
            self._walk.sent[source] += 1
        self._bytes += self._walk.expert_bytes
        self._waits[rank] += 1

    def _refuse(self, waiting: Sequence[Exchange]) -> None:
        """Say what the largest of the exchanges needs on its own."""
        whole = [one if one.ring else replace(one, changes=one.changes[:1]) for one in waiting]
        alone = [_Packing(self._walk, Limits()) for _ in whole]
        for packing, exchange in zip(alone, whole, strict=True):
            packing._take(exchange)
        size = max(packing._bytes for packing in alone)
        seconds = max(packing._traffic.seconds() for packing in alone)
        raise UsageError(
            f"too low: {size // self._walk.expert_bytes} experts go round in a ring and have to change at once"
            if size > self._walk.expert_bytes
            else "too low for one expert",
            where="limits of a step",
            fix=f"allow {size / 1e6:.4g} MB and {seconds * 1e3:.4g} ms or more",
        )
