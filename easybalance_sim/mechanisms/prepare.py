"""Before any mechanism: the trace in two halves of time, the placement under test, and those that compete with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.load.split import FIT
from easybalance_sim.mechanisms.request import FEWEST_STEPS, OffsetRequest, require_sound
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, read_plan
from easybalance_sim.planning.in_force import tell_if_flattered
from easybalance_sim.planning.session import Listener, Session, Settings, open_session
from easybalance_sim.policies import NotApplicable
from easybalance_sim.replay.traffic import TokenTraffic, Traffic
from easybalance_sim.simulate.steps import placements
from easybalance_sim.simulate.steps.recorded import RecordedSteps, read_steps
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.files import file_fingerprints

MORE_SLOTS = 1.25
"""Slots of the alternative with replicas, where the plan under test has none."""

HELD_OUT_SHARE = 0.5
USUAL_RANKS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """past: steps that placements are made from, without scores · judged: steps that everything is judged on, the
    first `warm_up` of which are not scored · whole: past and judged steps of one trace, without scores · window: steps
    of a sensor · plan: under test · others: placements made from the past, by name, that cost no quality; the first
    ones have the memory of the plan under test."""

    request: OffsetRequest
    session: Session
    past: RecordedSteps
    judged: RecordedSteps
    whole: RecordedSteps
    warm_up: int
    window: int
    document: PlanDocument | None
    plan: Plan
    others: dict[str, Plan]

    @property
    def topology(self) -> Topology:
        """The cluster."""
        return self.session.topology

    @property
    def cost(self) -> Callable[[Plan], LayerCost]:
        """The cost model of a plan's layers."""
        return self.session.bench.cost

    @property
    def scored(self) -> RecordedSteps:
        """The judged steps without the warm-up."""
        return self.judged.between(self.warm_up, len(self.judged))


def prepare(request: OffsetRequest, tell: Listener) -> Prepared:
    """Read, split and plan. Raises `EbsimError` subclasses for anything that does not fit together."""
    require_sound(request)
    document = None if request.plan is None else read_plan(request.plan)
    settings, cluster = _cluster(request, document)
    session = open_session(settings, tell, cluster)
    if not isinstance(session.trace, TokenTrace):
        raise UsageError(
            "counts do not know steps or tokens", where=str(request.settings.traces[0]), fix="give a token trace"
        )
    past, judged = _halves(request, session, session.trace, document, tell)
    whole = judged if request.past else _whole(request, session, session.trace)
    if request.step_ms is not None:
        past, judged, whole = (replace(steps, step_s=request.step_ms / 1e3) for steps in (past, judged, whole))
    window = max(1, round(request.sensor_ms / 1e3 / judged.step_s))
    if len(judged) - request.warm_up < FEWEST_STEPS * window:
        raise UsageError(
            f"{len(judged)} steps to judge on, of which {request.warm_up} warm up, are less than {FEWEST_STEPS} "
            f"sensor windows of {window} steps",
            where=str(request.settings.traces[0]),
            fix="give a longer trace, or a smaller --sensor-ms or --warm-up",
        )
    session, plan = _under_test(session, document)
    others = _others(session, past, plan, window, tell)
    return Prepared(
        request=request, session=session, past=past, judged=judged, whole=whole, warm_up=request.warm_up,
        window=window, document=document, plan=plan, others=others,
    )  # fmt: skip


