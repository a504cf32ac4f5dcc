"""Pages as a user makes them: with a run, of a saved report, of a plan file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ebsim_process import Done, ebsim_here, one_line
from tests.skewed_traces import skewed_trace

FLAGS = ("--ranks", "4", "--ranks-per-node", "2", "--slots-per-rank", "5", "--policy", "eplb")
FIGURES = ("rank_imbalance", "layer_time", "expert_load", "rank_load", "node_bytes", "over_time", "replicas")


@pytest.fixture(scope="module", autouse=True)
def _undrawn() -> Iterator[None]:
    """Drawing takes seconds and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("easybalance_sim.report.html.render.inline_svg_of", lambda chart, name, alt: "<svg></svg>")
        patch.setattr("easybalance_sim.report.figure_files.svg_of", lambda chart, name: f"<svg>{name}</svg>")
        patch.setattr("easybalance_sim.report.figure_files.png_of", lambda chart, name: b"PNG")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trace.parquet, and plan.json with its report, page and figures."""
    folder = tmp_path_factory.mktemp("report")
    skewed_trace(folder / "trace.parquet")
    done = ebsim_here(
        "plan", "trace.parquet", *FLAGS, "--force", "-o", "plan.json", "--report", "plan.html", "--figures", "figures",
        "--format", "json", cwd=folder,
    )  # fmt: skip
    (folder / "report.json").write_text(done.stdout)
    return folder


def made(folder: Path, *arguments: str | Path) -> Done:
    return ebsim_here("report", *arguments, cwd=folder)


def test_a_run_writes_the_page_and_its_figures(folder: Path) -> None:
    text = (folder / "plan.html").read_text(encoding="utf-8")
    report = json.loads((folder / "report.json").read_text())
    assert report["verdict"]["status"].replace("_", " ").upper() in text
    assert "ebsim plan trace.parquet --ranks 4" in text
    assert report["fingerprint"] in text and report["trace"]["fingerprint"] in text
    for name in FIGURES:
        assert f'id="{name}"' in text
        assert (folder / "figures" / f"{name}.svg").read_text() == f"<svg>{name}</svg>"
        assert (folder / "figures" / f"{name}.png").read_bytes() == b"PNG"


def test_a_saved_report_has_the_same_page_but_for_the_command(folder: Path) -> None:
    done = made(folder, "report.json", "-o", "saved.html")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = ((folder / name).read_text().splitlines() for name in ("plan.html", "saved.html"))
    differing = [line for line, other in zip(first, second, strict=True) if line != other]
    assert len(differing) == 1 and "ebsim plan" in differing[0]
    assert done.stdout.startswith("ACCEPTED: written to saved.html, ")


def test_the_page_lies_beside_the_report_where_nothing_else_is_said(folder: Path) -> None:
    done = made(folder, "report.json", "--format", "json", "--verbose")
    found = json.loads(done.stdout)
    assert (done.returncode, found["page"], found["headline"]) == (0, "report.html", "ACCEPTED")
    assert set(FIGURES) <= set(found["figures"])
    assert f"drawing: {len(found['figures'])} figures\ndrawing: took " in done.stderr
    assert (folder / "report.html").exists()


def test_a_plan_file_shows_its_evidence_and_with_a_trace_the_maps(folder: Path) -> None:
    alone = made(folder, "plan.json", "-o", "alone.html", "--format", "json")
    replayed = made(folder, "plan.json", "-o", "more.html", "--trace", "trace.parquet", "--format", "json")
    assert (alone.returncode, replayed.returncode) == (0, 0)
    few, many = (set(json.loads(done.stdout)["figures"]) for done in (alone, replayed))
    assert {"rank_imbalance", "front_slots", "replicas"} <= few and "expert_load" not in few
    assert {"expert_load", "over_time", "rank_load"} <= many - few
    assert "made of the plan file alone" in (folder / "alone.html").read_text()


def test_a_rejected_replay_has_its_page_and_its_exit_code(folder: Path, tmp_path: Path) -> None:
    (folder / "strict.toml").write_text("p99_imbalance_drop_min = 0.99\n")
    done = ebsim_here(
        "replay", "trace.parquet", "--plan", "plan.json", "--criteria", "strict.toml", "--report", tmp_path / "no.html",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 1
    text = (tmp_path / "no.html").read_text()
    assert "REJECTED" in text and "Missed: p99_imbalance_drop_min." in text


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--report", "plan.pdf"), "a page is a .html file"),
        (("--report", "absent/plan.html"), "there is no folder"),
        (("--report", "trace.html", "-o", "trace.html"), "the run reads or writes this file"),
        (("--figures", "trace.parquet"), "--figures"),
        (("--figures", "absent/figures"), "there is no folder"),
    ],
)
def test_a_place_that_does_not_do_is_refused_before_the_run(folder: Path, flags: tuple[str, ...], says: str) -> None:
    before = sorted(folder.iterdir())
    done = ebsim_here("plan", "trace.parquet", *flags, cwd=folder)
    assert done.returncode == 2 and says in one_line(done)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("cut.json", '{"trace": {"kind": "tok', "is cut short, or no JSON"),
        ("other.json", '{"a": 1}', "is no report of ebsim"),
        ("list.json", "[1]", "holds no JSON object"),
        ("engine.json", '{"physical_to_logical_map": [[0, 1]]}', "is a placement for an engine"),
        ("lossy.json", '{"lossy": true}', "is lossy router settings"),
        ("gate.json", '{"status": "accepted", "findings": []}', "is a verdict of ebsim gate"),
        ("plan.json", '{"format": "ebsim.plan", "version": 1}', "plan.json: "),
        ("part.json", '{"verdict": 1, "baseline": {}, "plan": {}, "cost": {}, "gain": {}}', "part.json: "),
        ("precheck.json", '{"lint": [], "replay": null}', "nothing was replayed"),
        ("notes.txt", "words", "is no JSON"),
        ("edited.json", '{"plan": {"us": [1.0, NaN]}}', "plan.us[1] is nan, expected a finite number"),
        ("huge.json", '{"plan": {"us": -1e999}}', "plan.us is -inf, expected a finite number"),
    ],
)
def test_what_is_no_report_is_named_in_one_line(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    done = made(tmp_path, name, "-o", "page.html")
    assert done.returncode == 2 and says in one_line(done)
    assert not (tmp_path / "page.html").exists()


def test_traces_folders_and_files_that_are_read_are_refused(folder: Path, tmp_path: Path) -> None:
    for arguments, says in (
        (("trace.parquet",), "is a trace, no report"),
        ((".",), "is a folder, no report"),
        (("absent.json",), "No such file"),
        (("report.json", "-o", "report.json"), "a page is a .html file"),
        (("report.json", "--trace", "trace.parquet"), "--trace: is of a plan file"),
    ):
        where = () if "-o" in arguments else ("-o", str(tmp_path / "page.html"))
        done = made(folder, *arguments, *where)
        assert done.returncode == 2 and says in one_line(done)
    (tmp_path / "saved.html").write_text("{}")
    (tmp_path / "page.html").write_text("\n<!DOCTYPE html><html></html>")
    assert "the run reads or writes this file" in one_line(made(tmp_path, "saved.html"))
    (tmp_path / "saved.json").write_text("{}")
    assert "saved.html: is there already" in one_line(made(tmp_path, "saved.json"))
    assert (tmp_path / "saved.html").read_text() == "{}"
    assert "absent.html: cannot read: No such file" in one_line(made(tmp_path, "absent.html"))
    assert "page.html: is a page already" in one_line(made(tmp_path, "page.html"))
    assert (tmp_path / "saved.html").read_text() == "{}"
