"""Maps of vLLM's pull request #53022, and the models that tests write and read them for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim import exports
from easybalance_sim.exports import Exported
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.opening import opened
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument
from tests.plan_documents import placed_document

SCHEMA = "pr53022"
V4 = Deployment(
    ranks=2, experts=4, hidden_layers=6, moe_layers=(3, 4), mtp_layers=(6,), redundant=2, model="small-v4",
    model_type="deepseek_v4", groups=1,
)  # fmt: skip
"""Six layers, of which two are MoE layers, and a draft layer."""
FILLER = [0, 1, 2, 3, 0, 1]
FULL = replace(V4, hidden_layers=2, moe_layers=(0, 1), mtp_layers=(2,), schema=SCHEMA)
"""Two layers and a draft layer."""
TIGHT = replace(FULL, redundant=0, groups=2)
"""The same without redundant slots, its four experts in two groups."""
IT = "vLLM with PR #53022"


def write_map(document: PlanDocument, known: Deployment, output: Path) -> Exported:
    """The plan as such a map, with its sidecar."""
    return exports.load("vllm").write(document, known, output, SCHEMA)


def tight_document(rows: Sequence[Sequence[int]]) -> PlanDocument:
    """Layers 0, 1, … of four experts in four slots on two ranks."""
    plan = Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array([2, 2]), experts=4, policy="by hand")
    return placed_document(plan, range(len(rows)))


def linted(folder: Path, content: Any, known: Deployment) -> list[str]:
    """The findings as `level layer:slot message`."""
    path = folder / "map.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    module = exports.load("vllm")
    file = opened(path, module, known)
    found = module.check(file.file, file.deployment)
    places = ["-" if one.layer is None else f"{one.layer}:{'-' if one.slot is None else one.slot}" for one in found]
    return [f"{one.level} {place} {one.message}" for one, place in zip(found, places, strict=True)]
