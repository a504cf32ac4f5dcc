"""The engine's file of a plan, before it is deployed: it loads, and it holds that plan."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from easybalance_sim import exports
from easybalance_sim.errors import UsageError
from easybalance_sim.exports.deployment import deployment_for
from easybalance_sim.exports.prechecking import EXPORTED, OTHER_PLAN, REFUSED, lint_deployed
from easybalance_sim.exports.sidecar import sidecar_of
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument
from tests.plan_documents import LAYER_IDS, example_document, placed_document

HIDDEN = 6
SWAPPED = [[0, 1, 2, 3, 0, 1], [1, 2, 0, 3, 2, 0]]
OTHER_RANK = [[0, 1, 2, 3, 0, 1], [0, 3, 1, 2, 3, 0]]
ENGINES = exports.names()
VLLM = exports.load("vllm")


def _exported(document: PlanDocument, engine: str, folder: Path, *, sidecar: bool = True) -> Path:
    module = exports.load(engine)
    path = folder / f"map{module.SUFFIXES[0]}"
    module.write(document, deployment_for(document, "", HIDDEN), path, "")
    if not sidecar:
        sidecar_of(path).unlink()
    return path


def _placed(rows: list[list[int]]) -> PlanDocument:
    plan = Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array([3, 3]), experts=4, policy="eplb")
    return placed_document(plan, LAYER_IDS)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_would_be_exported_has_no_errors_and_is_not_kept(engine: str) -> None:
    report = lint_deployed(example_document(), engine, None, hidden_layers=HIDDEN)
    assert (report.path, report.errors) == (EXPORTED, 0)
    assert report.layers > 0


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_file_of_the_plan_has_no_errors(engine: str, sidecar: bool, tmp_path: Path) -> None:
    """Dense layers, too: an unknown model's are no part of the plan."""
    path = _exported(example_document(), engine, tmp_path, sidecar=sidecar)
    assert lint_deployed(example_document(), engine, path, hidden_layers=HIDDEN).errors == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_the_file_of_another_plan_is_an_error_whatever_its_order_in_a_rank(engine: str, tmp_path: Path) -> None:
    path = _exported(_placed(SWAPPED), engine, tmp_path)
    assert lint_deployed(example_document(), engine, path, hidden_layers=HIDDEN).errors == 0
    path = _exported(_placed(OTHER_RANK), engine, tmp_path)
    report = lint_deployed(example_document(), engine, path, hidden_layers=HIDDEN)
    assert [one.rule for one in report.findings if one.level == "error"] == [OTHER_PLAN]


DRAFT = [2, 1, 0, 3, 2, 0]
FILLER = [0, 1, 2, 3, 0, 1]


def _v4(folder: Path) -> str:
    """The config.json of three layers and a draft layer."""
    widths = {"n_routed_experts": 4, "num_experts_per_tok": 2, "hidden_size": 8, "moe_intermediate_size": 8}
    layers = {"model_type": "deepseek_v4", "num_hidden_layers": 3, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps({**widths, **layers}))
    return str(folder / "config.json")


def _written(document: PlanDocument, engine: str, model: str, path: Path, *, sidecar: bool) -> Path:
    schema = "pr53022" if engine == "vllm" else ""
    exports.load(engine).write(document, deployment_for(document, model, None if model else 4), path, schema)
    if not sidecar:
        sidecar_of(path).unlink()
    return path


def _of(rows: list[list[int]]) -> PlanDocument:
    plan = Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array([3, 3]), experts=4, policy="eplb")
    return placed_document(plan, range(len(rows)))


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize(("engine", "name"), [("vllm", "map.json"), ("tensorrt-llm", "map.yaml")])
def test_the_draft_row_is_part_of_the_plan_where_the_engine_loads_it(
    engine: str, name: str, sidecar: bool, tmp_path: Path
) -> None:
    model, moe = _v4(tmp_path), [FILLER, [1, 0, 2, 3, 1, 0], [3, 1, 2, 0, 3, 1]]
    plans = {"planned": _of([*moe, DRAFT]), "filler": _of(moe), "planned as filler": _of([*moe, FILLER])}
    for of_file, document in plans.items():
        path = _written(document, engine, model, tmp_path / name, sidecar=sidecar)
        for of_plan, expected in plans.items():
            same = (of_file == "planned") == (of_plan == "planned")
            found = [one.rule for one in lint_deployed(expected, engine, path, model).findings if one.level == "error"]
            assert found == ([] if same else [OTHER_PLAN]), (of_file, of_plan)


