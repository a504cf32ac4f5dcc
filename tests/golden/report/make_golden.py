"""Writes the data of every figure of plan.json's page beside it: python -m tests.golden.report.make_golden

plan.json: ebsim plan traces/tinymoe.parquet --ranks 16 --ranks-per-node 8 --split request --stress --format json
(without its `timing_s`).
"""

from __future__ import annotations

import json
from pathlib import Path

from easybalance_sim.report.content import MadeBy, Page
from easybalance_sim.report.pages import page_of

FOLDER = Path(__file__).parent


def golden_page() -> Page:
    """The page of plan.json."""
    document = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))
    return page_of(document, MadeBy(command="ebsim plan", versions={"ebsim": "any"}))


def main() -> None:
    """One CSV file per figure; those of figures that are gone go."""
    for old in FOLDER.glob("*.csv"):
        old.unlink()
    for figure in golden_page().figures():
        (FOLDER / f"{figure.name}.csv").write_text(figure.chart.table().csv(), encoding="utf-8")


if __name__ == "__main__":
    main()
