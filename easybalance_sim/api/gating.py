"""`gate`: what `ebsim gate` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import PathLike, path_of
from easybalance_sim.api.results import JudgedResult, Result
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.gate.reading import read_report

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GateResult(Result):
    """What the gate says of a report."""

    @property
    def verdict(self) -> str:
        """accepted, rejected or insufficient_evidence."""
        return str(self.report["status"])

    @property
    def accepted(self) -> bool:
        """Whether the gate accepts the plan."""
        return self.verdict == "accepted"

    def line(self) -> str:
        """The verdict, and the criteria that were missed."""
        missed = [finding["criterion"] for finding in self.report["findings"] if not finding["ok"]]
        why = f" ({', '.join(missed)})" if missed else ""
        return f"{self.verdict.replace('_', ' ').upper()}{why}"

    def table(self) -> pd.DataFrame:
        """One row per criterion: limit, observed, ok, note."""
        from easybalance_sim.api.tables import rows_of

        return rows_of(self.report["findings"]).set_index("criterion")


def gate(report: Mapping[str, Any] | JudgedResult | PathLike, *, criteria: PathLike | None = None) -> GateResult:
    """Judge a report of `plan` or `replay` again, under other criteria.

    report: a result, its report, or a file of it. Raises `CriteriaError` for a report or criteria that cannot be read.
    """
    call, _ = begun(gate, locals())
    verdict = judge(_report(report), load_criteria(path_of(criteria)))
    return GateResult(report=verdict.to_dict(), call=call)


def _report(given: Mapping[str, Any] | JudgedResult | PathLike) -> Mapping[str, Any]:
    if isinstance(given, JudgedResult):
        return given.report
    return given if isinstance(given, Mapping) else read_report(Path(given))
