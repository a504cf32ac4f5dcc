"""`ebsim init` as a process, and its files in the commands that they are for."""

from __future__ import annotations

import json
from pathlib import Path

from tests.ebsim_process import SAMPLE, ebsim, ebsim_here, one_line
from tests.one_text import unbroken


def test_its_files_plan_and_simulate(tmp_path: Path) -> None:
    done = ebsim("init", "--model", "deepseek-v2-lite", "--gpus", "8", "--gpu", "h20", "-o", "here", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "9 in a layer, 8 spare" in done.stdout
    shown = unbroken(done.stdout.replace("\\\n", ""))
    assert "ebsim plan TRACE --cluster here/cluster.toml --criteria here/gate.toml -o plan.json" in shown
    made = ebsim_here(
        "plan", SAMPLE, "--cluster", "here/cluster.toml", "--criteria", "here/gate.toml", "--policy", "eplb",
        "--format", "json", cwd=tmp_path,
    )  # fmt: skip
    assert made.returncode in (0, 1), made.stderr
    cluster = json.loads(made.stdout)["cluster"]
    assert cluster == {"ranks": 8, "nodes": 1, "slots_per_rank": 9, "slots": 72, "profile": "h20"}
    scenario = tmp_path / "here" / "scenario.toml"
    text = scenario.read_text().replace("warm_up_s = 15", "warm_up_s = 0.1")
    text = text.replace('after = "auto"', 'after = "eplb"').replace("duration_s = 60", "duration_s = 0.5")
    scenario.write_text(
        text.replace("[routing.recipe]", "[routing.recipe]\nlayers = 2\nsteps = 64\nrequest_steps = 16")
    )
    served = ebsim_here("simulate", "here/scenario.toml", "--format", "json", cwd=tmp_path)
    assert served.returncode == 0, served.stderr
    assert json.loads(served.stdout)


def test_refusals_are_one_line(tmp_path: Path) -> None:
    assert "did you mean qwen3-235b-a22b" in one_line(
        ebsim_here("init", "--model", "qwen3-235b-a22", "--gpus", "8", "-o", tmp_path)
    )
    line = one_line(ebsim_here("init", "--model", "deepseek-v3", "--gpus", "4", "-o", tmp_path))
    assert "does not fit on 4 H200" in line and "--gpus 8" in line
    assert list(tmp_path.iterdir()) == []
    assert ebsim_here("init", "--model", "gpt-oss-20b", "--gpus", "4", "-o", tmp_path).returncode == 0
    again = ebsim_here("init", "--model", "gpt-oss-20b", "--gpus", "4", "-o", tmp_path)
    assert again.returncode == 2 and "would be lost" in one_line(again)
    assert ebsim_here("init", "--model", "gpt-oss-20b", "--gpus", "4", "-o", tmp_path, "--force").returncode == 0
