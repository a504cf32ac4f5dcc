"""`--metrics FILE`: the figures of a report for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def require(path: Path | None, keep: Sequence[Path]) -> None:
    """Before a run: raise `UsageError` where the file could not be put, or would take the place of one of `keep`."""
    from easybalance_sim.files import require_place

    if path is not None:
        require_place(path, keep, flag="--metrics")


def write(path: Path | None, report: Mapping[str, Any]) -> None:
    """Write the figures of a report, if there is a file to write."""
    if path is not None:
        from easybalance_sim.report.metrics import write_metrics

        write_metrics(path, report)
