"""A report as text for people: verdict first, then plan against baseline, then the findings of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.console import Console
from easybalance_sim.cli.layout import aligned, filled, kept, noted, wrapped
from easybalance_sim.cli.memory_table import of_memory
from easybalance_sim.cli.stress_table import of_stress
from easybalance_sim.gate.verdict import NOT_JUDGED
from easybalance_sim.report import plan_words


def of_plan(report: Mapping[str, Any]) -> str:
    """The table that `ebsim plan` prints."""
    return "\n\n".join(
        [
            _headline(report, plan_words.written(_path_kept(report))),
            _comparison(report),
            of_memory(report["memory"]),
            _candidates(report),
            *of_stress(report),
            of_findings(report["verdict"]),
        ]
    )


def of_replay(report: Mapping[str, Any]) -> str:
    """The table that `ebsim replay` prints."""
    parts = [_headline(report, kept(report["plan_file"])), _comparison(report), of_memory(report["memory"])]
    return "\n\n".join([*parts, *of_stress(report), of_findings(report["verdict"])])


def of_findings(verdict: Mapping[str, Any]) -> str:
    """One line per criterion of a `verdict` section, its note beneath."""
    rows = [("", "criterion", "limit", "observed"), *map(_finding, verdict["findings"])]
    return noted(rows, ["", *(finding["note"] for finding in verdict["findings"])], left=4)


def _finding(finding: Mapping[str, Any]) -> tuple[str, str, str, str]:
    # What was not judged is ok for the verdict, but a reader would take the word for a limit that was kept.
    mark = "–" if finding["note"].startswith(NOT_JUDGED) else "ok" if finding["ok"] else "NO"
    limit, observed = (plan_words.judged_value(finding["criterion"], finding[key]) for key in ("limit", "observed"))
    return mark, finding["criterion"], limit, observed


def warn_of_first_run(console: Console, takes: str = "some 10 seconds") -> None:
    """Say so when the kernels will have to be compiled, which takes time: once, or always without a cache."""
    from easybalance_sim import kernels

    if not kernels.keeps_compiled():
        console.note(f"compiling kernels, {takes} in every run: set NUMBA_CACHE_DIR to a folder that can be written")
    elif not kernels.compiled_before():
        console.note(f"first run: compiling kernels, {takes}, once")


def _path_kept(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report, no line to end inside the plan file's path."""
    return {**report, "plan_file": report["plan_file"] and kept(report["plan_file"])}


def _headline(report: Mapping[str, Any], place: str) -> str:
    lines = [
        f"{plan_words.verdict_line(report['verdict'])}: {report['plan']['policy']}, {place}",
        *plan_words.no_time_gained(report),
        plan_words.ground(report),
        *plan_words.left_empty(report),
        plan_words.judged_on(report),
    ]
    seconds = [*plan_words.seconds_label(report), report["cost"]["communication"]]
    blanks = " " * len("seconds: ")
    lines = [line for text in lines for line in wrapped(text)]
    for number, text in enumerate(seconds):
        lines += wrapped(text, first=blanks if number else "seconds: ", then=blanks)
    return "\n".join(lines)


def _comparison(report: Mapping[str, Any]) -> str:
    before, after = report["baseline"], report["plan"]
    rows = [("", "baseline", "plan", "change"), *plan_words.comparison(report)]
    names = f"baseline: {before['policy']} · plan: {after['policy']}"
    below = (plan_words.room(report), *plan_words.promise(report), plan_words.migration(report["migration"]))
    return "\n".join([filled(names), aligned(rows), *map(filled, below)])


def _candidates(report: Mapping[str, Any]) -> str:
    """The candidates, → the chosen one, and what the columns mean."""
    head, *rows = plan_words.candidates(report)
    marked = [("", *head)]
    marked += [
        ("→" if row[0].removesuffix(plan_words.ON_FRONT) == report["plan"]["policy"] else "", *row) for row in rows
    ]
    return "\n".join([aligned(marked, left=2), *map(filled, plan_words.candidate_legend(report))])
