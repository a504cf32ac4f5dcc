"""`lint`, `adopt` and `diff` as functions: what their commands find, as values; nothing is written unasked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import easybalance_sim as ebs
from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.ebsim_process import ebsim_here
from tests.engine_files import GOOD, ascend, halves, second, sglang
from tests.plan_documents import example_document
from tests.unit.test_plan_difference import made

CONFIG = {"num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 8,
          "moe_intermediate_size": 8}  # fmt: skip
SIZED = {"model": {"expert_bytes": 44_050_944, "assumed": False}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: good.json, bad.json (SGLang), map.json (vllm-ascend), config.json and two plans."""
    (tmp_path / "good.json").write_text(sglang(GOOD))
    (tmp_path / "bad.json").write_text(sglang(second([0, 2, 1, 3, -1, -1]), extra=1))
    (tmp_path / "map.json").write_text(ascend(halves(GOOD)))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write_plan(tmp_path / "plan.json", example_document())
    write_plan(tmp_path / "next.json", made([[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 0, 2]], [3, 3], evidence=SIZED))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def printed(*arguments: str | Path) -> str:
    return ebsim_here(*arguments, "--format", "json").stdout


def refusal(function: Any, *arguments: Any, **options: Any) -> str:
    """The one line of what a function refuses."""
    with pytest.raises(ebs.EbsimError) as refused:
        function(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_is_wrong_is_a_result(folder: Path) -> None:
    found = ebs.lint("bad.json", engine="sglang", ranks=2, experts=4)
    shown = printed("lint", "bad.json", "--engine", "sglang", "--ranks", "2", "--experts", "4")
    assert found.report == json.loads(shown)
    assert found.to_json("same.json").read_text("utf-8") == shown
    assert (found.ok, found.clean, found.notes) == (False, False, ())
    assert repr(found) == "<LintResult: 2 errors, 1 warning: bad.json (SGLang 0.5.23)>"
    assert found.call == "easybalance_sim.lint('bad.json', engine='sglang', ranks=2, experts=4)"
    table: Any = found.table()
    assert list(table.columns) == ["level", "rule", "layer", "slot", "message"]
    assert table["level"].tolist() == ["error", "error", "warning"]
    assert table.loc[1, ["layer", "slot"]].tolist() == [1, 4] and pd.isna(table.loc[0, "layer"])
    assert found._repr_html_().count("<tr") == 4 and "SGLang 0.5.23 stops with a TypeError" in found._repr_html_()


def test_warnings_are_no_errors_and_clean_is_without_any(folder: Path) -> None:
    warned = ebs.lint(folder / "good.json", engine="sglang", ranks=2, experts=4)
    assert (warned.ok, warned.clean) == (True, False)
    clean = ebs.lint(folder / "good.json", engine="sglang", ranks=2, model=folder / "config.json", redundant=2)
    assert (clean.ok, clean.clean, len(clean.table())) == (True, True, 0)
    assert clean.line() == f"CLEAN: {folder / 'good.json'} (SGLang 0.5.23)"
    assert list(clean.table().columns) == list(warned.table().columns)


def test_a_plan_is_linted_as_a_file_and_as_a_result(folder: Path) -> None:
    of_file, plan = ebs.lint("plan.json"), ebs.load_plan("plan.json")
    assert of_file.report == json.loads(printed("lint", "plan.json"))
    of_result = ebs.lint(plan)
    assert of_result.report == {**of_file.report, "file": None}
    assert of_result.line() == "CLEAN: the plan (plan file)"
    said = refusal(ebs.lint, plan, engine="sglang")
    assert said == "file: a plan is no file of sglang — export it, and lint what was written"
    text = (folder / "plan.json").read_text()
    (folder / "edited.json").write_text(text.replace('"eplb"', '"mine"'))
    assert ebs.lint("edited.json").table()["rule"].tolist() == ["plan-file"]


@pytest.mark.parametrize("loaded", ["map.json", "plan.json", None])
def test_what_is_loaded_now_is_a_file_or_a_result(loaded: str | None, folder: Path) -> None:
    (folder / "after.json").write_text(ascend(halves([[1, 0, 2, 3, 0, 1], GOOD[1]])))
    previous = ebs.load_plan("plan.json") if loaded is None else loaded
    found = ebs.lint("after.json", engine="vllm-ascend", ranks=2, experts=4, previous=previous)
    assert "stays on its rank but moves from slot 1 to slot 0" in found.table()["message"].iloc[0]


@pytest.mark.parametrize(
    ("file", "options", "says"),
    [
        ("nowhere.json", {}, "nowhere.json: cannot read: No such file or directory — check the path"),
        ("good.json", {}, "good.json: not a plan file — say whose file it is with --engine"),
        ("good.json", {"engine": "sgl"}, "no engine 'sgl' — did you mean sglang? choose omni, sglang, "),
        ("plan.json", {"engine": "sglang"}, "plan.json: is a plan file of ebsim, no file of sglang — "),
        ("plan.json", {"ranks": 2}, "--ranks: describes an engine, a plan file has none — add --engine"),
        ("plan.json", {"previous": "plan.json"}, "--previous: describes an engine, a plan file has none — "),
        ("good.json", {"engine": "sglang", "ranks": 0}, "ranks: 0 is no whole number of 1 to 1024"),
        ("good.json", {"engine": "sglang", "experts": 0}, "experts: 0 is no whole number of 1 or more"),
        ("good.json", {"engine": "sglang", "redundant": -1}, "redundant: -1 is no whole number of 0 or more"),
        ("good.json", {"engine": "sglang", "model": "gpt-2"}, "gpt-2: unknown model"),
    ],
)
def test_what_cannot_be_linted_is_one_line(file: str, options: dict[str, Any], says: str, folder: Path) -> None:
    assert refusal(ebs.lint, file, **options).startswith(says)


def test_an_adopted_plan_is_that_of_the_command(folder: Path) -> None:
    before = names(folder)
    adopted = ebs.adopt("sglang", "good.json", ranks=2, experts=4)
    assert names(folder) == before
    assert ebsim_here("adopt", "sglang", "good.json", "-o", "by.json", "--ranks", "2", "--experts", "4").returncode == 0
    assert (adopted.document, adopted.fingerprint) == (read_plan(folder / "by.json"), adopted.report["fingerprint"])
    assert isinstance(adopted, ebs.PlanResult) and adopted.plan.expert_of_slot.tolist() == GOOD
    assert (adopted.verdict, adopted.accepted, adopted.report["plan_file"]) == ("not judged", False, None)
    assert repr(adopted) == "<AdoptResult: 2 layers × 4 experts in 6 slots on 2 ranks, not judged>"
    assert adopted.table().loc[["engine", "slots", "redundant_slots"], "value"].tolist() == ["SGLang 0.5.23", 6, 2]
    assert adopted._repr_html_().count("<tr") == len(adopted.table()) + 2
    assert len(adopted.notes) == 1 and adopted.notes[0].startswith("the model is not known: every row is taken for")
    assert adopted.save("saved.json").read_bytes() == (folder / "by.json").read_bytes()
    loaded = ebs.load_plan("saved.json")
    assert loaded.report == {**adopted.report, "plan_file": "saved.json", "notes": []}


def test_an_adopted_plan_is_written_where_an_output_is_named(folder: Path) -> None:
    adopted = ebs.adopt("vllm-ascend", folder / "map.json", output=folder / "out.json", layers=range(3, 5))
    assert adopted.document.layer_ids == (3, 4)
    assert adopted.report["plan_file"] == str(folder / "out.json")
    assert read_plan(folder / "out.json") == adopted.document
    assert ebs.lint(adopted).clean and ebs.diff(adopted, folder / "plan.json").same


def test_an_adopted_plan_has_no_evidence_to_show(folder: Path) -> None:
    adopted = ebs.adopt("sglang", "good.json", ranks=2)
    says = f"{adopted.fingerprint[:12]}: the plan carries no evidence — replay it on a trace"
    for part in (adopted.findings, adopted.candidates, ebs.load_plan(adopted.save("saved.json")).table):
        assert refusal(part) == says
    assert refusal(adopted.to_metrics, "numbers.prom") == says and not (folder / "numbers.prom").exists()
    assert refusal(ebs.gate, adopted).startswith("report split: is missing")


@pytest.mark.parametrize(
    ("engine", "file", "options", "says"),
    [
        ("sglang", "bad.json", {"ranks": 2}, "bad.json: key 'extra' beside physical_to_logical_map: SGLang 0.5.23 "),
        ("sglang", "good.json", {}, "good.json: the file does not say how many ranks it is for — say --ranks"),
        ("sglang", "plan.json", {}, "plan.json: is a plan file of ebsim, no file of sglang — "),
        ("sglang", "nowhere.json", {}, "nowhere.json: cannot read: No such file or directory"),
        ("what", "good.json", {}, "no engine 'what' — choose omni, "),
        ("sglang", "good.json", {"ranks": 2, "schema": "plugin"}, "--schema: no schema 'plugin'"),
        ("sglang", "good.json", {"ranks": 2, "layers": "3-4"}, "layers: '3' is no whole number of 0 or more"),
        ("sglang", "good.json", {"ranks": 2, "layers": [3, -4]}, "layers: -4 is no whole number of 0 or more"),
        ("sglang", "good.json", {"ranks": 2, "output": "good.json"}, "good.json: the run reads this file, it would be"),
        ("sglang", "good.json", {"ranks": 2, "output": "no/out.json"}, "no/out.json: there is no folder no"),
    ],
)
def test_what_cannot_be_adopted_is_one_line_and_no_file(
    engine: str, file: str, options: dict[str, Any], says: str, folder: Path
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert refusal(ebs.adopt, engine, file, **{"output": "out.json", **options}).startswith(says)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_faults_of_a_file_are_told_where_they_are(folder: Path) -> None:
    (folder / "bad.json").write_text(sglang(second([0, 2, 1, 3, -1, 0])))
    assert refusal(ebs.adopt, "sglang", "bad.json", ranks=2) == (
        "bad.json: layer 1 slot 4: expert -1; SGLang 0.5.23 accepts it and counts back from the last expert — "
        "lint the file for all that is wrong"
    )
    (folder / "bad.json").write_text(sglang([[0, 1, 2, -1]] * 9))
    assert " (17 more errors) — lint the file" in refusal(ebs.adopt, "sglang", "bad.json", ranks=2, experts=4)


@pytest.mark.parametrize("steps", [False, True])
def test_a_difference_is_that_of_the_command(steps: bool, folder: Path) -> None:
    before = names(folder)
    found = ebs.diff("plan.json", folder / "next.json", steps=steps)
    assert names(folder) == before
    shown = printed("diff", "plan.json", "next.json", *(["--steps"] if steps else []))
    assert found.report == json.loads(shown)
    assert found.to_json("same.json").read_text("utf-8") == shown
    assert not found.same and repr(found) == ("<DiffResult: 1 of 12 slots need an expert from elsewhere, in 1 layer>")
    (step,) = found.table().reset_index().to_dict("records")
    assert (step["step"], step["layers"], step["moves"], step["local_moves"]) == (0, "3, 4", 1, 2)
    assert (step["bytes"], step["seconds"]) == (44_050_944, found.report["seconds"])
    (move,) = found.moves().to_dict("records")
    assert (move["layer"], move["expert"], move["to_rank"], move["path"]) == (3, 2, 1, "nvlink")
    assert found._repr_html_().count("<tr") == 3


def test_plans_are_compared_as_results_and_with_themselves(folder: Path) -> None:
    old, new = ebs.load_plan("plan.json"), ebs.load_plan("next.json")
    assert ebs.diff(old, new).report == ebs.diff("plan.json", "next.json").report
    assert (
        ebs.diff(old, new).call == f"easybalance_sim.diff(<plan {old.fingerprint[:12]}>, <plan {new.fingerprint[:12]}>)"
    )
    same = ebs.diff(old, old)
    assert same.same and same.line() == "the same experts in the same slots"
    assert (len(same.table()), len(same.moves())) == (0, 0)
    assert {"from_rank", "replaces"} <= set(same.moves().columns)


def test_unknown_sizes_are_no_numbers(folder: Path) -> None:
    found = ebs.diff("next.json", "plan.json")
    assert found.report["bytes"] is None and found.table()["bytes"].isna().all()
    assert "<td>–</td>" in found._repr_html_()


def test_steps_are_written_where_an_output_is_named(folder: Path) -> None:
    limits: dict[str, Any] = {"staging_slots": 0, "step_mb": 50, "step_ms": 1.0}
    found = ebs.diff("plan.json", "next.json", output="rollout.json", **limits)
    flags = ("--staging-slots", "0", "--step-mb", "50", "--step-ms", "1", "-o", "by.json")
    assert found.report == json.loads(printed("diff", "plan.json", "next.json", *flags))
    assert found.report["drained"]
    assert (folder / "rollout.json").read_bytes() == (folder / "by.json").read_bytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"output": "next.json"}, "next.json: the run reads this file, it would be lost"),
        ({"output": "no/steps.json"}, "no/steps.json: there is no folder no"),
        ({"step_mb": 1}, "limits of a step: too low for one expert — allow 44.05 MB"),
        ({"step_ms": float("inf")}, "--step-ms: inf is no limit — give a number"),
        ({"step_ms": float("nan")}, "step_ms: nan is no number of 0 or more"),
        ({"step_mb": -1}, "step_mb: -1 is no number of 0 or more"),
        ({"staging_slots": 1.5}, "staging_slots: 1.5 is no whole number of 0 or more"),
        ({"model": "deepseek-v3"}, "--model: model deepseek-v3 has 256 experts, the plan 4"),
        ({"profile": "h2000"}, "h2000: "),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_no_file(options: dict[str, Any], says: str, folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert refusal(ebs.diff, "plan.json", "next.json", **{"output": "out.json", **options}).startswith(says)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_files_that_are_no_plans_are_not_compared(folder: Path) -> None:
    assert refusal(ebs.diff, "plan.json", "good.json").startswith("good.json: ")
    assert refusal(ebs.diff, "plan.json", "nowhere.json").startswith("nowhere.json: cannot read")
    write_plan(folder / "other.json", made([[0, 1, 2, 3, 0, 2]] * 2, [2, 2, 2]))
    assert refusal(ebs.diff, "plan.json", "other.json").startswith("diff: the plans are for 2 and 3 ranks")
    assert refusal(ebs.diff, "next.json", "plan.json", step_mb=1).startswith("--step-mb: the size of an expert is not")
