"""What a person sees on a real terminal, and what files and pipes get instead: colours, progress, Ctrl-C."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from easybalance_sim.cli import progress
from easybalance_sim.plan.planfile import write_plan
from tests.ebsim_process import ROOT, SAMPLE, ebsim, ebsim_here, python
from tests.plan_documents import example_document
from tests.terminal import on_terminal

EBSIM = [sys.executable, "-m", "easybalance_sim"]
ESCAPE = "\x1b"
PLAIN = {"NO_COLOR": "1"}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan file without findings."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    write_plan(path, example_document())
    return path


@pytest.mark.parametrize(("env", "coloured"), [({}, True), (PLAIN, False)])
def test_verdicts_are_coloured_on_a_terminal(env: dict[str, str], coloured: bool, plan: Path) -> None:
    with on_terminal([*EBSIM, "-q", "lint", str(plan)], env) as terminal:
        assert terminal.finish() == 0
    assert terminal.text.startswith("\x1b[32mCLEAN\x1b[0m: " if coloured else "CLEAN: ")
    assert (ESCAPE in terminal.text) is coloured


def test_errors_are_coloured_on_a_terminal() -> None:
    with on_terminal([*EBSIM, "-q", "plann"]) as terminal:
        assert terminal.finish() == 2
    assert terminal.text == "\x1b[31mebsim: error:\x1b[0m No such command 'plann' — did you mean plan?\r\n"


def test_pipes_get_no_escapes_and_json_never(plan: Path) -> None:
    piped = ebsim("lint", plan)
    assert piped.stdout.startswith("CLEAN: ") and ESCAPE not in piped.stdout + piped.stderr
    with on_terminal([*EBSIM, "lint", str(plan), "--format", "json", "-q"]) as terminal:
        assert terminal.finish() == 0
    assert ESCAPE not in terminal.text and json.loads(terminal.text)["errors"] == 0


EAGER = """
from easybalance_sim.cli import progress
from easybalance_sim.cli.app import main
progress.QUIET_S = progress.REWRITE_S = progress.RATED_S = 1e-9
main()
"""
"""Progress is shown at once, so that no test has to wait for it."""


def test_progress_is_one_line_in_place_that_goes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EAGER, "trace", "check", str(SAMPLE)]
    with (tmp_path / "out").open("w") as out, on_terminal(command, stdout=out.fileno()) as terminal:
        assert terminal.finish() == 0
    *shown, last = terminal.text.split("\r")
    assert last == "\x1b[K" and all(text.endswith("\x1b[K") and len(text) <= 82 for text in shown[1:])
    assert any(" tokens/s, " in text and text.endswith(" s left\x1b[K") for text in shown)
    assert "\n" not in terminal.text
    result = (tmp_path / "out").read_text()
    assert result.startswith("ok ") and ESCAPE not in result and "\r" not in result


def test_progress_in_a_file_is_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUIET_S", "RATED_S"):
        monkeypatch.setattr(progress, name, 1e-9)
    done = ebsim_here("trace", "check", SAMPLE)
    assert ESCAPE not in done.stderr and "\r" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("check: 100 %, ")


LATE = """
import sys, time
from easybalance_sim.cli import app
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "easybalance_sim.cli.commands":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
app.main()
"""


def test_ctrl_c_while_the_command_is_imported_is_one_line_and_130() -> None:
    shell = f"{sys.executable} -c '{LATE}' plan x.parquet; echo exit $?"
    with on_terminal(["bash", "-c", shell], PLAIN) as terminal:
        assert terminal.wait_for("importing\r\n")
        terminal.press("\x03")
        terminal.finish()
    assert terminal.lasting == "importing\r\n^Cebsim: interrupted; no file was left half-written\r\nexit 130\r\n"


WRITING = """
import time
from types import SimpleNamespace
from easybalance_sim import files
from easybalance_sim.cli.app import start
from easybalance_sim.report import pages
from easybalance_sim.report.html import render
def publish(temporary, path):
    print("writing", temporary.read_text(), flush=True)
    time.sleep(60)
