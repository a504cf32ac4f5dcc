"""Any plan, written for any engine in any of its formats, is read back as the same placement with nothing to report."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim import exports
from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import lint_file
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument
from tests.plan_documents import placed_document

FORMATS = {
    "sglang": {("", ".json"), ("", ".pt")},
    "tensorrt-llm": {("", ".yaml"), ("", ".yml")},
    "vllm": {("plugin", ""), ("pr41141", ".jsonl"), ("pr49572", ".json"), ("pr53022", ".json")},
    "vllm-ascend": {("", ".json")},
    "omni": {("", ".npy"), ("", ".npz")},
}
CASES = sorted((engine, schema, suffix) for engine, formats in FORMATS.items() for schema, suffix in formats)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, tuple[int, ...], int]:
    """A plan without an expert twice on a rank, the ids of its layers, and how many layers the model has."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    experts, ranks = draw(st.integers(1, 12)), draw(st.integers(2, 6))
    each = draw(st.integers(-(-experts // ranks), experts))
    layers = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=4)))
    rows = [_row(rng, experts, ranks, each) for _ in layers]
    plan = Plan(expert_of_slot=np.array(rows), slots_per_rank=np.full(ranks, each), experts=experts, policy="random")
    return plan, tuple(layers), layers[-1] + 1 + draw(st.integers(0, 2))


def _row(rng: np.random.Generator, experts: int, ranks: int, each: int) -> list[int]:
    slots = rng.permutation(ranks * each)
    held: list[dict[int, int]] = [{} for _ in range(ranks)]
    for expert, slot in enumerate(slots[:experts]):
        held[slot // each][int(slot)] = expert
    for slot in slots[experts:]:
        here = held[slot // each]
        here[int(slot)] = int(rng.choice(sorted(set(range(experts)) - set(here.values()))))
    return [held[slot // each][slot] for slot in range(ranks * each)]


def test_every_format_of_every_engine_is_tried() -> None:
    assert set(FORMATS) == set(exports.names())
    for name, formats in FORMATS.items():
        module = exports.load(name)
        assert {suffix for _, suffix in formats} == set(module.SUFFIXES)
        assert {schema for schema, _ in formats} == set(module.SCHEMAS or ("",))


@pytest.mark.parametrize(("engine", "schema", "suffix"), CASES)
@settings(max_examples=10, deadline=None)
@given(case=plans())
def test_written_and_read_back(engine: str, schema: str, suffix: str, case: tuple[Plan, tuple[int, ...], int]) -> None:
    if suffix == ".pt" and find_spec("torch") is None:
        pytest.skip(".pt files need PyTorch, which is not installed")
    plan, layers, hidden = case
    deployment = Deployment(
        ranks=plan.ranks,
        experts=plan.experts,
        hidden_layers=hidden,
        moe_layers=layers,
        redundant=plan.redundant_slots,
        model_type="deepseek_v4",
        groups=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"plan{suffix}"
        document = placed_document(plan, layers)
        files = exports.load(engine).write(document, deployment, path, schema).files
        assert sorted(Path(folder).iterdir()) == sorted(files)
        assert lint_file(path, engine, deployment).findings == ()
        assert _placed(adopt(path, engine, deployment).document, engine) == _placed(document, engine)


def _placed(document: PlanDocument, engine: str) -> list[tuple[int, list[list[int]]]]:
    """The experts of each rank in each layer; by rising id for the one format that has no slots."""
    plan = document.plan()
    ranks = np.split(plan.expert_of_slot, plan.slot_start[1:-1], axis=1)
    ordered = [np.sort(rank) if engine == "omni" else rank for rank in ranks]
    return [(layer, [rank[row].tolist() for rank in ordered]) for row, layer in enumerate(document.layer_ids)]
