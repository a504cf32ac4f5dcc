"""`explain`: what `ebsim explain` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Traces, paths_of
from easybalance_sim.api.plan_files import PlanLike, PlanResult, named
from easybalance_sim.api.results import Result, without_file
from easybalance_sim.explaining.run import ExplainRequest, explain_plan

if TYPE_CHECKING:
    import pandas as pd

LISTS = {"overview": "experts", "layer": "experts", "rank": "layers", "expert": "holders"}
"""What stands in the table of every kind of answer."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExplainResult(Result):
    """Why an expert has its replicas, or what is to be known of a layer, a rank or the whole plan."""

    @property
    def answer(self) -> Mapping[str, Any]:
        """The answer alone, as documented under its kind."""
        found: Mapping[str, Any] = self.report[self.report["of"]]
        return found

    def line(self) -> str:
        """What was asked about."""
        of = self.report["of"]
        about = "" if of == "overview" else "".join(f", {name} {self.answer[name]}" for name in _names(self.answer))
        return f"{of}{about} of {self.report['plan']['policy']} {self.report['plan']['fingerprint'][:12]}"

    def table(self) -> pd.DataFrame:
        """Of an expert its holders, of a layer its experts, of a rank its layers, else the most replicated experts."""
        from easybalance_sim.api.tables import rows_of

        return rows_of(self.answer[LISTS[self.report["of"]]])


def _names(answer: Mapping[str, Any]) -> list[str]:
    return [name for name in ("layer", "expert", "rank") if isinstance(answer.get(name), int)]


def explain(
    plan: PlanLike,
    *,
    layer: int | None = None,
    expert: int | None = None,
    rank: int | None = None,
    trace: Traces | None = None,
    progress: bool = False,
) -> ExplainResult:
    """Say why an expert has its replicas: its load, who holds it, beside whom, and what one fewer or more would do.

    Options are the flags of `ebsim explain`. Raises `EbsimError` subclasses for what the plan does not have.
    """
    call, told = begun(explain, locals())
    with named(plan) as file:
        request = ExplainRequest(plan=Path(file), traces=paths_of(trace), layer=layer, expert=expert, rank=rank)
        report = explain_plan(request, told)
    result = ExplainResult(report={**report, "notes": told.notes}, call=call)
    return without_file(result, "plan", "file") if isinstance(plan, PlanResult) else result
