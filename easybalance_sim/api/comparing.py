"""`compare`: what `ebsim compare` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Names, PathLike, Traces, settings_of
from easybalance_sim.api.plan_files import PlanLike, PlanResult, named
from easybalance_sim.api.results import Result
from easybalance_sim.errors import UsageError
from easybalance_sim.observed.judged import GOOD
from easybalance_sim.observed.judged import compare as compared
from easybalance_sim.observed.predicted import predict
from easybalance_sim.observed.tables import at_grain, read_loads, read_observed

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareResult(Result):
    """Measured rank times beside the predicted tokens and seconds."""

    @property
    def status(self) -> str:
        """good, recalibrate or too few observations."""
        return str(self.report["status"])

    @property
    def good(self) -> bool:
        """Whether the prediction is good enough to plan by."""
        return self.status == GOOD

    def line(self) -> str:
        """The answer."""
        return f"{self.status.upper()}: {self.report['answer']}"

    def table(self) -> pd.DataFrame:
        """One row per measure, one column per model: tokens, and seconds where they were predicted."""
        import pandas as pd

        from easybalance_sim.api.tables import flat

        return pd.DataFrame({name: flat(model) for name, model in self.report["models"].items()})


def compare(
    predicted: PlanLike,
    observed: PathLike,
    *,
    trace: Traces | None = None,
    model: PathLike = "",
    profile: PathLike = "",
    workload: Names = None,
    phase: str | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
) -> CompareResult:
    """Is token count a good enough cost model here, and are the predicted seconds?

    predicted: a plan, with `trace`, or a file of `ebsim trace loads` · observed: measured times, .csv or .parquet.
    Raises `EbsimError` subclasses for what cannot be compared.
    """
    said = locals()
    call, told = begun(compare, said)
    if isinstance(predicted, PlanResult) and trace is None:
        raise UsageError("a plan says no loads of ranks", where="compare", fix="give trace=… of the measured run")
    times = read_observed(Path(observed))
    with named(predicted) as file:
        if trace is None:
            loads, label = read_loads(Path(file)), None
        else:
            found = predict(Path(file), settings_of({**said, "traces": trace}), times.steps, told)
            loads, label = found.loads, found.label
        report = compared(at_grain(loads, times, file), times).report
    return CompareResult(report={**report, "cost": label, "notes": told.notes}, call=call)
