"""`ebsim export` as a user runs it: files, flags, verdicts, and refusals that leave nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim import exports
from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.one_text import unbroken
from tests.plan_documents import example_document, example_plan, placed_document

SUFFIX = {"sglang": ".json", "tensorrt-llm": ".yaml", "vllm": "", "vllm-ascend": ".json", "omni": ".npz"}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    write_plan(tmp_path / "plan.json", example_document())
    return tmp_path / "plan.json"


def test_files_and_flags_are_printed(plan: Path) -> None:
    done = ebsim("export", "sglang", "plan.json", "-o", "where.json", "--hidden-layers", "5", cwd=plan.parent)
    assert done.returncode == 0
    assert done.stdout == (
        "wrote where.json\n"
        "wrote where.json.ebsim.json\n"
        "\n"
        "start SGLang 0.5.23 with\n"
        "  --tp-size 2 --ep-size 2 --moe-a2a-backend deepep\n"
        "  --init-expert-location where.json --ep-num-redundant-experts 2\n"
        "  --ep-dispatch-algorithm static\n"
    )
    assert done.stderr.splitlines() == [
        "note: the model is not known: that the plan has all of its MoE layers was not checked (--model)",
        "note: any a2a backend will do; with --moe-a2a-backend none SGLang wants --ep-dispatch-algorithm dynamic",
        "note: the plan was judged under --dispatch even, which is none of SGLang's rules",
    ]


@pytest.mark.parametrize("engine", exports.names())
def test_every_engine_says_the_same_in_json_and_passes_its_own_rules(engine: str, plan: Path) -> None:
    output = plan.with_name(f"out{SUFFIX[engine]}")
    done = ebsim_here("export", engine, plan, "-o", output, "--hidden-layers", "5", "--format", "json")
    said = json.loads(done.stdout)
    assert (done.returncode, list(said)) == (0, ["engine", "fingerprint", "verdict", "files", "launch", "notes"])
    assert (said["engine"], said["verdict"]) == (engine, "accepted")
    assert said["fingerprint"] == example_document().fingerprint()
    assert said["files"] == [str(output), f"{output}.ebsim.json"]
    assert done.stderr == "".join(f"note: {note}\n" for note in said["notes"])
    assert ebsim_here("lint", output, "--engine", engine, "--ranks", "2", "--experts", "4").returncode == 0


V4 = {
    "model_type": "deepseek_v4", "num_hidden_layers": 5, "num_nextn_predict_layers": 1, "first_k_dense_replace": 3,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "hidden_size": 8, "moe_intermediate_size": 8,
}  # fmt: skip


def test_the_static_map_of_deepseek_v4_from_plan_to_plan(plan: Path) -> None:
    folder = plan.parent
    (folder / "config.json").write_text(json.dumps(V4))
    model = ("--model", "config.json")
    done = ebsim("export", "vllm", "plan.json", "-o", "map.json", "--schema", "pr53022", *model, cwd=folder)
    assert (done.returncode, done.stdout) == (
        0,
        "wrote map.json\n"
        "wrote map.json.ebsim.json\n"
        "\n"
        "start vLLM 0.33.0 with\n"
        "  --enable-expert-parallel --enable-eplb\n"
        '  --eplb-config \'{"num_redundant_experts": 2, "expert_map_path": "map.json"}\'\n',
    )
    rows = json.loads((folder / "map.json").read_text())
    assert rows == [[0, 1, 2, 3, 0, 1]] * 4 + [[0, 2, 1, 3, 2, 0], [0, 1, 2, 3, 0, 1]]
    notes = unbroken(done.stderr)
    assert "it needs the pull request #53022, which is for DeepSeek V4 only" in notes
    assert "note: layer 0 and 3 more are not in the plan: slot number modulo experts stands there" in notes
    linted = ebsim("lint", "map.json", "--engine", "vllm", cwd=folder)
    assert (linted.returncode, linted.stdout.partition("\n")[0]) == (0, "1 warning: map.json (vLLM with PR #53022)")
    assert "the model_type of example-moe is not known: that it is DeepSeek V4 is not checked" in unbroken(
        linted.stdout
    )
    linted = ebsim("lint", "map.json", "--engine", "vllm", *model, cwd=folder)
    assert (linted.returncode, linted.stdout) == (0, "CLEAN: map.json (vLLM with PR #53022)\n")
    (folder / "map.json.ebsim.json").unlink()
    said = ("--ranks", "2", *model, "--schema", "pr53022")
    assert ebsim("lint", "map.json", "--engine", "vllm", *said, cwd=folder).stdout == linted.stdout
    assert ebsim("adopt", "vllm", "map.json", "-o", "again.json", *said, cwd=folder).returncode == 0
    assert read_plan(folder / "again.json").layers == example_document().layers


@pytest.mark.parametrize("status", ["rejected", "insufficient_evidence", "not judged"])
def test_a_plan_that_was_not_accepted_needs_force(status: str, tmp_path: Path) -> None:
    plan, output = tmp_path / "plan.json", tmp_path / "map.json"
    write_plan(plan, placed_document(example_plan(), (0, 1), status=status))
    done = ebsim_here("export", "vllm-ascend", plan, "-o", output)
    words = status.replace("_", " ")
    assert (done.returncode, output.exists()) == (1, False)
    assert one_line(done) == f"ebsim: error: {plan}: the plan's verdict is {words} — --force exports it nevertheless\n"
    done = ebsim_here("export", "vllm-ascend", plan, "-o", output, "--force")
    assert (done.returncode, output.exists()) == (0, True)
    assert done.stderr.startswith(f"note: the plan's verdict is {words}: exported because of --force\n")
    assert json.loads(Path(f"{output}.ebsim.json").read_text())["verdict"]["status"] == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sglng", "plan.json", "-o", "a.json"], "no engine 'sglng' — did you mean sglang? choose omni, "),
        (["sglang", "none.json", "-o", "a.json"], "none.json: cannot read"),
        (["sglang", "plan.json", "-o", "a.json"], "plan.json: SGLang wants a row for each of the model's layers"),
        (["sglang", "plan.json", "-o", "a.json", "--model", "qwen3"], "qwen3: unknown model; known are"),
        (["sglang", "plan.json", "-o", "a.json", "--model", "mixtral-8x7b"], "plan.json: the plan is for 4 experts"),
        (["vllm", "plan.json", "-o", "a.json", "--schema", "pr53022"], "plan.json: vLLM wants a row for each of the"),
        (["vllm", "plan.json", "-o", "a.json", "--schema", "pr14544"], "--schema: pr14544: it was closed, and"),
        (["vllm-ascend", "plan.json", "-o", "plan.json"], "plan.json: this is the plan file, it would be lost"),
        (["vllm-ascend", "plan.json", "-o", "none/a.json"], "none/a.json: there is no folder none"),
        (
            ["vllm", "plan.json", "-o", "a.json", "--schema", "pr53022", "--model", "v3.json"],
            "plan.json: vLLM's pull request #53022 is for DeepSeek V4 only, v3 is another model — choose another",
        ),
        (["omni", "plan.json", "-o", "a.json"], "a.json: the engine reads .npy or .npz"),
    ],
)
def test_refusals_leave_nothing(
    arguments: list[str], message: str, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plan.parent)
    (plan.parent / "v3.json").write_text(json.dumps(V4 | {"model_type": "deepseek_v3"}))
    before = plan.read_bytes()
    done = ebsim_here("export", *arguments)
    assert done.returncode == 2
    assert message in one_line(done)
    assert sorted(path.name for path in plan.parent.iterdir()) == ["plan.json", "v3.json"]
    assert plan.read_bytes() == before


def test_neither_the_plan_nor_files_of_others_are_written_over(plan: Path) -> None:
    folder = plan.parent
    as_sidecar = folder / "a.json.ebsim.json"
    as_sidecar.write_bytes(plan.read_bytes())
    package = folder / "package"
    assert ebsim_here("export", "vllm", plan, "-o", package).returncode == 0
    (package / "ebsim_vllm_plan" / "__pycache__").mkdir()
    assert ebsim_here("export", "vllm", plan, "-o", package).returncode == 0
    (package / "notes.txt").write_text("keep")
    (folder / "project").mkdir()
    (folder / "project" / "pyproject.toml").touch()
    (folder / "b.json.ebsim.json").mkdir()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for arguments, says in (
        (("sglang", as_sidecar, "-o", folder / "a.json", "--hidden-layers", "5"), "this is the plan file, it would be"),
        (("sglang", plan, "-o", folder / "b.json", "--hidden-layers", "5"), "b.json.ebsim.json: is a folder"),
        (("vllm", plan, "-o", package), "the folder holds other things (notes.txt)"),
        (("vllm", plan, "-o", folder / "project"), "the folder holds other things (pyproject.toml)"),
        (("vllm", plan, "-o", folder / "b.json.ebsim.json", "--schema", "pr49572"), "is a folder, not a file"),
    ):
        done = ebsim_here("export", *arguments)
        assert done.returncode == 2
        assert says in one_line(done)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_link_stays_one_and_the_file_behind_it_is_written(plan: Path) -> None:
    link, target = plan.parent / "link.json", plan.parent / "target.json"
    link.symlink_to("target.json")
    done = ebsim_here("export", "vllm-ascend", plan, "-o", link)
    assert (done.returncode, link.is_symlink(), target.is_file()) == (0, True, True)
    assert ebsim_here("lint", link, "--engine", "vllm-ascend").returncode == 0
