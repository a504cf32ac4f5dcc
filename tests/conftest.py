"""What the run says at its end: how many parity cases every rung went through, also with tests in many processes."""

from __future__ import annotations

import pytest

PARITY = "parity"
"""Property under which a test records what it went through."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, []))
    lines = [str(value) for report in reports for name, value in report.user_properties if name == PARITY]
    if lines:
        terminalreporter.section("parity")
        for line in sorted(set(lines)):
            terminalreporter.line(line)
