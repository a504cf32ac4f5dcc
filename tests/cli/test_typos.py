"""A name that is nearly right: the one line of the refusal says which one was likely meant."""

from __future__ import annotations

import shlex

import pytest

from easybalance_sim.errors import did_you_mean
from tests.ebsim_process import SAMPLE, ebsim, ebsim_here, one_line

TRACE = shlex.quote(str(SAMPLE))
TYPOS = {
    "plann": "No such command 'plann' — did you mean plan?",
    "trace sumary": "No such command 'sumary' — did you mean summary?",
    f"plan {TRACE} --polcy eplb": "No such option: --polcy — did you mean --policy?",
    f"plan {TRACE} --qiet": "did you mean --quiet?",
    "--versoin": "did you mean --version?",
    f"plan {TRACE} --format tabel": "'tabel' is not one of 'table', 'json' — did you mean table?",
    "trace synthesise powerlaw -o x": "did you mean power-law?",
    f"plan {TRACE} --policy windowsearch": "--policy: 'windowsearch' is not known — did you mean window_search?",
    f"plan {TRACE} --dispatch sglang-dynamc": "did you mean sglang-dynamic? choose even, ",
    f"plan {TRACE} --profile h2000": "did you mean h200? or give your own .toml",
    f"plan {TRACE} --model deepsek-v3": "did you mean deepseek-v3? or give a config.json",
    f"plan {TRACE} --split requst": "did you mean request?",
    f"plan {TRACE} --forecast ema_fast": "did you mean ema-fast?",
    f"plan {TRACE} --device gpuu": "did you mean gpu?",
    f"plan {TRACE} --phase prefil": "did you mean prefill?",
    f"offset {TRACE} --part senssing": "did you mean sensing?",
    f"offload {TRACE} --policy beladi": "did you mean belady?",
    f"offload {TRACE} --host pice5": "did you mean pcie5?",
    f"rebalance {TRACE} --loop guarde": "did you mean guarded?",
    "export sglan plan.json -o x.json": "no engine 'sglan' — did you mean sglang?",
    "lint x.json --engine vlm": "did you mean vllm?",
    "import vllm-eplb-laod x -o y": "no kind 'vllm-eplb-laod' — did you mean vllm-eplb-load?",
    "profile fit ncll x.csv": "did you mean nccl?",
    "profile show h20O": "did you mean h20",
    "simulate scenarios/steady-chat.toml --plan windowsearch": "did you mean window_search?",
}


@pytest.mark.parametrize("typo", TYPOS)
def test_the_refusal_says_what_was_meant(typo: str) -> None:
    done = ebsim_here(*shlex.split(typo))
    assert done.returncode == 2
    assert TYPOS[typo] in one_line(done)


def test_a_process_says_it_too() -> None:
    done = ebsim("plann")
    assert (done.returncode, "did you mean plan?" in one_line(done)) == (2, True)


@pytest.mark.parametrize("strange", ["plan --zzzzzz", "zzzzzz", f"plan {TRACE} --policy zzz", "plan x --format xml"])
def test_nothing_is_guessed_where_nothing_is_near(strange: str) -> None:
    assert "did you mean" not in one_line(ebsim_here(*shlex.split(strange))).lower()


def test_case_and_dashes_do_not_matter() -> None:
    assert did_you_mean("Window-Search", ("eplb", "window_search")) == "did you mean window_search? "
    assert did_you_mean("zzz", ("eplb",)) == "" == did_you_mean("eplb", ())


def test_nothing_is_guessed_between_equals() -> None:
    assert did_you_mean("pcie3", ("pcie4", "pcie5")) == ""
