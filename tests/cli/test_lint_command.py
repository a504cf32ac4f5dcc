"""`ebsim lint` and `ebsim adopt`: exit codes, both formats, and no file where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim import exports
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.ebsim_process import SAMPLE, Done, ebsim_here, one_line
from tests.engine_files import GOOD, ascend, halves, second, sglang
from tests.one_text import unbroken
from tests.plan_documents import example_document

SAID = ("--ranks", "2", "--experts", "4")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with good.json, bad.json (SGLang), map.json (vllm-ascend), list.json (vLLM) and plan.json."""
    (tmp_path / "good.json").write_text(sglang(GOOD))
    (tmp_path / "bad.json").write_text(sglang(second([0, 2, 1, 3, -1, -1]), extra=1))
    (tmp_path / "map.json").write_text(ascend(halves(GOOD)))
    (tmp_path / "list.json").write_text(json.dumps(second([0, 2, 1, 3, True, 0])))
    write_plan(tmp_path / "plan.json", example_document())
    return tmp_path


def _lint(path: Path, engine: str, *more: str | Path) -> Done:
    return ebsim_here("lint", path, "--engine", engine, *more)


def test_warnings_alone_are_exit_0_and_said(folder: Path) -> None:
    done = _lint(folder / "good.json", "sglang", *SAID)
    assert (done.returncode, done.stderr) == (0, "")
    assert unbroken(done.stdout) == (
        f"1 warning: {folder / 'good.json'} (SGLang 0.5.23) "
        "warning the model is not known: the number of layers is not checked (--model)"
    )


def test_a_clean_file_says_so(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps({"num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2,
                                  "hidden_size": 8, "moe_intermediate_size": 8}))  # fmt: skip
    done = _lint(folder / "good.json", "sglang", "--ranks", "2", "--model", config, "--redundant", "2")
    assert (done.returncode, unbroken(done.stdout)) == (0, f"CLEAN: {folder / 'good.json'} (SGLang 0.5.23)")


def test_errors_are_exit_1_with_the_list(folder: Path) -> None:
    done = _lint(folder / "bad.json", "sglang", *SAID)
    assert (done.returncode, done.stderr) == (1, "")
    verdict, findings = done.stdout.split("\n\n")
    assert unbroken(verdict) == f"2 errors, 1 warning: {folder / 'bad.json'} (SGLang 0.5.23)"
    assert findings.splitlines() == [
        "error                     key 'extra' beside physical_to_logical_map: SGLang",
        "                          0.5.23 stops with a TypeError",
        "error    layer 1  slot 4  expert -1 (1 more in this layer); SGLang 0.5.23",
        "                          accepts it and counts back from the last expert",
        "warning                   the model is not known: the number of layers is not",
        "                          checked (--model)",
    ]


@pytest.mark.parametrize(
    ("schema", "does"),
    [
        ("pr49572", "vLLM 0.33.0 makes an int64 tensor of the rows and stops or cuts it off"),
        ("pr53022", "vLLM with PR #53022 stops with a ValueError"),
    ],
)
def test_a_schema_says_which_pull_request_reads_the_list(schema: str, does: str, folder: Path) -> None:
    done = _lint(folder / "list.json", "vllm", *SAID, "--schema", schema)
    assert done.returncode == 1
    assert f"error layer 1 slot 4 True is not a whole number; {does} " in unbroken(done.stdout)


