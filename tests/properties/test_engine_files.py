"""Placement files that were damaged anywhere end in findings or one line, never in a traceback or a partial output."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim import exports
from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import lint_file
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, document, read_plan
from tests.ebsim_process import ebsim_here, one_line
from tests.engine_files import GOOD, ascend, halves, record, sglang, trtllm
from tests.plan_documents import example_trace


def _array(save: Callable[..., None]) -> bytes:
    pattern = np.zeros((2, 2, 4), np.int8)
    for layer, row in enumerate([[[0, 1, 2], [0, 1, 3]], [[0, 1, 2], [0, 2, 3]]]):
        for device, experts in enumerate(row):
            pattern[device, layer, experts] = 1
    stream = io.BytesIO()
    save(stream, pattern)
    return stream.getvalue()


WHOLE = {
    ("sglang", "f.json"): sglang(GOOD).encode(),
    ("tensorrt-llm", "f.yaml"): trtllm(GOOD).encode(),
    ("vllm", "f.jsonl"): record(GOOD).encode(),
    ("vllm", "f.json"): json.dumps(GOOD).encode(),
    ("vllm", "map.json"): json.dumps(GOOD).encode(),
    ("vllm-ascend", "f.json"): ascend(halves(GOOD)).encode(),
    ("omni", "f.npy"): _array(np.save),
    ("omni", "f.npz"): _array(np.savez),
}
IN_JSON = {kind: text for kind, text in WHOLE.items() if kind[0] not in ("omni", "tensorrt-llm")}
SCHEMA = {"map.json": ("--schema", "pr53022")}
FLAGS = ("--ranks", "2", "--experts", "4", "--layers", "0-1")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**19), 10**19) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _end_well(engine: str, name: str, content: bytes, said: tuple[str, ...] = FLAGS) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder) / name, Path(folder) / "plan.json"
        path.write_bytes(content)
        schema = SCHEMA.get(name, ())
        linted = ebsim_here("lint", path, "--engine", engine, *said[:4], *schema, "--format", "json")
        adopted = ebsim_here("adopt", engine, path, "-o", output, *said, *schema)
        assert linted.returncode in (0, 1, 2), linted.stderr
        assert adopted.returncode in (0, 1, 2), adopted.stderr
        if linted.returncode == 2:
            assert one_line(linted) and adopted.returncode == 2
        else:
            assert (linted.returncode == 1) == (json.loads(linted.stdout)["errors"] > 0)
        assert sorted(file.name for file in Path(folder).iterdir()) == (
            [name, "plan.json"] if adopted.returncode == 0 else [name]
        )
        if adopted.returncode == 0:
            assert read_plan(output).verdict["status"] == "not judged"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_bytes(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(WHOLE)))
    content = bytearray(WHOLE[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        how = data.draw(st.sampled_from(["set", "cut", "insert", "delete"]))
        some = data.draw(st.binary(min_size=1, max_size=3))
        if how == "cut":
            del content[at:]
        elif how == "delete":
            del content[at : at + len(some)]
        else:
            content[at : at + (len(some) if how == "set" else 0)] = some
    _end_well(*kind, bytes(content))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_structure(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(IN_JSON)))
    content = json.loads(IN_JSON[kind])
    for _ in range(data.draw(st.integers(1, 2))):
        content = _mutated(content, data)
    _end_well(*kind, json.dumps(content).encode())


@settings(max_examples=20, deadline=None)
@given(rows=JSON, slots=JSON)
def test_any_value_in_a_balancer_file(rows: Any, slots: Any) -> None:
    content = {"num_slots": slots, "initial_global_assignments": {0: rows, 1: GOOD[1]}}
    text = json.dumps(content)
    _end_well("tensorrt-llm", "f.yaml", text.replace('"0":', "0:").replace('"1":', "1:").encode())


def _mutated(value: Any, data: st.DataObject) -> Any:
    """The value with one node, anywhere in it, replaced, repeated or left out."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 4)) == 0:
        return data.draw(JSON)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = data.draw(st.sampled_from(keys))
    how = data.draw(st.sampled_from(["inside", "inside", "drop", "repeat"]))
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if how == "drop":
        del copy[key]
    elif how == "repeat" and isinstance(copy, list):
        copy.insert(key, copy[key])
    elif how == "repeat":
        copy[data.draw(st.text(max_size=4))] = copy[key]
    else:
        copy[key] = _mutated(copy[key], data)
    return copy


@st.composite
def clean_documents(draw: st.DrawFn) -> PlanDocument:
    """Plans that every engine can hold: equal ranks, every expert served, none twice on a rank."""
    ranks, layers = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    experts = draw(st.integers(ranks, 12))
    slots = draw(st.integers(-(-experts // ranks), experts))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = np.array([_row(ranks, slots, experts, rng) for _ in range(layers)])
    first = draw(st.integers(0, 2))
    return document(
        Plan(expert_of_slot=rows, slots_per_rank=np.full(ranks, slots), experts=experts, policy="drawn"),
        layer_ids=range(first, first + layers),
        topology=uniform(ranks, 8, slots),
        trace=example_trace(),
        dispatch="even",
        evidence={},
        verdict={"status": "accepted", "findings": []},
        migration={},
    )


def _row(ranks: int, slots: int, experts: int, rng: np.random.Generator) -> IntArray:
    """Experts dealt round the ranks, then each rank filled up with others."""
    dealt = rng.permutation(experts)
    row = []
    for rank in range(ranks):
        own = dealt[rank::ranks]
        others = rng.permutation(np.setdiff1d(np.arange(experts), own))
        row.append(rng.permutation(np.concatenate([own, others])[:slots]))
    return np.concatenate(row).astype(np.int64)


@settings(max_examples=40, deadline=None)
@given(
    doc=clean_documents(),
    kind=st.sampled_from(
        [
            ("sglang", "f.json", ""),
            ("tensorrt-llm", "f.yaml", ""),
            ("vllm-ascend", "f.json", ""),
            ("vllm", "f.jsonl", "pr41141"),
            ("vllm", "f.json", "pr49572"),
            ("vllm", "f.json", "pr53022"),
            ("vllm", "folder", "plugin"),
            ("omni", "f.npz", ""),
        ]
    ),
)
def test_an_exported_plan_is_clean_and_adopted_as_it_was(doc: PlanDocument, kind: tuple[str, str, str]) -> None:
    engine, name, schema = kind
    module = exports.load(engine)
    known = Deployment(
        ranks=doc.topology.ranks,
        experts=doc.experts,
        hidden_layers=doc.layer_ids[-1] + 2,
        moe_layers=doc.layer_ids,
        redundant=doc.plan().redundant_slots,
        model_type="deepseek_v4",
        groups=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        module.write(doc, known, path, schema)
        assert lint_file(path, engine, known).findings == ()
        again = adopt(path, engine, known).document
    if engine == "omni":
        places = doc.topology.ranks, -1
        assert _sorted(again, *places) == _sorted(doc, *places)
    else:
        assert again.layers == doc.layers
    assert again.plan_slots_per_rank == doc.plan_slots_per_rank


def _sorted(doc: PlanDocument, ranks: int, slots: int) -> list[list[list[int]]]:
    return [np.sort(np.reshape(one.expert_of_slot, (ranks, slots)), axis=1).tolist() for one in doc.layers]
