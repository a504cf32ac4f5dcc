from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim import __version__
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.planfile import checksum, document, read_plan, write_plan
from tests.plan_documents import LAYER_IDS, example_document, example_plan, example_trace

GOLDEN = Path(__file__).parents[1] / "golden" / "planfile" / "example.json"

Content = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def _refusal(path: Path, raw: bytes) -> str:
    path.write_bytes(raw)
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_golden_file_is_what_is_written_today(path: Path) -> None:
    doc = msgspec.structs.replace(example_document(), tool_version="golden")
    write_plan(path, doc)
    assert path.read_bytes() == GOLDEN.read_bytes()


def test_golden_file_reads_back() -> None:
    doc = read_plan(GOLDEN)
    assert doc.layer_ids == LAYER_IDS
    assert doc.plan().expert_of_slot.tolist() == example_plan().expert_of_slot.tolist()
    assert doc.topology.topology().ranks == 2
    assert doc.trace == example_trace()
    assert doc.evidence["steps"] == 128


def test_written_fingerprint_is_returned_and_stored(path: Path) -> None:
    doc = example_document()
    fingerprint = write_plan(path, doc)
    assert json.loads(path.read_text(encoding="utf-8"))["fingerprint"] == fingerprint == read_plan(path).fingerprint()
    assert doc.tool_version == __version__
    assert read_plan(path) == doc


def test_each_layer_stands_on_its_own_line(path: Path) -> None:
    write_plan(path, example_document())
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith('{"checksum"') for line in lines) == len(LAYER_IDS)


def test_layout_of_the_json_does_not_matter_to_the_fingerprint(path: Path) -> None:
    write_plan(path, example_document())
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(dict(reversed(content.items())), indent=3), encoding="utf-8")
    assert read_plan(path) == example_document()


def test_generations_form_a_chain(path: Path) -> None:
    first = example_document()
    second = example_document(parent=first)
    assert (first.generation, first.parent_fingerprint) == (1, None)
    assert (second.generation, second.parent_fingerprint) == (2, first.fingerprint())
    write_plan(path, second)
    assert read_plan(path).generation == 2


def test_content_changes_the_fingerprint() -> None:
    doc = example_document()
    assert msgspec.structs.replace(doc, dispatch="vllm").fingerprint() != doc.fingerprint()


def test_checksum_covers_layer_and_slots() -> None:
    assert len(checksum(3, [0, 1])) == 16
    assert len({checksum(3, [0, 1]), checksum(3, [1, 0]), checksum(4, [0, 1])}) == 3


def _resign(content: Content) -> None:
    for record in content["layers"]:
        record["checksum"] = checksum(record["layer"], record["expert_of_slot"])


def _slot(layer: int, slot: int, expert: int) -> Callable[[Content], None]:
    def edit(content: Content) -> None:
        content["layers"][layer]["expert_of_slot"][slot] = expert

    return edit


def _set(*keys: str | int, to: object) -> Callable[[Content], None]:
    def edit(content: Content) -> None:
        value: Any = content
        for key in keys[:-1]:
            value = value[key]
        value[keys[-1]] = to

    return edit


def _resigned(edit: Callable[[Content], None]) -> Callable[[Content], None]:
    def both(content: Content) -> None:
        edit(content)
        _resign(content)

    return both


