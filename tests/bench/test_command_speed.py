"""`ebsim plan` on the sample trace: the first run on a machine, which compiles kernels, and those after it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ebsim_process import SAMPLE, environment

WARM_RUNS = 5


def seconds_of_plan(folder: Path, cache: Path) -> float:
    """Wall clock of the whole process."""
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "easybalance_sim", "plan", str(SAMPLE), "-o", "plan.json"],
        capture_output=True, check=False, timeout=600, cwd=folder, env=environment({"NUMBA_CACHE_DIR": str(cache)}),
    )  # fmt: skip
    assert done.returncode == 0
    return time.monotonic() - begin


@pytest.mark.bench
def test_first_and_later_plans(tmp_path: Path, publish: Callable[[str], None]) -> None:
    first, *later = (seconds_of_plan(tmp_path, tmp_path / "cache") for _ in range(1 + WARM_RUNS))
    publish(
        f"ebsim plan traces/tinymoe.parquet: first run {first:.1f} s, later runs {min(later):.2f} s "
        f"(of {WARM_RUNS}: {', '.join(f'{each:.2f}' for each in later)})"
    )
    assert min(later) < first
