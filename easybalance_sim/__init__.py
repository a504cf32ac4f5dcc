"""ebsim: plans where the experts of a Mixture-of-Experts model live, judged on traffic the planner did not see.

`import easybalance_sim as ebs; ebs.plan("traces/tinymoe.parquet")`: what the command `ebsim` does, as functions with
results; docs/python.md has all of them. Nothing heavy is imported before a function is asked for.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from easybalance_sim.api import (
        AdoptResult,
        CapacityResult,
        ClaimResult,
        CompareResult,
        DiffResult,
        ExplainResult,
        ExportResult,
        GateResult,
        LintResult,
        OffloadResult,
        OffsetResult,
        PhasePlans,
        PlanResult,
        RebalanceResult,
        ReplayResult,
        SimulateResult,
        SweepResult,
        adopt,
        capacity,
        claim,
        compare,
        diff,
        explain,
        export,
        gate,
        lint,
        load_plan,
        offload,
        offset,
        plan,
        plan_phases,
        rebalance,
        replay,
        simulate,
        sweep,
        write_trace,
    )
    from easybalance_sim.errors import (
        CriteriaError,
        EbsimError,
        PlanError,
        ProfileError,
        TraceError,
        UsageError,
    )

__version__ = "0.1.0"

__all__ = [
    "AdoptResult", "CapacityResult", "ClaimResult", "CompareResult", "CriteriaError", "DiffResult", "EbsimError",
    "ExplainResult", "ExportResult", "GateResult", "LintResult", "OffloadResult", "OffsetResult", "PhasePlans",
    "PlanError", "PlanResult", "ProfileError", "RebalanceResult", "ReplayResult", "SimulateResult", "SweepResult",
    "TraceError", "UsageError", "adopt", "capacity", "claim", "compare", "diff", "explain", "export", "gate", "lint",
    "load_plan", "offload", "offset", "plan", "plan_phases", "rebalance", "replay", "simulate", "sweep", "write_trace",
]  # fmt: skip

_API = f"{__name__}.api"


class _Called(ModuleType):
    """A part of this package whose name is that of a function, too: importing the part hides the function behind it, so
    that the part itself is what can be called, asked for its signature and sent to other processes."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(self._function())

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        # `help` shows a module's words, but no signature of one: parameters come first.
        import inspect
        import textwrap

        function = self._function()
        taken = inspect.signature(function)
        bare = taken.replace(
            parameters=[one.replace(annotation=one.empty) for one in taken.parameters.values()],
            return_annotation=taken.empty,
        )
        first = textwrap.fill(f"{function.__name__}{bare}", 76, subsequent_indent="    ")
        return f"{first}\n\n{inspect.cleandoc(function.__doc__ or '')}"

    def _function(self) -> Any:
        return getattr(import_module(_API), self.__name__.rpartition(".")[2])


for _part in ("gate", "plan", "replay", "simulate", "sweep"):
    import_module(f"{__name__}.{_part}").__class__ = _Called


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.errors" if name.endswith("Error") else _API), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
