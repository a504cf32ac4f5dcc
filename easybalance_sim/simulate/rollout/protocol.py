"""Which events may happen next: the eight steps of a safe rollout, two-phase, over a whole EP group.

A plan has been made and replayed (steps 1 and 2). Every rank loads what is new to it (3) and verifies checksum, dtype
and revision (4); the coordinator proposes a boundary that no rank has passed, each rank promises to wait there, and
only then the new generation is published (5); steps from the boundary on use it (6); when the last step of the old one
is over (7), its weights are released (8). A rank that cannot do its part makes the whole group keep the old plan.
Without staging memory ranks stop at the boundary first and load in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from easybalance_sim.simulate.rollout.state import NEW, NOT_BEGUN, OLD, Decision, Group, Rank, Told, Weights

FAULTS = (
    "load-fails",
    "checksum-mismatch",
    "staging-too-small",
    "late-publish",
    "rank-dies",
    "rank-restarts",
    "coordinator-dies",
)
"""What may go wrong once per name: a rank cannot load · loads damaged weights · has no room for them · hears of the
proposal after it was taken back · is gone until it is started again · loses its memory during a step · the coordinator
is gone until another takes over its log."""

LEAD = 1
"""Steps between the furthest rank and the boundary that the coordinator proposes."""

Event = tuple[str, Group]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a group behaves. steps: that are run · in_flight: steps that a rank may have begun and not ended · staging:
    there is room for both generations · verify, promise, drain: the parts that make it safe; each can be left out to
    show that the checks find it (weights published unverified, no promise to wait at the boundary, the old plan
    released while its steps run)."""

    steps: int = 3
    in_flight: int = 2
    staging: bool = True
    verify: bool = True
    promise: bool = True
    drain: bool = True

    def is_ready(self, rank: Rank) -> bool:
        """Whether a rank can adopt the new generation."""
        return rank.new == Weights.VERIFIED or (not self.verify and rank.new != Weights.NONE)


def events(group: Group, protocol: Protocol) -> Iterator[Event]:
    """Everything that can happen next, faults that are left included."""
    yield from _coordinator(group, protocol)
    if group.running and NOT_BEGUN not in group.running[0]:
        yield "step ends", group._replace(running=group.running[1:], ended=group.ended + 1)
    for number, rank in enumerate(group.ranks):
        yield from _mishaps(group, number, rank)
        if group.stopped:
            yield from _recovery(group, number, rank)
        elif rank.alive:
            yield from _loading(group, protocol, number, rank)
            yield from _hearing(group, protocol, number, rank)
            yield from _serving(group, protocol, number, rank)


def is_fault(event: str) -> bool:
    """Whether an event is a fault rather than a step of the protocol."""
    return event.startswith("fault")


def _coordinator(group: Group, protocol: Protocol) -> Iterator[Event]:
    if not group.coordinator:
        # The log is what counts: what it does not hold as published never was.
        decision = Decision.ABORT if group.decision == Decision.OPEN else group.decision
        yield "another coordinator reads the log", group._replace(coordinator=True, decision=decision)
        return
    if "coordinator-dies" in group.faults:
        yield "fault: coordinator dies", _spent(group, "coordinator-dies")._replace(coordinator=False)
    if group.stopped:
        yield from _form_anew(group)
    if group.decision != Decision.OPEN:
        return
    if group.failed or group.stopped or group.boundary >= 0:
        yield "coordinator takes the plan back", group._replace(decision=Decision.ABORT)
    if group.failed or group.stopped:
        return
    ready = all(protocol.is_ready(rank) for rank in group.ranks)
    if group.boundary < 0:
        if ready or not protocol.staging:
            furthest = max(rank.begun for rank in group.ranks)
            yield "coordinator proposes a boundary", group._replace(boundary=furthest + LEAD)
    elif ready and (not protocol.promise or all(rank.told == Told.PREPARED for rank in group.ranks)):
        yield "coordinator publishes", group._replace(decision=Decision.COMMIT)


def _form_anew(group: Group) -> Iterator[Event]:
    """After a death nothing of the old group is trusted: all ranks hold the decided generation, then go on."""
    if group.decision == Decision.OPEN or not all(_holds(rank, group.decision) for rank in group.ranks):
        return
    committed = group.decision == Decision.COMMIT
    told = Told.COMMITTED if committed else Told.NOTHING
    yield (
        "group forms anew",
        group._replace(
            ranks=tuple(rank._replace(told=told) for rank in group.ranks),
            boundary=min(group.boundary, group.ended) if committed else group.boundary,
            stopped=False,
        ),
    )


def _holds(rank: Rank, decision: Decision) -> bool:
    return rank.alive and (rank.new == Weights.VERIFIED if decision == Decision.COMMIT else rank.old)


def _mishaps(group: Group, number: int, rank: Rank) -> Iterator[Event]:
    for fault, alive in (("rank-dies", False), ("rank-restarts", True)):
        if fault in group.faults and rank.alive and (not alive or group.running):
            lost = Rank(alive=alive, old=False, begun=group.ended)
            # What was in flight is broken off for all; its requests run again.
            others = tuple(one._replace(begun=group.ended) for one in group.ranks)
            yield (
                f"fault: rank {number} {'restarts' if alive else 'dies'}",
                _spent(group, fault)._replace(ranks=others, running=(), stopped=True).with_rank(number, lost),
            )


