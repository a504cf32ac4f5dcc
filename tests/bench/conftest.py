"""Benchmarks print their rows; with EBSIM_BENCH_WRITE=1 they also replace those in reports/benchmarks.md."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.report_rows import with_rows

REPORT = Path(__file__).parents[2] / "reports" / "benchmarks.md"
_said: dict[str, list[str]] = {}


@pytest.fixture
def publish(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints rows past pytest's capture, and keeps them for the report."""
    name = f"{request.path.stem}::{request.function.__name__}"

    def say(text: str) -> None:
        _said.setdefault(name, []).append(text)
        with capsys.disabled():
            print(f"\n{text}", flush=True)

    return say


def pytest_sessionfinish() -> None:
    """Every benchmark that ran has its own place in the report."""
    if os.environ.get("EBSIM_BENCH_WRITE") and _said:
        REPORT.write_text(with_rows(REPORT.read_text(encoding="utf-8"), _said), encoding="utf-8")
