"""`ebsim gate`: judge a saved report again, under other criteria or in CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import options, report_table
from easybalance_sim.cli.ci_outputs import CiOutputs, Github, Junit
from easybalance_sim.cli.console import Format, emit
from easybalance_sim.cli.layout import filled
from easybalance_sim.json_text import json_text
from easybalance_sim.report import plan_words


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
    from easybalance_sim.gate.reading import read_report

    ci = CiOutputs(command="gate", junit=junit, github=github)
    with ci.telling(report, *([criteria] if criteria else [])):
        verdict = judge(read_report(report), load_criteria(criteria))
    content = verdict.to_dict()
    ci.tell(plan_words.verdict_line(content), of_verdict(verdict, str(report)))
    table = f"{filled(plan_words.verdict_line(content))}\n\n{report_table.of_findings(content)}"
    emit(json_text(content) if format is Format.JSON else table)
    raise typer.Exit(verdict.exit_code)
