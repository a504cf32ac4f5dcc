"""`--report` and `--figures` of the commands that plan nothing; all but one run are replaced by what they returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.cli import report_file
from tests.ebsim_process import ROOT, SAMPLE, ebsim_here, one_line
from tests.skewed_traces import skewed_counts

SCENARIO, CLAIM = ROOT / "scenarios" / "steady-chat.toml", ROOT / "scenarios" / "easybalance-8xa100.toml"
COMMANDS: dict[str, tuple[str, tuple[str | Path, ...]]] = {
    "rebalancing.run.rebalance": ("rebalance", (SAMPLE,)),
    "rebalancing.sweep.sweep_loops": ("rebalance", (SAMPLE, "--sweep")),
    "rebalancing.strata.rebalance_by": ("rebalance", (SAMPLE, "--by", "phase")),
    "sweep.run.run_sweep": ("sweep", (SAMPLE,)),
    "deployment.run.simulate": ("simulate", (SCENARIO,)),
    "deployment.sizing.run.capacity": ("capacity", (SCENARIO,)),
    "offloading.run.run_offload": ("offload", (SAMPLE,)),
    "mechanisms.run.offset": ("offset", (SAMPLE,)),
}


@pytest.mark.parametrize("run", COMMANDS)
def test_the_report_of_a_run_is_what_its_page_is_made_of(
    run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(f"easybalance_sim.{run}", lambda *_: {"found": run})
    monkeypatch.setattr(report_file, "write", lambda *given: seen.append(given))
    command, arguments = COMMANDS[run]
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    done = ebsim_here(command, *arguments, "--report", page, "--figures", figures, "--format", "json")
    assert done.returncode == 0, done.stderr
    ((report, folder, document),) = seen
    assert (report, folder) == (page, figures)
    assert document["found"] == run and document["notes"] == []


@pytest.mark.parametrize("run", [*COMMANDS, "simulate.rollout.run.simulate_rollout"])
def test_what_a_run_found_is_not_lost_with_its_page(run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rollout = run not in COMMANDS
    found = {"found": run}
    monkeypatch.setattr(f"easybalance_sim.{run}", lambda *_: (found, 0) if rollout else found)
    monkeypatch.setattr("easybalance_sim.report.pages.page_of", lambda *_: json.loads("{}")["never"])
    command, arguments = COMMANDS.get(run, ("rollout", (SAMPLE,)))
    done = ebsim_here(command, *arguments, "--report", tmp_path / "page.html", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["found"]) == (70, run)
    assert done.stderr.splitlines()[-1].startswith("ebsim: error: internal error: KeyError")


def test_a_rollout_has_a_page_whatever_comes_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("easybalance_sim.simulate.rollout.run.simulate_rollout", lambda *_: ({"found": "unsafe"}, 1))
    monkeypatch.setattr(report_file, "write", lambda *given: seen.append(given))
    page = tmp_path / "page.html"
    assert ebsim_here("rollout", SAMPLE, "--report", page, "--format", "json").returncode == 1
    assert seen == [(page, None, {"found": "unsafe", "notes": []})]


@pytest.mark.parametrize("command", [("offset", "--scenario"), ("simulate",)])
def test_a_claim_has_a_page_too(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Taken:
        def to_dict(self) -> dict[str, Any]:
            return {"rungs": []}

        def explained(self) -> list[str]:
            return []

    seen: list[Any] = []

    def write(*given: Any) -> None:
        seen.append(given)
        raise RuntimeError("what was found is printed by now")

    monkeypatch.setattr("easybalance_sim.simulate.capacity.run.run", lambda *_: Taken())
    monkeypatch.setattr(report_file, "write", write)
    page = tmp_path / "page.html"
    done = ebsim_here(*command, CLAIM, "--report", page, "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["rungs"]) == (70, [])
    ((report, folder, document),) = seen
    assert (report, folder, document["scenario"], document["rungs"]) == (page, None, str(CLAIM), [])


@pytest.mark.parametrize(("command", "arguments"), [*COMMANDS.values(), ("offset", ("--scenario", CLAIM))])
def test_a_place_that_cannot_be_is_refused_before_the_run(command: str, arguments: tuple[str | Path, ...]) -> None:
    taken = next(one for one in arguments if isinstance(one, Path))
    assert taken.name in one_line(ebsim_here(command, *arguments, "--figures", taken))
    assert "a page is a .html file" in one_line(ebsim_here(command, *arguments, "--report", "page.txt"))


def test_a_real_run_writes_its_page_and_its_figures(tmp_path: Path) -> None:
    skewed_counts(tmp_path / "counts.parquet", 32)
    flags = ("--ranks", "4", "--redundancy", "0,1", "--policy", "eplb", "--figures", "drawn", "--report", "page.html")
    assert ebsim_here("sweep", "counts.parquet", *flags, cwd=tmp_path).returncode == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "--figures drawn --report page.html" in text
    names = {path.stem for path in (tmp_path / "drawn").iterdir()}
    assert {"imbalance", "seconds"} <= names and all(f'id="{name}"' in text for name in names)
    for name in names:
        assert (tmp_path / "drawn" / f"{name}.png").stat().st_size > 1000
        assert len((tmp_path / "drawn" / f"{name}.csv").read_text(encoding="utf-8").splitlines()) > 1
