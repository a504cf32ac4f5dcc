"""`lint`: what `ebsim lint` does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import PathLike
from easybalance_sim.api.plan_files import PlanLike, PlanResult, file_of, named
from easybalance_sim.api.results import Result, without_file
from easybalance_sim.errors import UsageError
from easybalance_sim.exports.linting import lint_named
from easybalance_sim.report.placement_words import faults

if TYPE_CHECKING:
    import pandas as pd

FINDING = {"level": "object", "rule": "object", "layer": "Int64", "slot": "Int64", "message": "object"}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LintResult(Result):
    """Everything that is wrong with a placement."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found, not even a warning."""
        return not self.report["findings"]

    @property
    def ok(self) -> bool:
        """Whether the engine may load it: nothing was found but warnings. The command ends with exit 0 then."""
        return not self.report["errors"]

    def line(self) -> str:
        """How many errors and warnings, of which file."""
        found = faults(self.report["errors"], self.report["warnings"])
        return f"{found}: {self.report['file'] or 'the plan'} ({self.report['format']})"

    def table(self) -> pd.DataFrame:
        """One row per finding, errors first: level, rule, layer, slot, message."""
        from easybalance_sim.api.tables import typed

        return typed(self.report["findings"], FINDING)


def lint(
    file: PlanLike,
    *,
    engine: str = "",
    ranks: int | None = None,
    model: PathLike = "",
    experts: int | None = None,
    schema: str = "",
    redundant: int | None = None,
    previous: PlanLike | None = None,
) -> LintResult:
    """Check a placement file for all that its engine does not check; what is wrong is in the result, no error.

    file: of an engine, or without `engine` a plan · previous: what is loaded now, a file of that engine or a plan.
    Raises `PlanError` for what cannot be read as what it should be, `UsageError` for an engine that there is not and
    for options that describe an engine without one.
    """
    call, _ = begun(lint, locals())
    if engine and isinstance(file, PlanResult):
        raise UsageError(f"a plan is no file of {engine}", where="file", fix="export it, and lint what was written")
    with named(file) as path, file_of(previous) as loaded:
        report = lint_named(
            Path(path), engine, ranks=ranks, model=os.fspath(model), experts=experts, schema=schema,
            redundant=redundant, previous=loaded,
        )  # fmt: skip
    result = LintResult(report=report.to_dict(), call=call)
    return without_file(result, "file") if isinstance(file, PlanResult) else result
