"""`ebsim diff` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.plan.planfile import write_plan
from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.plan_documents import example_document
from tests.unit.test_plan_difference import made


@pytest.fixture
def plans(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_plan(old, example_document())
    write_plan(new, made([[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 0, 2]], [3, 3]))
    return old, new


def test_a_difference_is_exit_one(plans: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "rollout.json"
    done = ebsim("diff", *plans, "--steps", "--model", "deepseek-v3", "-o", out)
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 of 12 slots need an expert from elsewhere, in 1 layers\n  1 over NVLink, 44.1 MB" in done.stdout
    assert "2 experts change their slot on their own GPU, for free" in done.stdout
    assert "1 steps, 0.123 ms of transfer in all" in done.stdout
    assert json.loads(out.read_text())["step_count"] == 1


def test_equal_plans_are_exit_zero(plans: tuple[Path, Path]) -> None:
    done = ebsim_here("diff", plans[0], plans[0])
    assert done.returncode == 0 and done.stdout.endswith("the same experts in the same slots\n")


def test_json_without_widths_says_so(plans: tuple[Path, Path]) -> None:
    done = ebsim_here("diff", *plans, "--format", "json", "--steps")
    content = json.loads(done.stdout)
    assert done.returncode == 1 and content["bytes"] is None and content["steps"][0]["moves"][0]["expert"] == 2
    assert "bytes and seconds need the model's widths" in ebsim_here("diff", *plans).stdout


def test_serving_stops_without_staging(plans: tuple[Path, Path]) -> None:
    done = ebsim_here("diff", *plans, "--staging-slots", "0", "--model", "deepseek-v3")
    assert "serving stops for 0.123 ms of transfer; 0 experts wait in host memory meanwhile" in done.stdout


def test_refusals_are_one_line_and_keep_files(plans: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = plans
    assert "the run reads this file" in one_line(ebsim_here("diff", old, new, "-o", new))
    assert "1 experts have to change at once, 44.05 MB" in one_line(
        ebsim_here("diff", old, new, "--model", "deepseek-v3", "--step-mb", "1")
    )
    broken = tmp_path / "broken.json"
    broken.write_text(new.read_text()[:-20])
    assert "broken.json" in one_line(ebsim_here("diff", old, broken))
