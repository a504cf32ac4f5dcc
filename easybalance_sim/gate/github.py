"""Checks as GitHub Actions shows them: annotations and a job summary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from easybalance_sim.errors import UsageError
from easybalance_sim.gate.checks import ERROR, FAILED, PASSED, SKIPPED, WARNED, Check

SUMMARY = "GITHUB_STEP_SUMMARY"
"""The environment variable that names the file to which a step appends its summary."""

SHOWN = 10
"""Annotations of a level that GitHub keeps of one step; the last says how many there are beyond."""

_COMMANDS = {ERROR: "error", FAILED: "error", WARNED: "warning"}
_MARKS = {PASSED: "ok", WARNED: ":warning:", SKIPPED: "–", FAILED: ":x:", ERROR: ":x:"}


def workflow_commands(checks: Sequence[Check]) -> list[str]:
    """The workflow commands, one line each: errors for what blocks, warnings for what does not.

    Source of the form: GitHub's page on workflow commands; of the escapes: actions/toolkit, `command.ts`.
    """
    lines = []
    for command in ("error", "warning"):
        level = [check for check in checks if _COMMANDS.get(check.outcome) == command]
        cut = len(level) > SHOWN
        kept = level[: SHOWN - 1] if cut else level
        lines += [_annotation(command, check) for check in kept]
        if cut:
            lines.append(f"::{command} title=ebsim::{len(level) - len(kept)} more, in the job summary")
    return lines


def summary(title: str, checks: Sequence[Check]) -> str:
    """Markdown: the verdict as a heading, a table per suite, what blocks first."""
    parts = [f"### {':x:' if _blocks(checks) else ':white_check_mark:'} {_cell(title)}"]
    for suite in dict.fromkeys(check.suite for check in checks):
        own = [check for check in checks if check.suite == suite]
        parts.append(f"**{_cell(suite)}**\n\n{_table(sorted(own, key=lambda check: not _blocks([check])))}")
    return "\n\n".join(parts) + "\n"


def append_summary(text: str) -> bool:
    """Append to the file that GitHub names, in one write; False where there is none.

    Raises `UsageError` when it cannot be written.
    """
    named = os.environ.get(SUMMARY)
    if not named:
        return False
    try:
        with Path(named).open("ab", buffering=0) as stream:
            stream.write(f"{text}\n".encode())
    except OSError as error:
        raise UsageError(f"cannot append: {error.strerror}", where=named, fix=f"check {SUMMARY}") from error
    return True


def _blocks(checks: Sequence[Check]) -> bool:
    return any(check.outcome in (FAILED, ERROR) for check in checks)


def _table(checks: Sequence[Check]) -> str:
    rows = ["| | check | limit | observed | |", "|---|---|---:|---:|---|"]
    for check in checks:
        cells = (_MARKS[check.outcome], f"`{check.name}`", check.limit, check.observed, check.message)
        rows.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """Text that can neither end a cell nor begin a tag."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _annotation(command: str, check: Check) -> str:
    numbers = [f"{name} {fact}" for name, fact in (("limit", check.limit), ("observed", check.observed)) if fact]
    text = ", ".join([*([check.message] if check.message else []), *numbers]) or check.name
    properties = [f"title={_property(f'ebsim {check.suite}: {check.name}')}"]
    # Only a path in the repository can be linked.
    if check.file and not Path(check.file).is_absolute():
        properties.insert(0, f"file={_property(check.file)}")
    return f"::{command} {','.join(properties)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
