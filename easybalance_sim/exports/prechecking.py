"""What `ebsim precheck` lints: a plan, and the engine's file made of it, there or yet to be exported."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from easybalance_sim import exports
from easybalance_sim.errors import PlanError
from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.deployment import deployment_for
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import Report, lint_file
from easybalance_sim.exports.opening import Opened, opened
from easybalance_sim.exports.placement import filler_row
from easybalance_sim.plan.lint import ERROR, Finding
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument

OTHER_PLAN, REFUSED = "other-plan", "refused"
EXPORTED = Path("(exported)")
"""What reports say in the place of a file that is not kept."""


def lint_deployed(
    document: PlanDocument,
    engine: str,
    file: Path | None,
    model: str = "",
    hidden_layers: int | None = None,
    schema: str = "",
) -> Report:
    """The lint of an engine's file, which must hold this plan; file: None = what `ebsim export` would write now.

    schema: which of the engine's formats it is in, "" = as the file has it, of an export the engine's default.
    What the engine cannot hold is the error `refused`. Raises `EbsimError` as `lint_file` and `deployment_for`.
    """
    known = deployment_for(document, model, hidden_layers)
    deployment = replace(known, experts=known.experts or document.experts, schema=schema)
    if file is not None:
        report = lint_file(file, engine, deployment)
        return report if report.errors else _with_plan_checked(report, document, engine, deployment)
    module = exports.load(engine)
    with tempfile.TemporaryDirectory(prefix="ebsim-") as folder:
        output = Path(folder) / f"export{exports.suffix_of(module, schema)}"
        try:
            module.write(document, deployment, output, schema)
        except PlanError as error:
            refusal = Finding(level=ERROR, message=error.what, rule=REFUSED)
            return Report(path=EXPORTED, title=module.TITLE, layers=0, findings=(refusal,))
        return replace(lint_file(output, engine, deployment), path=EXPORTED)


def _with_plan_checked(report: Report, document: PlanDocument, engine: str, deployment: Deployment) -> Report:
    """`report`, with the error `other-plan` where a rank would have other experts.

    Rows of draft (MTP) layers are compared where the engine loads them, with a filler where the plan has none.
    """
    module = exports.load(engine)
    drafts = opened(report.path, module, deployment).deployment.mtp_layers
    planned = tuple(layer for layer in document.layer_ids if layer not in drafts)
    found = opened(report.path, module, replace(deployment, moe_layers=planned, mtp_layers=drafts))
    layers = _compared(document, found, model_known=deployment.moe_layers is not None)
    as_plan = replace(found.deployment, moe_layers=layers, mtp_layers=(), schema=found.file.schema)
    try:
        held = adopt(report.path, engine, as_plan).document
    except PlanError as error:
        return _with_error(report, f"it does not hold this plan: {error.what}")
    rows = {record.layer: record.expert_of_slot for record in document.layers}
    filler = filler_row(document.plan().slots, document.experts)
    expected = replace(document.plan(), expert_of_slot=np.array([rows.get(layer, filler) for layer in layers]))
    if np.array_equal(_places(expected), _places(held.plan())):
        return report
    return _with_error(report, "it does not hold this plan, some rank would have other experts: export the plan again")


def _compared(document: PlanDocument, found: Opened, *, model_known: bool) -> tuple[int, ...]:
    """The plan's layers that the file has a place for, and those that it has beyond them and the engine may load."""
    drafts, planned = found.deployment.mtp_layers, document.layer_ids
    if not found.rules.drafts:
        return tuple(layer for layer in planned if layer not in drafts)
    shared = found.rules.one_row and len(found.file.rows) == 1
    beyond = set(drafts if shared else found.file.layers).difference(planned)
    if model_known:
        beyond &= set(drafts)
    return (*planned, *sorted(beyond))


def _with_error(report: Report, message: str) -> Report:
    return replace(report, findings=(Finding(level=ERROR, message=message, rule=OTHER_PLAN), *report.findings))


def _places(plan: Plan) -> npt.NDArray[np.int64]:
    """[L, P] which experts a rank has, whatever their order there."""
    return np.sort(plan.rank_of_slot.astype(np.int64) * plan.experts + plan.expert_of_slot, axis=1)