def _cluster(request: OffsetRequest, document: PlanDocument | None) -> tuple[Settings, Topology | None]:
    """The plan's cluster; without a plan, slots for every expert once, as an engine begins."""
    settings = request.settings
    if document is not None:
        return settings, document.topology.topology()
    if settings.cluster is not None or settings.slots_per_rank is not None:
        return settings, None
    experts = open_trace(settings.traces).meta.experts
    return replace(settings, slots_per_rank=-(-experts // (settings.ranks or USUAL_RANKS))), None


def _halves(
    request: OffsetRequest, session: Session, trace: TokenTrace, document: PlanDocument | None, tell: Listener
) -> tuple[RecordedSteps, RecordedSteps]:
    """Past and judged steps. In one trace the past is what has ended before the judged half begins."""
    chosen = session.selection()
    if request.past:
        other = open_trace(request.past)
        if not isinstance(other, TokenTrace) or not _same_model(other, trace):
            raise UsageError("is not a token trace of the same model", where=f"--past {request.past[0]}")
        first, end = request.past_steps or (0, None)
        past, notes = read_steps(other, chosen, first=first, end=end, gates=False, scores=False)
        first, end = request.steps or (0, None)
        judged, more = read_steps(trace, chosen, first=first, end=end)
        _require_apart(past, judged.between(min(request.warm_up, len(judged)), len(judged)))
        if document is not None and _shares_files(document, [*trace.paths, *other.paths]):
            tell.note("the plan was made from these traces: where it has seen judged steps it is flattered")
    else:
        traffic = _in_halves(request, session)
        if not isinstance(traffic, TokenTraffic) or traffic.split is None:
            raise UsageError("cannot be split by time", where=str(trace.paths[0]), fix="give the past with --past")
        if document is not None:
            tell_if_flattered(document, session, traffic.settings, tell)
        first, end = request.steps or (0, None)
        boundary = max(first, traffic.split.boundary)
        if (end is not None and end <= boundary) or first >= traffic.split.boundary:
            raise UsageError(
                f"without --past the second half of the trace is judged, which begins at step {traffic.split.boundary}",
                where="--steps",
                fix="let the range begin before and end behind it, or give the past with --past",
            )
        past, notes = read_steps(trace, chosen.of_side(traffic.split, FIT), first=first, gates=False, scores=False)
        judged, more = read_steps(trace, chosen, first=boundary, end=end)
    for line in dict.fromkeys((*notes, *more)):
        tell.note(line)
    return past, judged


def _in_halves(request: OffsetRequest, session: Session) -> Traffic:
    """The traffic split in the middle; what `plan` says of its options for that is said in those of here."""
    try:
        return session.traffic("time", HELD_OUT_SHARE, request.settings.seed)
    except UsageError as error:
        raise UsageError(
            "cannot be split in the middle into a past and judged steps: no request ends before it, or none runs after",
            where=str(request.settings.traces[0]),
            fix="give a longer trace, or the past with --past",
        ) from error


def _shares_files(document: PlanDocument, paths: Sequence[Path]) -> bool:
    return bool(set(document.trace.file_fingerprints) & set(file_fingerprints(paths)))


def _whole(request: OffsetRequest, session: Session, trace: TokenTrace) -> RecordedSteps:
    first, end = request.steps or (0, None)
    return read_steps(trace, session.selection(), first=first, end=end, gates=False, scores=False)[0]


def _require_apart(past: RecordedSteps, scored: RecordedSteps) -> None:
    """Raise `UsageError` when the past holds a token that is scored: of the same step, request and place in it, with
    the same experts in all layers. Another sample of the same recording is found that way, too."""
    frames = [
        pd.DataFrame(
            {
                "step": steps.step[steps.step_of_token],
                "request": steps.request,
                "position": steps.position,
                "token": np.arange(steps.tokens),
            }
        )
        for steps in (past, scored)
    ]
    both = frames[0].merge(frames[1], on=["step", "request", "position"], suffixes=("_past", "_scored"))
    same = (past.experts[both["token_past"]] == scored.experts[both["token_scored"]]).all(axis=(1, 2))
    if same.any():
        raise UsageError(
            f"the past holds tokens of step {int(both['step'][same].min())}, which is scored",
            where="--past",
            fix=f"end it before, for instance with --past-steps {past.step[0]}:{scored.step[0]}",
        )


def _same_model(one: TokenTrace, other: TokenTrace) -> bool:
    return (one.meta.layers, one.meta.experts, one.meta.top_k) == (
        other.meta.layers,
        other.meta.experts,
        other.meta.top_k,
    )


def _under_test(session: Session, document: PlanDocument | None) -> tuple[Session, Plan]:
    """The plan and the session with exactly its slots."""
    meta = session.meta
    if document is None:
        plan = placements.contiguous(len(meta.layers), meta.experts, session.topology.ranks)
    else:
        if (document.layer_ids, document.experts) != (meta.layers, meta.experts):
            raise PlanError(
                f"the plan is for {len(document.layers)} layers × {document.experts} experts, the trace has "
                f"{len(meta.layers)} × {meta.experts} (or other layer ids)",
                where="--plan",
                fix="give a trace of the model that the plan was made for",
            )
        plan = document.plan()
        if plan.ranks != session.topology.ranks:
            raise PlanError(
                f"the plan is for {plan.ranks} ranks, the cluster has {session.topology.ranks}",
                where="--plan",
                fix="check --cluster",
            )
    topology = replace(session.topology, slots_per_rank=plan.slots_per_rank)
    return replace(session, topology=topology), plan


def _others(session: Session, past: RecordedSteps, plan: Plan, window: int, tell: Listener) -> dict[str, Plan]:
    """Placements made from the past: at the memory of the plan under test, and with a quarter more where it has no
    replicas."""
    slots = [plan.slots_per_rank]
    if not plan.redundant_slots:
        more = np.ceil(plan.slots_per_rank * MORE_SLOTS).astype(np.int64)
        slots += [np.minimum(more, plan.experts)] if plan.ranks > 1 else []
    names = [(policy, each) for each in slots for policy in ("window_search", "eplb")]
    advance = tell.progress("planning alternatives", Amount(len(names), "plans"))
    found: dict[str, Plan] = {}
    for policy, each in names:
        try:
            made = alternative(session, policy, past, each, window)
            found[f"{_TITLES[policy]}, {_slots(made)}"] = made
        except NotApplicable as reason:
            tell.note(f"no {_TITLES[policy]}: {reason}")
        advance(1)
    return found


def alternative(session: Session, policy: str, steps: RecordedSteps, slots_per_rank: IntArray, window: int) -> Plan:
    """The plan that a policy makes from these steps on so many slots. Raises `NotApplicable`."""
    topology = replace(session.topology, slots_per_rank=slots_per_rank)
    return placements.planned(
        policy, steps, topology.ranks, int(slots_per_rank[0]), session.settings.seed, window=window, topology=topology
    )


_TITLES = {"window_search": "window plan", "eplb": "EPLB"}


def _slots(plan: Plan) -> str:
    """As tables say it: 8 × 10 slots, or how many there are where ranks differ."""
    own = np.unique(plan.slots_per_rank)
    return f"{plan.ranks} × {own[0]}" if len(own) == 1 else f"{plan.slots} slots"
