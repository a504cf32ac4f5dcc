"""`ebsim precheck`, `--junit` and `--github` as CI runs them, and every command of what docs/ci.md offers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from easybalance_sim.gate.github import SUMMARY
from tests.ebsim_process import ROOT, SAMPLE, Done, ebsim, ebsim_here, one_line
from tests.gate_reports import good_report, one_case, stressed_report
from tests.one_text import unbroken
from tests.unit.test_gate_junit import require_schema

CI = ROOT / "docs" / "ci"
JSON = ("--format", "json")
ENGINE = ("--engine", "sglang", "--hidden-layers", "8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder but for the sample trace, a plan and its export for SGLang."""
    folder = tmp_path_factory.mktemp("ci")
    (folder / "traces").symlink_to(ROOT / "traces")
    done = ebsim_here("plan", SAMPLE, "--policy", "eplb", "-o", folder / "plan.json")
    assert done.returncode == 0, done.stderr
    exported = ebsim_here("export", "sglang", folder / "plan.json", "-o", folder / "map.json", "--hidden-layers", "8")
    assert exported.returncode == 0, exported.stderr
    return folder


def _cases(path: Path) -> dict[str, list[str]]:
    """What became of each test case, `SUITE/NAME`; the file is held to the schema."""
    root = require_schema(path.read_text(encoding="utf-8"))
    return {
        f"{suite.attrib['name']}/{case.attrib['name']}": [child.tag for child in case]
        for suite in root
        for case in suite
    }


def _precheck(folder: Path, *arguments: str | Path) -> Done:
    return ebsim_here("precheck", folder / "plan.json", SAMPLE, *arguments)


def _with_moved_expert(folder: Path, *, twice: bool) -> Path:
    """The export with two experts of other ranks swapped, or with one of them in the place of the other."""
    content = json.loads((folder / "map.json").read_text())
    row = content["physical_to_logical_map"][0]
    there = next(slot for slot in range(9, len(row)) if row[slot] not in row[:9] and row[0] not in row[9:])
    row[0], row[there] = row[there], row[there] if twice else row[0]
    path = folder / f"moved-{twice}.json"
    path.write_text(json.dumps(content))
    return path


def test_ready_with_the_file_that_lies_there(folder: Path, tmp_path: Path) -> None:
    junit = tmp_path / "out.xml"
    done = _precheck(folder, *ENGINE, "--file", folder / "map.json", "--junit", junit, "--format", "json")
    content = json.loads(done.stdout)
    assert (done.returncode, content["status"], content["exit_code"]) == (0, "ready", 0)
    assert [(one["format"], one["errors"]) for one in content["lint"]] == [("plan file", 0), ("SGLang 0.5.23", 0)]
    assert content["replay"]["verdict"]["status"] == "accepted"
    assert ["failure"] not in _cases(junit).values()
    assert "ebsim gate/p99_imbalance_drop_min" in _cases(junit)


@pytest.mark.parametrize(("twice", "rule"), [(False, "other-plan"), (True, "coverage")])
def test_another_file_is_not_ready_and_the_replay_is_done_all_the_same(
    twice: bool, rule: str, folder: Path, tmp_path: Path
) -> None:
    junit = tmp_path / "out.xml"
    moved = _with_moved_expert(folder, twice=twice)
    done = _precheck(folder, *ENGINE, "--file", moved, "--junit", junit, "--github")
    assert done.returncode == 1
    assert unbroken(done.stdout).startswith(f"NOT READY: lint errors in {moved} CLEAN: ")
    assert f"::error title=ebsim lint SGLang 0.5.23%3A {rule}::" in done.stderr
    cases = _cases(junit)
    assert cases[f"ebsim lint SGLang 0.5.23/{rule}"] == ["failure"]
    assert cases["ebsim gate/p99_imbalance_drop_min"] == ["system-out"]


def test_a_damaged_plan_is_not_replayed(folder: Path, tmp_path: Path) -> None:
    plan, junit = tmp_path / "plan.json", tmp_path / "out.xml"
    content = json.loads((folder / "plan.json").read_text())
    content["layers"][0]["expert_of_slot"].reverse()
    plan.write_text(json.dumps(content))
    done = ebsim_here("precheck", plan, SAMPLE, *ENGINE, "--junit", junit, "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["replay"]) == (1, None)
    assert _cases(junit) == {"ebsim lint plan file/plan-file": ["failure"], "ebsim gate/replay": ["skipped"]}


def test_what_the_engine_cannot_hold_is_not_ready(folder: Path) -> None:
    done = _precheck(folder, "--engine", "sglang", "--hidden-layers", "2")
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "NOT READY: lint errors in (exported)")