files._publish, render.html_of = publish, lambda *_: "a page"
pages.page_of = lambda *_: SimpleNamespace(figures=lambda: ())
start()
"""


def test_ctrl_c_while_a_page_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    saved = ROOT / "tests" / "golden" / "printed" / "plan.json"
    page = tmp_path / "page.html"
    page.write_text("old")
    with on_terminal([sys.executable, "-c", WRITING, "report", str(saved), "-o", str(page)], PLAIN) as terminal:
        assert terminal.wait_for("writing a page")
        terminal.press("\x03")
        assert terminal.finish() == 130
    assert terminal.lasting.endswith("^Cebsim: interrupted; no file was left half-written\r\n")
    assert ([path.name for path in tmp_path.iterdir()], page.read_text()) == (["page.html"], "old")


TIDYING = """
import sys, time
from pathlib import Path
from easybalance_sim import files
from easybalance_sim.cli import app, running
def run(arguments):
    files.write_text(Path(arguments[1]), "new")
def publish(temporary, path):
    print("writing", flush=True)
    time.sleep(60)
def unlink(path, missing_ok=False, unlink=Path.unlink):
    print("tidying", flush=True)
    time.sleep(0.3)
    unlink(path, missing_ok)
running.run, files._publish, Path.unlink = run, publish, unlink
app.TIDYING_S = float(sys.argv[1])
app.main()
"""


@pytest.mark.parametrize("tidying_s", [1.0, 0.0], ids=["ignored", "heard"])
def test_a_second_ctrl_c_leaves_nothing_behind_either(tidying_s: float, tmp_path: Path) -> None:
    """Heard or not: the temporary file is gone at the end."""
    with on_terminal([sys.executable, "-c", TIDYING, str(tidying_s), str(tmp_path / "out")], PLAIN) as terminal:
        assert terminal.wait_for("writing")
        terminal.press("\x03")
        assert terminal.wait_for("^C")
        terminal.text = terminal.text.partition("^C")[2]
        assert terminal.wait_for("tidying")
        terminal.press("\x03")
        code = terminal.finish()
    assert (code, terminal.text.count("interrupted; no file was left half-written")) == (130, 1)
    assert "Traceback" not in terminal.text
    assert list(tmp_path.iterdir()) == []


def test_quiet_and_verbose_before_and_after_the_command(plan: Path) -> None:
    summary = ("trace", "summary", SAMPLE)
    usual, quiet = ebsim_here(*summary), ebsim_here("-q", *summary)
    assert "note: no cluster given" in usual.stderr
    assert (quiet.returncode, quiet.stderr, quiet.stdout) == (0, "", usual.stdout)
    after = ebsim_here(*summary, "-q", "--format", "json")
    assert (after.stderr, json.loads(after.stdout)["notes"] != []) == ("", True)
    verbose = ebsim_here("--verbose", *summary)
    assert verbose.stdout == usual.stdout
    assert "\nsummary: took " in f"\n{verbose.stderr}"
    assert verbose.stderr.splitlines()[-1].startswith("ebsim ") and " numpy " in verbose.stderr
    assert ebsim_here("lint", plan, "-v").stderr.startswith("ebsim ")
    assert ebsim_here("-q", "lint", plan).stderr == ""


def test_quiet_leaves_errors(plan: Path) -> None:
    done = ebsim_here("-q", "lint", plan, "--engine", "none")
    assert done.stderr.startswith("ebsim: error: no engine 'none'")
    both = ebsim_here("-q", "lint", plan, "-v")
    assert (both.returncode, both.stdout) == (2, "")
    assert both.stderr == "ebsim: error: --quiet and --verbose exclude each other — say one of them\n"


ENDING = """
import atexit, sys
from easybalance_sim.cli.app import start
atexit.register(print, "the end")
sys.argv[1:] = ["--version"]
start()
"""


def test_a_program_that_ends_at_once_has_done_what_was_left_to_the_end() -> None:
    done = python("-c", ENDING)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ebsim ") and done.stdout.endswith("\nthe end\n")


def test_closed_streams_change_nothing_but_what_is_heard(plan: Path) -> None:
    closed = subprocess.run(["bash", "-c", f"{sys.executable} -m easybalance_sim lint '{plan}' >&- 2>&-"], check=False)
    assert closed.returncode == 0