def test_json_has_stable_keys(folder: Path) -> None:
    done = _lint(folder / "bad.json", "sglang", *SAID, "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["errors"], report["warnings"], report["layers"]) == (1, 2, 1, 2)
    assert set(report) == {"file", "format", "layers", "errors", "warnings", "findings"}
    assert report["findings"][1] == {
        "level": "error",
        "rule": "negative",
        "layer": 1,
        "slot": 4,
        "message": "expert -1 (1 more in this layer); SGLang 0.5.23 accepts it and counts back from the last expert",
    }


def test_a_long_list_is_cut_in_the_table_only(folder: Path) -> None:
    path = folder / "long.json"
    path.write_text(sglang([[0, 1, 2, -1]] * 9))
    done = _lint(path, "sglang", *SAID)
    assert done.stdout.count("expert -1") == 5 and done.stdout.endswith("… 8 more (--format json lists all)\n")
    assert len(json.loads(_lint(path, "sglang", *SAID, "--format", "json").stdout)["findings"]) == 19


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.json", "--engine", "sglang"), "nowhere.json: cannot read: No such file or directory"),
        (("nowhere.json",), "nowhere.json: cannot read: No such file or directory"),
        (("good.json",), "good.json: not a plan file — say whose file it is with --engine"),
        ((".",), ".: not a plan file — say whose file it is with --engine"),
        (("good.json", "--engine", "sgl"), "no engine 'sgl' — did you mean sglang? choose omni, "),
        (("plan.json", "--engine", "sglang"), "plan.json: is a plan file of ebsim, no file of sglang — check it with"),
        (("good.json", "--engine", "sglang", "--model", "gpt-2"), "gpt-2: unknown model"),
        (("good.json", "--engine", "sglang", "--ranks", "0"), "Invalid value for '--ranks'"),
        ((".", "--engine", "vllm-ascend"), "cannot read: Is a directory"),
        (("good.json", "--engine", "sglang", "--schema", "pr53022"), "--schema: no schema 'pr53022': this engine has"),
        (("list.json", "--engine", "vllm", "--schema", "pr5302"), "no schema 'pr5302' — did you mean pr53022? choose"),
        (("list.json", "--engine", "vllm", "--schema", "pr41141"), "--schema: pr41141: the file is one of pr49572"),
        (("plan.json", "--schema", "pr53022"), "--schema: describes an engine, a plan file has none — add --engine"),
        (("plan.json", "--ranks", "2"), "--ranks: describes an engine, a plan file has none — add --engine"),
    ],
)
def test_what_cannot_be_read_is_exit_2_with_one_line(
    arguments: tuple[str, ...], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = ebsim_here("lint", *arguments)
    assert done.returncode == 2
    assert message in one_line(done)


def test_a_plan_file_is_held_to_the_house_rules_and_its_fingerprint(folder: Path) -> None:
    path = folder / "plan.json"
    assert unbroken(ebsim_here("lint", path).stdout) == f"CLEAN: {path} (plan file)"
    path.write_text(path.read_text().replace('"eplb"', '"mine"'))
    done = ebsim_here("lint", path)
    assert done.returncode == 1
    assert unbroken(done.stdout).endswith(
        "error the content does not match its fingerprint: it was edited — write it again with `ebsim plan`"
    )
    (finding,) = json.loads(ebsim_here("lint", path, "--format", "json").stdout)["findings"]
    assert (finding["rule"], finding["layer"], finding["slot"]) == ("plan-file", None, None)


def test_an_exported_file_that_was_edited_is_found(folder: Path) -> None:
    path = folder / "map2.json"
    exports.load("vllm-ascend").write(read_plan(folder / "plan.json"), Deployment(), path, "")
    assert _lint(path, "vllm-ascend", *SAID).returncode == 0
    path.write_text(path.read_text() + " ")
    done = _lint(path, "vllm-ascend", *SAID)
    assert done.returncode == 1
    said = "it does not match the sha256 in map2.json.ebsim.json: it was edited since it was exported"
    assert said in unbroken(done.stdout)


def test_an_exported_file_says_itself_what_it_is_for(folder: Path) -> None:
    path, config = folder / "where.json", folder / "config.json"
    config.write_text(json.dumps({"num_hidden_layers": 5, "num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 8,
                                  "moe_intermediate_size": 8, "first_k_dense_replace": 3}))  # fmt: skip
    done = ebsim_here("export", "sglang", folder / "plan.json", "-o", path, "--model", config)
    assert done.returncode == 0, done.stderr
    assert unbroken(_lint(path, "sglang").stdout) == f"CLEAN: {path} (SGLang 0.5.23)"
    assert one_line(ebsim_here("lint", path)).endswith("where.json: not a plan file — add --engine sglang\n")
    other = _lint(path, "sglang", "--ranks", "3")
    assert other.returncode == 1
    assert "the file was exported for 2 ranks, the engine has 3 ranks" in unbroken(other.stdout)
    adopted = folder / "adopted.json"
    done = ebsim_here("adopt", "sglang", path, "-o", adopted)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_plan(adopted).layers == read_plan(folder / "plan.json").layers
    assert ebsim_here("diff", folder / "plan.json", adopted).returncode == 0


def test_slots_of_kept_experts_are_compared_with_what_is_loaded(folder: Path) -> None:
    before, after = folder / "map.json", folder / "after.json"
    after.write_text(ascend(halves([[1, 0, 2, 3, 0, 1], GOOD[1]])))
    for previous in (before, folder / "plan.json"):
        done = _lint(after, "vllm-ascend", *SAID, "--previous", previous)
        assert done.returncode == 1
        assert (
            "layer 0 slot 0 expert 1 stays on its rank but moves from slot 1 to slot 0 (1 more in this layer); "
            "vllm-ascend 182b75e rejects the layer while it serves and keeps the old one" in unbroken(done.stdout)
        )
    assert _lint(before, "vllm-ascend", *SAID, "--previous", folder / "plan.json").returncode == 0


def test_an_engine_that_takes_any_slots_says_so(folder: Path) -> None:
    done = _lint(folder / "good.json", "sglang", *SAID, "--previous", folder / "plan.json")
    assert done.returncode == 0
    assert "--previous is not looked at: SGLang 0.5.23 takes kept experts in any slot" in unbroken(done.stdout)


def test_help_names_every_engine() -> None:
    for command in ("lint", "adopt"):
        text = " ".join(ebsim_here(command, "--help").stdout.split())
        assert [name for name in exports.names() if name not in text] == []


def test_a_bad_file_is_not_adopted(folder: Path) -> None:
    output = folder / "adopted.json"
    done = ebsim_here("adopt", "sglang", folder / "bad.json", "-o", output, *SAID)
    assert (done.returncode, output.exists()) == (1, False)
    assert done.stdout == _lint(folder / "bad.json", "sglang", *SAID).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sglang", "good.json", "-o", "adopted.json"), "good.json: the file does not say how many ranks it is for"),
        (("sglang", "plan.json", "-o", "adopted.json"), "plan.json: is a plan file of ebsim, no file of sglang"),
        (("sglang", "good.json", "-o", "good.json", *SAID), "good.json: the run reads this file, it would be lost"),
        (("sglang", "good.json", "-o", "no/adopted.json", *SAID), "there is no folder no"),
        (("sglang", "good.json", "-o", "adopted.json", *SAID, "--layers", "x"), "'x' is not a list of layer ids"),
        (("what", "good.json", "-o", "adopted.json"), "no engine 'what'"),
        (("sglang", "good.json", "-o", "adopted.json", *SAID, "--schema", "plugin"), "no schema 'plugin'"),
    ],
)
def test_a_refused_adoption_leaves_no_file(
    arguments: tuple[str, ...], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    done = ebsim_here("adopt", *arguments)
    assert done.returncode == 2
    assert message in one_line(done)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_an_adopted_plan_is_replayed_and_improved(tmp_path: Path) -> None:
    """On the sample trace: what an engine runs with is the baseline of the next plan."""
    first, deployed = tmp_path / "first.json", tmp_path / "deployed.json"
    assert ebsim_here("plan", SAMPLE, "--policy", "round_robin", "--force", "-o", first).returncode in (0, 1)
    document = read_plan(first)
    (tmp_path / "map.json").write_text(sglang([list(record.expert_of_slot) for record in document.layers]))
    done = ebsim_here("adopt", "sglang", tmp_path / "map.json", "-o", deployed, "--ranks", "8")
    assert (done.returncode, read_plan(deployed).layers) == (0, document.layers)
    replayed = json.loads(ebsim_here("replay", SAMPLE, "--plan", deployed, "--format", "json").stdout)
    same = json.loads(ebsim_here("replay", SAMPLE, "--plan", deployed, "--baseline", first, "--format", "json").stdout)
    assert replayed["plan"]["rank_imbalance"] == same["baseline"]["rank_imbalance"]
    assert replayed["split"]["by"] == "all"
    done = ebsim_here("plan", SAMPLE, "--current", deployed, "--policy", "eplb", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["baseline"]["policy"], report["verdict"]["status"]) == (0, "keep", "accepted")
