"""What every engine file is made from: the rows of a plan whose ranks all hold the same number of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from easybalance_sim.errors import PlanError
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.fillers import fillers_of
from easybalance_sim.plan.lint import ERROR, lint
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument

Row = Sequence[int]

MODEL_UNKNOWN = "the model is not known: that the plan has all of its MoE layers was not checked (--model)"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an engine can hold. engine: as messages call it · slots, redundant: per layer, at most · experts: E at most;
    None = no limit is known · ranks: at least."""

    engine: str
    slots: int | None = None
    redundant: int | None = None
    experts: int | None = None
    ranks: int = 1


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A plan as engines take it: P = ranks · slots_per_rank slots in every layer.

    rows: of each MoE layer by its absolute id, ids rising · mtp_rows: the same of MTP layers, if the plan has them ·
    filler: a valid row for layers that the plan does not place (slot modulo E, as engines start by themselves) ·
    notes: what could not be checked.
    """

    ranks: int
    slots_per_rank: int
    experts: int
    rows: Mapping[int, Row]
    mtp_rows: Mapping[int, Row]
    filler: Row
    notes: tuple[str, ...]

    @property
    def slots(self) -> int:
        """P."""
        return self.ranks * self.slots_per_rank

    @property
    def redundant(self) -> int:
        """P - E."""
        return self.slots - self.experts


def placement(document: PlanDocument, deployment: Deployment, limits: Limits) -> Placement:
    """The placement of a plan for an engine. Raises `PlanError` with the reason why that engine cannot hold it."""
    plan = document.plan()
    _require_even(plan, limits)
    _require_no_fillers(document, limits)
    _require_clean(plan, document, limits)
    _require_within(plan, limits)
    _require_model(document, deployment)
    rows = dict(sorted((record.layer, record.expert_of_slot) for record in document.layers))
    return Placement(
        ranks=plan.ranks,
        slots_per_rank=int(plan.slots_per_rank[0]),
        experts=plan.experts,
        rows={layer: row for layer, row in rows.items() if layer not in deployment.mtp_layers},
        mtp_rows={layer: row for layer, row in rows.items() if layer in deployment.mtp_layers},
        filler=filler_row(plan.slots, plan.experts),
        notes=() if deployment.moe_layers else (MODEL_UNKNOWN,),
    )


def filler_row(slots: int, experts: int) -> list[int]:
    """[P] slot modulo E."""
    return [slot % experts for slot in range(slots)]


def hidden_rows(placed: Placement, deployment: Deployment, engine: str) -> list[list[int]]:
    """[hidden layers][P] a row for each layer of the model; those that the plan does not place get the filler.

    Raises `PlanError` where the number of layers is not known, or smaller than the plan's.
    """
    layers = deployment.hidden_layers
    if layers is None:
        raise PlanError(
            f"{engine} wants a row for each of the model's layers, dense ones included: how many there are is not "
            "known",
            fix="pass --model, or --hidden-layers",
        )
    last = max(placed.rows, default=-1)
    if last >= layers:
        raise PlanError(
            f"the plan has layer {last}, the model {layers} layers", fix="correct --hidden-layers or --model"
        )
    return [list(placed.rows.get(layer, placed.filler)) for layer in range(layers)]


def judged_under(document: PlanDocument, rule: str) -> list[str]:
    """What to say where a plan was judged under another dispatch rule than the engine's."""
    return (
        [] if document.dispatch == rule else [f"the plan was judged under --dispatch {document.dispatch}, not {rule}"]
    )


def _require_even(plan: Plan, limits: Limits) -> None:
    least, most = int(plan.slots_per_rank.min()), int(plan.slots_per_rank.max())
    if least != most:
        raise PlanError(
            f"ranks hold {least} to {most} slots, {limits.engine} wants the same number on every rank",
            fix="plan with one --slots-per-rank for all",
        )


def _require_no_fillers(document: PlanDocument, limits: Limits) -> None:
    fillers = fillers_of(document)
    if fillers:
        raise PlanError(
            f"the deployed layers differ in slots, `ebsim adopt` filled {len(fillers)} of them up: {limits.engine} "
            "wants the same slots in every layer",
            fix="make a plan from it (`ebsim plan --current`)",
        )


def _require_clean(plan: Plan, document: PlanDocument, limits: Limits) -> None:
    broken = [finding for finding in lint(plan) if finding.level == ERROR]
    if broken:
        first = broken[0]
        more = f" ({len(broken) - 1} more such faults)" if len(broken) > 1 else ""
        where = "" if first.layer is None else f"layer {document.layer_ids[first.layer]}, slot {first.slot}"
        raise PlanError(
            f"{first.message}{more}: {limits.engine} would serve wrong experts", where=where, fix="plan again"
        )


def _require_within(plan: Plan, limits: Limits) -> None:
    if plan.ranks < limits.ranks:
        raise PlanError(f"{limits.engine} balances experts on {limits.ranks} ranks or more", fix="plan for more ranks")
    for what, has, most in (
        ("slots per layer", plan.slots, limits.slots),
        ("redundant slots per layer", plan.redundant_slots, limits.redundant),
        ("experts", plan.experts, limits.experts),
    ):
        if most is not None and has > most:
            raise PlanError(f"{has} {what}, {limits.engine} takes {most} at most", fix="plan with fewer")


def _require_model(document: PlanDocument, deployment: Deployment) -> None:
    if deployment.experts not in (None, document.experts):
        raise PlanError(
            f"the plan is for {document.experts} experts, the model has {deployment.experts}", fix="correct --model"
        )
    if deployment.moe_layers is None:
        return
    has, wanted = set(document.layer_ids), set(deployment.moe_layers)
    missing, foreign = sorted(wanted - has), sorted(has - wanted - set(deployment.mtp_layers))
    if missing:
        raise PlanError(
            f"the plan lacks {len(missing)} of the model's {len(wanted)} MoE layers, first layer {missing[0]}",
            fix="plan from a trace of all layers, or correct --model",
        )
    if foreign:
        raise PlanError(f"layer {foreign[0]} is no MoE layer of the model", fix="correct --model")
