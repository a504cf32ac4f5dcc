"""What must hold at every moment of a rollout, whatever the order of events."""

from __future__ import annotations

from easybalance_sim.simulate.rollout.state import NEW, NOT_BEGUN, OLD, Decision, Group, Told, Weights

MIXED = "a step mixes generations"
UNREADY = "an assignment reaches a replica that is not ready"
RELEASED = "the old plan is released while its steps run"
HALF = "part of the group has adopted the new plan, and not all of it can"
STUCK = "neither plan can be reached any more"
NO_WAY_BACK = "the old plan can no longer be reached, and the new one is not published"


def broken(group: Group) -> str:
    """The first invariant that a state breaks, "" when all hold.

    A step is served by all ranks: every one of them must hold, verified, the generation that the step was begun with,
    then each assignment finds exactly one ready replica wherever the plan puts it.
    """
    for step in group.running:
        generations = set(step) - {NOT_BEGUN}
        if len(generations) > 1:
            return MIXED
        if OLD in generations and not all(rank.old for rank in group.ranks):
            return RELEASED
        if NEW in generations and not all(rank.new == Weights.VERIFIED for rank in group.ranks):
            return UNREADY
    adopted = [rank for rank in group.ranks if rank.told == Told.COMMITTED]
    if adopted and (group.decision != Decision.COMMIT or _cannot_follow(group)):
        return HALF
    return ""


def _cannot_follow(group: Group) -> bool:
    """Running, and some rank has not got the new weights that others serve with."""
    return not group.stopped and any(rank.new != Weights.VERIFIED for rank in group.ranks)


def is_settled(group: Group, steps: int) -> bool:
    """The end: all steps served, the whole group on one generation, the other one released where that was decided."""
    if group.stopped or not group.coordinator or group.ended < steps or not all(rank.alive for rank in group.ranks):
        return False
    if group.decision == Decision.COMMIT:
        return all(r.told == Told.COMMITTED and r.new == Weights.VERIFIED and not r.old for r in group.ranks)
    back = all(r.told == Told.NOTHING and r.old for r in group.ranks)
    return back and (group.decision == Decision.OPEN or all(r.new == r.at_rest for r in group.ranks))
