"""Which of vLLM's formats a list is in, and what a file's sidecar adds to what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import exports
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import lint_file
from easybalance_sim.exports.sidecar import sidecar_of
from tests.engine_files import GOOD, record
from tests.expert_maps import FILLER, FULL, IT, SCHEMA, TIGHT, V4, linted, tight_document, write_map
from tests.plan_documents import example_document, example_plan, placed_document

DENSE_FIRST = Deployment(ranks=2, experts=4, hidden_layers=4, moe_layers=(2, 3), mtp_layers=(4,), redundant=2)


@pytest.mark.parametrize(
    ("rows", "known", "title"),
    [
        (5, DENSE_FIRST, IT),
        (2, DENSE_FIRST, "vLLM 0.33.0"),
        (4, DENSE_FIRST, "vLLM 0.33.0"),
        (5, replace(DENSE_FIRST, model="x", model_type="deepseek_v4"), IT),
        (5, replace(DENSE_FIRST, model="x", model_type="deepseek_v3"), "vLLM 0.33.0"),
        (5, replace(DENSE_FIRST, model="x", model_type="other"), "vLLM 0.33.0"),
        (5, replace(DENSE_FIRST, model="x"), IT),
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
    unknown = "the model_type of small-v4 is not known: that it is DeepSeek V4 is not checked (--model)"
    for schema, title, warned in (("pr49572", "vLLM 0.33.0", []), (SCHEMA, IT, [unknown])):
        exports.load("vllm").write(placed_document(example_plan(), (0, 1)), known, path, schema)
        report = lint_file(path, "vllm", Deployment())
        assert (report.title, [one.message for one in report.findings]) == (title, warned)
        assert adopt(path, "vllm", Deployment()).document.evidence["adopted"]["engine"] == title
    finding = lint_file(path, "vllm", Deployment(schema="pr49572")).findings[0]
    assert (finding.level, finding.rule) == ("error", "exported-for")
    assert finding.message == "the file was exported for schema pr53022, the engine has schema pr49572"


def _resay(path: Path, **said: Any) -> None:
    """Another sidecar, as of a later version or a damaged one; None leaves a key out."""
    content = {**json.loads(sidecar_of(path).read_text()), **said}
    sidecar_of(path).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.mark.parametrize("schema", ["later", None])
def test_where_the_sidecar_names_no_schema_that_is_known_the_rows_decide(schema: str | None, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    write_map(placed_document(example_plan(), (0, 1)), FULL, path)
    _resay(path, schema=schema)
    report = lint_file(path, "vllm", Deployment())
    warned = ["the schema 'later' of its sidecar is not known: it is not looked at (--schema)"] if schema else []
    said = [one.message for one in report.findings if "schema" in one.message]
    assert (report.title, report.errors, said) == (IT, 0, warned)
    assert lint_file(path, "vllm", Deployment(schema=SCHEMA)).errors == 0


def test_a_sidecar_that_names_the_schema_of_another_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    exports.load("vllm").write(example_document(), V4, path, "pr41141")
    _resay(path, schema=SCHEMA)
    for module_of in (lint_file, adopt):
        with pytest.raises(PlanError) as refused:
            module_of(path, "vllm", Deployment())
        assert str(refused.value) == (
            f"{sidecar_of(path)}: it says schema pr53022, the file is one of pr41141 — export the plan again"
        )
    assert [one.rule for one in lint_file(path, "vllm", Deployment(schema="pr41141")).findings] == ["exported-for"]


def test_the_model_of_a_sidecar_is_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    write_map(tight_document([[0, 2, 1, 3], [0, 1, 2, 3]]), replace(TIGHT, groups=1, model=""), path)
    for model, said in (
        ("deepseek-ai/DeepSeek-V4-Pro", []),
        ("qwen3-30b-a3b", [("error", "model")]),
        ("nobody-knows", [("warning", "unchecked")] * 2),
    ):
        _resay(path, model=model)
        found = lint_file(path, "vllm", Deployment()).findings
        assert [(one.level, one.rule) for one in found] == said
        known = lint_file(path, "vllm", replace(TIGHT, groups=1, mtp_layers=(2,))).findings
        assert known == ()


def test_layers_may_be_counted_with_the_draft_layers(tmp_path: Path) -> None:
    """Of a model that was not known, `--hidden-layers` is the only way to name them."""
    path = tmp_path / "map.json"
    plan = replace(example_plan(), expert_of_slot=np.array([*GOOD, GOOD[1]]))
    write_map(placed_document(plan, (0, 1, 2)), Deployment(hidden_layers=3), path)
    assert lint_file(path, "vllm", FULL).findings == ()
    (finding,) = [
        one for one in lint_file(path, "vllm", replace(FULL, mtp_layers=())).findings if "layers," in one.message
    ]
    assert finding.message.startswith("the file was exported for 3 layers, dense ones included, the engine has 2")
    write_map(placed_document(plan, (0, 1, 2)), FULL, path)
    assert lint_file(path, "vllm", Deployment(hidden_layers=3)).errors == 0
    assert lint_file(path, "vllm", Deployment(hidden_layers=4)).errors == 2


def test_doubt_is_said_where_it_makes_a_difference(tmp_path: Path) -> None:
    def doubts(content: Any, known: Deployment) -> list[str]:
        return [line for line in linted(tmp_path, content, known) if "taken for" in line]

    said = "warning - taken for a list of the pull request #49572: as one of #53022"
    some = replace(DENSE_FIRST, hidden_layers=None)
    assert doubts([FILLER] * 5, some) == [f"{said} nothing is wrong with it (--schema)"]
    assert doubts([FILLER] * 2, some) == [f"{said} it has errors (--schema)"]
    assert doubts([FILLER] * 5, replace(some, schema="pr49572")) == []
    assert doubts([FILLER] * 5, replace(some, model="x", model_type="other")) == []
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
    path = tmp_path / "map.json"
    path.write_text(json.dumps(GOOD))
    with pytest.raises(UsageError, match="--schema: plugin: the file is one of pr49572 or pr53022 — leave it out"):
        lint_file(path, "vllm", Deployment(ranks=2, schema="plugin"))
    with pytest.raises(UsageError, match="--schema: no schema 'none' — choose plugin, pr41141, pr49572, pr53022"):
        lint_file(path, "vllm", Deployment(schema="none"))
    with pytest.raises(UsageError, match="--schema: no schema 'pr53022': this engine has one format"):
        lint_file(path, "sglang", Deployment(schema=SCHEMA))
