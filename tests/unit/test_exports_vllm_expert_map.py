"""vLLM's pull request #53022: what is written, what is refused, every trap of its loader, whose list it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import exports
from easybalance_sim.errors import PlanError
from easybalance_sim.exports import vllm_expert_map
from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.deployment import deployment_for, deployment_of
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.engines import vllm
from easybalance_sim.exports.linting import lint_file
from easybalance_sim.exports.prechecking import lint_deployed
from easybalance_sim.exports.sidecar import sidecar_of
from easybalance_sim.plan.plan import Plan
from tests.engine_files import GOOD, second
from tests.expert_maps import FILLER, FULL, IT, SCHEMA, TIGHT, V4, linted, tight_document, write_map
from tests.plan_documents import example_document, example_plan, placed_document

GOLDEN = Path(__file__).parents[1] / "golden" / "engines" / "vllm_pr53022_expert_map.json"
STOPS = f"{IT} stops with a ValueError"
UNKNOWN = "the model is not known: that the plan has all of its MoE layers was not checked (--model)"


def test_a_row_for_every_layer_and_every_draft_layer(tmp_path: Path) -> None:
    written = write_map(example_document(), V4, tmp_path / "map.json")
    assert (tmp_path / "map.json").read_bytes() == GOLDEN.read_bytes()
    assert written.launch == (
        "--enable-expert-parallel --enable-eplb",
        f'--eplb-config \'{{"num_redundant_experts": 2, "expert_map_path": "{tmp_path / "map.json"}"}}\'',
    )
    assert written.notes == (
        "tensor × data parallel size must be 2",
        "vLLM 0.33.0 does not read this file: it needs the pull request #53022, which is for DeepSeek V4 only",
        "the placement is fixed: in force from the first step, never rearranged",
        "expert_placement_strategy must stay linear",
        "layer 0 and 4 more are not in the plan: slot number modulo experts stands there",
        "the plan was judged under --dispatch even, not vllm",
    )


def test_without_redundant_slots_no_balancer_is_asked_for(tmp_path: Path) -> None:
    rows = [[0, 2, 1, 3], [3, 1, 2, 0]]
    written = write_map(tight_document(rows), replace(TIGHT, groups=1, mtp_layers=()), tmp_path / "map.json")
    assert json.loads((tmp_path / "map.json").read_text()) == rows
    assert written.launch == (
        "--enable-expert-parallel",
        f'--eplb-config \'{{"num_redundant_experts": 0, "expert_map_path": "{tmp_path / "map.json"}"}}\'',
    )


def test_a_draft_row_of_the_plan_is_kept(tmp_path: Path) -> None:
    known = replace(V4, hidden_layers=1, moe_layers=(0,), mtp_layers=(1,))
    written = write_map(placed_document(example_plan(), (0, 1)), known, tmp_path / "map.json")
    assert json.loads((tmp_path / "map.json").read_text()) == GOOD
    assert not any("not in the plan" in note for note in written.notes)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    notes = write_map(example_document(), Deployment(hidden_layers=5), tmp_path / "map.json").notes
    assert (notes[0], notes[5:7]) == (
        UNKNOWN,
        (
            "the model is not known: that it is DeepSeek V4 was not checked, and its draft (MTP) layers, of which each "
            "needs a row, have none here (--model)",
            "layer 0 and 2 more are not in the plan: slot number modulo experts stands there",
        ),
    )
    notes = write_map(tight_document([[0, 2, 1, 3]]), Deployment(hidden_layers=1), tmp_path / "map.json").notes
    assert notes[-2] == (
        "the expert groups of the model are not known: without redundant slots vLLM refuses a file that mixes them"
    )


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            replace(V4, model="deepseek-v3", model_type="other"),
            "vLLM's pull request #53022 is for DeepSeek V4 only, deepseek-v3 is another model — choose another "
            "--schema, or correct --model",
        ),
        (
            replace(V4, model="nomt", model_type=""),
            "vLLM's pull request #53022 is for DeepSeek V4 only, nomt may be another model: its config.json names no "
            "model_type — choose another --schema, or correct --model",
        ),
        (
            Deployment(),
            "vLLM wants a row for each of the model's layers, dense ones included: how many there are is not known — "
            "pass --model, or --hidden-layers",
        ),
        (replace(V4, hidden_layers=4), "the plan has layer 4, the model 4 layers — correct --hidden-layers or --model"),
        (replace(V4, hidden_layers=7), "layer 6 is the model's draft (MTP) layer — correct --hidden-layers"),
        (replace(V4, experts=5), "the plan is for 4 experts, the model has 5 — correct --model"),
    ],
)
def test_what_it_is_not_for_is_refused(known: Deployment, message: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as refused:
        write_map(example_document(), known, tmp_path / "map.json")
    assert str(refused.value) == message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0, 1, 2, 3], [0, 2, 1, 3]], "layer 1, slot 1: slots 0 to 1 hold experts of groups 0 and 1"),
        ([[2, 3, 0, 1], [1, 0, 3, 2], [3, 0, 2, 1]], "layer 2, slot 1: slots 0 to 1 hold experts of groups 1 and 0"),
    ],
)
def test_mixed_expert_groups_are_refused_without_redundant_slots(
    rows: list[list[int]], message: str, tmp_path: Path
) -> None:
    known = replace(TIGHT, hidden_layers=len(rows), moe_layers=tuple(range(len(rows))), mtp_layers=())
    with pytest.raises(PlanError) as refused:
        write_map(tight_document(rows), known, tmp_path / "map.json")
    assert str(refused.value) == (
        f"{message}: without redundant slots vLLM refuses a file that mixes expert groups — plan with redundant slots "
        "(--slots-per-rank)"
    )
    assert list(tmp_path.iterdir()) == []
    # The draft row of a plan is held to it, too; whole groups may stand in any order, with any order inside.
    with pytest.raises(PlanError, match=message.partition(":")[0]):
        drafts = replace(known, hidden_layers=1, moe_layers=(0,), mtp_layers=tuple(range(1, len(rows))))
        write_map(tight_document(rows), drafts, tmp_path / "map.json")
    write_map(tight_document([[2, 3, 0, 1], [1, 0, 3, 2]]), replace(TIGHT, mtp_layers=()), tmp_path / "map.json")
    assert lint_file(tmp_path / "map.json", "vllm", replace(TIGHT, mtp_layers=())).findings == ()


def _with_draft(row: list[Any]) -> list[Any]:
    return [*second(row), FILLER]


WHOLE = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 1, 0]]
"""Three rows of two whole groups."""
TRAPS: tuple[tuple[str, Any, Deployment, list[str]], ...] = (
    ("good", [*GOOD, FILLER], FULL, []),
    ("bool", _with_draft([False, 2, 1, 3, 2, 0]), FULL, [f"error 1:0 False is not a whole number; {STOPS}"]),
    (
        "floats", _with_draft([0, 2, 1, 3, 2.0, 0.5]), FULL,
        [f"error 1:4 2.0 is not a whole number (1 more in this layer); {STOPS}"],
    ),
    ("text", _with_draft([0, 2, 1, 3, "2", 0]), FULL, [f"error 1:4 '2' is not a whole number; {STOPS}"]),
    ("list", _with_draft([0, 2, 1, 3, [2], 0]), FULL, [f"error 1:4 a list is not a whole number; {STOPS}"]),
    ("huge", _with_draft([0, 2, 1, 3, 2**64, 0]), FULL, ["error 1:4 18446744073709551616 is beyond 64 bits"]),
    ("short row", _with_draft([0, 2, 1, 3]), FULL, [f"error 1:- 4 slots, other layers have 6; {STOPS}"]),
    ("no slots", _with_draft([]), FULL,
     [f"error 1:- 0 slots, other layers have 6; {STOPS}", "error 1:- the layer has no slots"]),
    (
        "all rows short", [row[:4] for row in (GOOD[0], GOOD[1], FILLER)], FULL,
        [f"error - 4 slots, the engine is told 4 experts + 2 redundant ones; {STOPS}"],
    ),
    ("missing expert", _with_draft([0, 2, 1, 0, 2, 1]), FULL, [f"error 1:- expert 3 has no replica; {STOPS}"]),
    ("negative", _with_draft([0, 2, 1, 3, -1, 0]), FULL, [f"error 1:4 expert -1; {STOPS}"]),
    ("range", _with_draft([0, 2, 1, 3, 4, 0]), FULL, [f"error 1:4 expert 4 is not in 0..3; {STOPS}"]),
    (
        "no draft row", GOOD, FULL,
        [f"error - 2 rows, the model has 3 layers; {STOPS}: it wants one for each layer, draft layers too"],
    ),
    ("a row too many", [*GOOD, FILLER, FILLER], FULL, [f"error - 4 rows, the model has 3 layers; {STOPS}"]),
    ("one row", GOOD[1], FULL, ["warning - one row: vLLM places every layer by it"]),
    ("one row in a list", GOOD[1:], FULL, ["warning - one row: vLLM places every layer by it"]),
    (
        "one bad row", [0, 2, 1, 0, 2, 1], FULL,
        ["warning - one row: vLLM places every layer by it", f"error 0:- expert 3 has no replica; {STOPS}"],
    ),
    ("the only layer", GOOD[1], replace(FULL, hidden_layers=1, moe_layers=(0,), mtp_layers=()), []),
    (
        "twice on a rank", _with_draft([0, 0, 0, 1, 2, 3]), FULL,
        [f"warning 1:1 expert 0 is already on rank 0 (slot 0) (1 more in this layer); {IT} accepts it",
         f"warning 1:- expert 0 has 3 replicas on 2 ranks; {IT} accepts it"],
    ),
    (
        "ranks", [*GOOD, FILLER], replace(FULL, ranks=4),
        [f"error - 6 slots on 4 ranks; {IT} accepts the file and cannot deal the slots to its ranks"],
    ),
    (
        "too many", [slot % 4 for slot in range(1028)], replace(FULL, ranks=257, redundant=1024),
        ["warning - one row: vLLM places every layer by it",
         f"error - 1024 redundant slots, more than 1023; {IT} refuses the number"],
    ),
    ("whole groups", WHOLE, TIGHT, []),
    (
        "mixed groups", [WHOLE[0], [0, 1, 3, 2], [0, 3, 1, 2]], TIGHT,
        [f"error 2:1 slots 0 to 1 hold experts of groups 0 and 1; {STOPS}"],
    ),
    (
        "mixed groups of a bad row", [*WHOLE[:2], [0, 3, 3, 2]], TIGHT,
        [f"error 2:- expert 1 has no replica; {STOPS}"],
    ),
    ("no groups", [*WHOLE[:2], [0, 3, 1, 2]], replace(TIGHT, groups=1), []),
    ("groups with redundant slots", [*GOOD, FILLER], replace(FULL, groups=2), []),
    (
        "groups and other slots", [*WHOLE[:2], [0, 3, 1, 2]], replace(TIGHT, redundant=2),
        [f"error - 4 slots, the engine is told 4 experts + 2 redundant ones; {STOPS}"],
    ),
    (
        "groups unknown", [*WHOLE[:2], [0, 3, 1, 2]], replace(TIGHT, groups=None),
        ["warning - the expert groups of the model are not known: that no group of slots mixes them is not checked "
         "(--model)"],
    ),
    ("groups unknown, redundant slots", [*GOOD, FILLER], replace(FULL, groups=None), []),
    (
        "another model", [*GOOD, FILLER], replace(FULL, model="qwen", model_type="other"),
        [f"error - qwen is another model; {IT} has such a map for DeepSeek V4 only"],
    ),
    (
        "model unknown", [*GOOD, FILLER], replace(FULL, model="", model_type=""),
        ["warning - the model is not known: that it is DeepSeek V4 is not checked (--model)"],
    ),
    (
        "model_type unknown", [*GOOD, FILLER], replace(FULL, model_type=""),
        ["warning - the model_type of small-v4 is not known: that it is DeepSeek V4 is not checked (--model)"],
    ),
    (
        "groups that do not divide", WHOLE, replace(TIGHT, groups=3),
        [f"error {layer}:- 4 experts do not form 3 groups; {STOPS}" for layer in range(3)],
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "known", "expected"), [trap[1:] for trap in TRAPS], ids=[trap[0] for trap in TRAPS]
)
def test_a_trap_is_reported_with_what_vllm_does(
    content: Any, known: Deployment, expected: list[str], tmp_path: Path
) -> None:
    assert linted(tmp_path, content, known) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the file has no layer"),
        ("[0, 1, [2, 3]]", "row 0 of the file is a number, expected a list"),
        ("[[0, 1, 2, 3], 0]", "row 1 of the file is a number, expected a list"),
        ('"map"', "the file is text, expected a list"),
        (
            '{"map": [[0, 1]]}',
            "a JSON object that is no 'eplb_initial_mapping' record (#41141): #49572 and #53022 read a list of rows",
        ),
        ("[0, 1", "not JSON: Expecting ',' delimiter: line 1 column 6 (char 5)"),
    ],
)
def test_what_holds_no_map_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(PlanError) as refused:
        lint_file(path, "vllm", FULL)
    assert str(refused.value) == f"{path}: {message}"


def test_the_module_has_what_engines_with_formats_offer() -> None:
    """mypy holds the signatures to the protocol."""
    formats: exports.Formats = vllm
    assert (formats.rules_for(SCHEMA), formats.rules_for("pr41141")) == (vllm_expert_map.RULES, vllm.RULES)
    assert exports.suffix_of(exports.load("vllm"), SCHEMA) == ".json"
    assert exports.rules_of(exports.load("sglang"), "") is exports.load("sglang").RULES


def test_every_effect_has_its_source() -> None:
    assert "#53022 at 2a2112a7" in vllm_expert_map.RULES.source
    assert vllm_expert_map.RULES.one_row


def test_the_moe_layers_of_the_plan_come_back(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    write_map(example_document(), V4, path)
    for known in (Deployment(), replace(V4, model="")):
        assert adopt(path, "vllm", known).document.layers == example_document().layers
    sidecar_of(path).unlink()
    by_rows = replace(V4, schema="")
    assert adopt(path, "vllm", by_rows).document.layers == example_document().layers
    assert adopt(path, "vllm", replace(by_rows, hidden_layers=None, schema=SCHEMA)).document.layer_ids == (3, 4)
    path.write_text(json.dumps(GOOD[1]))
    shared = adopt(path, "vllm", replace(V4, schema=SCHEMA)).document
    assert [list(one.expert_of_slot) for one in shared.layers] == [GOOD[1]] * 3


@pytest.mark.parametrize("sidecar", [True, False])
def test_the_file_of_a_plan_is_prechecked(sidecar: bool, tmp_path: Path) -> None:
    """Also where the plan alone says how its list is to be read."""
    path = tmp_path / "map.json"
    for document, rules in ((example_document(), []), (placed_document(_swapped(), (3, 4)), ["other-plan"])):
        write_map(document, Deployment(ranks=2, hidden_layers=6), path)
        if not sidecar:
            sidecar_of(path).unlink()
        report = lint_deployed(example_document(), "vllm", path, hidden_layers=6)
        assert [one.rule for one in report.findings if one.level == "error"] == rules


def _swapped() -> Plan:
    """Not what the example's second layer is."""
    return replace(example_plan(), expert_of_slot=np.array([GOOD[0], GOOD[0]]))