@pytest.mark.parametrize("sidecar", [True, False])
def test_rows_beyond_the_plan_of_a_model_that_is_not_known_are_fillers(sidecar: bool, tmp_path: Path) -> None:
    rows = [FILLER, [1, 0, 2, 3, 1, 0], [3, 1, 2, 0, 3, 1], DRAFT]
    for document, expected in ((_of(rows[:3]), []), (_of(rows), [OTHER_PLAN])):
        path = _written(document, "vllm", "", tmp_path / "map.json", sidecar=sidecar)
        report = lint_deployed(_of(rows[:3]), "vllm", path, hidden_layers=4, schema="pr53022")
        assert [one.rule for one in report.findings if one.level == "error"] == expected


def test_one_row_is_the_draft_layers_too(tmp_path: Path) -> None:
    path, model = tmp_path / "map.json", _v4(tmp_path)
    path.write_text(json.dumps(DRAFT))
    for rows, expected in (([DRAFT] * 4, 0), ([DRAFT] * 3, 1)):
        assert lint_deployed(_of(rows), "vllm", path, model, schema="pr53022").errors == expected


def test_the_draft_row_is_nothing_to_an_engine_that_does_not_load_it(tmp_path: Path) -> None:
    model, moe = _v4(tmp_path), [FILLER, [1, 0, 2, 3, 1, 0], [3, 1, 2, 0, 3, 1]]
    path = tmp_path / "map.json"
    exports.load("sglang").write(_of(moe), deployment_for(_of(moe), model), path, "")
    assert lint_deployed(_of([*moe, DRAFT]), "sglang", path, model).errors == 0


def test_a_file_without_the_layers_of_the_plan_is_an_error(tmp_path: Path) -> None:
    plan = example_document().plan()
    path = _exported(placed_document(plan, (0, 1)), "tensorrt-llm", tmp_path, sidecar=False)
    report = lint_deployed(example_document(), "tensorrt-llm", path, hidden_layers=HIDDEN)
    assert report.findings[0].message == "it does not hold this plan: no row for MoE layer 3"


@pytest.mark.parametrize("schema", VLLM.SCHEMAS)
def test_a_schema_says_what_would_be_exported(schema: str) -> None:
    report = lint_deployed(example_document(), "vllm", None, hidden_layers=HIDDEN, schema=schema)
    assert (report.path, report.errors) == (EXPORTED, 0)
    # A row for each layer of the model where the pull request's engine wants that, else of MoE layers.
    expected = ("vLLM with PR #53022", HIDDEN) if schema == "pr53022" else (VLLM.TITLE, len(LAYER_IDS))
    assert (report.title, report.layers) == expected


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.jsonl"
    VLLM.write(example_document(), deployment_for(example_document(), "", HIDDEN), path, "pr41141")
    assert lint_deployed(example_document(), "vllm", path, hidden_layers=HIDDEN, schema="pr41141").errors == 0
    with pytest.raises(UsageError, match="--schema: pr49572: the file is one of pr41141 — leave it out"):
        lint_deployed(example_document(), "vllm", path, hidden_layers=HIDDEN, schema="pr49572")


def test_a_list_for_another_pull_request_than_it_was_exported_for_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    VLLM.write(example_document(), deployment_for(example_document(), "", HIDDEN), path, "pr53022")
    report = lint_deployed(example_document(), "vllm", path, hidden_layers=HIDDEN, schema="pr49572")
    assert "exported-for" in [one.rule for one in report.findings if one.level == "error"]


@pytest.mark.parametrize("file", [None, Path("map.json")])
@pytest.mark.parametrize(("engine", "schema"), [("vllm", "pr5"), ("sglang", "pr49572")])
def test_a_schema_that_there_is_not_is_refused(engine: str, schema: str, file: Path | None) -> None:
    with pytest.raises(UsageError, match=f"--schema: no schema '{schema}'"):
        lint_deployed(example_document(), engine, file, hidden_layers=HIDDEN, schema=schema)


def test_what_the_engine_cannot_hold_is_an_error() -> None:
    report = lint_deployed(example_document(), "sglang", None, hidden_layers=2)
    assert [(one.level, one.rule) for one in report.findings] == [("error", REFUSED)]
