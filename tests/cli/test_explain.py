"""`ebsim explain` on the command line: every answer as a table, and the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ebsim_process import SAMPLE, ebsim, ebsim_here, one_line


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    done = ebsim_here("plan", SAMPLE, "--policy", "eplb", "--force", "-o", path)
    assert path.exists(), done.stderr
    return path


def test_an_expert_as_a_process(plan: Path) -> None:
    done = ebsim("explain", plan, "--layer", "7", "--expert", "2", "--trace", SAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(
        ebsim_here("explain", plan, "--layer", "7", "--expert", "2", "--trace", SAMPLE, "--format", "json").stdout
    )["expert"]
    ranks = ", ".join(map(str, told["ranks"]))
    held = f"{told['replicas']} replicas, on ranks {ranks}" if told["replicas"] > 1 else f"1 replica, on rank {ranks}"
    assert f"layer 7, expert 2: {held}\n" in done.stdout
    assert f"place {told['place']} of 64" in done.stdout
    assert f"as it is {told['rank_imbalance']['mean']:.3f} " in " ".join(done.stdout.split())
    assert "70 windows that the plan was made from" in done.stdout


def test_the_other_answers(plan: Path) -> None:
    overview = ebsim_here("explain", plan, "--trace", SAMPLE).stdout
    assert "replicas of an expert: " in overview and "most excess first" in overview and "bound" in overview
    layer = ebsim_here("explain", plan, "--layer", "2", "--trace", SAMPLE).stdout
    assert "no plan with these slots under" in layer and "… 52 more" in layer
    rank = ebsim_here("explain", plan, "--rank", "3", "--trace", SAMPLE).stdout
    assert "rank 3 on node 0: 9 slots in a layer, load " in rank
    assert all(len(line) <= 110 for text in (overview, layer, rank) for line in text.splitlines())


def test_without_a_trace_it_says_what_is_missing(plan: Path) -> None:
    for about in ((), ("--layer", "1"), ("--rank", "1"), ("--layer", "1", "--expert", "5")):
        done = ebsim_here("explain", plan, *about)
        assert done.returncode == 0 and "load: not known, say --trace" in done.stdout
        assert done.stderr.startswith("note: the plan file holds no load") and str(SAMPLE) in done.stderr


def test_refusals_are_one_line(plan: Path) -> None:
    assert "its layers are 0 to 7" in one_line(ebsim_here("explain", plan, "--layer", "8"))
    assert "cannot read" in one_line(ebsim_here("explain", plan.with_name("none.json")))
