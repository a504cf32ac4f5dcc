"""vLLM's pull request #53022: what is written, what is refused, every trap of its loader, whose list it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import exports
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports import Exported, vllm_expert_map
from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.deployment import deployment_for, deployment_of
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import lint_file
from easybalance_sim.exports.prechecking import lint_deployed
from easybalance_sim.exports.sidecar import sidecar_of
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument
from tests.engine_files import GOOD, record, second
from tests.plan_documents import example_document, example_plan, placed_document

SCHEMA = "pr53022"
GOLDEN = Path(__file__).parents[1] / "golden" / "engines" / "vllm_pr53022_expert_map.json"
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
STOPS = f"{IT} stops with a ValueError"
UNKNOWN = "the model is not known: that the plan has all of its MoE layers was not checked (--model)"


def _write(document: PlanDocument, known: Deployment, output: Path) -> Exported:
    return exports.load("vllm").write(document, known, output, SCHEMA)


def _tight(rows: Sequence[Sequence[int]]) -> PlanDocument:
    """Layers 0, 1, … of four experts in four slots on two ranks."""
    plan = Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array([2, 2]), experts=4, policy="by hand")
    return placed_document(plan, range(len(rows)))


def test_a_row_for_every_layer_and_every_draft_layer(tmp_path: Path) -> None:
    written = _write(example_document(), V4, tmp_path / "map.json")
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
    written = _write(_tight(rows), replace(TIGHT, groups=1, mtp_layers=()), tmp_path / "map.json")
    assert json.loads((tmp_path / "map.json").read_text()) == rows
    assert written.launch == (
        "--enable-expert-parallel",
        f'--eplb-config \'{{"num_redundant_experts": 0, "expert_map_path": "{tmp_path / "map.json"}"}}\'',
    )


def test_a_draft_row_of_the_plan_is_kept(tmp_path: Path) -> None:
    known = replace(V4, hidden_layers=1, moe_layers=(0,), mtp_layers=(1,))
    written = _write(placed_document(example_plan(), (0, 1)), known, tmp_path / "map.json")
    assert json.loads((tmp_path / "map.json").read_text()) == GOOD
    assert not any("not in the plan" in note for note in written.notes)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    notes = _write(example_document(), Deployment(hidden_layers=5), tmp_path / "map.json").notes
    assert (notes[0], notes[5:7]) == (
        UNKNOWN,
        (
            "the model is not known: that it is DeepSeek V4 was not checked, and its draft (MTP) layers, of which each "
            "needs a row, have none here (--model)",
            "layer 0 and 2 more are not in the plan: slot number modulo experts stands there",
        ),
    )
    notes = _write(_tight([[0, 2, 1, 3]]), Deployment(hidden_layers=1), tmp_path / "map.json").notes
    assert notes[-2] == (
        "the expert groups of the model are not known: without redundant slots vLLM refuses a file that mixes them"
    )


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            replace(V4, model="deepseek-v3", model_type=""),
            "vLLM's pull request #53022 is for DeepSeek V4 only, deepseek-v3 is another model — choose another "
            "--schema, or correct --model",
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
        _write(example_document(), known, tmp_path / "map.json")
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
        _write(_tight(rows), known, tmp_path / "map.json")
    assert str(refused.value) == (
        f"{message}: without redundant slots vLLM refuses a file that mixes expert groups — plan with redundant slots "
        "(--slots-per-rank)"
    )
    assert list(tmp_path.iterdir()) == []
    # The draft row of a plan is held to it, too; whole groups may stand in any order, with any order inside.
    with pytest.raises(PlanError, match=message.partition(":")[0]):
        drafts = replace(known, hidden_layers=1, moe_layers=(0,), mtp_layers=tuple(range(1, len(rows))))
        _write(_tight(rows), drafts, tmp_path / "map.json")
    _write(_tight([[2, 3, 0, 1], [1, 0, 3, 2]]), replace(TIGHT, mtp_layers=()), tmp_path / "map.json")
    assert lint_file(tmp_path / "map.json", "vllm", replace(TIGHT, mtp_layers=())).findings == ()


def _lint(folder: Path, content: Any, known: Deployment) -> list[str]:
    """The findings as `level layer:slot message`."""
    path = folder / "map.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    module = exports.load("vllm")
    found = module.check(module.read(path), known)
    places = ["-" if one.layer is None else f"{one.layer}:{'-' if one.slot is None else one.slot}" for one in found]
    return [f"{one.level} {place} {one.message}" for one, place in zip(found, places, strict=True)]


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
    ("groups unknown", [*WHOLE[:2], [0, 3, 1, 2]], replace(TIGHT, groups=None), []),
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
    assert _lint(tmp_path, content, known) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the file has no layer"),
        ("[0, 1, [2, 3]]", "row 0 of the file is a number, expected a list"),
        ("[[0, 1, 2, 3], 0]", "row 1 of the file is a number, expected a list"),
        ('"map"', "the file is text, expected a list"),
        ("[0, 1", "not JSON: Expecting ',' delimiter: line 1 column 6 (char 5)"),
    ],
)
def test_what_holds_no_map_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(PlanError) as refused:
        lint_file(path, "vllm", FULL)
    assert str(refused.value) == f"{path}: {message}"


def test_every_effect_has_its_source() -> None:
    assert "#53022 at 2a2112a7" in vllm_expert_map.RULES.source
    assert vllm_expert_map.RULES.one_row


DENSE_FIRST = Deployment(ranks=2, experts=4, hidden_layers=4, moe_layers=(2, 3), mtp_layers=(4,), redundant=2)


@pytest.mark.parametrize(
    ("rows", "known", "title"),
    [
        (5, DENSE_FIRST, IT),
        (2, DENSE_FIRST, "vLLM 0.33.0"),
        (4, DENSE_FIRST, "vLLM 0.33.0"),
        (5, replace(DENSE_FIRST, model="x", model_type="deepseek_v4"), IT),
        (5, replace(DENSE_FIRST, model="x", model_type="deepseek_v3"), "vLLM 0.33.0"),
        (5, replace(DENSE_FIRST, hidden_layers=None), "vLLM 0.33.0"),
        (5, Deployment(ranks=2), "vLLM 0.33.0"),
        (2, replace(DENSE_FIRST, schema=SCHEMA), IT),
        (5, replace(DENSE_FIRST, schema="pr49572"), "vLLM 0.33.0"),
        (5, Deployment(ranks=2, schema=SCHEMA), IT),
    ],
)
def test_whose_list_it_is(rows: int, known: Deployment, title: str, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps([FILLER] * rows))
    assert lint_file(path, "vllm", known).title == title


def test_a_sidecar_says_whose_list_it_is_and_contradictions_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    known = replace(V4, hidden_layers=2, moe_layers=(0, 1), mtp_layers=())
    for schema, title in (("pr49572", "vLLM 0.33.0"), (SCHEMA, IT)):
        exports.load("vllm").write(placed_document(example_plan(), (0, 1)), known, path, schema)
        report = lint_file(path, "vllm", Deployment())
        assert (report.title, report.findings) == (title, ())
        assert adopt(path, "vllm", Deployment()).document.evidence["adopted"]["engine"] == title
    (finding,) = lint_file(path, "vllm", Deployment(schema="pr49572")).findings
    assert (finding.level, finding.rule) == ("error", "exported-for")
    assert finding.message == "the file was exported for schema pr53022, the engine has schema pr49572"
    sidecar_of(path).write_text(sidecar_of(path).read_text().replace('"schema": "pr53022"', '"schema": "later"'))
    assert lint_file(path, "vllm", Deployment()).title == "vLLM 0.33.0"


def test_doubt_is_said_where_it_makes_a_difference(tmp_path: Path) -> None:
    def doubts(content: Any, known: Deployment) -> list[str]:
        return [line for line in _lint(tmp_path, content, known) if "taken for" in line]

    said = "warning - taken for a list of the pull request #49572: as one of #53022"
    some = replace(DENSE_FIRST, hidden_layers=None)
    assert doubts([FILLER] * 5, some) == [f"{said} nothing is wrong with it (--schema)"]
    assert doubts([FILLER] * 2, some) == [f"{said} it has errors (--schema)"]
    assert doubts([FILLER] * 5, replace(some, schema="pr49572")) == []
    assert doubts([FILLER] * 5, replace(some, model="x")) == []
    assert doubts([FILLER] * 2, DENSE_FIRST) == []
    assert doubts([FILLER] * 2, Deployment(ranks=2)) == []
    mixed = Deployment(ranks=2, experts=4, hidden_layers=2, moe_layers=(0, 1), groups=2)
    assert doubts([[0, 2, 1, 3]] * 2, mixed) == [f"{said} it has errors (--schema)"]


def test_another_schema_than_the_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(record(GOOD))
    for module_of in (lint_file, adopt):
        with pytest.raises(UsageError) as refused:
            module_of(path, "vllm", Deployment(ranks=2, schema=SCHEMA))
        assert str(refused.value) == "--schema: pr53022: the file is one of pr41141 — leave it out"
    with pytest.raises(UsageError, match="--schema: no schema 'none' — choose plugin, pr41141, pr49572, pr53022"):
        lint_file(path, "vllm", Deployment(schema="none"))
    with pytest.raises(UsageError, match="--schema: no schema 'pr53022': this engine has one format"):
        lint_file(path, "sglang", Deployment(schema=SCHEMA))


def test_the_moe_layers_of_the_plan_come_back(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    _write(example_document(), V4, path)
    for known in (Deployment(), replace(V4, model="")):
        assert adopt(path, "vllm", known).document.layers == example_document().layers
    sidecar_of(path).unlink()
    by_rows = replace(V4, schema="")
    assert adopt(path, "vllm", by_rows).document.layers == example_document().layers
    assert adopt(path, "vllm", replace(by_rows, hidden_layers=None, schema=SCHEMA)).document.layer_ids == (3, 4)
    path.write_text(json.dumps(GOOD[1]))
    shared = adopt(path, "vllm", replace(V4, schema=SCHEMA)).document
    assert [list(one.expert_of_slot) for one in shared.layers] == [GOOD[1]] * 2


@pytest.mark.parametrize("sidecar", [True, False])
def test_the_file_of_a_plan_is_prechecked(sidecar: bool, tmp_path: Path) -> None:
    """Also where the plan alone says how its list is to be read."""
    path = tmp_path / "map.json"
    for document, rules in ((example_document(), []), (placed_document(_swapped(), (3, 4)), ["other-plan"])):
        _write(document, Deployment(ranks=2, hidden_layers=6), path)
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
    written = _write(document, deployment_for(document), path)
    assert "layer 43 is not in the plan: slot number modulo experts stands there" in written.notes
    content = json.loads(path.read_text())
    assert content[:43] == [list(record.expert_of_slot) for record in document.layers]
    assert content[43:] == [[slot % 256 for slot in range(8 * slots)]]
    sidecar_of(path).unlink()
    known = deployment_of("deepseek-v4-flash", ranks=8)
    report = lint_file(path, "vllm", known)
    assert (report.title, report.findings) == (IT, ())
    assert adopt(path, "vllm", known).document.layers == document.layers
