"""`ebsim rollout` as a user runs it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.simulate.rollout.faults import FAULTS
from easybalance_sim.simulate.rollout.protocol import PARTS
from tests.ebsim_process import SAMPLE, ebsim, ebsim_here, one_line
from tests.one_text import unbroken

QUICK = ("--ranks", "2", "--steps", "1", "--walks", "2")


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A first plan and the one that replaces it."""
    folder = tmp_path_factory.mktemp("rollout")
    first, second = folder / "first.json", folder / "second.json"
    cluster = ("--ranks", "4", "--slots-per-rank", "17", "--force", "-o")
    ebsim_here("plan", SAMPLE, "--policy", "eplb", *cluster, first)
    ebsim_here(
        "plan", SAMPLE, "--current", first, "--policy", "warm_search", "--max-moves", "3", "--force", "-o", second
    )
    assert second.exists()
    return first, second


def _numbers(content: Any) -> Iterator[float]:
    if isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _numbers(inner)
    elif isinstance(content, int | float):
        yield content


def test_a_safe_rollout_of_a_real_plan(plans: tuple[Path, Path]) -> None:
    first, second = plans
    faults = ("--faults", "checksum-mismatch,rank-restarts")
    done = ebsim("rollout", second, "--current", first, *faults, *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SAFE: no order of events breaks an invariant\ngeneration 2 (warm_search@")
    for says in ("the others are ready at once", "→ whole plan at once", "layer by layer", "in place"):
        assert says in unbroken(done.stdout)
    rows = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ok  ")]
    assert rows == ["none", "checksum-mismatch", "rank-restarts", "all"]
    assert "random orders of all 4 ranks: 2 walks, " in done.stdout


def test_by_default_no_more_than_two_faults_meet(plans: tuple[Path, Path]) -> None:
    flags = ("--ranks", "2", "--steps", "1", "--walks", "0", "--format", "json")
    report = json.loads(ebsim_here("rollout", plans[0], *flags).stdout)
    assert [one["fault"] for one in report["explored"]] == ["none", *FAULTS, "any two of them"]
    assert max(one["most_faults"] for one in report["explored"]) == 2


def test_the_same_as_json(plans: tuple[Path, Path]) -> None:
    first, second = plans
    done = ebsim_here("rollout", second, "--current", first, "--faults", "none", *QUICK, "--format", "json")
    report = json.loads(done.stdout)
    assert set(report) == {"plan", "current", "facts", "protocol", "explored", "walks", "outcome", "notes"}
    assert (report["plan"]["file"], report["current"]["file"]) == (str(second), str(first))
    loaded = report["facts"]["experts_per_rank"]
    assert 0 < report["facts"]["ranks_that_load"] == sum(map(bool, loaded)) < 4
    assert sum(loaded) * report["facts"]["expert_bytes"] == sum(report["facts"]["bytes_per_rank"])
    assert all(map(math.isfinite, _numbers(report)))


def test_a_broken_protocol_is_shown_event_by_event(plans: tuple[Path, Path]) -> None:
    done = ebsim_here("rollout", plans[0], "--faults", "none", *QUICK, "--leave-out", "verify")
    assert done.returncode == 1
    assert done.stdout.startswith("UNSAFE: part of the group has adopted the new plan, and not all of it can\n")
    _, _, history = done.stdout.partition("under none: ")
    events = history.split("\n\n")[0].splitlines()[1:]
    assert [event.split(".")[0].strip() for event in events] == [str(n) for n in range(1, len(events) + 1)]
    assert not any("verifies" in event for event in events) and events[-1].endswith("hears of the switch")


def test_a_gpu_that_is_too_small(plans: tuple[Path, Path], tmp_path: Path) -> None:
    cluster, plan = tmp_path / "small.toml", tmp_path / "plan.json"
    cluster.write_text("ranks = 4\nranks_per_node = 4\nslots_per_rank = 17\nhbm_gib = 0.007\n")
    ebsim_here("plan", SAMPLE, "--cluster", cluster, "--policy", "eplb", "--force", "-o", plan)
    flags = ("--faults", "none", *QUICK)
    refused = ebsim_here("rollout", plan, *flags)
    assert refused.returncode == 1 and refused.stdout.startswith("DOES NOT FIT: ")
    assert "--in-place" in refused.stdout.splitlines()[0] and "→ in place" in refused.stdout
    assert ebsim_here("rollout", plan, *flags, "--in-place").returncode == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--faults", "fire"), "--faults: 'fire' is no fault — pairs, all, none or load-fails, "),
        (("--leave-out", "hope"), "the protocol has no part 'hope' — choose verify, "),
        (("--model", "deepseek-v3"), "--model: model deepseek-v3 has 256 experts, the plan 64"),
        (("--profile", "abacus"), "abacus: unknown hardware profile"),
        (("--current", "no.json"), "no.json: cannot read: "),
        (("--ranks", "9"), "--ranks"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(flags: tuple[str, ...], says: str, plans: tuple[Path, Path]) -> None:
    done = ebsim_here("rollout", plans[0], *flags)
    assert done.returncode == 2 and says in one_line(done)


def test_a_plan_with_a_parent_needs_it(plans: tuple[Path, Path]) -> None:
    done = ebsim_here("rollout", plans[1])
    assert done.returncode == 2 and "--current: the plan replaces " in one_line(done)


def test_help_names_every_part() -> None:
    text = " ".join(ebsim_here("rollout", "--help").stdout.split())
    said = text.partition("--leave-out PART")[2].partition(" --")[0]
    assert [part for part in PARTS if part not in said] == []
