"""A history of three plans and a way back, that tests start from."""

from __future__ import annotations

from pathlib import Path

import msgspec

from easybalance_sim.plan.history import add, roll_back
from easybalance_sim.plan.planfile import PlanDocument, write_plan
from tests.plan_documents import example_document


def plan_files(folder: Path, count: int) -> list[Path]:
    """`count` plan files, each made to replace the one before."""
    paths, before = [], None
    for number in range(1, count + 1):
        document: PlanDocument = msgspec.structs.replace(example_document(before), policy=f"policy {number}")
        path = folder / f"plan{number}.json"
        write_plan(path, document)
        paths.append(path)
        before = document
    return paths


def write_history(folder: Path) -> list[Path]:
    """Records 1 to 4 of `folder / "history"`: three plans, then back to the second. Returns the plan files."""
    plans, history = plan_files(folder, 3), folder / "history"
    for plan in plans:
        add(history, plan, f"note on {plan.name}")
    roll_back(history, 2, folder / "back.json")
    return plans
