"""`ebsim diff` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.plan.planfile import write_plan
from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.one_text import unbroken
from tests.plan_documents import example_document
from tests.unit.test_plan_difference import made


@pytest.fixture
def plans(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_plan(old, example_document())
    write_plan(new, made([[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 0, 2]], [3, 3]))
    return old, new


@pytest.fixture
def sized(plans: tuple[Path, Path]) -> tuple[Path, Path]:
    """The same, and the new plan knows how large an expert is: as one of DeepSeek-V3."""
    evidence = {"model": {"expert_bytes": 44_050_944, "assumed": False}}
    write_plan(plans[1], made([[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 0, 2]], [3, 3], evidence=evidence))
    return plans


def test_a_difference_is_exit_one(sized: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "rollout.json"
    done = ebsim("diff", *sized, "--steps", "-o", out)
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 of 12 slots need an expert from elsewhere, in 1 layer\n  1 over NVLink, 44.1 MB" in done.stdout
    assert "2 copies within a GPU put experts into their slots, for free" in done.stdout
    said = "1 step: 0.123 ms of transfer in all, 0.123 ms the longest; 1 staging slot per GPU, 44.1 MB"
    assert said in unbroken(done.stdout)
    assert json.loads(out.read_text())["step_count"] == 1


def test_plans_that_differ_in_the_names_of_ranks(tmp_path: Path) -> None:
    for name, rows in (("old.json", [[0, 1, 2, 3, 0, 2]] * 2), ("new.json", [[3, 0, 2, 0, 1, 2]] * 2)):
        write_plan(tmp_path / name, made(rows, [3, 3]))
    done = ebsim_here("diff", tmp_path / "old.json", tmp_path / "new.json")
    assert "  0 would do with ranks renamed layer by layer: make NEW with --current OLD\n" in done.stdout


def test_equal_plans_are_exit_zero(plans: tuple[Path, Path]) -> None:
    done = ebsim_here("diff", plans[0], plans[0])
    assert done.returncode == 0 and done.stdout.endswith("the same experts in the same slots\n")


def test_json_without_widths_says_so(plans: tuple[Path, Path]) -> None:
    done = ebsim_here("diff", *plans, "--format", "json", "--steps")
    content = json.loads(done.stdout)
    assert done.returncode == 1 and content["bytes"] is None and content["steps"][0]["moves"][0]["expert"] == 2
    assert "bytes and seconds need the model's widths" in ebsim_here("diff", *plans).stdout


def test_serving_stops_without_staging(sized: tuple[Path, Path]) -> None:
    done = ebsim_here("diff", *sized, "--staging-slots", "0")
    assert "1 step, serving stops for each: 0.123 ms of transfer in all" in done.stdout
    assert done.stdout.endswith("1 expert put aside in host memory meanwhile\n")


def test_refusals_are_one_line_and_keep_files(sized: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = sized
    assert "the run reads this file" in one_line(ebsim_here("diff", old, new, "-o", new))
    refused = one_line(ebsim_here("diff", old, new, "--step-mb", "1"))
    assert "too low for one expert — allow 44.05 MB and 0.123 ms or more" in refused
    assert "has 256 experts, the plan 4" in one_line(ebsim_here("diff", old, new, "--model", "deepseek-v3"))
    assert "nan is no limit" in one_line(ebsim_here("diff", old, new, "--step-ms", "nan"))
    assert "the size of an expert is not known" in one_line(ebsim_here("diff", new, old, "--step-mb", "1"))
    broken = tmp_path / "broken.json"
    broken.write_text(new.read_text()[:-20])
    assert "broken.json" in one_line(ebsim_here("diff", old, broken))
