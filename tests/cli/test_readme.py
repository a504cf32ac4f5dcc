"""The README names what exists, and its first screen shows what comes out; test_stranger.py runs the command itself."""

from __future__ import annotations

import re

from easybalance_sim import policies
from easybalance_sim.cluster.hardware import profile_names
from easybalance_sim.cluster.shapes import model_names
from easybalance_sim.replay.dispatch import RULES
from tests.docs.readme_output import EXCERPT, OUTPUT, block_after, excerpt
from tests.ebsim_process import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def row(flag: str) -> str:
    """The choices that the table of flags names."""
    return next(line for line in README.splitlines() if line.startswith(f"| `{flag}` "))


def test_the_first_screen_shows_the_beginning_of_it() -> None:
    assert block_after(EXCERPT, README) == excerpt(block_after(OUTPUT, README))
    first = README.splitlines()[:40]
    assert any(line.startswith("python3 -m venv") and "ebsim plan" in line for line in first)
    assert any(line.startswith("ACCEPTED") for line in first)


def test_every_policy_rule_and_profile_is_named() -> None:
    assert set(re.findall(r"`(\w+)`", row("--policy"))) == set(policies.names())
    assert set(re.findall(r"`([a-z0-9-]+)`", row("--dispatch"))) - {"--dispatch"} == set(RULES)
    assert set(profile_names()) <= set(re.findall(r"`(\w+)`", row("--profile")))
    assert set(re.findall(r"`([a-z0-9.-]+)`", row("--model"))) - {"--model", "config.json"} <= set(model_names())