def test_strict_criteria_reject_and_little_traffic_is_no_evidence(folder: Path, tmp_path: Path) -> None:
    criteria = tmp_path / "gate.toml"
    for limit, code in (("p99_imbalance_drop_min = 0.99", 1), ("held_out_steps_min = 1000000", 3)):
        criteria.write_text(f"{limit}\n")
        assert _precheck(folder, "--criteria", criteria).returncode == code


def test_only_the_traffic_that_is_named_counts_on_the_cluster_that_is_named(folder: Path, tmp_path: Path) -> None:
    """The same figures as by `ebsim replay`; a process of its own."""
    cluster = tmp_path / "two_nodes.toml"
    cluster.write_text('ranks = 8\nranks_per_node = 4\nslots_per_rank = 10\nprofile = "h100"\n')
    chosen = ("--phase", "decode", "--workload", "chinese", "--workload", "japanese", "--cluster", str(cluster))
    done = ebsim("precheck", folder / "plan.json", SAMPLE, *chosen, "--format", "json")
    judged = json.loads(done.stdout)["replay"]
    replayed = ebsim_here("replay", SAMPLE, "--plan", folder / "plan.json", *chosen, *JSON)
    assert (judged["split"]["phase"], judged["split"]["workloads"]) == ("decode", ["chinese", "japanese"])
    assert (judged["cluster"]["nodes"], judged["cluster"]["profile"]) == (2, "h100")
    same = json.loads(replayed.stdout)
    del judged["timing_s"], same["timing_s"], same["notes"]
    assert (done.returncode, judged) == (replayed.returncode, same)


@pytest.mark.parametrize("schema", ["plugin", "pr41141", "pr49572", "pr53022"])
def test_a_schema_of_vllm_is_exported_or_told_of_the_file(schema: str, folder: Path, tmp_path: Path) -> None:
    endings = {"plugin": "folder", "pr41141": "map.jsonl"}
    file = tmp_path / endings.get(schema, "map.json")
    vllm = ("--hidden-layers", "8", "--schema", schema)
    exported = ebsim_here("export", "vllm", folder / "plan.json", "-o", file, *vllm)
    assert exported.returncode == 0, exported.stderr
    lints = [
        json.loads(_precheck(folder, "--engine", "vllm", *vllm, *more, *JSON).stdout)["lint"][1]
        for more in ((), ("--file", file))
    ]
    assert [one["errors"] for one in lints] == [0, 0]
    assert {one["format"] for one in lints} == {"vLLM with PR #53022" if schema == "pr53022" else "vLLM 0.33.0"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--phase prefil", "--phase: 'prefil' is not known — did you mean prefill? choose prefill, decode"),
        ("--workload klingon", "--workload: the trace has no workload 'klingon' — it has "),
        ("--cluster nowhere.toml", "nowhere.toml: cannot read: No such file or directory — check --cluster"),
        ("--cluster scenarios/clusters/nvl72.toml", "the plan is for 8 ranks with up to 9 slots, the cluster has 72"),
        ("--schema pr49572", "--schema: says nothing without its engine — add --engine"),
        ("--engine vllm --schema pr4957", "--schema: no schema 'pr4957' — did you mean pr49572? choose plugin, "),
        ("--engine sglang --schema plugin", "--schema: no schema 'plugin': this engine has one format — leave it out"),
        ("--engine vllm --schema pr14544", "--schema: pr14544: it was closed, "),
        ("--engine vllm --schema pr41141 --file list.json", "--schema: pr41141: the file is one of pr49572"),
    ],
)
def test_what_there_is_not_is_refused_in_one_line(
    flags: str, says: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "list.json").write_text("[[0, 1], [1, 0]]")
    done = _precheck(folder, "-q", *flags.split())
    assert done.returncode == 2
    assert says in one_line(done)


