"""The CUDA kernels on a GPU against the specification: `pytest -m gpu`.

Claimed: what `test_cuda_on_cpu` claims, here of the device itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easybalance_sim import kernels
from easybalance_sim.kernels.reference_dispatch import BLOCKS, EVEN, HASH
from tests.conftest import PARITY
from tests.parity.cases import DISPATCH, RULES, Case, differences, dispatch_cases, dispatch_differs, dispatched
from tests.parity.search_cases import case, misjudged, rules_broken

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    if kernels.gpu_fault():
        pytest.fail(f"no GPU can be used: {kernels.gpu_fault()}")
    return kernels.load("cuda")


def test_every_case(gpu: ModuleType, record_property: Callable[[str, object], None]) -> None:
    found = dict(differences(gpu))
    assert [name for name, what in found.items() if what] == []
    assert len(found) > 0
    record_property(PARITY, f"4 {gpu.device_name()}: {len(found)} cases")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dispatch_cases(), st.sampled_from(list(RULES.values())), st.booleans())
def test_dispatch_on_any_traffic(gpu: ModuleType, case: Case, rule: int, per_node: bool) -> None:
    assert dispatch_differs(gpu, dispatched(case, rule, per_node)) == []


@pytest.mark.parametrize("rule", [EVEN, BLOCKS, HASH])
def test_many_tiles_are_dispatched_as_one(rule: int, gpu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    case = dispatched(DISPATCH["two nodes"], rule, True)
    monkeypatch.setattr("easybalance_sim.kernels.cupy_tiles.TILE_BYTES", 7 * case.experts[0].nbytes)
    assert dispatch_differs(gpu, case) == []


def test_the_best_of_hundreds_of_chains(gpu: ModuleType) -> None:
    """Experts and ranks of a large model, chains as many as the device takes."""
    problem = case(21, 2, 256, [9] * 32, windows=64)
    slots, lowest = problem.run(gpu, 20_000)
    again, value = problem.run(gpu, 20_000)
    assert rules_broken(problem, slots) + misjudged(problem, slots, lowest) == []
    assert (again == slots).all() and (value == lowest).all()
    _, on_cpu = problem.run(kernels.load("numba"), 20_000)
    assert (lowest <= on_cpu * 1.001).all()