@pytest.mark.parametrize("slots", [32, 33])
def test_a_plan_of_deepseek_v4_goes_there_and_back(slots: int, tmp_path: Path) -> None:
    """All that is known comes from the model's name; 43 layers and the draft layer."""
    rng = np.random.default_rng(100)
    rows = [[rank * 32 + at if at < 32 else (rank * 32 + 32) % 256 for rank in range(8) for at in range(slots)]] * 43
    names = [rng.permutation(256) for _ in rows]
    plan = Plan(
        expert_of_slot=np.array([name[row] for name, row in zip(names, rows, strict=True)]),
        slots_per_rank=np.full(8, slots),
        experts=256,
        policy="shuffled",
    )
    document = placed_document(plan, range(43), model="deepseek-ai/DeepSeek-V4-Flash")
    path = tmp_path / "map.json"
    written = write_map(document, deployment_for(document), path)
    assert "layer 43 is not in the plan: slot number modulo experts stands there" in written.notes
    content = json.loads(path.read_text())
    assert content[:43] == [list(record.expert_of_slot) for record in document.layers]
    assert content[43:] == [[slot % 256 for slot in range(8 * slots)]]
    sidecar_of(path).unlink()
    known = deployment_of("deepseek-v4-flash", ranks=8)
    report = lint_file(path, "vllm", known)
    assert (report.title, report.findings) == (IT, ())
    assert adopt(path, "vllm", known).document.layers == document.layers
