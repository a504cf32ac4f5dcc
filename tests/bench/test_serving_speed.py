"""The serving engine against the clock of what it simulates: synthetic step models of DeepSeek-V3's layers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.simulate.serving.arrivals import load_arrivals
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.limits import Limits
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.step_model import StepModel
from easybalance_sim.simulate.serving.workload import Workload
from tests.ebsim_process import environment
from tests.serving_models import poisson_workload, random_profiles, skewed_model

AZURE = Path(__file__).parents[3] / "shared/data/azure_llm_trace/AzureLLMInferenceTrace_conv.csv"
LAYERS, EXPERTS_PER_TOKEN, REPEATS = 58, 8, 3

COMPILED = """
import time
begin = time.process_time()
from easybalance_sim.simulate.serving.engine import serve
from tests.serving_models import poisson_workload, random_profiles, roomy_limits, skewed_model
workload, model = poisson_workload(0, 5, 400.0), skewed_model(0)
loaded = time.process_time()
serve(workload, random_profiles(0, workload, model), roomy_limits(), model, backend="numba")
print(time.process_time() - loaded)
"""


def deployment(ranks: int) -> StepModel:
    """Every rank a data-parallel one; steps of some 50 ms at 128 answers a rank, of which 2 are the host's."""
    model = skewed_model(0, requests=1024, layers=LAYERS, ranks=ranks, data_ranks=ranks, top_k=EXPERTS_PER_TOKEN,
                         knots=64, chance=0.5)  # fmt: skip
    return replace(
        model,
        attention=replace(model.attention, fixed=1e-4, kv=3e-9),
        outside=replace(model.outside, host=2e-3),
        link_fixed_s=np.array([5e-5, 8e-5]),
    )


def fastest(
    workload: Workload, limits: Limits, model: StepModel, role: str, end_s: float
) -> tuple[PoolRun, float, float]:
    """A run, its seconds by the clock and of the CPU, fastest of some."""
    profiles, clock, cpu = random_profiles(0, workload, model), np.inf, np.inf
    for _ in range(REPEATS):
        begin, spent = time.monotonic(), time.process_time()
        run = serve(workload, profiles, limits, model, role=role, end_s=end_s, bucket_s=1.0)
        clock, cpu = min(clock, time.monotonic() - begin), min(cpu, time.process_time() - spent)
    return run, clock, cpu


def line(name: str, run: PoolRun, clock: float, cpu: float) -> str:
    tokens = run.prompt_tokens + run.decode_tokens
    return (
        f"{name}: {run.end_s:.0f} s simulated in {clock:.2f} s, {run.end_s / clock:.0f}× real time "
        f"({run.end_s / cpu:.0f}× its CPU seconds), {1e6 * cpu / run.steps:.0f} µs per step of "
        f"{1e3 * run.step_s / run.steps:.0f} ms, {tokens / cpu / 1e6:.1f} M tokens per CPU second"
    )


@pytest.mark.bench
def test_decode_deployment(publish: Callable[[str], None]) -> None:
    """32 data-parallel ranks with 128 requests each that never wait for the next one."""
    limits = Limits(running=128, kv_blocks=1 << 14, router="round-robin")
    for outputs in ((50, 150), (250, 750), (1000, 3000)):
        workload = poisson_workload(0, 60_000, 1e9, prompt=(200, 1800), output=outputs)
        run, clock, cpu = fastest(workload, limits, deployment(32), "decode", 60.0)
        name = f"decode, 32 ranks × 128 requests, {LAYERS} layers, answers of {outputs[0]} to {outputs[1]} tokens"
        publish(line(name, run, clock, cpu))
        assert run.timeline.running[1:-1].min() > 0.95 * 32 * 128


@pytest.mark.bench
@pytest.mark.skipif(not AZURE.exists(), reason=f"{AZURE.name} is not there")
def test_an_hour_of_requests(publish: Callable[[str], None]) -> None:
    workload = load_arrivals(AZURE)
    for ranks in (8, 32):
        run, clock, cpu = fastest(workload, Limits(kv_blocks=1 << 13), deployment(ranks), "mixed", np.inf)
        publish(line(f"Azure 2023 conversations, {workload.requests} requests, {ranks} ranks", run, clock, cpu))
        assert run.finished.all()


@pytest.mark.bench
def test_compiling(tmp_path: Path, publish: Callable[[str], None]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, check=True, text=True, cwd=Path(__file__).parents[2],
        env=environment({"NUMBA_CACHE_DIR": str(tmp_path)}),
    )  # fmt: skip
    publish(f"the engine's kernel compiles in {float(done.stdout):.1f} CPU seconds, once per machine")
