"""Every scenario of the library, served by the command."""

from __future__ import annotations

import json

import pytest

from easybalance_sim.deployment.scenario import is_claim
from tests.ebsim_process import ROOT, ebsim

SERVED = sorted(path.name for path in (ROOT / "scenarios").glob("*.toml") if not is_claim(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_a_scenario_is_served_as_it_is(name: str) -> None:
    done = ebsim("simulate", ROOT / "scenarios" / name, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
