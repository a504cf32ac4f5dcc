"""Every trap that is known of an engine's loader: a file goes in, the exact messages come out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from easybalance_sim import exports
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.plan.lint import Finding
from tests.engine_files import GOOD, ascend, halves, record, second, sglang, trtllm

FULL = Deployment(ranks=2, experts=4, hidden_layers=2, moe_layers=(0, 1), redundant=2)
"""All that can be known: two layers of four experts and two redundant ones on two ranks."""

SGLANG, TRTLLM, VLLM, ASCEND = "SGLang 0.5.23", "TensorRT-LLM", "vLLM 0.33.0", "vllm-ascend 182b75e"


def lint(engine: str, name: str, text: str, deployment: Deployment, folder: Path) -> list[str]:
    """The findings as `level layer:slot message`."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    module = exports.load(engine)
    return [_line(finding) for finding in module.check(module.read(path), deployment)]


def _line(finding: Finding) -> str:
    place = ["-" if at is None else str(at) for at in (finding.layer, finding.slot)]
    return f"{finding.level} {':'.join(place)} {finding.message}"


def _out_of_place() -> str:
    """An expert map whose first layer says other ids than its place, and whose devices are listed backwards."""
    content = json.loads(ascend(halves(GOOD)))
    first = content["layer_list"][0]
    first |= {"layer_id": 5, "device_count": 3}
    for device, said in zip(first["device_list"], (1, 0), strict=True):
        device["device_id"] = said
    return json.dumps(content)


