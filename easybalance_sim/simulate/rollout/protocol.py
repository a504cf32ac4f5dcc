"""Which events may happen next: the eight steps of a safe rollout, two-phase, over a whole EP group.

A plan has been made and replayed (steps 1 and 2). Every rank loads what is new to it (3) and verifies checksum, dtype
and revision (4); the coordinator proposes a boundary that no rank has passed, each rank promises to wait there, and
only then the new generation is published (5); steps from the boundary on use it (6); when the last step of the old one
is over (7), its weights are released (8). A rank that cannot do its part makes the whole group keep the old plan.
Without staging memory ranks stop at the boundary first and load in place. What goes wrong is in `faults`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.simulate.rollout import faults
from easybalance_sim.simulate.rollout.state import NEW, NOT_BEGUN, OLD, Decision, Group, Rank, Told, Weights

PARTS = ("verify", *faults.CHECKS, "promise", "stamps", "fence", "drain")
"""What makes the protocol safe and can be left out: nothing is published before all ranks have verified · each of the
three checks · no rank passes the boundary before the decision · messages say which rollout they belong to · the log
takes one decision, so a coordinator that was replaced cannot publish any more · the old plan lives until its last step
is over."""

LEAD = 1
"""Steps between the furthest rank and the boundary that the coordinator proposes."""

RETREAT = "coordinator takes the plan back"
"""An event that is possible as long as nothing is published: a fault was reported, or an operator says so."""

Event = tuple[str, Group]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a group behaves. steps: that are run · in_flight: steps that a rank may have begun and not ended · staging:
    there is room for both generations · without: names of `PARTS` that are left out, to show that the checks find it.
    Raises `UsageError` for a part that there is not."""

    steps: int = 3
    in_flight: int = 2
    staging: bool = True
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for part in sorted(self.without - set(PARTS)):
            fix = f"{did_you_mean(part, PARTS)}choose {', '.join(PARTS)}"
            raise UsageError(f"the protocol has no part {part!r}", fix=fix)

    def is_ready(self, rank: Rank) -> bool:
        """Whether a rank can adopt the new generation, as far as it knows."""
        if "verify" in self.without:
            return rank.new != Weights.NONE
        return rank.new in (Weights.VERIFIED, Weights.UNSOUND)


def events(group: Group, protocol: Protocol) -> Iterator[Event]:
    """Everything that can happen next, faults that are left included."""
    for actor in range(actors(group)):
        yield from events_of(actor, group, protocol)


def actors(group: Group) -> int:
    """How many act in a group: its ranks, then the coordinator and the end of steps."""
    return len(group.ranks) + 2


def events_of(actor: int, group: Group, protocol: Protocol) -> Iterator[Event]:
    """What one actor (0 … `actors` - 1) can do next or what can befall it."""
    if actor == len(group.ranks):
        yield from _coordinator(group, protocol)
    elif actor > len(group.ranks):
        if group.running and NOT_BEGUN not in group.running[0]:
            yield "step ends", group._replace(running=group.running[1:], ended=group.ended + 1)
    else:
        rank = group.ranks[actor]
        yield from faults.mishaps(group, actor, rank)
        if group.stopped:
            yield from _recovery(group, protocol, actor, rank)
        elif rank.alive:
            yield from _loading(group, protocol, actor, rank)
            yield from _hearing(group, protocol, actor, rank)
            yield from faults.stray_messages(group, actor, rank, "stamps" not in protocol.without)
            yield from _serving(group, protocol, actor, rank)


def _coordinator(group: Group, protocol: Protocol) -> Iterator[Event]:
    yield from faults.late_coordinator(group, fenced="fence" not in protocol.without)
    if not group.coordinator:
        # The log is what counts: what it does not hold as published never was.
        decision = Decision.ABORT if group.decision == Decision.OPEN else group.decision
        yield "another coordinator reads the log", group._replace(coordinator=True, decision=decision)
        return
    publishes = _may_publish(group, protocol)
    yield from faults.coordinator_goes(group, publishes)
    if group.stopped:
        yield from _form_anew(group, protocol)
    if group.decision != Decision.OPEN:
        return
    yield RETREAT, group._replace(decision=Decision.ABORT)
    if publishes:
        yield "coordinator publishes", group._replace(decision=Decision.COMMIT)
    elif _may_propose(group, protocol):
        furthest = max(rank.begun for rank in group.ranks)
        yield "coordinator proposes a boundary", group._replace(boundary=furthest + LEAD)


