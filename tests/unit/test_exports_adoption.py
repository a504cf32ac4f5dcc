from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from easybalance_sim import exports
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports.adoption import STATUS, adopt
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import lint_file, lint_plan
from easybalance_sim.plan.lint import Finding
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.engine_files import GOOD, ascend, halves, record, sglang, trtllm
from tests.plan_documents import example_plan, placed_document

KNOWN = Deployment(ranks=2, experts=4, hidden_layers=5, moe_layers=(3, 4), mtp_layers=(5,))
DENSE = [0, 1, 2, 3, 0, 1]


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("engine", "name", "text"),
    [
        ("sglang", "f.json", sglang([DENSE, DENSE, DENSE, *GOOD])),
        ("tensorrt-llm", "f.yaml", trtllm([DENSE, *GOOD], keys=(5, 3, 4))),
        ("vllm", "f.jsonl", record(GOOD)),
        ("vllm-ascend", "f.json", ascend(halves(GOOD))),
    ],
)
def test_the_moe_layers_of_the_model_become_the_plan(engine: str, name: str, text: str, tmp_path: Path) -> None:
    made = adopt(_file(tmp_path, name, text), engine, replace(KNOWN, model="example-moe"))
    assert made.notes == ()
    document = made.document
    assert [list(one.expert_of_slot) for one in document.layers] == GOOD
    assert (document.layer_ids, document.plan_slots_per_rank, document.experts) == ((3, 4), (3, 3), 4)
    assert (document.policy, document.model, document.dispatch) == ("adopted", "example-moe", "even")
    assert document.verdict == {"status": STATUS, "findings": []}
    assert document.evidence["adopted"]["file"] == name
    write_plan(tmp_path / "plan.json", document)
    assert read_plan(tmp_path / "plan.json") == document


def test_one_row_of_vllm_is_every_layer(tmp_path: Path) -> None:
    made = adopt(_file(tmp_path, "f.json", "[0, 1, 2, 3, 0, 1]"), "vllm", KNOWN)
    assert [one.expert_of_slot for one in made.document.layers] == [tuple(DENSE)] * 2


KEPT = (
    "draft (MTP) layer 5 is placed, too, and a layer of the plan: only a trace that has it can judge the plan "
    "(--layers without --model leaves it out)"
)
PLACED = [2, 1, 0, 3, 2, 0]


@pytest.mark.parametrize("schema", ["", "pr53022"])
def test_a_draft_layer_that_is_placed_is_a_layer_of_the_plan_and_comes_back(schema: str, tmp_path: Path) -> None:
    known = replace(KNOWN, model="small", model_type="deepseek_v4", schema=schema)
    engine, name = ("vllm", "f.json") if schema else ("tensorrt-llm", "f.yaml")
    rows = [DENSE, DENSE, DENSE, *GOOD, PLACED]
    path = _file(tmp_path, name, json.dumps(rows) if schema else trtllm(rows[3:], keys=(3, 4, 5)))
    made = adopt(path, engine, known)
    assert [(one.layer, list(one.expert_of_slot)) for one in made.document.layers] == [
        (3, GOOD[0]),
        (4, GOOD[1]),
        (5, PLACED),
    ]
    assert made.notes == (KEPT,)
    again = tmp_path / f"again{path.suffix}"
    exports.load(engine).write(made.document, known, again, schema)
    assert exports.load(engine).read(again).rows == exports.load(engine).read(path).rows
    named = Deployment(ranks=2, moe_layers=(3, 4), schema=schema)
    for file in (path, again):
        assert adopt(file, engine, named).document.layer_ids == (3, 4)


@pytest.mark.parametrize(
    ("engine", "name", "text"),
    [
        ("sglang", "f.json", sglang([DENSE, DENSE, DENSE, *GOOD, PLACED])),
        ("vllm", "f.json", json.dumps([*GOOD, PLACED])),
        ("vllm-ascend", "f.json", ascend(halves([*GOOD, PLACED]))),
        ("tensorrt-llm", "f.yaml", trtllm(GOOD, keys=(3, 4))),
    ],
)
def test_a_draft_row_that_no_engine_loads_or_that_is_not_there_is_left_out(
    engine: str, name: str, text: str, tmp_path: Path
) -> None:
    made = adopt(_file(tmp_path, name, text), engine, KNOWN)
    assert (made.document.layer_ids, made.notes) == ((3, 4), ())


def test_without_a_model_every_row_is_a_layer_and_that_is_said(tmp_path: Path) -> None:
    made = adopt(_file(tmp_path, "f.json", sglang(GOOD)), "sglang", Deployment(ranks=2))
    assert made.document.layer_ids == (0, 1)
    assert made.document.experts == 4
    assert made.notes == (
        "the model is not known: every row is taken for an MoE layer, ids 0 to 1 (say --model or --layers)",
    )


def test_ranks_are_said_or_listed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say how many ranks it is for — say --ranks"):
        adopt(_file(tmp_path, "f.json", sglang(GOOD)), "sglang", Deployment())
    made = adopt(_file(tmp_path, "g.json", ascend(halves(GOOD))), "vllm-ascend", Deployment(), ranks_per_node=1)
    assert made.document.topology.node_of_rank == (0, 1)


def test_a_layer_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = _file(tmp_path, "f.json", sglang(GOOD))
    with pytest.raises(PlanError, match="no row for MoE layer 3 — check --model or --layers"):
        adopt(path, "sglang", KNOWN)