BROKEN: dict[str, tuple[Callable[[Content], None], str]] = {
    "tampered slot": (_slot(1, 2, 3), "layer 4: expert 1 has no replica"),
    "swapped slots": (_set("layers", 1, "expert_of_slot", to=[2, 0, 1, 3, 2, 0]), "layer 4: the slots do not match"),
    "id out of range": (_slot(0, 5, 4), "layer 3, slot 5: expert 4 is not in 0..3"),
    "negative id": (_slot(0, 5, -1), "layer 3, slot 5: expert -1 is not in 0..3"),
    "huge id": (_slot(0, 5, 10**30), "layer 3, slot 5: expert 1000000000"),
    "expert without replica": (_resigned(_slot(0, 3, 1)), "layer 3: expert 3 has no replica"),
    "replica counts": (_resigned(_slot(0, 5, 2)), "layer 3: expert 1 has 1 replicas, not 2"),
    "short counts": (_set("replica_counts", 1, to=[2, 1, 2]), "layer 4: replica_counts has 3 entries for 4 experts"),
    "missing counts": (_set("replica_counts", to=[[2, 2, 1, 1]]), "replica_counts has 1 rows for 2 layers"),
    "ragged": (_resigned(_set("layers", 1, "expert_of_slot", to=[0, 1, 2, 3])), "layer 4: 4 slots, plan_slots"),
    "twice the same layer": (_resigned(_set("layers", 1, "layer", to=3)), "layers must be distinct"),
    "no layers": (_set("layers", to=[]), "layers must be distinct, at least one"),
    "wrong checksum": (_set("layers", 0, "checksum", to="0" * 16), "layer 3: the slots do not match their checksum"),
    "evidence": (_set("evidence", "steps", to=9999), "does not match its fingerprint"),
    "fingerprint": (_set("fingerprint", to="0" * 64), "does not match its fingerprint"),
    "no fingerprint": (_set("fingerprint", to=None), "does not match its fingerprint"),
    "version": (_set("version", to=2), "plan format version 2, this ebsim reads version 1"),
    "format": (_set("format", to="other"), "not a plan file"),
    "unknown field": (_set("topology", "racks", to=1), "unknown field `racks` - at `$.topology`"),
    "text for a number": (_set("layers", 1, "expert_of_slot", 2, to="1"), "$.layers[1].expert_of_slot[2]"),
    "ranks": (_set("topology", "ranks", to=3), "disagree on the number of ranks"),
    "node missing": (_set("topology", "node_of_rank", to=[0]), "disagree on the number of ranks"),
    "speed": (_set("topology", "speed", to=[1.0, 0.0]), "topology: slots per rank must be ≥ 1 and speeds > 0"),
    "slots of a rank": (_set("plan_slots_per_rank", to=[6, 0]), "plan_slots_per_rank must be ≥ 1 on every rank"),
    "too many experts": (_set("experts", to=7), "hold all 7 experts"),
    "no expert": (_set("experts", to=0), "hold all 0 experts"),
    "generation": (_set("generation", to=2), "generation 2 does not fit parent_fingerprint None"),
    "parent": (_set("parent_fingerprint", to="ab"), "generation 1 does not fit parent_fingerprint ab"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_content_is_refused_in_one_line(name: str, path: Path) -> None:
    edit, expected = BROKEN[name]
    write_plan(path, example_document())
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    assert expected in _refusal(path, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "cut short"),
        (b"not json", "not JSON"),
        (b"[1, 2]", "no JSON object"),
        (b'{"format": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "not a plan file"),
        (b'{"format":"ebsim.plan","version":1}', "missing required field"),
    ],
)
def test_bytes_that_are_no_plan_are_refused(raw: bytes, expected: str, path: Path) -> None:
    assert expected in _refusal(path, raw)


def test_every_truncation_is_refused(path: Path) -> None:
    write_plan(path, example_document())
    whole = path.read_bytes()
    for length in range(len(whole) - 2):
        assert "cut short" in _refusal(path, whole[:length]), length


def test_missing_file_is_named(path: Path) -> None:
    with pytest.raises(PlanError, match="cannot read: No such file"):
        read_plan(path)


def test_contradicting_document_is_never_written(path: Path) -> None:
    path.write_text("old", encoding="utf-8")
    doc = msgspec.structs.replace(example_document(), generation=7)
    with pytest.raises(PlanError, match="generation 7"):
        write_plan(path, doc)
    assert path.read_text(encoding="utf-8") == "old"


def test_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write here"):
        write_plan(tmp_path / "none" / "plan.json", example_document())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1, 2}, {3: 4}, "\ud800", b"x"])
def test_report_that_json_cannot_hold_is_refused(bad: object) -> None:
    fields = {"layer_ids": LAYER_IDS, "topology": example_document().topology.topology(), "trace": example_trace()}
    with pytest.raises(PlanError, match=r"\$\.evidence"):
        document(
            example_plan(),
            dispatch="even",
            evidence={"a": [0, bad]},
            verdict={},
            migration={},
            **fields,  # type: ignore[arg-type]
        )


def test_layer_ids_must_fit_the_plan() -> None:
    doc = example_document()
    with pytest.raises(PlanError, match="3 layer ids for 2 layers"):
        document(
            example_plan(),
            layer_ids=(0, 1, 2),
            topology=doc.topology.topology(),
            trace=doc.trace,
            dispatch="even",
            evidence={},
            verdict={},
            migration={},
        )


def test_numpy_values_are_written_as_plain_numbers(path: Path) -> None:
    plan = dataclasses.replace(example_plan(), policy="np")
    doc = document(
        plan,
        layer_ids=np.array(LAYER_IDS).tolist(),
        topology=example_document().topology.topology(),
        trace=example_trace(),
        dispatch="even",
        evidence={"a": np.arange(3), "b": (np.float32(0.5), np.bool_(True)), "c": -0.0},
        verdict={},
        migration={},
    )
    write_plan(path, doc)
    assert read_plan(path).evidence == {"a": [0, 1, 2], "b": [0.5, True], "c": 0.0}
    assert "-0.0" not in path.read_text(encoding="utf-8")


def test_the_ranks_of_the_parent_are_in_the_file_when_some_were_lost(tmp_path: Path) -> None:
    first = example_document()
    assert "parent_ranks" not in msgspec.to_builtins(first)
    child = msgspec.structs.replace(example_document(parent=first), parent_ranks=(0, 3))
    write_plan(tmp_path / "plan.json", child)
    assert read_plan(tmp_path / "plan.json").parent_ranks == (0, 3)
    for wrong in ((3, 0), (0,), (1, 1)):
        with pytest.raises(PlanError, match="parent_ranks must be rising, one per rank"):
            write_plan(tmp_path / "plan.json", msgspec.structs.replace(child, parent_ranks=wrong))
    with pytest.raises(PlanError, match=r"parent_ranks must be .* have a parent"):
        write_plan(tmp_path / "plan.json", msgspec.structs.replace(first, parent_ranks=(0, 3)))
