"""What may go wrong during a rollout, each fault at most once in a history, at any moment at which it can."""

from __future__ import annotations

from collections.abc import Iterator

from easybalance_sim.simulate.rollout.state import Decision, Group, Rank, Told, Weights

CHECKS = {"checksum": Weights.DAMAGED, "dtype": Weights.MISTYPED, "revision": Weights.STALE}
"""What ranks verify, and what they hold when it is wrong."""

CHECK_OF = {weights: check for check, weights in CHECKS.items()}

MEANING = {
    "load-fails": "a rank cannot load",
    "checksum-mismatch": "a rank loads damaged weights",
    "dtype-mismatch": "a rank loads weights of another dtype",
    "revision-mismatch": "a rank loads weights of another model revision",
    "staging-too-small": "a rank has no room beside its experts",
    "late-proposal": "a rank hears of the boundary after the plan was taken back",
    "late-publish": "a rank hears of an earlier rollout's publication",
    "rank-dies-before-publish": "a rank is gone until it is started again, the new plan not published",
    "rank-dies-after-publish": "a rank is gone until it is started again, the new plan published",
    "rank-restarts": "a rank loses its memory while steps are in flight",
    "coordinator-dies": "the coordinator is gone until another one takes over its log",
    "coordinator-is-late": "the coordinator is about to publish when another one takes over its log",
}
FAULTS = tuple(MEANING)
IN_STAGING = "staging-too-small"
"""The fault that a group which loads in place cannot meet."""

Event = tuple[str, Group]


def is_fault(event: str) -> bool:
    """Whether an event is a fault rather than a step of the protocol."""
    return event.startswith("fault")


def coordinator_goes(group: Group, publishes: bool) -> Iterator[Event]:
    """It is gone, before or after it has published, or only taken for dead; its log stays. publishes: it may do so."""
    if "coordinator-dies" in group.faults:
        yield "fault: coordinator dies", _spent(group, "coordinator-dies")._replace(coordinator=False)
    if "coordinator-is-late" in group.faults and publishes:
        late = _spent(group, "coordinator-is-late")._replace(coordinator=False, late=True)
        yield "fault: coordinator is taken for dead as it is about to publish", late


def late_coordinator(group: Group, *, fenced: bool) -> Iterator[Event]:
    """It publishes all the same; fenced: the log takes one decision, the first."""
    if group.late and fenced and group.decision != Decision.OPEN:
        yield "the log refuses the old coordinator", group._replace(late=False)
    elif group.late:
        yield "the old coordinator publishes", group._replace(late=False, decision=Decision.COMMIT)


def mishaps(group: Group, number: int, rank: Rank) -> Iterator[Event]:
    """A rank dies, or restarts during a step: what was in flight is broken off for all, the group stops."""
    published = group.decision == Decision.COMMIT
    for fault, alive, possible in (
        ("rank-dies-before-publish", False, not published),
        ("rank-dies-after-publish", False, published),
        ("rank-restarts", True, bool(group.running)),
    ):
        if fault in group.faults and rank.alive and possible:
            lost = Rank(alive=alive, old=False, begun=group.ended, loads=rank.loads)
            # Requests of the steps that were broken off run again.
            others = tuple(one if one.begun == group.ended else one._replace(begun=group.ended) for one in group.ranks)
            yield (
                f"fault: rank {number} {'restarts' if alive else 'dies'}",
                _spent(group, fault)._replace(ranks=others, running=(), stopped=True).with_rank(number, lost),
            )


def bad_loads(group: Group, number: int, room: Rank, *, staging: bool) -> Iterator[Event]:
    """What may happen instead of a load; room: the rank as it is while it loads. Before publication a failure is the
    end of the rollout, afterwards the rank has to try again."""
    opened = group.decision == Decision.OPEN
    for check, weights in CHECKS.items():
        if f"{check}-mismatch" in group.faults:
            wrong = _spent(group, f"{check}-mismatch").with_rank(number, room._replace(new=weights))
            yield f"fault: rank {number} loads weights of a wrong {check}", wrong
    if "load-fails" in group.faults:
        failed = _spent(group, "load-fails").with_rank(number, room)
        yield f"fault: rank {number} cannot load", failed._replace(failed=group.failed or opened)
    if IN_STAGING in group.faults and staging:
        yield f"fault: rank {number} has no room", _spent(group, IN_STAGING)._replace(failed=True)


def stray_messages(group: Group, number: int, rank: Rank, stamped: bool) -> Iterator[Event]:
    """Messages that come too late; stamped: they say which rollout they belong to, so those of another are ignored."""
    taken_back = group.decision == Decision.ABORT and group.boundary >= 0
    rests = rank.new == rank.at_rest and rank.old and rank.told == Told.NOTHING
    if "late-proposal" in group.faults and taken_back and rests:
        late = _spent(group, "late-proposal").with_rank(number, rank._replace(told=Told.PREPARED))
        yield f"fault: rank {number} hears of the proposal late", late
    if "late-publish" in group.faults:
        told = rank.told if stamped else Told.COMMITTED
        late = _spent(group, "late-publish").with_rank(number, rank._replace(told=told))
        yield f"fault: rank {number} hears of an earlier publication", late


def _spent(group: Group, fault: str) -> Group:
    left = tuple(one for one in group.faults if one != fault) if group.chances > 1 else ()
    return group._replace(faults=left, chances=group.chances - 1)
