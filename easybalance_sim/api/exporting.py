"""`export`: what `ebsim export` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from easybalance_sim import exports
from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import PathLike
from easybalance_sim.api.plan_files import PlanLike, PlanResult, load_plan
from easybalance_sim.api.results import Result
from easybalance_sim.errors import PlanError
from easybalance_sim.exports.deployment import deployment_for

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExportResult(Result):
    """What was written for an engine."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The file that the engine is pointed at first."""
        return tuple(Path(file) for file in self.report["files"])

    @property
    def launch(self) -> tuple[str, ...]:
        """The flags to start the engine with, a line each."""
        return tuple(self.report["launch"])

    def line(self) -> str:
        """Engine and file."""
        return f"{self.report['engine']}: {self.files[0]}"

    def table(self) -> pd.DataFrame:
        """The files and the flags."""
        import pandas as pd

        rows = [("file", str(file)) for file in self.files] + [("start with", line) for line in self.launch]
        return pd.DataFrame(rows, columns=["what", "value"]).set_index("what")


def export(
    plan: PlanLike,
    *,
    engine: str,
    output: PathLike,
    schema: str = "",
    model: PathLike = "",
    hidden_layers: int | None = None,
    force: bool = False,
) -> ExportResult:
    """Write a plan in the format of a serving engine; the result holds the flags to start the engine with.

    engine: sglang, tensorrt-llm, vllm, vllm-ascend or omni. Raises `PlanError` for what the engine cannot hold and,
    without force, for a plan that the gate did not accept, and `UsageError` where `output` cannot be written.
    """
    call, _ = begun(export, locals())
    made = plan if isinstance(plan, PlanResult) else load_plan(plan)
    where = made.fingerprint[:12] if isinstance(plan, PlanResult) else str(plan)
    module = exports.load(engine)
    deployment = deployment_for(made.document, str(model), hidden_layers)
    notes = _require_accepted(made, where, force)
    try:
        written = module.write(made.document, deployment, Path(output), schema)
    except PlanError as error:
        raise PlanError(error.what, where=f"{where}: {error.where}" if error.where else where, fix=error.fix) from error
    report = {
        "engine": engine,
        "fingerprint": made.fingerprint,
        "verdict": made.verdict,
        "files": [str(path) for path in written.files],
        "launch": list(written.launch),
        "notes": [*notes, *written.notes],
    }
    return ExportResult(report=report, call=call)


def _require_accepted(made: PlanResult, where: str, force: bool) -> list[str]:
    if made.accepted:
        return []
    verdict = f"the plan's verdict is {made.verdict.replace('_', ' ')}"
    if not force:
        raise PlanError(verdict, where=where, fix="force=True exports it nevertheless")
    return [f"{verdict}: exported because of force"]