def test_a_refused_run_is_one_error_for_ci(folder: Path, tmp_path: Path) -> None:
    junit = tmp_path / "out.xml"
    done = ebsim_here("precheck", folder / "plan.json", "nowhere.parquet", "--junit", junit, "--github")
    assert (done.returncode, done.stdout) == (2, "")
    assert "::error title=ebsim run%3A run::nowhere.parquet" in done.stderr
    assert _cases(junit) == {"ebsim run/run": ["error"]}


def test_flags_that_do_not_fit(folder: Path) -> None:
    assert "--file: says nothing without its engine" in one_line(_precheck(folder, "--file", folder / "map.json"))
    plan, other = folder / "plan.json", folder / "moved-baseline.json"
    assert "the run reads this file" in one_line(_precheck(folder, "--junit", plan))
    other.write_text("{}")
    for flag in ("--cluster", "--baseline"):
        assert "the run reads this file" in one_line(_precheck(folder, "--junit", other, flag, other))
    assert "there is no folder" in one_line(_precheck(folder, "--junit", folder / "no" / "out.xml"))


def test_gate_tells_github_and_leaves_stdout_to_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(stressed_report(burst=[one_case("chinese", step_p99=1.5)])))
    arguments = ("gate", "report.json", "--junit", "gate.xml", "--github", "--format", "json")
    done = ebsim(*arguments, cwd=tmp_path, env={SUMMARY: str(tmp_path / "summary.md")})
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "rejected")
    assert done.stderr.startswith("::error file=report.json,title=ebsim gate%3A stress.burst::P99 step 100 → 100 µs")
    assert done.stderr.count("\n") == 1
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("### :x: ebsim gate: REJECTED (stress.burst)\n")
    assert _cases(tmp_path / "gate.xml")["ebsim gate/stress.burst"] == ["failure"]


def test_a_report_that_cannot_be_judged_takes_the_place_of_an_older_result(tmp_path: Path) -> None:
    report, junit = tmp_path / "report.json", tmp_path / "gate.xml"
    report.write_text(json.dumps(good_report()))
    assert ebsim_here("gate", report, "--junit", junit).returncode == 0
    assert "ebsim gate/fit_gap_max" in _cases(junit)
    report.write_text("{}")
    assert "split: is missing" in one_line(ebsim_here("gate", report, "--junit", junit))
    assert _cases(junit) == {"ebsim run/run": ["error"]}


def _scripts() -> dict[str, str]:
    """The shell text of both pipelines and of the page beside them."""
    github = yaml.safe_load((CI / "github-workflow.yml").read_text(encoding="utf-8"))
    gitlab = yaml.safe_load((CI / "gitlab-ci.yml").read_text(encoding="utf-8"))
    steps = github["jobs"]["precheck"]["steps"]
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    return {
        "github": "\n".join(step["run"] for step in steps if "run" in step),
        "gitlab": "\n".join(gitlab["precheck"]["script"]),
        "page": "\n".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL)),
    }


def test_what_is_uploaded_is_what_is_written() -> None:
    scripts = _scripts()
    github = yaml.safe_load((CI / "github-workflow.yml").read_text(encoding="utf-8"))
    gitlab = yaml.safe_load((CI / "gitlab-ci.yml").read_text(encoding="utf-8"))
    upload = github["jobs"]["precheck"]["steps"][-1]
    assert f"--junit {upload['with']['path']}" in scripts["github"] and upload["if"] == "always()"
    artifacts = gitlab["precheck"]["artifacts"]
    assert f"--junit {artifacts['reports']['junit']}" in scripts["gitlab"] and artifacts["when"] == "always"


def test_every_command_of_the_pipelines_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv(SUMMARY, raising=False)
    commands = {line for script in _scripts().values() for line in script.splitlines() if line.startswith("ebsim ")}
    assert len(commands) == 4
    for command in sorted(commands, key=lambda line: ("precheck" in line, "gate" in line)):
        words, _, output = command.removeprefix("ebsim ").partition(" > ")
        done = ebsim_here(*shlex.split(words))
        assert done.returncode == 0, done.stderr
        if output:
            (folder / output).write_text(done.stdout, encoding="utf-8")
        if "--junit" in words:
            junit = folder / shlex.split(words)[shlex.split(words).index("--junit") + 1]
            assert "ebsim gate/fit_gap_max" in _cases(junit)
            junit.unlink()