def _recovery(group: Group, number: int, rank: Rank) -> Iterator[Event]:
    if not rank.alive:
        yield f"rank {number} is started", group.with_rank(number, rank._replace(alive=True))
    elif group.decision == Decision.COMMIT and rank.new != Weights.VERIFIED:
        yield f"rank {number} reloads the new plan", group.with_rank(number, rank._replace(new=Weights.VERIFIED))
    elif group.decision == Decision.ABORT and not rank.old:
        yield f"rank {number} reloads the old plan", _restored(group, number, rank)


def _loading(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    if group.decision != Decision.OPEN or group.failed:
        return
    if rank.new == Weights.NONE and (protocol.staging or _has_stopped(group)):
        room = rank._replace(old=rank.old and protocol.staging)
        yield f"rank {number} loads", group.with_rank(number, room._replace(new=Weights.LOADED))
        if "checksum-mismatch" in group.faults:
            damaged = _spent(group, "checksum-mismatch").with_rank(number, room._replace(new=Weights.DAMAGED))
            yield f"fault: rank {number} loads damaged weights", damaged
        if "load-fails" in group.faults:
            yield f"fault: rank {number} cannot load", _failed(_spent(group, "load-fails").with_rank(number, room))
        if "staging-too-small" in group.faults and protocol.staging:
            yield f"fault: rank {number} has no room", _failed(_spent(group, "staging-too-small"))
    elif rank.new == Weights.LOADED:
        yield f"rank {number} verifies", group.with_rank(number, rank._replace(new=Weights.VERIFIED))
    elif rank.new == Weights.DAMAGED:
        yield f"rank {number} finds a mismatch", _failed(group.with_rank(number, rank._replace(new=Weights.NONE)))


def _restored(group: Group, number: int, rank: Rank) -> Group:
    return group.with_rank(number, rank._replace(new=Weights.NONE, old=True))


def _has_stopped(group: Group) -> bool:
    """Every rank waits at the boundary and nothing is in flight."""
    return all(rank.told == Told.PREPARED for rank in group.ranks) and group.ended == group.boundary


def _hearing(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    if group.decision == Decision.OPEN and group.boundary >= 0 and rank.told == Told.NOTHING:
        if rank.begun > group.boundary:
            if not group.failed:
                yield f"rank {number} is past the boundary", _failed(group)
        else:
            promised = rank._replace(told=Told.PREPARED)
            yield f"rank {number} promises to wait", group.with_rank(number, promised)
    elif group.decision == Decision.COMMIT and rank.told != Told.COMMITTED and protocol.is_ready(rank):
        yield f"rank {number} hears of the switch", group.with_rank(number, rank._replace(told=Told.COMMITTED))
    elif group.decision == Decision.ABORT:
        if rank.new != Weights.NONE or not rank.old:
            yield f"rank {number} goes back to the old plan", _restored(group, number, rank)
        elif rank.told != Told.NOTHING:
            # Where ranks load in place, one that went on alone would meet others without the old weights.
            if all(one.old for one in group.ranks):
                yield f"rank {number} may go on", group.with_rank(number, rank._replace(told=Told.NOTHING))
        elif "late-publish" in group.faults and group.boundary >= 0:
            late = _spent(group, "late-publish").with_rank(number, rank._replace(told=Told.PREPARED))
            yield f"fault: rank {number} hears of the proposal late", late


def _serving(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    if rank.told == Told.COMMITTED and rank.old and (group.ended >= group.boundary or not protocol.drain):
        yield f"rank {number} releases the old plan", group.with_rank(number, rank._replace(old=False))
    at_boundary = group.boundary >= 0 and rank.begun >= group.boundary
    if rank.begun >= min(protocol.steps, group.ended + protocol.in_flight):
        return
    if rank.told == Told.PREPARED and at_boundary:
        return
    generation = NEW if rank.told == Told.COMMITTED and at_boundary else OLD
    if not (rank.old if generation == OLD else protocol.is_ready(rank)):
        return
    running = _begun(group, number, rank.begun - group.ended, generation)
    begun = group.with_rank(number, rank._replace(begun=rank.begun + 1))
    yield f"rank {number} begins step {rank.begun}", begun._replace(running=running)


def _begun(group: Group, number: int, place: int, generation: int) -> tuple[tuple[int, ...], ...]:
    nobody = (NOT_BEGUN,) * len(group.ranks)
    running = group.running if place < len(group.running) else (*group.running, nobody)
    step = (*running[place][:number], generation, *running[place][number + 1 :])
    return (*running[:place], step, *running[place + 1 :])


def _failed(group: Group) -> Group:
    return group._replace(failed=True)


def _spent(group: Group, fault: str) -> Group:
    left = list(group.faults)
    left.remove(fault)
    return group._replace(faults=tuple(left))
