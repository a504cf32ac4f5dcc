"""`ebsim compare` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.rank_times import write_times
from tests.skewed_traces import skewed_trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trace.parquet, plan.json, its report.json, loads.csv under the plan, and exact.parquet: times by them."""
    folder = tmp_path_factory.mktemp("compare")
    skewed_trace(folder / "trace.parquet", steps=120)
    flags = ("--ranks", "4", "--slots-per-rank", "5", "--policy", "eplb", "--force", "--format", "json")
    made = ebsim_here("plan", folder / "trace.parquet", *flags, "-o", folder / "plan.json")
    (folder / "report.json").write_text(made.stdout)
    loads = ("trace", "loads", folder / "trace.parquet", "--plan", folder / "plan.json")
    assert ebsim_here(*loads, "-o", folder / "loads.csv").returncode == 0
    assert ebsim_here(*loads, "--window-steps", "16", "-o", folder / "windows.csv").returncode == 0
    write_times(pd.read_csv(folder / "loads.csv"), folder / "exact.parquet")
    return folder


def report(*arguments: str | Path, code: int) -> dict[str, Any]:
    done = ebsim_here("compare", *arguments, "--format", "json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_tokens_that_tell_the_times(folder: Path) -> None:
    done = ebsim("compare", "loads.csv", "exact.parquet", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("GOOD: token count is a good enough cost model\n")
    found = report(folder / "loads.csv", folder / "exact.parquet", code=0)
    assert found["models"]["tokens"]["within"] == pytest.approx(1)
    assert (found["grain"], found["observations"], found["cost"]) == (["step", "layer", "rank"], 120 * 2 * 4, None)


def test_a_plan_on_the_trace_has_the_same_tokens_and_seconds_beside_them(folder: Path) -> None:
    loads = report(folder / "loads.csv", folder / "exact.parquet", code=0)
    found = report(folder / "plan.json", folder / "exact.parquet", "--trace", folder / "trace.parquet", code=1)
    assert found["models"]["tokens"] == loads["models"]["tokens"]
    seconds = found["models"]["seconds"]
    assert seconds["scale"] == 1 and seconds["bias"] != 0
    assert "h200" in found["cost"] and "fit a profile" in found["answer"]


@pytest.mark.parametrize("keys", [("layer", "rank"), ("step", "rank")])
def test_sums_and_means_are_compared_as_such(folder: Path, tmp_path: Path, keys: tuple[str, ...]) -> None:
    loads = pd.read_csv(folder / "loads.csv")
    if keys == ("step", "rank"):
        coarse = loads.groupby(["step", "rank"], as_index=False)[["assignments"]].sum()
    else:
        coarse = loads.groupby(["layer", "rank"], as_index=False)[["assignments"]].mean()
    times = write_times(coarse, tmp_path / "times.csv", keys=keys)
    code = 0 if len(coarse) >= 32 else 3
    for predicted in (("loads.csv",), ("plan.json", "--trace", folder / "trace.parquet")):
        found = report(folder / predicted[0], times, *predicted[1:], code=code if len(predicted) == 1 or code else 1)
        assert (found["grain"], found["observations"]) == (list(keys), len(coarse))
        if not code:
            assert found["models"]["tokens"]["pearson"] == pytest.approx(1)


def test_other_steps_than_those_of_the_trace(folder: Path, tmp_path: Path) -> None:
    times = pd.read_parquet(folder / "exact.parquet")
    some = times[times["step"] < 10].assign(step=lambda frame: frame["step"] + 115)
    some.to_csv(tmp_path / "some.csv", index=False)
    found = report(folder / "loads.csv", tmp_path / "some.csv", code=1)
    assert (found["rows"], found["not_predicted"]) == (80, 40)
    some.assign(step=some["step"] + 1000).to_csv(tmp_path / "none.csv", index=False)
    for given, says in (
        ((folder / "loads.csv", tmp_path / "none.csv"), "no step, layer, rank of the times"),
        (
            (folder / "plan.json", tmp_path / "none.csv", "--trace", folder / "trace.parquet"),
            "none of the measured steps",
        ),
        ((folder / "plan.json", tmp_path / "some.csv"), "give the plan file with --trace"),
        ((folder / "report.json", tmp_path / "some.csv"), "give the plan file with --trace"),
        ((folder / "windows.csv", tmp_path / "some.csv"), "means of several steps"),
        ((folder / "exact.parquet", tmp_path / "some.csv"), "has no column steps"),
        ((folder / "loads.csv", folder / "plan.json"), "is neither .csv nor .parquet"),
        ((folder / "loads.csv", folder / "absent.csv"), "absent.csv"),
    ):
        done = ebsim_here("compare", *given)
        assert done.returncode == 2 and says in one_line(done)


def test_too_few_observations_exit_3(folder: Path, tmp_path: Path) -> None:
    pd.read_parquet(folder / "exact.parquet").head(8).to_csv(tmp_path / "few.csv", index=False)
    done = ebsim_here("compare", folder / "loads.csv", tmp_path / "few.csv")
    assert done.returncode == 3
    assert done.stdout.startswith("TOO FEW OBSERVATIONS: 8 observations")
