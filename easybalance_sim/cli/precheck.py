"""`ebsim precheck`: lint, replay on fresh traffic and gate in one go, before a plan is deployed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from easybalance_sim.cli import completing, lint, options, replay, report_table
from easybalance_sim.cli.ci_outputs import CiOutputs, Github, Junit
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.cli.layout import filled
from easybalance_sim.errors import UsageError
from easybalance_sim.report import plan_words

if TYPE_CHECKING:
    from easybalance_sim.exports.linting import Report
    from easybalance_sim.gate.checks import Check
    from easybalance_sim.verification import ReplayRequest

READY, NOT_READY = "ready", "not_ready"
Schema = Annotated[
    str,
    typer.Option(
        "--schema",
        autocompletion=completing.schemas,
        metavar="NAME",
        help="vllm: plugin, pr41141, pr49572 or pr53022 [as FILE has it; without FILE plugin].",
    ),
]


def precheck(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file that is to be deployed.")],
    traces: options.Traces,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            autocompletion=completing.engines,
            metavar="ENGINE",
            help="sglang, tensorrt-llm, vllm, vllm-ascend or omni [plan only].",
        ),
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The engine's file [what ebsim export would write].")
    ] = None,
    schema: Schema = "",
    baseline: replay.Baseline = "contiguous",
    cluster: options.Cluster = None,
    model: options.Model = "",
    hidden_layers: Annotated[
        int | None,
        typer.Option("--hidden-layers", metavar="N", min=1, help="All layers, dense ones included [the model's]."),
    ] = None,
    workload: options.Workloads = None,
    phase: options.Phase = None,
    profile: options.Profile = "",
    criteria: options.Criteria = None,
    stress: options.Stress = False,
    device: options.Device = "auto",
    junit: Junit = None,
    github: Github = False,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Check a plan before it is deployed: lint it and the engine's file, replay fresh traffic, judge the result.

    FILE must be clean and hold this plan; its errors do not keep the replay from running, those of PLAN do. The replay
    is on the plan's cluster where --cluster names no other, and of all traffic where no --workload or --phase is said.
    Exit 0 ready, 1 lint errors or rejected, 3 insufficient evidence, 2 when something cannot be read.

    \b
    Example: ebsim precheck plan.json traces/tinymoe.parquet --engine sglang \\
        --hidden-layers 8 --junit precheck.xml

    \b
    Example: ebsim precheck plan.json traces/tinymoe.parquet --engine vllm \\
        --schema pr49572 --workload chinese --workload japanese --phase decode
    """
    console = Console()
    report_table.warn_of_first_run(console)
    from easybalance_sim.planning.session import Settings
    from easybalance_sim.verification import ReplayRequest

    if not engine:
        _require_none(file=file, schema=schema or None)
    ci = CiOutputs(command="precheck", junit=junit, github=github)
    reads = [one for one in (plan, file, cluster, criteria, Path(baseline), *traces) if one is not None]
    said = Settings(
        traces=tuple(traces), cluster=cluster, model=model, profile=profile, phase=phase,
        workloads=tuple(workload or ()), device=device,
    )  # fmt: skip
    request = ReplayRequest(settings=said, plan=plan, baseline=baseline, criteria=criteria, stress=stress)
    with ci.telling(*reads):
        lints = _lints(plan, engine, file, model, hidden_layers, schema)
        replayed = _replayed(request, console) if not lints[0].errors else None
    result, checks = _result(lints, replayed, console.notes), _checks(lints, replayed, str(plan))
    ci.tell(_headline(result), checks)
    emit(json.dumps(result, indent=2, allow_nan=False) if format is Format.JSON else _table(result, lints))
    raise typer.Exit(result["exit_code"])


def _require_none(**flags: object) -> None:
    """Raise `UsageError` when one of the flags that are about the engine's file is given without an engine."""
    for name, value in flags.items():
        if value is not None:
            raise UsageError("says nothing without its engine", where=f"--{name}", fix="add --engine")


def _lints(
    plan: Path, engine: str, file: Path | None, model: str, hidden_layers: int | None, schema: str
) -> list[Report]:
    """Of the plan, and of the engine's file where the plan is one."""
    from easybalance_sim.exports.linting import lint_plan
    from easybalance_sim.exports.prechecking import lint_deployed
    from easybalance_sim.plan.planfile import read_plan

    of_plan = lint_plan(plan)
    if of_plan.errors or not engine:
        return [of_plan]
    return [of_plan, lint_deployed(read_plan(plan), engine, file, model, hidden_layers, schema)]


def _replayed(request: ReplayRequest, console: Console) -> tuple[dict[str, Any], tuple[Check, ...]]:
    """The report of the replay and the checks of its verdict."""
    from easybalance_sim.gate.checks import of_verdict
    from easybalance_sim.verification import replay_plan

    report, verdict = replay_plan(request, console)
    console.took(report)
    return report, of_verdict(verdict, str(request.plan))


def _checks(lints: list[Report], replayed: tuple[dict[str, Any], tuple[Check, ...]] | None, plan: str) -> list[Check]:
    from easybalance_sim.exports.checks import UNCHECKED
    from easybalance_sim.exports.prechecking import EXPORTED
    from easybalance_sim.gate.checks import GATE, SKIPPED, Check, of_lint

    checks = []
    for one in lints:
        place = plan if one.path == EXPORTED else str(one.path)
        checks += of_lint(one.findings, one.title, place, unchecked=UNCHECKED)
    unreplayed = Check(suite=GATE, name="replay", outcome=SKIPPED, message="the plan file has errors", file=plan)
    return [*checks, *(replayed[1] if replayed else [unreplayed])]


def _result(lints: list[Report], replayed: tuple[dict[str, Any], object] | None, notes: list[str]) -> dict[str, Any]:
    from easybalance_sim.gate.verdict import ACCEPTED, EXIT_CODES, REJECTED

    report = replayed[0] if replayed else None
    judged = REJECTED if any(one.errors for one in lints) else report["verdict"]["status"] if report else REJECTED
    return {
        "status": READY if judged == ACCEPTED else NOT_READY,
        "exit_code": EXIT_CODES[judged],
        "lint": [one.to_dict() for one in lints],
        "replay": report,
        "notes": notes,
    }


def _headline(result: dict[str, Any]) -> str:
    """The verdict, and what stands in the way."""
    faulty = [one["file"] for one in result["lint"] if one["errors"]]
    reasons = [f"lint errors in {name}" for name in faulty]
    if result["replay"] and result["replay"]["verdict"]["status"] != "accepted":
        reasons.append(plan_words.verdict_line(result["replay"]["verdict"]))
    status = str(result["status"]).replace("_", " ").upper()
    return f"{status}: {'; '.join(reasons)}" if reasons else status


def _table(result: dict[str, Any], lints: list[Report]) -> str:
    parts = [filled(_headline(result)), *(lint.table(one) for one in lints)]
    return "\n\n".join([*parts, *([report_table.of_replay(result["replay"])] if result["replay"] else [])])
