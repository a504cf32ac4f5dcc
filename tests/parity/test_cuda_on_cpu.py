"""The CUDA sources, compiled by g++ and run on the CPU, against the specification.

Claimed: every integer is equal, bit for bit, and scores up to rounding, in any order of blocks and threads, with the
very host code that drives a GPU (tiles, streams, smaller tiles without memory); a chain of the search reaches what
numba's walk does, several no less. Not claimed: that a GPU runs them; `pytest -m gpu` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.kernels import cuda, load, numba_search
from easybalance_sim.kernels.reference_dispatch import BLOCKS, EVEN, HASH
from easybalance_sim.policies import Effort
from tests.bench import gpu_check
from tests.conftest import PARITY
from tests.cuda_on_cpu import compiled
from tests.cuda_on_cpu.stand_in import DeviceArray, StandIn, Stream, gpu_kernels
from tests.parity.cases import (
    COUNTS,
    DISPATCH,
    RULES,
    SCORES,
    Case,
    count_differs,
    counted,
    differences,
    dispatch_cases,
    dispatch_differs,
    dispatched,
    score_differs,
)
from tests.parity.search_cases import (
    CHAINS,
    PROPOSALS,
    WALKS,
    rules_broken,
    search_differences,
    search_differs,
    walking,
)
from tests.replay_cases import ALL_RULES, random_batch, random_plan, replayed, same
from tests.window_problems import problem_of, rank_loads, topic_windows

ROOT = Path(__file__).parents[2]
ORDERS = (0, 1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled kernels are kept, one for all test processes."""
    if compiled.compiler() is None:
        message = "g++ is not installed: the CUDA sources cannot be run on the CPU (apt-get install g++)"
        if os.environ.get("EBSIM_REQUIRE_COMPILERS"):
            pytest.fail(message)
        pytest.skip(message)
    return tmp_path_factory.getbasetemp().parent / "cuda_on_cpu"


@pytest.fixture
def stand_in(folder: Path) -> StandIn:
    return StandIn(folder)


@pytest.fixture
def kernels(stand_in: StandIn) -> Iterator[ModuleType]:
    with gpu_kernels(stand_in) as module:
        yield module


@pytest.mark.parametrize("seed", ORDERS)
def test_every_case_in_any_order(
    seed: int, stand_in: StandIn, kernels: ModuleType, record_property: Callable[[str, object], None]
) -> None:
    stand_in.seed = seed
    found = dict(differences(kernels))
    assert [name for name, what in found.items() if what] == []
    assert len(found) == len(COUNTS) + 2 * len(DISPATCH) * len(RULES) + len(SCORES) + len(WALKS)
    twins = {entry for name, entries in cuda.ENTRIES.items() if name != "words" for entry in entries}
    assert set(stand_in.launches) == twins
    record_property(PARITY, f"2 CUDA by g++, order {seed}: {len(found)} cases, {len(stand_in.launches)} launches")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dispatch_cases(), st.sampled_from(list(RULES.values())), st.booleans(), st.integers(0, 99))
def test_dispatch_on_any_traffic(
    stand_in: StandIn, kernels: ModuleType, case: Case, rule: int, per_node: bool, seed: int
) -> None:
    stand_in.seed = seed
    assert dispatch_differs(kernels, dispatched(case, rule, per_node)) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 99), st.tuples(st.integers(0, 40), st.integers(1, 5), st.integers(1, 5)), st.integers(1, 300),
    st.integers(1, 4), st.booleans(),
)  # fmt: skip
def test_counts_of_any_ids(
    kernels: ModuleType, seed: int, shape: tuple[int, int, int], experts: int, windows: int, in_order: bool
) -> None:
    dtype = np.uint8 if experts <= 256 else np.uint16
    assert not count_differs(kernels, counted(seed, shape, experts, windows, dtype=dtype, in_order=in_order))


def few_tokens_a_tile(monkeypatch: pytest.MonkeyPatch, ids: AnyArray) -> None:
    """Tiles of seven tokens."""
    monkeypatch.setattr(sys.modules["easybalance_sim.kernels.cupy_tiles"], "TILE_BYTES", 7 * ids[0].nbytes)


