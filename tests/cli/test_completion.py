"""Shell completion: commands, options and names at once, nothing heavy imported for it, files left to the shell."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.test_help import HEAVY
from tests.ebsim_process import ROOT, ebsim, python
from tests.terminal import on_terminal

TRIES = 60
SPY = f"""
import sys
from easybalance_sim.cli.app import main
try:
    main()
finally:
    print(sorted(set({(*HEAVY, "rich")!r}) & set(name for name, one in sys.modules.items() if one)), file=sys.stderr)
"""


def _completed(line: str, shell: str = "bash") -> list[str]:
    """What a shell is offered after the line; the process has imported nothing heavy."""
    words = line.split(" ")
    asked = {"_EBSIM_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = python("-c", SPY, env=asked)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ebsim pl", ["plan"]),
        ("ebsim plan --pol", ["--policy"]),
        ("ebsim plan -q --policy window", ["window_search", "window_search_no_redundancy"]),
        ("ebsim export v", ["vllm", "vllm-ascend"]),
        ("ebsim lint map.json --engine vllm --schema pr5", ["pr53022"]),
        ("ebsim precheck plan.json x --schema pr5", ["pr53022"]),
        ("ebsim precheck plan.json x --phase p", ["prefill"]),
        ("ebsim plan --format ", ["table", "json"]),
        ("ebsim plan traces/ti", []),
        ("ebsim plan --profile ./mine", []),
    ],
)
def test_bash_is_offered(line: str, offered: list[str]) -> None:
    assert _completed(line) == offered


def test_zsh_and_fish_are_told_what_a_kind_is() -> None:
    fish = dict(text.split("\t") for text in _completed("ebsim import ascend", "fish"))
    assert fish["ascend-hotness"].startswith("vllm-ascend: expert hotness tensors [L, R, S] or [stages, L, R, S]")
    (zsh,) = _completed("ebsim import ascend", "zsh")
    assert '"ascend-hotness":"vllm-ascend' in zsh
    assert _completed("ebsim plan traces/ti", "zsh") == ["_files"]


PLACES = {"bash": ".bash_completions/ebsim.sh", "zsh": ".zfunc/_ebsim", "fish": ".config/fish/completions/ebsim.fish"}
BEGINS = {"bash": "source ~/.bash_completions/ebsim.sh\n", "zsh": "", "fish": ""}
OPTIONS = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-i"], "fish": ["-i"]}


@pytest.fixture(scope="module", params=PLACES)
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A shell and the environment of a user who had the completion installed for it."""
    shell, home = str(request.param), tmp_path_factory.mktemp("home")
    env = {"HOME": str(home), "TERM": "xterm", "PS1": "$ "}
    done = ebsim("--install-completion", shell, env=env | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert (done.returncode, done.stderr) == (0, "")
    return shell, env


def test_a_script_is_installed_where_the_shell_looks(shell: tuple[str, dict[str, str]]) -> None:
    name, env = shell
    assert f"_EBSIM_COMPLETE=complete_{name}" in (Path(env["HOME"]) / PLACES[name]).read_text()


def test_the_tab_key_of_a_real_shell(shell: tuple[str, dict[str, str]]) -> None:
    name, env = shell
    program = Path(sys.executable).parent / "ebsim"
    if shutil.which(name) is None or not program.exists():
        pytest.skip(f"needs {name} and an installed ebsim")
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    with on_terminal([name, *OPTIONS[name]], env | path, ROOT) as terminal:
        terminal.press(f"{BEGINS[name]}ebsim plan --policy traf")
        # The first key may come before the shell is ready, and zsh loads the script at it.
        for _ in range(TRIES):
            terminal.press("\t")
            if terminal.wait_for("traffic_search", 1.0):
                break
        assert "traffic_search" in terminal.text
