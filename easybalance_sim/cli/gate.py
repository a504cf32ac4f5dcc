"""`ebsim gate`: judge a saved report again, under other criteria or in CI."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from easybalance_sim.gate.verdict import Finding, Verdict


class Format(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


def gate(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="What `ebsim plan --format json` printed.")],
    criteria: Annotated[
        Path | None, typer.Option("--criteria", metavar="FILE.toml", help="Limits that replace the defaults.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the verdict.")] = Format.TABLE,
) -> None:
    """Judge a report of `ebsim plan` or `ebsim replay` and say so with the exit code.

    Exit 0 accepted, 1 rejected, 3 insufficient evidence, 2 when the report or the criteria cannot be read.

    Example: ebsim gate report.json --criteria strict.toml
    """
    from easybalance_sim.gate.criteria import load_criteria
    from easybalance_sim.gate.judge import judge

    verdict = judge(_read_report(report), load_criteria(criteria))
    typer.echo(_as_json(verdict) if format is Format.JSON else _as_table(verdict))
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
    return report


def _as_json(verdict: Verdict) -> str:
    return json.dumps(verdict.to_dict(), indent=2)


def _as_table(verdict: Verdict) -> str:
    rows = [("", "criterion", "limit", "observed", "note"), *(_row(finding) for finding in verdict.findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join([*map(str.ljust, row[:4], widths), row[4]]).rstrip() for row in rows]
    return "\n".join([f"verdict: {verdict.status}", *lines])


def _row(finding: Finding) -> tuple[str, str, str, str, str]:
    observed = "–" if finding.observed is None else f"{finding.observed:.4g}"
    return "ok" if finding.ok else "NO", finding.criterion, f"{finding.limit:g}", observed, finding.note
