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
from easybalance_sim.plan.lint import ERROR, Finding
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument

OTHER_PLAN, REFUSED = "other-plan", "refused"
EXPORTED = Path("(exported)")
"""What reports say in the place of a file that is not kept."""


def lint_deployed(
    document: PlanDocument, engine: str, file: Path | None, model: str = "", hidden_layers: int | None = None
) -> Report:
    """The lint of an engine's file, which must hold this plan; file: None = what `ebsim export` would write now.

    What the engine cannot hold is the error `refused`. Raises `EbsimError` as `lint_file` and `deployment_for`.
    """
    deployment = deployment_for(document, model, hidden_layers)
    if file is not None:
        report = lint_file(file, engine, deployment)
        return report if report.errors else _with_plan_checked(report, document, engine, deployment)
    module = exports.load(engine)
    with tempfile.TemporaryDirectory(prefix="ebsim-") as folder:
        output = Path(folder) / f"export{module.SUFFIXES[0]}"
        try:
            module.write(document, deployment, output, "")
        except PlanError as error:
            refusal = Finding(level=ERROR, message=error.what, rule=REFUSED)
            return Report(path=EXPORTED, title=module.TITLE, layers=0, findings=(refusal,))
        return replace(lint_file(output, engine, deployment), path=EXPORTED)


def _with_plan_checked(report: Report, document: PlanDocument, engine: str, deployment: Deployment) -> Report:
    held = adopt(report.path, engine, deployment).document
    mine, others = _places(document.plan()), _places(held.plan())
    if mine.shape == others.shape and np.array_equal(mine, others):
        return report
    what = "it does not hold this plan: some rank would have other experts; export the plan again"
    finding = Finding(level=ERROR, message=what, rule=OTHER_PLAN)
    return replace(report, findings=(finding, *report.findings))


def _places(plan: Plan) -> npt.NDArray[np.int64]:
    """[L, P] which experts a rank has, whatever their order there."""
    return np.sort(plan.rank_of_slot.astype(np.int64) * plan.experts + plan.expert_of_slot, axis=1)