TRAPS: tuple[tuple[str, str, str, Deployment, list[str]], ...] = (
    # SGLang, https://github.com/sgl-project/sglang 0.5.23: every case but divisibility was run on its loader.
    ("sglang", "good.json", sglang(GOOD), FULL, []),
    (
        "sglang", "extra.json", sglang(GOOD, logical_count=[[1]]), FULL,
        ["error -:- key 'logical_count' beside physical_to_logical_map: SGLang 0.5.23 stops with a TypeError"],
    ),
    (
        "sglang", "good.txt", sglang(GOOD), FULL,
        [f"error -:- the name does not end in .json or .pt; {SGLANG} takes any other name for JSON text and stops"],
    ),
    (
        "sglang", "slots.json", sglang([row[:4] for row in GOOD]), FULL,
        [f"error -:- 4 slots, the engine is told 4 experts + 2 redundant ones; {SGLANG} accepts the file and fails "
         "later, when the weights are loaded"],
    ),
    (
        "sglang", "more-slots.json", sglang([[*row, 1, 2] for row in GOOD]), replace(FULL, ranks=4),
        [f"error -:- 8 slots, the engine is told 4 experts + 2 redundant ones; {SGLANG} accepts the file and fails "
         "later, when the weights are loaded"],
    ),
    (
        "sglang", "ranks.json", sglang([[*row, 3] for row in GOOD]), replace(FULL, redundant=3),
        [f"error -:- 7 slots on 2 ranks; {SGLANG} stops with an AssertionError"],
    ),
    (
        "sglang", "short.json", sglang(GOOD[:1]), FULL,
        [f"error -:- 1 rows, the model has 2 layers; {SGLANG} accepts the file, loads later layers in plain order and "
         "fails when it dispatches"],
    ),
    (
        "sglang", "long.json", sglang([*GOOD, GOOD[0]]), FULL,
        [f"warning -:- 3 rows, the model has 2 layers; {SGLANG} ignores the rows beyond"],
    ),
    (
        "sglang", "moe-only.json", sglang(GOOD), Deployment(ranks=2, experts=4, moe_layers=(1, 2)),
        [f"error -:- 2 rows, the last MoE layer has id 2; {SGLANG} accepts the file, loads later layers in plain order "
         "and fails when it dispatches"],
    ),
    (
        "sglang", "lost.json", sglang(second([0, 2, 1, 0, 2, 1])), FULL,
        [f"error 1:- expert 3 has no replica; {SGLANG} stops with a ZeroDivisionError under static dispatch and "
         "accepts it under dynamic"],
    ),
    (
        "sglang", "range.json", sglang(second([0, 2, 1, 3, 4, 0])), FULL,
        [f"error 1:4 expert 4 is not in 0..3; {SGLANG} stops with an IndexError"],
    ),
    (
        "sglang", "negative.json", sglang(second([0, 2, 1, 3, -1, 0])), FULL,
        [f"error 1:4 expert -1; {SGLANG} accepts it and counts back from the last expert"],
    ),
    (
        "sglang", "ragged.json", sglang([*GOOD, GOOD[0], [0, 2, 1, 3]]), replace(FULL, hidden_layers=4),
        [f"error 3:- 4 slots, other layers have 6; {SGLANG} stops with a ValueError"],
    ),
    (
        "sglang", "floats.json", sglang(second([0, 2, 1, 3, 2.0, 0])), FULL,
        [f"error 1:4 2.0 is not a whole number; {SGLANG} stops with a TypeError"],
    ),
    (
        "sglang", "text.json", sglang(second([0, True, "1", None, [2], 0])), FULL,
        [f"error 1:1 True is not a whole number (3 more in this layer); {SGLANG} stops with a TypeError"],
    ),
    (
        "sglang", "doubled.json", sglang([[0, 0, 1, 2, 3, 1, 2, 3]]), Deployment(ranks=4, experts=4, hidden_layers=1),
        [f"error 0:1 expert 0 is already on rank 0 (slot 0); {SGLANG} accepts it, fills the first copy only, and other "
         "ranks send tokens to the empty one"],
    ),
    (
        "sglang", "crowded.json", sglang([[0, 0, 1, 0, 2, 3]]), Deployment(ranks=2, experts=4, hidden_layers=1),
        [f"error 0:1 expert 0 is already on rank 0 (slot 0); {SGLANG} accepts it, fills the first copy only, and other "
         "ranks send tokens to the empty one",
         f"error 0:- expert 0 has 3 replicas on 2 ranks; {SGLANG} accepts it and fills one copy on each rank"],
    ),
    ("sglang", "no-slots.json", sglang([[], []]), replace(FULL, redundant=None),
     ["error 0:- the layer has no slots", "error 1:- the layer has no slots"]),
    (
        "sglang", "beyond.json", sglang(second([0, 2, 1, 3, -(2**64), 10**400])), FULL,
        ["error 1:4 -18446744073709551616 is beyond 64 bits (1 more in this layer)"],
    ),
    # TensorRT-LLM: the checks of MoeLoadBalancerConfig and of its C++ side, as read.
    ("tensorrt-llm", "good.yaml", trtllm(GOOD), FULL, []),
    (
        "tensorrt-llm", "extra.yaml", trtllm(GOOD, ep_size=2), FULL,
        ["error -:- unknown key 'ep_size': TensorRT-LLM refuses the file"],
    ),
    (
        "tensorrt-llm", "slots.yaml", trtllm(GOOD, slots=8), FULL,
        [f"error -:- 6 slots, the file declares 8; {TRTLLM} stops with a ValueError"],
    ),
    (
        "tensorrt-llm", "no-slots.yaml", trtllm(GOOD, slots=None), FULL,
        ["error -:- num_slots is None, expected a whole number"],
    ),
    (
        "tensorrt-llm", "moving.yaml", trtllm(GOOD, layer_updates_per_iter=1), FULL,
        ["warning -:- layer_updates_per_iter is 1: TensorRT-LLM moves experts away from this placement while it "
         "serves"],
    ),
    (
        "tensorrt-llm", "updates.yaml", trtllm(GOOD, layer_updates_per_iter="0"), FULL,
        ["error -:- layer_updates_per_iter is '0', expected a whole number"],
    ),
    (
        "tensorrt-llm", "few.yaml", trtllm([[0, 1], [2, 3]], slots=2), replace(FULL, redundant=None),
        [f"error {layer}:- expert {expert} has no replica (1 more in this layer); {TRTLLM} stops with an AssertionError"
         for layer, expert in ((0, 2), (1, 0))],
    ),
    (
        "tensorrt-llm", "ranks.yaml", trtllm(GOOD), replace(FULL, ranks=4),
        [f"error -:- 6 slots on 4 ranks; {TRTLLM} stops with a ValueError"],
    ),
    (
        "tensorrt-llm", "told.yaml", trtllm(GOOD), replace(FULL, redundant=4),
        [f"warning -:- 6 slots, the engine is told 4 experts + 4 redundant ones; {TRTLLM} goes by the file's "
         "num_slots"],
    ),
    (
        "tensorrt-llm", "mtp.yaml", trtllm(GOOD, keys=(3, 4)), replace(FULL, moe_layers=(3, 4), mtp_layers=(5,)),
        [f"warning 5:- the MTP layer has no row; {TRTLLM} stops with a KeyError when MTP decoding is on"],
    ),
    (
        "tensorrt-llm", "relative.yaml", trtllm(GOOD), replace(FULL, moe_layers=(1, 2)),
        [f"error 2:- the layer has no row; {TRTLLM} stops with a KeyError",
         f"warning 0:- the model has no MoE layer of this id; {TRTLLM} never looks at it"],
    ),
    (
        "tensorrt-llm", "text-keys.yaml", trtllm(GOOD, keys=('"0"', '"1"')), FULL,
        ["warning -:- layer key '0' is text: TensorRT-LLM's own scripts look layers up by number"],
    ),
    (
        "tensorrt-llm", "ragged.yaml", trtllm([*GOOD, [0, 1, 2, 3]], keys=(0, 1, 2)),
        replace(FULL, moe_layers=(0, 1, 2)),
        [f"error 2:- 4 slots, other layers have 6; {TRTLLM} stops with a ValueError"],
    ),
    (
        "tensorrt-llm", "lost.yaml", trtllm(second([0, 2, 1, 0, 2, 1])), FULL,
        [f"error 1:- expert 3 has no replica; {TRTLLM} stops with an AssertionError"],
    ),
    (
        "tensorrt-llm", "range.yaml", trtllm(second([0, 2, -3, 3, 1, 9])), FULL,
        [f"error 1:2 expert -3; {TRTLLM} stops with an AssertionError",
         f"error 1:5 expert 9 is not in 0..3; {TRTLLM} stops with an AssertionError"],
    ),
    (
        "tensorrt-llm", "text.yaml", trtllm(second([0, 2, 1, 3, "2", 0])), FULL,
        [f"error 1:4 '2' is not a whole number; {TRTLLM} refuses the file, or reads text and whole floats as numbers"],
    ),
    (
        "tensorrt-llm", "doubled.yaml", trtllm(second([0, 0, 1, 0, 2, 3])), FULL,
        [f"warning 1:1 expert 0 is already on rank 0 (slot 0); {TRTLLM} accepts it, its own plans have such rows",
         f"warning 1:- expert 0 has 3 replicas on 2 ranks; {TRTLLM} accepts it, its own plans have such rows"],
    ),
    (
        "tensorrt-llm", "many-slots.yaml", trtllm([[slot % 4 for slot in range(32768)]], slots=32768, keys=(0,)),
        Deployment(experts=4, moe_layers=(0,)),
        ["warning -:- the number of ranks is not known: divisibility and duplicates are not checked (--ranks)",
         f"error -:- 32768 slots, more than 32767; {TRTLLM} keeps slot ids in int16"],
    ),
    (
        "tensorrt-llm", "many-experts.yaml", trtllm([list(range(1025))], slots=1025, keys=(0,)),
        Deployment(ranks=1, experts=1025, moe_layers=(0,)),
        [f"error -:- 1025 experts, more than 1024; {TRTLLM} has no kernel for so many"],
    ),
    # vLLM: maps run on its compute_logical_maps; declared numbers by the text of the pull request.
    ("vllm", "good.jsonl", record(GOOD), FULL, []),
    ("vllm", "good.json", json.dumps(GOOD), FULL, []),
    (
        "vllm", "one-row.json", json.dumps(GOOD[0]), replace(FULL, moe_layers=None, hidden_layers=None),
        ["warning -:- one row: vLLM places every MoE layer by it"],
    ),
    (
        "vllm", "one-row-known.json", json.dumps(GOOD[0]), FULL,
        ["warning -:- one row: vLLM places every MoE layer by it"],
    ),
    (
        "vllm", "redundant.jsonl", record(GOOD, num_redundant_experts=1), FULL,
        [f"error -:- 6 slots for 4 experts, the file declares 1 redundant ones; {VLLM} stops with a ValueError "
         "(PR #41141)"],
    ),
    (
        "vllm", "slots.jsonl", record(GOOD, num_slots=8), FULL,
        [f"error -:- 6 slots, the file declares 8; {VLLM} was not run with it (PR #41141)"],
    ),
    ("vllm", "version.jsonl", record(GOOD, version=2), FULL, ["error -:- version is 2, expected 1"]),
    (
        "vllm", "ranks.json", json.dumps(GOOD), replace(FULL, ranks=4),
        [f"error -:- 6 slots on 4 ranks; {VLLM} stops with an AssertionError"],
    ),
    (
        "vllm", "told.json", json.dumps(GOOD), replace(FULL, redundant=0),
        [f"error -:- 6 slots, the engine is told 4 experts + 0 redundant ones; {VLLM} stops with an AssertionError"],
    ),
    (
        "vllm", "lost.json", json.dumps(second([0, 2, 1, 0, 2, 1])), FULL,
        [f"error 1:- expert 3 has no replica; {VLLM} accepts it with 0 replicas"],
    ),
    (
        "vllm", "range.json", json.dumps(second([0, 2, 7, 3, 1, -1])), FULL,
        [f"error 1:5 expert -1; {VLLM} accepts it and leaves the slot unused",
         f"error 1:2 expert 7 is not in 0..3; {VLLM} stops with a RuntimeError"],
    ),
    (
        "vllm", "doubled.json", json.dumps(second([0, 2, 2, 3, 1, 0])), FULL,
        [f"warning 1:2 expert 2 is already on rank 0 (slot 1); {VLLM} accepts it, its own plans have such rows"],
    ),
    (
        "vllm", "short.json", json.dumps(GOOD), replace(FULL, hidden_layers=6, moe_layers=(3, 4, 5)),
        [f"error -:- 2 layers, the model has 3 MoE layers; {VLLM} has no row for a layer and stops"],
    ),
    (
        "vllm", "long.json", json.dumps(GOOD), replace(FULL, hidden_layers=4, moe_layers=(3,)),
        [f"error -:- 2 layers, the model has 1 MoE layers; {VLLM} has no layer for a row and stops"],
    ),
    (
        "vllm", "absolute.jsonl", record(GOOD, initial_global_assignments={"3": GOOD[0], "4": GOOD[1]}), FULL,
        [f"error -:- 2 rows are numbered 3 to 4, not from 0 without gaps; {VLLM} has no row for a layer and stops"],
    ),
    (
        "vllm", "declared.jsonl", record(second([0, 2, 1, 0, 2, 1])), Deployment(ranks=2, moe_layers=(0, 1)),
        [f"error 1:- expert 3 has no replica; {VLLM} accepts it with 0 replicas"],
    ),
    (
        "vllm", "ragged.json", json.dumps([*GOOD, [0, 1, 2, 3]]), replace(FULL, moe_layers=(0, 1, 2)),
        [f"error 2:- 4 slots, other layers have 6; {VLLM} makes one tensor of the rows and stops"],
    ),
    (
        "vllm", "text.json", json.dumps(second([0, 2, 1, 3, "2", 0.5])), FULL,
        [f"error 1:4 '2' is not a whole number (1 more in this layer); {VLLM} makes an int64 tensor of the rows and "
         "stops or cuts it off"],
    ),
    (
        "vllm", "redundant.json", json.dumps([[slot % 4 for slot in range(1028)]]),
        Deployment(ranks=257, experts=4, moe_layers=(0,)),
        [f"error -:- 1024 redundant slots, more than 1023; {VLLM} refuses the number"],
    ),
    # vllm-ascend: every case was run on init_eplb_config; the last two are of its list format.
    ("vllm-ascend", "good.json", ascend(halves(GOOD)), FULL, []),
    (
        "vllm-ascend", "good.txt", ascend(halves(GOOD)), FULL,
        [f"error -:- the name does not end in .json; {ASCEND} stops with a TypeError"],
    ),
    (
        "vllm-ascend", "count.json", ascend(halves(GOOD), moe_layer_count=1), FULL,
        ["error -:- moe_layer_count is 1, layer_list has 2 layers"],
    ),
    (
        "vllm-ascend", "negative.json", ascend(halves(second([0, 2, 1, 3, 2, -1]))), FULL,
        [f"error 1:5 expert -1; {ASCEND} accepts it and counts back from the last expert"],
    ),
    (
        "vllm-ascend", "range.json", ascend(halves(second([0, 2, 1, 3, 2, 4]))), FULL,
        [f"error 1:5 expert 4 is not in 0..3; {ASCEND} stops with an IndexError"],
    ),
    (
        "vllm-ascend", "lost.json", ascend(halves(second([0, 2, 1, 0, 2, 1]))), FULL,
        [f"error 1:- expert 3 has no replica; {ASCEND} accepts it, its slot table gets too short and ids shift"],
    ),
    (
        "vllm-ascend", "devices.json", ascend([[[0, 1], [2, 3], [0, 1]], [[0, 2], [1, 3], [2, 0]]]), FULL,
        [f"error {layer}:- 3 devices for 2 ranks; {ASCEND} accepts it and drops the devices beyond its ranks"
         for layer in (0, 1)],
    ),
    (
        "vllm-ascend", "doubled.json", ascend([[[0, 0, 1], [2, 3, 1]]]),
        Deployment(ranks=2, experts=4, moe_layers=(0,)),
        [f"error 0:1 expert 0 is already on rank 0 (slot 0); {ASCEND} accepts it and gets a wrong slot table"],
    ),
    (
        "vllm-ascend", "told.json", ascend(halves(GOOD)), replace(FULL, redundant=4),
        [f"error -:- 6 slots, the engine is told 4 experts + 4 redundant ones; {ASCEND} stops: EPLB local expert "
         "capacity mismatch"],
    ),
    (
        "vllm-ascend", "short.json", ascend(halves(GOOD)), replace(FULL, moe_layers=(3, 4, 5)),
        [f"error -:- 2 layers, the model has 3 MoE layers; {ASCEND} stops with a ValueError (Invalid EPLB Table)"],
    ),
    ("vllm-ascend", "mtp.json", ascend(halves(GOOD)), replace(FULL, moe_layers=(3,), mtp_layers=(4,)), []),
    (
        "vllm-ascend", "ragged.json", ascend([*halves(GOOD), [[0, 1], [2, 3]]]), replace(FULL, moe_layers=(0, 1, 2)),
        [f"error 2:- 4 slots, other layers have 6; {ASCEND} stops with a ValueError"],
    ),
    (
        "vllm-ascend", "places.json", _out_of_place(), FULL,
        ["warning 0:- layer_id is 5 at place 0: vllm-ascend goes by the place",
         "warning 0:- device_id is not 0, 1, 2, …: vllm-ascend goes by the place",
         "warning 0:- device_count is 3, device_list has 2 devices"],
    ),
    (
        "vllm-ascend", "uneven.json", ascend([[[0, 1, 2, 3], [0, 1]], [[0, 2, 1], [3, 2, 0]]]), FULL,
        [f"error 0:- devices of 2 to 4 slots; {ASCEND} stops with a ValueError"],
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "name", "text", "deployment", "expected"), TRAPS, ids=[f"{trap[0]}-{trap[1]}" for trap in TRAPS]
)
def test_a_trap_is_reported_with_what_the_engine_does(
    engine: str, name: str, text: str, deployment: Deployment, expected: list[str], tmp_path: Path
) -> None:
    assert lint(engine, name, text, deployment, tmp_path) == expected


def test_lists_that_stand_for_more_than_memory_holds_are_not_written_out(tmp_path: Path) -> None:
    bomb = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    bomb += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    text = "\n".join([*bomb, "num_slots: *a29", "initial_global_assignments:", "  0: [*a29, 1]", ""])
    found = lint("tensorrt-llm", "f.yaml", text, FULL, tmp_path)
    assert "error -:- num_slots is a list, expected a whole number" in found
    assert any(line.startswith("error 0:0 a list is not a whole number; ") for line in found)
