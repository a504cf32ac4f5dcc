"""The product's claims on recorded data, from the command line: published figures are met, refusals are refusals.

The figures are those of the planner study that `ebsim` grew from. GPT-OSS-20B: 8 ranks × 5 slots, windows of 16 steps,
halves of the requests, mean 1.114 and P99 1.312 over layers. DeepSeek-V3: EP32, 288 slots, fitted on the 4k packing and
judged on the 8k one, P50 1.93 → 1.16 and P99 3.56 → 1.39 over layers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.pipeline import make_plan
from easybalance_sim.plan.planfile import read_plan, write_plan
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.replay.tally import imbalance
from tests.ebsim_process import DATA, SAMPLE, ebsim, ebsim_here
from tests.listeners import Heard
from tests.plan_documents import example_document
from tests.trace_files import count_trace

GPTOSS, DEEPSEEK = DATA / "gptoss20b_routing", DATA / "deepseek_v3_counts"
CONCURRENCY = 128
EP32 = ("--ranks", "32", "--ranks-per-node", "8", "--slots-per-rank", "9")

needs_gptoss = pytest.mark.skipif(not GPTOSS.is_dir(), reason="needs recorded routing at ../shared/data")
needs_deepseek = pytest.mark.skipif(not DEEPSEEK.is_dir(), reason="needs recorded counts at ../shared/data")


def by_layer(report: dict[str, Any], side: str) -> tuple[float, float]:
    """Mean over layers of the mean and of the P99 over windows."""
    ratios = report[side]["rank_imbalance_by_layer"]
    return float(np.mean(ratios["mean"])), float(np.mean(ratios["p99"]))


@pytest.fixture(scope="module")
def gptoss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with started.parquet (128 requests begin together, as studied) and midway.parquet."""
    folder = tmp_path_factory.mktemp("gptoss")
    flags = ("--concurrency", str(CONCURRENCY), "--order", "shuffled")
    for name, more in (("started", ()), ("midway", ("--midway",))):
        done = ebsim_here("trace", "convert", GPTOSS, "-o", folder / f"{name}.parquet", *flags, *more)
        assert done.returncode == 0, done.stderr
    return folder


@needs_gptoss
def test_eplb_on_gpt_oss_reaches_the_published_balance(gptoss: Path) -> None:
    flags = ("--ranks", "8", "--slots-per-rank", "5", "--split", "request", "--window-steps", "16", "--policy", "eplb")
    done = ebsim_here("plan", gptoss / "started.parquet", *flags, "--format", "json")
    report = json.loads(done.stdout)
    mean, p99 = by_layer(report, "plan")
    assert mean == pytest.approx(1.114, abs=0.03)
    assert p99 == pytest.approx(1.312, abs=0.08)
    assert 1.44 <= by_layer(report, "baseline")[0] <= 1.52
    assert (report["baseline"]["policy"], report["baseline"]["slots"], report["plan"]["slots"]) == (
        "contiguous",
        32,
        40,
    )


@needs_gptoss
def test_a_server_met_midway_is_no_worse(gptoss: Path) -> None:
    """Without the common start its first window is gone, which made most of the published P99."""
    flags = ("--ranks", "8", "--slots-per-rank", "5", "--split", "request", "--window-steps", "16", "--policy", "eplb")
    report = json.loads(ebsim_here("plan", gptoss / "midway.parquet", *flags, "--format", "json").stdout)
    mean, p99 = by_layer(report, "plan")
    assert mean == pytest.approx(1.114, abs=0.03)
    assert mean < p99 <= 1.312 + 0.08
    assert 1.44 <= by_layer(report, "baseline")[0] <= 1.52