def test_smaller_layers_are_filled_up_without_a_change_of_rank_loads(tmp_path: Path) -> None:
    made = adopt(_uneven(tmp_path / "p.npy"), "omni", Deployment(moe_layers=(7, 9)))
    assert [one.expert_of_slot for one in made.document.layers] == [(0, 1, 2, 0, 3), (0, 1, 0, 2, 3)]
    assert made.document.plan_slots_per_rank == (3, 2)
    assert made.notes == (
        "layers differ in slots: filled up with second copies on the same rank (1 in all), which leaves the load of "
        "every rank as deployed (`ebsim lint` warns of them, only an export for omni leaves them out)",
    )
    load = np.array([[8.0, 4, 2, 1], [8, 4, 2, 1]])
    plan = made.document.plan()
    of_slot = np.take_along_axis(load / plan.replicas, plan.expert_of_slot.astype(np.int64), axis=1)
    assert np.add.reduceat(of_slot, plan.slot_start[:-1], axis=1).tolist() == [[10.0, 5.0], [12.0, 3.0]]


def _uneven(path: Path) -> Path:
    """A pattern of two layers; the second one has one slot less, on rank 0."""
    pattern = np.zeros((2, 2, 4), np.int8)
    for layer, devices in enumerate([[[0, 1, 2], [0, 3]], [[0, 1], [2, 3]]]):
        for device, experts in enumerate(devices):
            pattern[device, layer, experts] = 1
    np.save(path, pattern)
    return path


def test_a_filler_is_a_warning_and_goes_no_further_than_the_plan(tmp_path: Path) -> None:
    adopted = adopt(_uneven(tmp_path / "p.npy"), "omni", Deployment(moe_layers=(7, 9))).document
    assert adopted.evidence["adopted"]["fillers"] == {"9": [2]}
    write_plan(tmp_path / "plan.json", adopted)
    (finding,) = [one for one in lint_plan(tmp_path / "plan.json").findings if one.layer is not None]
    assert finding == Finding(
        level="warning",
        message="expert 0 is already on rank 0 (slot 0): a filler of `ebsim adopt`, the deployed layer has fewer slots",
        layer=9,
        slot=2,
        rule="filler",
    )
    exports.load("omni").write(read_plan(tmp_path / "plan.json"), Deployment(), tmp_path / "again.npy", "")
    assert (np.load(tmp_path / "again.npy") == np.load(tmp_path / "p.npy")).all()


def test_a_plan_with_fillers_is_not_exported(tmp_path: Path) -> None:
    pattern = np.ones((2, 2, 4), np.int8)
    pattern[0, 1, 0] = pattern[1, 1, 1] = 0
    np.save(tmp_path / "p.npy", pattern)
    adopted = adopt(tmp_path / "p.npy", "omni", Deployment()).document
    with pytest.raises(PlanError) as refused:
        exports.load("vllm").write(adopted, Deployment(), tmp_path / "out", "")
    assert str(refused.value) == (
        "the deployed layers differ in slots, `ebsim adopt` filled 1 of them up: vLLM wants the same slots in every "
        "layer — make a plan from it (`ebsim plan --current`)"
    )
    assert not (tmp_path / "out").exists()


def test_a_double_that_is_no_filler_stays_an_error(tmp_path: Path) -> None:
    plan = Plan(expert_of_slot=np.array([[0, 0, 1, 2]]), slots_per_rank=np.array([2, 2]), experts=3, policy="p")
    document = placed_document(plan, (3,))
    document = msgspec.structs.replace(document, evidence={"adopted": {"fillers": {"3": [3]}}})
    write_plan(tmp_path / "plan.json", document)
    assert [one.level for one in lint_plan(tmp_path / "plan.json").findings] == ["error"]


def test_nodes_that_are_assumed_are_said(tmp_path: Path) -> None:
    path = _file(tmp_path, "f.json", sglang([[*range(12)]]))
    note = "8 ranks per node are assumed (say --ranks-per-node)"
    assert note in adopt(path, "sglang", Deployment(ranks=12)).notes
    assert note not in adopt(path, "sglang", Deployment(ranks=12), ranks_per_node=4).notes
    known = adopt(path, "sglang", Deployment(ranks=12, node_of_rank=(0, 1) * 6))
    assert (known.document.topology.node_of_rank, note in known.notes) == ((0, 1) * 6, False)


def test_an_exported_file_is_adopted_by_what_its_sidecar_says(tmp_path: Path) -> None:
    known = replace(KNOWN, model="example-moe")
    for engine, name in (("sglang", "f.json"), ("tensorrt-llm", "f.yaml"), ("vllm", "folder"), ("omni", "f.npz")):
        document = placed_document(example_plan(), (3, 4))
        exports.load(engine).write(document, known, tmp_path / name, "")
        made = adopt(tmp_path / name, engine, Deployment())
        assert (made.document.layer_ids, made.document.model, made.notes) == ((3, 4), "example-moe", ())
        assert lint_file(tmp_path / name, engine, Deployment()).findings == ()


def test_a_rank_without_slots_is_refused_with_the_file(tmp_path: Path) -> None:
    pattern = np.zeros((2, 1, 4), np.int8)
    pattern[0] = 1
    np.save(tmp_path / "p.npy", pattern)
    with pytest.raises(PlanError) as refused:
        adopt(tmp_path / "p.npy", "omni", Deployment())
    assert str(refused.value) == f"{tmp_path / 'p.npy'}: every rank must have at least one slot"


def test_a_rank_that_serves_nobody_alone_cannot_be_filled_up(tmp_path: Path) -> None:
    pattern = np.zeros((2, 2, 4), np.int8)
    for layer, devices in enumerate([[[0, 1, 2], [0, 3]], [[0, 1], [0, 1, 2, 3]]]):
        for device, experts in enumerate(devices):
            pattern[device, layer, experts] = 1
    np.save(tmp_path / "p.npy", pattern)
    with pytest.raises(PlanError, match="layer 1: rank 0 has 2 slots here and 3 in other layers, and serves no expert"):
        adopt(tmp_path / "p.npy", "omni", Deployment())
