"""The step model of the serving simulator against the same steps replayed token by token.

What is fitted comes from a quarter of the routed requests, what is judged from the others. Both sides have the rows as
recorded (`exact.as_recorded`), for no others can be replayed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, frozen, stream
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.exact import StepCheck, check, compare
from easybalance_sim.simulate.serving.limits import Limits
from easybalance_sim.simulate.serving.mixing import Pieces, answers, prompts
from easybalance_sim.simulate.serving.replayed import Replayed, replayed
from easybalance_sim.simulate.serving.routed import Routed, drawn, routed_requests
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds, StepModel
from easybalance_sim.simulate.serving.steps import step_model
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.synthesis import Recipe, token_batches, world
from tests.ebsim_process import DATA, SAMPLE, ebsim
from tests.serving_models import poisson_workload

SEEDS = [int(seed) for seed in os.environ.get("EBSIM_BENCH_SEEDS", "0,1,2").split(",")]
BATCHES, PROMPT = (8, 32, 128, 256), 1024
STEPS_TOKENS = 1 << 17
"""Tokens replayed per row and seed, in 12 to 96 steps."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Routing of a trace under a plan: `contiguous`, or EPLB with so many slots per rank."""

    trace: str
    ranks: int
    slots: int
    plan: str

    @property
    def name(self) -> str:
        """ "GPT-OSS-20B, 8 ranks, eplb, 5 slots"."""
        return f"{self.trace}, {self.ranks} ranks, {self.plan}, {self.slots} slots"


