"""`ebsim gate`: judge a saved report again, under other criteria or in CI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from easybalance_sim.cli import options, report_table
from easybalance_sim.cli.ci_outputs import CiOutputs, Github, Junit
from easybalance_sim.cli.console import Format, emit


def gate(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="What `ebsim plan --format json` printed.")],
    criteria: options.Criteria = None,
    junit: Junit = None,
    github: Github = False,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Judge a report of `ebsim plan` or `ebsim replay` and say so with the exit code.

    Exit 0 accepted, 1 rejected, 3 insufficient evidence, 2 when the report or the criteria cannot be read.

    \b
    Example: ebsim gate report.json --criteria strict.toml

    \b
    Example: ebsim gate report.json --junit gate.xml --github
    """
    from easybalance_sim.gate.checks import of_verdict
    from easybalance_sim.gate.criteria import load_criteria
    from easybalance_sim.gate.judge import judge

    ci = CiOutputs(command="gate", junit=junit, github=github)
    with ci.telling(report, *([criteria] if criteria else [])):
        verdict = judge(_read_report(report), load_criteria(criteria))
    content = verdict.to_dict()
    ci.tell(report_table.verdict_line(content), of_verdict(verdict, str(report)))
    table = f"{report_table.verdict_line(content)}\n\n{report_table.of_findings(content)}"
    emit(json.dumps(content, indent=2) if format is Format.JSON else table)
    raise typer.Exit(verdict.exit_code)


def _read_report(path: Path) -> dict[str, Any]:
    from easybalance_sim.errors import CriteriaError

    fix = "give what `ebsim plan --format json` printed"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CriteriaError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except (ValueError, RecursionError) as error:
        raise CriteriaError(f"not JSON: {error}", where=str(path), fix=fix) from error
    if not isinstance(report, dict):
        raise CriteriaError("the file holds no JSON object", where=str(path), fix=fix)
    if report.get("lossy") is True:
        raise CriteriaError("holds lossy router settings, which no gate judges", where=str(path), fix=fix)
    return report
