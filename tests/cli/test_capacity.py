"""`ebsim capacity` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ebsim_process import ROOT, ebsim, ebsim_here, one_line
from tests.small_scenario import TWO_POOLS, small_scenario

# Steps of half a millisecond: a limit that some thousand requests per second reach.
QUICK = ("--duration", "1", "--tolerance", "0.3", "--ttft-ms", "4", "--tpot-ms", "5")
PLANS = ("--plan", "eplb")
ASKED = ("--fewest-gpus", "--rate", "200", "--replicas", "0,2,70", "--parallel")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capacity")


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """Everything there is to ask, of one pool."""
    done = ebsim_here("capacity", small_scenario(folder), *QUICK, *PLANS, *ASKED, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _keys(content: Any) -> str:
    """As docs/formats.md writes them: {a,b,c}."""
    return f"{{{','.join(content)}}}"


def test_the_highest_rate_holds_and_the_next_does_not(report: dict[str, Any]) -> None:
    share = report["slo"]["share"]
    for ends in (report["highest_rate"]["stated"], *report["highest_rate"]["bracket"].values()):
        for key in ("before", "after"):
            at, beyond = ends[key]["at"], ends[key]["beyond"]
            assert at["inside_slo"] >= share and at["queue_growth"] < 0.02
            assert beyond["inside_slo"] < share or beyond["queue_growth"] >= 0.02
            assert 1 < beyond["rate_per_s"] / at["rate_per_s"] <= 1.3
            assert ends[key]["ends_by"] in ("time to first token", "time per output token", "queue grows")
        assert ends["gain"] == pytest.approx(ends["after"]["rate_per_s"] / ends["before"]["rate_per_s"])
        assert ends["told_apart"] == (not 1 / 1.3 <= ends["gain"] <= 1.3)


def test_fewer_gpus_hold_a_lower_rate(report: dict[str, Any]) -> None:
    (found,) = report["fewest_gpus"]
    assert (found["role"], found["rate_per_s"], found["others_stay"]) == ("mixed", 200.0, {})
    for key in ("before", "after"):
        least = found[key]["gpus"]
        assert 1 <= least <= 4
        held = {one["gpus"]: one[key]["holds"] for one in found["tried"] if one["refused"] is None}
        assert held[least] and not held.get(least - 1, False)


def test_replicas_that_cannot_be_are_named(report: dict[str, Any]) -> None:
    (found,) = report["replicas"]
    none, two, many = found["rows"]
    assert (none["spare_slots"], two["spare_slots"], many["spare_slots"]) == (0, 2, 70)
    assert none["before"]["rate_per_s"] == two["before"]["rate_per_s"] and none["refused"] is None
    assert many["refused"] == "a rank with 86 slots would hold an expert twice" and many["after"] is None
    assert found["worth_buying"] in (0, 2)


def test_the_same_gpus_are_laid_out_otherwise(report: dict[str, Any]) -> None:
    (found,) = report["parallelism"]
    names = [(row["experts"], row["attention"]) for row in found["rows"]]
    assert names[:3] == [("EP4", "DP4"), ("EP2 x TP2", "DP2 x TP2"), ("TP4", "TP4")]
    assert {row["gpus"] for row in found["rows"]} == {4}
    assert all(tuple(best.values()) in names for key in ("before", "after") for best in found["best"][key])
    stated = report["highest_rate"]["stated"]
    assert found["rows"][0]["after"]["rate_per_s"] == stated["after"]["rate_per_s"]


def test_the_documented_keys_are_those_of_the_report(report: dict[str, Any]) -> None:
    documented = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8").replace("\n", " ")
    section = "".join(documented.partition("## Capacity (JSON)")[2].partition(" ## ")[0].split(" "))
    stated, row = report["highest_rate"]["stated"], report["replicas"][0]["rows"][0]
    parts = (report["scenario"], report["slo"], stated["before"], stated["before"]["at"], row, stated)
    for part in parts:
        assert _keys(part) in section, part
    for name in report:
        assert name in section, name
    for name in ("fewest_gpus", "replicas", "parallelism"):
        for key in report[name][0]:
            assert key in section, key


def test_the_table_says_it_in_a_hundred_columns(folder: Path) -> None:
    done = ebsim("capacity", small_scenario(folder), *QUICK, "--plan", "contiguous", "--fewest-gpus", "--rate", "50")
    assert done.returncode == 0, done.stderr
    assert "(no other plan was taken) requests/s with 95 % of them inside TTFT 4 ms" in " ".join(done.stdout.split())
    assert "Fewest GPUs of the mixed pool for 50 requests/s" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_of_two_pools_the_other_one_stays(folder: Path) -> None:
    path = small_scenario(folder, TWO_POOLS)
    done = ebsim_here("capacity", path, *QUICK, *PLANS, "--fewest-gpus", "--rate", "50", "--format", "json")
    assert done.returncode == 0, done.stderr
    prefill, decode = json.loads(done.stdout)["fewest_gpus"]
    assert (prefill["role"], prefill["others_stay"]) == ("prefill", {"decode": 4})
    assert (decode["role"], decode["others_stay"]) == ("decode", {"prefill": 2})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--replicas", "0,x"), "--replicas: '0,x' is no list of numbers"),
        (("--replicas", "0,-1"), "--replicas: spare slots are 0 or more"),
        (("--rate", "5"), "--rate: is what --fewest-gpus asks for"),
        (("--seeds", "0"), "--seeds: is 0"),
        (("--tolerance", "0.9"), "--tolerance: is 0.9"),
        (("--fewest-gpus", "--plan", "p.json"), "placement: a plan file is of one cluster"),
        (("--duration", "nan"), "--duration: is no positive number"),
    ],
)
def test_what_cannot_be_asked_is_one_line(flags: tuple[str, ...], says: str, folder: Path) -> None:
    done = ebsim_here("capacity", small_scenario(folder), *flags)
    assert done.returncode == 2
    assert says in one_line(done)


@pytest.mark.parametrize("field", ["slots_per_rank = [18, 18, 18, 18]", "slots_per_rank = 18\nspeed = [1, 1, 1, 0.5]"])
def test_ranks_that_differ_cannot_be_sized(field: str, tmp_path: Path) -> None:
    path = small_scenario(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("slots_per_rank = 18", field), encoding="utf-8")
    done = ebsim_here("capacity", path, "--replicas", "0")
    assert done.returncode == 2
    assert "cluster: ranks differ" in one_line(done)


def test_a_capacity_claim_goes_elsewhere() -> None:
    done = ebsim_here("capacity", ROOT / "scenarios" / "easybalance-8xa100.toml")
    assert done.returncode == 2
    assert "ebsim offset --scenario" in one_line(done) and "ebsim simulate" in done.stderr


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = ebsim_here("capacity", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "none.toml" in one_line(done)