SETUPS = (
    Setup(trace="GPT-OSS-20B", ranks=8, slots=4, plan="contiguous"),
    Setup(trace="GPT-OSS-20B", ranks=8, slots=5, plan="eplb"),
    Setup(trace="GPT-OSS-20B", ranks=32, slots=1, plan="contiguous"),
    Setup(trace="GPT-OSS-20B", ranks=32, slots=2, plan="eplb"),
    Setup(trace="TinyMoE", ranks=8, slots=8, plan="contiguous"),
    Setup(trace="TinyMoE", ranks=8, slots=9, plan="eplb"),
    Setup(trace="topic mixture", ranks=32, slots=8, plan="contiguous"),
    Setup(trace="topic mixture", ranks=32, slots=9, plan="eplb"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ready:
    """A setup with its step model. seconds: that making the model took."""

    routed: Routed
    replay: Replayed
    model: StepModel
    seconds: float


@cache
def routed_of(trace: str) -> tuple[Routed, ModelShape]:
    """The requests of a trace and the widths by which it is costed; skips the test where the trace is absent."""
    if trace == "topic mixture":
        recipe = Recipe(
            kind="topic-mixture", layers=58, experts=256, top_k=8, steps=200, tokens_per_step=256, ranks=32, seed=0,
            topics=8, groups=8,
        )  # fmt: skip
        truth = world(recipe)
        return routed_requests(token_batches(recipe, truth), truth.names, recipe.experts), load_shape("deepseek-v3")
    if trace == "TinyMoE":
        widths = ModelShape(name="wide", layers=tuple(range(8)), experts=64, top_k=6, hidden=7168, intermediate=2048)
        return read(SAMPLE), widths
    source = DATA / "gptoss20b_routing" / "routing_tokens.parquet"
    if not source.is_file():
        pytest.skip("needs recorded routing at ../shared/data/gptoss20b_routing")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        done = ebsim("trace", "convert", source, "-o", path, "--model", "gpt-oss-20b", "--drain")
        assert done.returncode == 0, done.stderr
        return read(path), load_shape("gpt-oss-20b")


def read(path: Path) -> Routed:
    """The requests of a trace file."""
    trace = open_trace([path])
    assert isinstance(trace, TokenTrace)
    return routed_requests(trace.batches(), trace.workloads, trace.meta.experts)


def ready(setup: Setup, mode: str, phase: str, seed: int) -> Ready:
    """The step model of a setup on H200s, 8 to a node."""
    routed, shape = routed_of(setup.trace)
    plan, topology = plan_of(setup, routed), uniform(setup.ranks, 8, setup.slots)
    cost = layer_cost(load_profile("h200"), shape, topology, plan.slots_per_rank, mode, phase)
    begin = time.perf_counter()
    model = step_model(
        routed, plan, topology, cost, attention=AttentionSeconds(fixed=5e-5, token=2e-7),
        outside=OutsideSeconds(host=1e-3), data_ranks=setup.ranks, rule="even", run_tokens=PROMPT, seed=seed,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    replay = replayed(plan, topology, cost, data_ranks=setup.ranks, rule="even", seed=seed)
    return Ready(routed=routed, replay=replay, model=model, seconds=seconds)


def plan_of(setup: Setup, routed: Routed) -> Plan:
    """The setup's placement, EPLB for the whole traffic."""
    slots = np.full(setup.ranks, setup.slots)
    layers = routed.experts.shape[1]
    placed = np.tile(np.arange(slots.sum()) % routed.n_experts, (layers, 1))
    if setup.plan == "eplb":
        load: FloatArray = np.array(
            [np.bincount(ids.ravel(), minlength=routed.n_experts) for ids in np.moveaxis(routed.experts, 1, 0)], float
        )
        placed = kernels.load().greedy(frozen(load), frozen(slots, np.int64))
    return Plan(expert_of_slot=placed, slots_per_rank=slots, experts=routed.n_experts, policy=setup.plan)


def batches(one: Ready, setup: Setup, seed: int) -> Iterator[tuple[str, Pieces]]:
    """Steps of answers, B tokens per rank."""
    serving = np.flatnonzero(~one.routed.aside)
    for tokens in BATCHES:
        steps = int(np.clip(STEPS_TOKENS // (tokens * setup.ranks), 12, 96))
        yield str(tokens), answers(one.routed, serving, steps, tokens, setup.ranks, stream(seed, "judged"))


def row(setup: Setup, what: str, found: Sequence[StepCheck]) -> str:
    """Mean error over seeds and, in brackets, of each."""
    cells = [setup.name, what]
    for name in ("mean_s", "p99_s", "mean_imbalance", "p99_imbalance"):
        each = [100 * one.error(name) for one in found]
        cells.append(f"{np.mean(each):+.1f} % [{', '.join(f'{error:+.1f}' for error in each)}]")
    return "| " + " | ".join(cells) + " |"


HEAD = "| {} | {} | mean layer | P99 layer | mean imbalance | P99 imbalance |\n|---|---|---|---|---|---|"


@pytest.mark.bench
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_decode_steps(setup: Setup, publish: Callable[[str], None]) -> None:
    """Batches of answers through low-latency links: mean within 2 %, P99 within 5 %."""
    found: dict[str, list[StepCheck]] = {}
    for seed in SEEDS:
        one = ready(setup, "low_latency", "decode", seed)
        for name, pieces in batches(one, setup, seed):
            found.setdefault(name, []).append(compare(pieces, one.routed, one.replay, one.model, seed))
    publish(HEAD.format("routing and plan", "tokens per rank"))
    for name, checks in found.items():
        publish(row(setup, name, checks))
        assert abs(np.mean([one.error("mean_s") for one in checks])) < 0.02
        assert abs(np.mean([one.error("p99_s") for one in checks])) < 0.05


@pytest.mark.bench
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_prompts(setup: Setup, publish: Callable[[str], None]) -> None:
    """A thousand tokens of one prompt on every rank, through normal links."""
    checks = []
    for seed in SEEDS:
        one = ready(setup, "normal", "prefill", seed)
        pieces = prompts(one.routed, np.flatnonzero(~one.routed.aside), 12, PROMPT, setup.ranks, stream(seed, "judged"))
        checks.append(compare(pieces, one.routed, one.replay, one.model, seed))
    publish(HEAD.format("routing and plan", "prompt tokens per rank"))
    publish(row(setup, str(PROMPT), checks))
    assert abs(np.mean([one.error("mean_s") for one in checks])) < 0.05


@pytest.mark.bench
@pytest.mark.parametrize("mode", ["low_latency", "normal"])
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_steps_in_service(setup: Setup, mode: str, publish: Callable[[str], None]) -> None:
    """Steps that the engine made: prompts in chunks beside answers, unlike numbers of tokens on the ranks."""
    checks, tokens = [], []
    for seed in SEEDS:
        one = ready(setup, mode, "decode", seed)
        workload = poisson_workload(seed, 400 * setup.ranks, 12.0 * setup.ranks, prompt=(100, 2000), output=(10, 400))
        rows = drawn(one.routed, workload, seed)
        limits = Limits(batch_tokens=2048, chunk_tokens=1024, kv_blocks=100_000)
        run = serve(workload, rows, limits, one.model, seed=seed, samples=64)
        one_check = check(run.samples, run.data_rank, one.routed, one.replay, one.model, seed=seed)
        assert one_check is not None
        checks.append(one_check)
        tokens.append(one_check.tokens / one_check.steps)
    publish(HEAD.format("routing and plan", "links, mean tokens of a step"))
    publish(row(setup, f"{mode.replace('_', ' ')}, {np.mean(tokens):,.0f}", checks))
    assert abs(np.mean([one.error("mean_s") for one in checks])) < 0.05


@pytest.mark.bench
def test_seconds_of_it(publish: Callable[[str], None]) -> None:
    """How long the model of a large deployment takes to make, and its check."""
    setup = SETUPS[-1]
    ready(setup, "low_latency", "decode", 0)
    one = ready(setup, "low_latency", "decode", 0)
    serving = np.flatnonzero(~one.routed.aside)
    pieces = answers(one.routed, serving, 32, 128, 32, stream(0, "timed"))
    begin = time.perf_counter()
    compare(pieces, one.routed, one.replay, one.model)
    checked = time.perf_counter() - begin
    publish(
        f"58 layers of 256 experts on 32 ranks: step model of {one.routed.requests:,} routed requests "
        f"{one.seconds:.1f} s; 32 steps of 4,096 tokens replayed beside it {checked:.2f} s"
    )
    assert checked < 10