@pytest.mark.parametrize("rule", [EVEN, BLOCKS, HASH])
def test_many_tiles_are_dispatched_as_one(rule: int, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    case = dispatched(DISPATCH["two nodes"], rule, True)
    few_tokens_a_tile(monkeypatch, case.experts)
    assert dispatch_differs(kernels, case) == []


def test_many_tiles_are_counted_as_one(stand_in: StandIn, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    case = COUNTS["windows in any order"]
    few_tokens_a_tile(monkeypatch, case.experts)
    assert not count_differs(kernels, case)
    assert len(stand_in.launches) > 5


@pytest.mark.parametrize("memory_bytes", [0, 300, 900, 2500])
def test_without_memory_tiles_get_smaller_and_at_last_the_cpu_counts(
    memory_bytes: int, stand_in: StandIn, kernels: ModuleType
) -> None:
    stand_in.memory_bytes = memory_bytes
    for rule in (EVEN, BLOCKS):
        assert dispatch_differs(kernels, dispatched(DISPATCH["two nodes"], rule, False)) == []
    assert not count_differs(kernels, COUNTS["windows in any order"])
    assert not score_differs(kernels, SCORES["ragged ranks"])
    assert (len(stand_in.launches) > 0) == (memory_bytes > 0)


def test_tokens_stay_on_the_device_from_plan_to_plan(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads, copy = [], DeviceArray.set

    def counting(array: DeviceArray, values: AnyArray, stream: Stream) -> None:
        uploads.append(array.shape)
        copy(array, values, stream)

    monkeypatch.setattr(DeviceArray, "set", counting)
    first, second = (dispatched(DISPATCH["two nodes"], rule, True) for rule in (EVEN, HASH))
    shape = first.experts.shape
    # Two threads would take turns like this.
    for each in (first, second, first, second._replace(experts=first.experts), second):
        assert dispatch_differs(kernels, each) == []
    assert uploads.count(shape) == 2
    writable = first.experts.copy()
    for shift in range(2):
        writable[:] = (writable + shift) % 8
        assert dispatch_differs(kernels, first._replace(experts=writable)) == []
    assert uploads.count(shape) == 4


@pytest.mark.parametrize("rule", ALL_RULES)
def test_a_whole_replay_is_the_same_on_either_device(
    rule: str, stand_in: StandIn, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = random_batch(4, tokens=120, steps=6, layers=3, experts=12, top_k=3, ranks=4)
    plan = random_plan(4, 3, 12, [4] * 4)
    monkeypatch.setenv("EBSIM_DEVICE", "cpu")
    on_cpu = replayed(batch, plan, rule=rule, ranks_per_node=2, mode="normal")
    assert stand_in.launches == []
    monkeypatch.setattr("easybalance_sim.kernels.load", lambda _="auto": kernels)
    assert same(replayed(batch, plan, rule=rule, ranks_per_node=2, mode="normal"), on_cpu)
    assert stand_in.launches != []


def test_the_device_bench_runs(stand_in: StandIn, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures mean nothing here."""
    monkeypatch.setattr(gpu_check, "REPEATS", 1)
    size = gpu_check.Size(
        tokens=40,
        step_tokens=16,
        layers=2,
        experts=8,
        top_k=2,
        ranks=4,
        slots=3,
        plans=2,
        copied_bytes=4096,
        proposals=40,
    )
    lines = list(gpu_check.table(kernels, load("numba"), stand_in, size))
    assert lines[0].startswith("a CPU, ")
    assert [line.count("|") for line in lines[1:]] == [8] * 10
    with walking(CHAINS):
        lines.append(gpu_check.search_line(kernels, load("numba"), stand_in, size))
    assert lines[-1].startswith("search: 2 layers × 2 chains × 40 proposals (and 70 cold): ")
    assert "nan" not in "".join(lines)


PLANTED = {
    "count_windows": [
        ("* top_k + column]], 1)", "* top_k + column + 1]], 1)"),
        ("(t * layers + from)", "(t * layers + from + 1)"),
        ("column / top_k * n_experts", "column % top_k * n_experts"),
        ("row; t < last[piece]", "row + 1; t < last[piece]"),
    ],
    "turns": [
        ("seen[expert] + lower", "seen[expert] + lower + 1"),
        ("(1u << lane) - 1", "(2u << lane) - 1"),
        ("order[token]", "order[token + 1]"),
        ("k += 32 % top_k", "k += 31 % top_k"),
        ("lower == 0", "lower == 1"),
    ],
    "score_plans": [
        ("share[p];", "share[p + 1];"),
        ("replicas[expert[i]], 1", "replicas[expert[i]], 2"),
        ("slot_start[r + 1]; ++p", "slot_start[r + 1] - 1; ++p"),
        ("(layer) * windows + w]", "(layer) * windows]"),
    ],
    "search": [
        ("n_experts > kManyExperts ? kHeatOfMany", "n_experts > kManyExperts ? 1.0"),
        ("x ^= x << 25", "x ^= x << 24"),
        ("rest = bits & 0xffffffffull", "rest = bits >> 8 & 0xffffffffull"),
        ("x * 11400714819323198485ull", "x * 11400714819323198487ull << 20"),
        ("c.e == c.f || holds(w, c.a, c.f)", "c.e == c.f"),
        (" && !holds(w, c.b, c.e)", ""),
        ("w.count[c.e] > 1", "w.count[c.e] > 0"),
        ("+ shift <= w.most_moves", "+ shift < w.most_moves"),
        ("of_b[c.f] - of_b[c.e]", "of_b[c.e] - of_b[c.f]"),
        ("if (delta > 0 && ", "if (delta < 0 && "),
        (" + w.price * moves_more(w, c);", ";"),
        ("lane() > taken", "lane() > taken + 1"),
        ("first + lane() < proposals", "first <= proposals"),
        ("first % kProposalsPerCooling == 0", "first % 32 == 0"),
        ("(proposals + 31) % 32", "31"),
        ("hot, hot / 100, stage", "hot, hot / 10, stage"),
        ("(k.e - k.f)", "(k.f - k.e)"),
        ("holds(w, rank, c.f) * (k.new_f", "0 * (k.new_f"),
        ("w.holders[expert * w.words + rank / 32] >>", "w.holders[expert * w.words] >>"),
        ("28.0 * w.unit * (gap + rest)", "2800.0 * w.unit * (gap + rest)"),
        ("(w.lean[c.a] * gap + most * rest)", "(w.lean[c.a] * gap)"),
        ("kSwapLuck * (w.lean[c.a] + w.lean[c.b])", "0.01 * (w.lean[c.a] + w.lean[c.b])"),
        ("count_replicas(w);\n  __syncthreads();", "count_replicas(w);"),
        ("group = threadIdx.x / kGroup", "group = lane() / kGroup"),
        ("i / 16 * 4", "i / 16 * 5"),
        ("one[t] - k * other[t]", "one[t] - other[t]"),
        ("floats : own + far", "floats : own"),
        (") / chains, by_window", ") % chains, by_window"),
    ],
    "dispatch": [
        ("starts[expert] + which", "starts[expert] + which + 1"),
        ("experts[ids + k]", "experts[ids + k + 1]"),
        ("[(link + 1) * ranks + rank]", "[link * ranks + rank]"),
        ("entry[source * nodes + there]", "entry[source * nodes + home]"),
        ("int j = 0; j < k", "int j = 1; j < k"),
        ("(row * top_k + k) / 1024", "(row * top_k + k) / 1023"),
        ("&rank_pairs[i]", "&rank_pairs[i ^ 1]"),
        ("step_start[w] + threadIdx.x; t", "step_start[w] + threadIdx.x + 1; t"),
    ],
}
"""Errors that a kernel could have."""


@pytest.mark.parametrize(
    ("name", "right", "wrong"), [(name, *each) for name, planted in PLANTED.items() for each in planted]
)
def test_a_planted_error_is_found(name: str, right: str, wrong: str, stand_in: StandIn, kernels: ModuleType) -> None:
    text = cuda.source(name)
    assert text.count(right) == 1
    stand_in.plant = lambda source: source.replace(right, wrong) if source == text else source
    found = search_differences(kernels) if name == "search" else differences(kernels)
    assert any(what for _, what in found)


def sanitized(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    runtime = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("g++ came without libasan")
    return subprocess.run(
        [sys.executable, "-m", "tests.cuda_on_cpu.check", str(folder), *arguments],
        env={**os.environ, "LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_no_kernel_leaves_its_arrays(folder: Path, record_property: Callable[[str, object], None]) -> None:
    done = sanitized(folder, "3")
    assert done.returncode == 0, done.stdout + done.stderr
    record_property(PARITY, f"2 CUDA by g++, AddressSanitizer and UBSan: {done.stdout.strip()}")


def test_a_kernel_that_leaves_its_arrays_is_found(folder: Path) -> None:
    done = sanitized(folder, "3", "i < slots; i += blockDim.x", "i <= slots; i += blockDim.x")
    assert done.returncode != 0 and "AddressSanitizer: " in done.stderr


def test_threads_that_miss_a_barrier_are_found(folder: Path) -> None:
    done = sanitized(
        folder, "3", "if (inside && lower == 0)", "if (inside) __syncwarp();\n    if (inside && lower == 0)"
    )
    assert done.returncode != 0 and "threads wait at barriers" in done.stderr


@pytest.mark.parametrize("name", ["even ranks", "windows beyond a warp"])
def test_the_order_of_threads_changes_no_bit_of_a_walk(name: str, stand_in: StandIn, kernels: ModuleType) -> None:
    found = []
    for stand_in.seed in ORDERS:
        with walking(CHAINS):
            found.append(WALKS[name].run(kernels, PROPOSALS))
    assert all((slots == found[0][0]).all() and (value == found[0][1]).all() for slots, value in found)


@pytest.mark.parametrize("memory_bytes", [0, 500, 1300, 5000])
def test_without_memory_fewer_chains_walk_at_once(memory_bytes: int, stand_in: StandIn, kernels: ModuleType) -> None:
    """As many in all, and to the same end; where there is none for a single chain the CPU walks, once per layer."""
    problem = WALKS["even ranks"]
    with walking(CHAINS):
        slots, value = problem.run(kernels, PROPOSALS)
        on_cpu, _ = problem.run(numba_search, PROPOSALS)
        launches = len(stand_in.launches)
        stand_in.memory_bytes = memory_bytes
        again, less = problem.run(kernels, PROPOSALS)
    assert (again == (slots if memory_bytes else on_cpu)).all()
    assert (less == value).all() or memory_bytes == 0
    assert len(stand_in.launches) - launches == {0: 0, 500: 4, 1300: 2, 5000: 1}[memory_bytes]


def test_more_than_a_block_can_share_is_searched_by_the_cpu(
    stand_in: StandIn, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["easybalance_sim.kernels.cupy_search"], "SHARED_BYTES", 100)
    assert search_differs(kernels, WALKS["few moves"]) == []
    assert stand_in.launches == []


def test_chains_fill_the_device_and_no_two_are_alike(kernels: ModuleType) -> None:
    module = sys.modules["easybalance_sim.kernels.cupy_search"]
    few, many = module.Shape(12, 4, 8, 16), module.Shape(48, 24, 40, 384)
    assert [module.chains_of(layers, few) for layers in (1, 3, 8, 99)] == [8, 2, 1, 1]
    assert module.chains_of(1, many) == 4
    states = {module._state(seed, chain) for seed in range(60) for chain in range(512)}
    assert len(states) == 60 * 512 and 0 not in states


def test_longer_walks_end_as_low_as_those_of_the_cpu(stand_in: StandIn, kernels: ModuleType) -> None:
    """Also when everything is built anew after every third step, as it is after thousands."""
    rare, often = "kAcceptedPerRebuild = 4096", "kAcceptedPerRebuild = 3"
    for plant in (lambda source: source, lambda source: source.replace(rare, often)):
        stand_in.plant = plant
        with walking(CHAINS, cold=500):
            problem = WALKS["more slots than are certain"]
            slots, lowest = problem.run(kernels, 2000)
            _, specified = problem.run(numba_search, 2000)
        assert rules_broken(problem, slots) == []
        assert lowest[0] <= specified[0] * 1.02


def test_a_policy_searches_on_the_device(
    stand_in: StandIn, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = topic_windows(3, 24, layers=2, experts=12)
    problem = problem_of(windows, uniform(4, 4, 4), effort=Effort(proposals=600))
    eplb = policies.make("eplb", problem)
    monkeypatch.setattr("easybalance_sim.kernels.load", lambda _="auto": kernels)
    with walking(CHAINS):
        plan = policies.make("window_search", problem)
    assert stand_in.launches != []
    busiest = [(rank_loads(each, windows).max(axis=2)).mean() for each in (plan, eplb)]
    assert busiest[0] < busiest[1]


def test_the_device_takes_only_the_types_of_the_kernel(kernels: ModuleType) -> None:
    case = COUNTS["windows in any order"]
    with pytest.raises(TypeError, match="window is int\\*, not ndarray int64"):
        kernels.count_windows(case.experts, frozen(case.window, np.int64), case.start.copy())
