"""What the files of each engine hold, to the byte where another program's example exists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from easybalance_sim import exports
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports import Exported
from easybalance_sim.exports.deployment import with_sidecar
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.sidecar import read_sidecar, sidecar_of
from easybalance_sim.plan.plan import Plan
from tests.ebsim_process import DATA
from tests.plan_documents import example_document, example_plan, placed_document

EXAMPLES = DATA.parent / "engine_examples"
FROM_0 = placed_document(example_plan(), (0, 1))
KNOWN = Deployment(ranks=2, experts=4, hidden_layers=6, moe_layers=(3, 4), mtp_layers=(6,), redundant=2)
FILES = [
    ("sglang", "", "sglang_init_expert_location.json"),
    ("tensorrt-llm", "", "trtllm_moe_load_balancer.yaml"),
    ("vllm-ascend", "", "vllm_ascend_expert_map.json"),
    ("vllm", "pr41141", "vllm_pr41141_initial_mapping.jsonl"),
    ("vllm", "pr49572", "vllm_pr49572_initial_expert_map.json"),
]


def _write(engine: str, output: Path, schema: str = "", known: Deployment = KNOWN) -> Exported:
    return exports.load(engine).write(example_document(), known, output, schema)


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="needs the engines' examples at ../shared/engine_examples")
@pytest.mark.parametrize(("engine", "schema", "name"), FILES)
def test_the_same_bytes_as_the_example_of_the_engine(engine: str, schema: str, name: str, tmp_path: Path) -> None:
    deployment = Deployment(ranks=2, experts=4, hidden_layers=2, moe_layers=(0, 1), redundant=2)
    exports.load(engine).write(FROM_0, deployment, tmp_path / name, schema)
    assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes()


def test_sglang_has_a_row_for_every_layer_and_nothing_else(tmp_path: Path) -> None:
    written = _write("sglang", tmp_path / "a.json")
    filler = [0, 1, 2, 3, 0, 1]
    rows = [filler, filler, filler, [0, 1, 2, 3, 0, 1], [0, 2, 1, 3, 2, 0], filler]
    assert json.loads((tmp_path / "a.json").read_text()) == {"physical_to_logical_map": rows}
    assert written.launch == (
        "--tp-size 2 --ep-size 2 --moe-a2a-backend deepep",
        f"--init-expert-location {tmp_path / 'a.json'} --ep-num-redundant-experts 2",
        "--ep-dispatch-algorithm static",
    )


def test_sglang_dispatch_is_the_one_that_the_plan_was_judged_under(tmp_path: Path) -> None:
    document = placed_document(example_plan(), (3, 4), dispatch="sglang-dynamic")
    written = exports.load("sglang").write(document, KNOWN, tmp_path / "a.json", "")
    assert written.launch[-1] == "--ep-dispatch-algorithm dynamic"
    assert not any("none of SGLang's rules" in note for note in written.notes)


def test_sglang_must_know_the_number_of_layers(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="how many there are is not known — pass --model, or --hidden-layers"):
        _write("sglang", tmp_path / "a.json", known=Deployment())
    with pytest.raises(PlanError, match="the plan has layer 4, the model 4 layers"):
        _write("sglang", tmp_path / "a.json", known=Deployment(hidden_layers=4))
    assert list(tmp_path.iterdir()) == []


def test_sglang_does_not_place_mtp_layers(tmp_path: Path) -> None:
    written = _write("sglang", tmp_path / "a.json", known=Deployment(hidden_layers=4, moe_layers=(3,), mtp_layers=(4,)))
    assert len(json.loads((tmp_path / "a.json").read_text())["physical_to_logical_map"]) == 4
    assert "MTP layer 4 is left out: SGLang does not place draft models" in written.notes


def test_tensorrt_llm_has_absolute_layers_with_mtp_and_is_static(tmp_path: Path) -> None:
    written = _write("tensorrt-llm", tmp_path / "a.yaml")
    assert yaml.safe_load((tmp_path / "a.yaml").read_text()) == {
        "num_slots": 6,
        "layer_updates_per_iter": 0,
        "initial_global_assignments": {3: [0, 1, 2, 3, 0, 1], 4: [0, 2, 1, 3, 2, 0], 6: [0, 1, 2, 3, 0, 1]},
    }
    assert any(note.startswith("MTP layer 6 is not in the plan") for note in written.notes)
    options = yaml.safe_load("\n".join(written.launch[1:]))
    assert options == {"enable_attention_dp": True, "moe_config": {"load_balancer": str(tmp_path / "a.yaml")}}


def test_tensorrt_llm_keeps_an_mtp_row_of_the_plan(tmp_path: Path) -> None:
    _write("tensorrt-llm", tmp_path / "a.yaml", known=replace(KNOWN, moe_layers=(3,), mtp_layers=(4,)))
    rows = yaml.safe_load((tmp_path / "a.yaml").read_text())["initial_global_assignments"]
    assert rows == {3: [0, 1, 2, 3, 0, 1], 4: [0, 2, 1, 3, 2, 0]}


def _flag(launch: tuple[str, ...], name: str) -> Any:
    """The JSON that a flag carries."""
    line = next(line for line in launch if line.startswith(f"{name} "))
    return json.loads(line.removeprefix(f"{name} ").strip("'"))


def test_flags_of_the_vllm_family(tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    ascend = _write("vllm-ascend", tmp_path / "a.json").launch
    assert ascend[0] == "--enable-expert-parallel"
    assert _flag(ascend, "--additional-config") == {
        "eplb_config": {"expert_map_path": path, "num_redundant_experts": 2}
    }
    listed = _write("vllm", tmp_path / "a.json", "pr49572").launch
    assert listed[0] == "--enable-expert-parallel --enable-eplb"
    assert _flag(listed, "--eplb-config") == {"num_redundant_experts": 2, "initial_expert_map_path": path}
    record = _write("vllm", tmp_path / "a.jsonl", "pr41141").launch
    assert _flag(record, "--eplb-config") == {
        "num_redundant_experts": 2,
        "initial_mapping_path": str(tmp_path / "a.jsonl"),
        "disable_online_rebalancing": True,
    }
    plugin = _write("vllm", tmp_path / "plugin").launch
    assert plugin[0] == f"pip install {tmp_path / 'plugin'}"
    assert _flag(plugin, "--eplb-config") == {"num_redundant_experts": 2}


@pytest.mark.parametrize(
    ("engine", "schema", "name"),
    [*FILES, ("omni", "", "a.npz"), ("vllm", "plugin", "folder"), ("vllm", "pr53022", "a.json")],
)
def test_the_sidecar_holds_the_plan_its_evidence_and_the_checksum(
    engine: str, schema: str, name: str, tmp_path: Path
) -> None:
    output, document = tmp_path / name, example_document()
    assert _write(engine, output, schema).files == (output, sidecar_of(output))
    first = sidecar_of(output).read_bytes()
    said = json.loads(first)
    assert (said["fingerprint"], said["evidence"]) == (document.fingerprint(), document.evidence)
    assert (said["engine"], said["schema"], said["verdict"]["status"]) == (engine, schema, "accepted")
    assert (said["ranks"], said["model"]) == (2, "example-moe")
    _write(engine, output, schema)
    assert sidecar_of(output).read_bytes() == first
    kept, findings = read_sidecar(output)
    assert kept is not None
    assert findings == []
    assert with_sidecar(Deployment(), kept) == (
        replace(KNOWN, model="example-moe", node_of_rank=example_document().topology.node_of_rank, schema=schema),
        (),
    )


@pytest.mark.parametrize(
    ("engine", "name", "schema", "message"),
    [
        ("sglang", "a.yaml", "", "a.yaml: the engine reads .json or .pt"),
        ("sglang", "a.json", "plugin", "--schema: no schema 'plugin': this engine has one format"),
        ("vllm", "a.json", "json", "--schema: no schema 'json' — choose plugin, pr41141, pr49572, pr53022"),
        ("vllm", "a.json", "pr41141", "the engine reads .jsonl"),
        ("vllm", "a.jsonl", "pr53022", "a.jsonl: the engine reads .json — choose another -o"),
        (
            "vllm",
            "a.json",
            "pr14544",
            "--schema: pr14544: it was closed, and whether its map is as wide as the experts",
        ),
        (
            "vllm",
            "a.json",
            "das",
            "--schema: das: the keys of vllm-plugin-das's version 2 file are in none of its texts",
        ),
        ("vllm", "a.json", "", "a plug-in is a folder — name one, or give --schema pr41141"),
        ("vllm", "none/folder", "", "there is no folder"),
        ("vllm", "full", "", "the folder holds other things"),
        ("vllm", "full/file", "", "is a file, not a folder"),
    ],
)
def test_outputs_that_are_refused(engine: str, name: str, schema: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError) as refused:
        _write(engine, tmp_path / name, schema)
    assert message in str(refused.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full"]


@pytest.mark.parametrize(
    ("engine", "name", "experts", "ranks", "message"),
    [
        ("tensorrt-llm", "a.yaml", 4, 1, "TensorRT-LLM balances experts on 2 ranks or more — plan for more ranks"),
        ("vllm", "folder", 4, 1, "vLLM balances experts on 2 ranks or more — plan for more ranks"),
        ("tensorrt-llm", "a.yaml", 1025, 2, "1025 experts, TensorRT-LLM takes 1024 at most"),
        ("tensorrt-llm", "a.yaml", 128, 257, "32896 slots per layer, TensorRT-LLM takes 32767 at most"),
        ("vllm", "folder", 128, 9, "1024 redundant slots per layer, vLLM takes 1023 at most"),
    ],
)
def test_limits_of_the_engines(engine: str, name: str, experts: int, ranks: int, message: str, tmp_path: Path) -> None:
    plan = Plan(
        expert_of_slot=np.tile(np.arange(experts), (1, ranks)),
        slots_per_rank=np.full(ranks, experts),
        experts=experts,
        policy="everything everywhere",
    )
    with pytest.raises(PlanError, match=message):
        exports.load(engine).write(placed_document(plan, (0,)), Deployment(), tmp_path / name, "")
    assert list(tmp_path.iterdir()) == []
