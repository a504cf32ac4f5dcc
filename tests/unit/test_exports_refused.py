"""Files that hold no placement of their engine, with the exact message."""

from __future__ import annotations

from pathlib import Path

import pytest

from easybalance_sim import exports
from easybalance_sim.errors import PlanError
from tests.engine_files import GOOD, record, sglang, trtllm

REFUSED = (
    ("sglang", "f.json", "{}", "has no physical_to_logical_map"),
    (
        "sglang", "f.json", '{"logical_count": [[1]]}',
        "holds recorded load (logical_count), no physical_to_logical_map: SGLang makes its own plan from it",
    ),
    ("sglang", "f.json", "[[0, 1]]", "the file is a list, expected a mapping"),
    ("sglang", "f.json", sglang([]), "physical_to_logical_map has no layer"),
    ("sglang", "f.json", sglang([0, 1]), "row 0 of physical_to_logical_map is a number, expected a list"),
    ("sglang", "f.json", "{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ("tensorrt-llm", "f.yaml", "num_slots: 6", "initial_global_assignments is missing, expected a mapping"),
    ("tensorrt-llm", "f.yaml", trtllm([], keys=()), "initial_global_assignments is missing, expected a mapping"),
    (
        "tensorrt-llm", "f.yaml", trtllm(GOOD, keys=("0", "x")),
        "initial_global_assignments has the key 'x', expected a layer id",
    ),
    ("tensorrt-llm", "f.yaml", trtllm([0, 1]), "layer 0 is a number, expected a list"),
    ("vllm", "f.jsonl", record(GOOD) * 2, "has 2 records of record_type 'eplb_initial_mapping', expected one"),
    (
        "vllm", "f.jsonl", record(GOOD, record_type="eplb_load_stats"),
        "has 0 records of record_type 'eplb_initial_mapping', expected one",
    ),
    ("vllm", "f.json", "[]", "the file has no layer"),
    ("vllm", "f.json", "[[0], 1]", "row 1 of the file is a number, expected a list"),
    ("sglang", "f.json", '{"a": 1, "a": 2}', "the key 'a' stands twice — keep one"),
    ("tensorrt-llm", "f.yaml", trtllm(GOOD, keys=(3, 3)), "the key 3 stands twice — keep one"),
    ("tensorrt-llm", "f.yaml", trtllm(GOOD, keys=(3, '"3"')), "initial_global_assignments has layer 3 twice"),
    (
        "tensorrt-llm", "f.yaml", trtllm(GOOD, keys=(3, -1)),
        "initial_global_assignments has the key -1, expected a layer id",
    ),
    ("tensorrt-llm", "f.yaml", "!!python/object/apply:os.system [true]",
     "not YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.system' in "
     '"<unicode string>", line 1, column 1'),
    (
        "vllm", "f.jsonl", record(GOOD, initial_global_assignments={"0": GOOD[0], "00": GOOD[1]}),
        "initial_global_assignments has layer 0 twice",
    ),
    ("vllm-ascend", "f.json", "{}", "layer_list is missing, expected a list"),
    ("vllm-ascend", "f.json", '{"layer_list": []}', "layer_list has no layer"),
    ("vllm-ascend", "f.json", '{"layer_list": [{}]}', "layer_list[0].device_list is missing, expected a list"),
    (
        "vllm-ascend", "f.json", '{"layer_list": [{"device_list": [{}]}]}',
        "layer_list[0].device_list[0].device_expert is missing, expected a list",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("engine", "name", "text", "message"), REFUSED)
def test_what_holds_no_placement_is_refused(engine: str, name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        exports.load(engine).read(path)
    assert str(caught.value).removeprefix(f"{path}: ") == message
