"""Plans as results: made, read from a file, and handed on to what reads plan files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.inputs import PathLike
from easybalance_sim.api.results import JudgedResult
from easybalance_sim.errors import PlanError
from easybalance_sim.plan.planfile import PlanDocument, read_plan, write_plan
from easybalance_sim.report.saved import report_of_plan

if TYPE_CHECKING:
    import pandas as pd

    from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlanResult(JudgedResult):
    """A plan and its evidence. document: what its file holds."""

    document: PlanDocument

    @property
    def plan(self) -> Plan:
        """The placement; `expert_of_slot` is int32[L, P], `replicas` int[L, E]."""
        return self.document.plan()

    def candidates(self) -> pd.DataFrame:
        """Every policy that competed, with its figures on the fit side."""
        from easybalance_sim.api.tables import rows_of

        self._require_evidence()
        return rows_of(self.report.get("candidates", ())).set_index("policy")

    def save(self, path: PathLike, *, force: bool = False) -> Path:
        """Write the plan file, whole or not at all.

        force: also a plan that the gate did not accept. Raises `PlanError` for such a plan without it.
        """
        if not (self.accepted or force):
            what = f"the plan's verdict is {self.verdict.replace('_', ' ')}"
            raise PlanError(what, where=str(path), fix="force=True writes it nevertheless, the verdict inside")
        write_plan(Path(path), self.document)
        return Path(path)


PlanLike = PlanResult | PathLike
"""A plan that was made or read, or the path of a plan file."""


def load_plan(path: PathLike) -> PlanResult:
    """Read a plan file; the report is rebuilt from the evidence in it.

    Raises `PlanError` for anything but a whole plan file.
    """
    document = read_plan(Path(path))
    try:
        report = report_of_plan(Path(path), document)
    except PlanError:
        # What was adopted from an engine, say.
        report = unjudged(document, path)
    return PlanResult(report=report, document=document, call=f"easybalance_sim.load_plan({os.fspath(path)!r})")


def unjudged(document: PlanDocument, path: PathLike | None, notes: Sequence[str] = ()) -> dict[str, Any]:
    """The report of a plan without evidence. path: of its file, where it has one."""
    return {
        "verdict": document.verdict,
        "migration": document.migration,
        "plan_file": None if path is None else os.fspath(path),
        "fingerprint": document.fingerprint(),
        "notes": list(notes),
    }


@contextmanager
def named(plan: PlanLike) -> Iterator[str]:
    """The name of a plan as a command takes it: a path, the name of a policy, or, of a result, a temporary file that is
    gone afterwards."""
    if not isinstance(plan, PlanResult):
        yield os.fspath(plan)
        return
    with tempfile.TemporaryDirectory(prefix="ebsim-") as folder:
        path = Path(folder, "plan.json")
        write_plan(path, plan.document)
        yield str(path)


@contextmanager
def file_of(plan: PlanLike | None) -> Iterator[Path | None]:
    """The file of a plan, as `named`; None of None."""
    if plan is None:
        yield None
        return
    with named(plan) as path:
        yield Path(path)
