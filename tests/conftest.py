"""How tests are shared among processes, and what the run says at its end: how many parity cases every rung went
through."""

from __future__ import annotations

from typing import Any

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With -n each process begins with one half of the tests and takes from the others at its end: what the tests of a
    file share is made once, and not in every process, as with the small portions of the usual way."""
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None