def _may_propose(group: Group, protocol: Protocol) -> bool:
    if group.failed or group.stopped or group.boundary >= 0:
        return False
    return not protocol.staging or all(protocol.is_ready(rank) for rank in group.ranks)


def _may_publish(group: Group, protocol: Protocol) -> bool:
    if group.decision != Decision.OPEN or group.failed or group.stopped or group.boundary < 0:
        return False
    promised = "promise" in protocol.without or all(rank.told == Told.PREPARED for rank in group.ranks)
    return promised and all(protocol.is_ready(rank) for rank in group.ranks)


def _form_anew(group: Group, protocol: Protocol) -> Iterator[Event]:
    """After a death nothing of the old group is trusted: all ranks hold the decided generation, then go on."""
    committed = group.decision == Decision.COMMIT
    holds = all(rank.alive and (protocol.is_ready(rank) if committed else rank.old) for rank in group.ranks)
    if group.decision == Decision.OPEN or not holds:
        return
    told = Told.COMMITTED if committed else Told.NOTHING
    yield (
        "group forms anew",
        group._replace(
            ranks=tuple(rank._replace(told=told) for rank in group.ranks),
            boundary=min(group.boundary, group.ended) if committed else group.boundary,
            stopped=False,
        ),
    )


def _recovery(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    if not rank.alive:
        yield f"rank {number} is started", group.with_rank(number, rank._replace(alive=True))
    elif group.decision == Decision.COMMIT:
        if rank.new == Weights.NONE:
            yield f"rank {number} reloads the new plan", group.with_rank(number, rank._replace(new=Weights.LOADED))
            yield from faults.bad_loads(group, number, rank, staging=False)
        else:
            yield from _verifying(group, protocol, number, rank)
    elif group.decision == Decision.ABORT and not rank.old:
        yield f"rank {number} reloads the old plan", _restored(group, number, rank)


def _loading(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    if group.decision != Decision.OPEN or group.failed:
        return
    if rank.new == Weights.NONE and (protocol.staging or _has_stopped(group)):
        room = rank._replace(old=rank.old and protocol.staging)
        yield f"rank {number} loads", group.with_rank(number, room._replace(new=Weights.LOADED))
        yield from faults.bad_loads(group, number, room, staging=protocol.staging)
    else:
        yield from _verifying(group, protocol, number, rank)


def _verifying(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    """What was loaded is checked; what is wrong is given up, for good unless the plan is published already."""
    check = faults.CHECK_OF.get(rank.new)
    if check is not None and check not in protocol.without:
        found = group.with_rank(number, rank._replace(new=Weights.NONE))
        failed = group.failed or group.decision == Decision.OPEN
        yield f"rank {number} finds a {check} mismatch", found._replace(failed=failed)
    elif check is not None or rank.new == Weights.LOADED:
        verified = Weights.VERIFIED if check is None else Weights.UNSOUND
        yield f"rank {number} verifies", group.with_rank(number, rank._replace(new=verified))


def _restored(group: Group, number: int, rank: Rank) -> Group:
    return group.with_rank(number, rank._replace(new=rank.at_rest, old=True))


def _has_stopped(group: Group) -> bool:
    """Every rank waits at the boundary and nothing is in flight."""
    return all(rank.told == Told.PREPARED for rank in group.ranks) and group.ended == group.boundary


def _hearing(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    if group.decision == Decision.OPEN and group.boundary >= 0 and rank.told == Told.NOTHING:
        if rank.begun > group.boundary:
            if not group.failed:
                yield f"rank {number} is past the boundary", group._replace(failed=True)
        else:
            promised = rank._replace(told=Told.PREPARED)
            yield f"rank {number} promises to wait", group.with_rank(number, promised)
    elif group.decision == Decision.COMMIT and rank.told != Told.COMMITTED and protocol.is_ready(rank):
        yield f"rank {number} hears of the switch", group.with_rank(number, rank._replace(told=Told.COMMITTED))
    elif group.decision == Decision.ABORT:
        if rank.new != rank.at_rest or not rank.old:
            yield f"rank {number} goes back to the old plan", _restored(group, number, rank)
        # Where ranks load in place, one that went on alone would meet others without the old weights.
        elif rank.told != Told.NOTHING and all(one.old for one in group.ranks):
            yield f"rank {number} may go on", group.with_rank(number, rank._replace(told=Told.NOTHING))


def _serving(group: Group, protocol: Protocol, number: int, rank: Rank) -> Iterator[Event]:
    drained = group.ended >= min(group.boundary, protocol.steps) or "drain" in protocol.without
    if rank.told == Told.COMMITTED and rank.old and drained:
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