@needs_gptoss
@pytest.mark.parametrize("seeds", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_the_balance_on_gpt_oss_holds_over_seeds(seeds: int, gptoss: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = []
    for seed in range(seeds):
        settings = Settings(traces=(gptoss / "started.parquet",), ranks=8, slots_per_rank=5, seed=seed)
        report, _ = make_plan(PlanRequest(settings=settings, split="request", policies=("eplb",)), Heard())
        figures.append(by_layer(report, "plan"))
    with capsys.disabled():
        print("\nGPT-OSS eplb, mean / P99 over layers by seed:", *(f"{mean:.3f}/{p99:.3f}" for mean, p99 in figures))
    mean, p99 = np.mean(figures, axis=0)
    assert mean == pytest.approx(1.114, abs=0.03)
    assert p99 == pytest.approx(1.312, abs=0.08)


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two count traces that `convert` makes of the table."""
    folder = tmp_path_factory.mktemp("deepseek")
    done = ebsim_here("trace", "convert", DEEPSEEK, "-o", folder / "dsv3.parquet")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["dsv3-4k.parquet", "dsv3-8k.parquet"]
    return folder


@needs_deepseek
def test_deepseek_v3_planned_on_one_packing_and_replayed_on_the_other(deepseek: Path) -> None:
    plan = deepseek / "plan.json"
    done = ebsim_here("plan", deepseek / "dsv3-4k.parquet", *EP32, "-o", plan)
    assert done.returncode == 3
    assert done.stdout.startswith("INSUFFICIENT_EVIDENCE (held_out_windows_min, fit_windows_min): ")
    assert not plan.exists()
    assert ebsim_here("plan", deepseek / "dsv3-4k.parquet", *EP32, "-o", plan, "--force").returncode == 3
    assert read_plan(plan).verdict["status"] == "insufficient_evidence"
    done = ebsim_here("replay", deepseek / "dsv3-8k.parquet", "--plan", plan, "--format", "json")
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert report["baseline"]["rank_imbalance"]["p50"] == pytest.approx(1.93, abs=0.02)
    assert report["baseline"]["rank_imbalance"]["p99"] == pytest.approx(3.56, abs=0.02)
    assert report["plan"]["rank_imbalance"]["p50"] <= 1.19
    assert report["plan"]["rank_imbalance"]["p99"] <= 1.45
    assert report["plan"]["slots"] == 288


@needs_deepseek
def test_the_p99_on_deepseek_v3_is_the_published_one_up_to_the_jitter_of_the_loads(deepseek: Path) -> None:
    """The P99 over 58 layers is nearly their maximum: 0.2 % of jitter in the loads moves it by 0.05.

    So its mean over jittered fits is compared with 1.39, reached by a greedy that doubles experts on a rank.
    """
    fit, judged = (count_trace(deepseek / f"dsv3-{name}.parquet").tokens[0] for name in ("4k", "8k"))
    p99 = []
    for seed in range(20):
        jitter = 1 + 0.002 * np.random.default_rng(seed).standard_normal(fit.shape)
        p99.append(float(np.quantile(_imbalance(fit * jitter, judged), 0.99)))
    assert float(np.mean(p99)) <= 1.393 + 0.03
    assert float(np.quantile(_imbalance(fit.astype(np.float64), judged), 0.5)) == pytest.approx(1.165, abs=0.01)


def _imbalance(fit: FloatArray, judged: Any) -> FloatArray:
    """float64[L] rank imbalance under `judged` counts of the greedy placement for `fit`, 32 ranks × 9 slots."""
    slots = np.asarray(kernels.load().greedy(frozen(fit, np.float64), frozen(np.full(32, 9), np.int64)))
    layer = np.arange(len(slots))[:, None]
    replicas = np.zeros(judged.shape)
    np.add.at(replicas, (layer, slots), 1)
    return imbalance((judged / replicas)[layer, slots].reshape(len(slots), 32, 9).sum(axis=2))


def test_a_plan_for_python_and_c_is_refused_for_chinese(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    done = ebsim_here("plan", SAMPLE, "--workload", "python", "--workload", "c", "-o", plan)
    assert done.returncode == 0 and done.stdout.startswith("ACCEPTED: ")
    accepted = plan.read_bytes()
    done = ebsim_here("replay", SAMPLE, "--plan", plan, "--workload", "chinese")
    assert done.returncode == 1
    assert done.stdout.startswith("REJECTED (fit_gap_max): ")
    assert "NO  fit_gap_max" in done.stdout
    assert plan.read_bytes() == accepted


def test_a_refused_plan_leaves_the_earlier_file_untouched(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    write_plan(plan, example_document())
    old, stat = plan.read_bytes(), plan.stat()
    done = ebsim_here("plan", SAMPLE, "--policy", "contiguous", "-o", plan)
    assert done.returncode == 1
    assert done.stdout.startswith("REJECTED (p99_imbalance_drop_min): contiguous, not written\n")
    assert (plan.read_bytes(), plan.stat().st_mtime_ns, plan.stat().st_ino) == (old, stat.st_mtime_ns, stat.st_ino)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("flags", [("--policy", "eplb"), pytest.param((), marks=pytest.mark.slow)], ids=["eplb", "all"])
def test_the_sample_plan_compiles_once(flags: tuple[str, ...], tmp_path: Path) -> None:
    """The two commands that a newcomer runs first: accepted, and only the first one says that it compiles."""
    cache, says = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, "note: first run: compiling kernels"
    cold, warm = (ebsim("plan", SAMPLE, *flags, "-o", tmp_path / "plan.json", env=cache) for _ in range(2))
    assert (cold.returncode, warm.returncode) == (0, 0)
    assert (cold.stderr.count(says), warm.stderr.count(says)) == (1, 0)
    assert cold.stdout == warm.stdout
