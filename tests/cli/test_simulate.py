"""`ebsim simulate` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ebsim_process import ROOT, ebsim, ebsim_here, one_line
from tests.small_scenario import small_scenario

CLAIM = ROOT / "scenarios" / "easybalance-8xa100.toml"
KEYS = {
    "scenario", "model", "workload", "routing", "slo", "plans", "pools", "before", "after", "even", "ratios", "draws",
    "bracket", "reasons", "nothing_served", "verdict", "notes",
}  # fmt: skip


def test_the_answer_comes_as_a_table_and_as_json(tmp_path: Path) -> None:
    path = small_scenario(tmp_path)
    table = ebsim("simulate", path)
    assert table.returncode == 0, table.stderr
    assert table.stdout.startswith("small\n") and "inside the SLO (TTFT 50.0 ms" in table.stdout
    one, two = (ebsim_here("simulate", path, "--format", "json") for _ in range(2))
    report = json.loads(one.stdout)
    assert set(report) == KEYS and one.stdout == two.stdout


def test_options_change_the_scenario(tmp_path: Path) -> None:
    path, requests = small_scenario(tmp_path), tmp_path / "requests.csv"
    requests.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n / 50},40,8\n" for n in range(50)))
    flags = ("--plan", "eplb", "--baseline", "round_robin", "--overlap", "full", "--seed", "3", "--duration", "0.8")
    done = ebsim_here(
        "simulate", path, *flags, "--arrivals", requests, "--ttft-ms", "7", "--tpot-ms", "3", "--format", "json"
    )
    report = json.loads(done.stdout)
    assert report["plans"] == {"before": "round_robin", "after": "eplb"}
    assert (report["scenario"]["overlap"], report["scenario"]["seed"]) == ("full", 3)
    assert report["workload"]["requests"] == 42 and report["workload"]["scored"] < 40
    assert report["slo"] == {"ttft_ms": pytest.approx(7.0), "tpot_ms": pytest.approx(3.0)}


def test_an_unknown_tenant_and_a_cut_warm_up_are_told(tmp_path: Path) -> None:
    path, requests = small_scenario(tmp_path), tmp_path / "requests.csv"
    requests.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n / 100},40,8\n" for n in range(50)))
    done = ebsim_here("simulate", path, "--arrivals", f"nosuch={requests}", "--duration", "0.1")
    assert done.returncode == 0, done.stderr
    assert "note: the routing trace has no workload 'nosuch'" in done.stderr
    assert "note: the warm-up is cut from 0.2 to 0.01 s" in done.stderr


def test_a_capacity_claim_is_taken_apart(tmp_path: Path) -> None:
    path = tmp_path / "claim.toml"
    small = (
        CLAIM.read_text().replace("layers = 32", "layers = 2").replace('sync = "layer"', 'sync = "layer"\nsteps = 8')
    )
    path.write_text(small)
    done = ebsim_here("simulate", path)
    assert done.returncode == 0 and "The claim of x1.40" in done.stdout
    assert "leave out all but --format" in one_line(ebsim_here("simulate", path, "--rate", "3"))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--plan", "magic"), "no policy 'magic'"),
        (("--plan", "missing.json"), "missing.json: cannot read"),
        (("--trace", "missing.parquet"), "missing.parquet"),
        (("--arrivals", "missing.csv"), "missing.csv: cannot be read"),
        (("--rate", "-2"), "--rate"),
        (("--overlap", "some"), "--overlap: 'some' is not known"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, flags: tuple[str, ...], told: str) -> None:
    done = ebsim_here("simulate", small_scenario(tmp_path), *flags)
    assert done.returncode == 2 and told in one_line(done)


def test_a_missing_or_broken_scenario_is_one_line(tmp_path: Path) -> None:
    assert "cannot read" in one_line(ebsim_here("simulate", tmp_path / "none.toml"))
    path = tmp_path / "broken.toml"
    path.write_text("title = 3\n")
    assert str(path) in one_line(ebsim_here("simulate", path))
