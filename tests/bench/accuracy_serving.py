"""Published throughputs of whole DeepSeek-V3 deployments against the serving simulator, from requests to tokens/s.

A closed load: more requests wait from the start than can run, and the run ends while some still wait. Each deployment
is simulated twice, with no communication hidden and with all that can be (`hidden` 0 and 1), the batch being one, so
that two half batches that take turns are slower than the second. Seconds come from the shipped profiles and, beside
the experts, from `cost.attention`; blocks of the KV cache from `cost.kv_room`. Routing: `even`, every rank gets as
much by decree; `uniform`, experts drawn at random from four of eight groups; `mmlu`, drawn from the counts of
DeepSeek-V3 on MMLU. EPLB placed the 32 redundant experts on what is then served, as SGLang did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from easybalance_sim.arrays import AnyArray, FloatArray, frozen
from easybalance_sim.cluster.hardware import HardwareProfile, load_profile
from easybalance_sim.cluster.shapes import ModelShape, load_shape
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.attention import attention_seconds, outside_seconds
from easybalance_sim.cost.kv_room import rank_memory, step_buffers
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.deployment.stations import evened
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem, make
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, PREFILL_ONLY, Limits
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.routed import Routed, drawn, routed_requests
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds, StepModel
from easybalance_sim.simulate.serving.steps import step_model
from easybalance_sim.simulate.serving.workload import Workload
from easybalance_sim.trace.schema import DECODE, PREFILL, TokenBatch
from tests.bench.accuracy_rows import DATA, Line

MMLU = DATA / "deepseek_v3_counts" / "mmlu_counts.parquet"
EVEN, UNIFORM, SKEWED = "even", "uniform", "mmlu"
GPUS_PER_NODE, GROUPS, CHOSEN_GROUPS = 8, 8, 4
REQUESTS, ROW_TOKENS, CANDIDATES = 64, 1024, 24
"""Routed requests, tokens of a prompt and of an answer: enough that chance alone leaves ranks within 1 %."""
EXPERT_PASSES_S = 641e-6 / 4096
"""Quantising and activating the rows of a token, which the H800's table of the two products alone leaves out (as in
`accuracy_layers`)."""
ROLE = {"prefill": PREFILL_ONLY, "decode": DECODE_ONLY}
MODE = {"prefill": "normal", "decode": "low_latency"}
MOST_SERIAL_ERROR = 15.0
"""Of a run that hid nothing, %: the band of the attention alone."""
RUN_S = {"prefill": 20.0, "decode": 8.0}
ANSWER_TOKENS = (50, 150)
BRACKET, SERIAL, AVERAGE = "bracket", "serial", "average"
"""What a measured value is: of a full pool that overlapped micro-batches; of one that did not; the mean of a day, in
which the pool was not always full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """One published run. batch: tokens of a step on one GPU (decode: requests) · context: tokens of a prompt (decode:
    of the mean cache) · per_node: measured tokens/s of eight GPUs, computed ones · cached: share of prompts whose cache
    was there · compare: what the measured value is held against."""

    name: str
    gpu: str
    phase: str
    ranks: int
    slots: int
    batch: int
    context: int
    routing: str
    per_node: float
    cached: float = 0.0
    compare: str = BRACKET


# LMSYS 2025-05-05 (SGLang, table and text of its evaluation), deepseek-ai/profile-data, open-infra-index day 6.
DEPLOYMENTS = (
    Deployment(
        name="DeepSeek profile, prefill", gpu="h800", phase="prefill", ranks=32, slots=9, batch=16384, context=4096,
        routing=EVEN, per_node=62_713,
    ),
    Deployment(
        name="SGLang prefill, perfect balance", gpu="h100", phase="prefill", ranks=32, slots=9, batch=16384,
        context=4096, routing=UNIFORM, per_node=59_337,
    ),
    Deployment(
        name="SGLang prefill, 1K prompts", gpu="h100", phase="prefill", ranks=32, slots=9, batch=16384, context=1024,
        routing=SKEWED, per_node=57_674,
    ),
    Deployment(
        name="SGLang prefill, 2K prompts", gpu="h100", phase="prefill", ranks=32, slots=9, batch=16384, context=2048,
        routing=SKEWED, per_node=54_543,
    ),
    Deployment(
        name="SGLang prefill, headline", gpu="h100", phase="prefill", ranks=32, slots=9, batch=16384, context=2000,
        routing=SKEWED, per_node=52_300,
    ),
    Deployment(
        name="SGLang prefill, 4K prompts", gpu="h100", phase="prefill", ranks=32, slots=9, batch=16384, context=4096,
        routing=SKEWED, per_node=50_302,
    ),
    Deployment(
        name="DeepSeek profile, decode", gpu="h800", phase="decode", ranks=128, slots=2, batch=128, context=4096,
        routing=EVEN, per_node=18_598,
    ),
    Deployment(
        name="SGLang decode", gpu="h100", phase="decode", ranks=72, slots=4, batch=256, context=2000, routing=SKEWED,
        per_node=22_282,
    ),
    Deployment(
        name="SGLang decode, one batch", gpu="h100", phase="decode", ranks=72, slots=4, batch=256, context=2000,
        routing=SKEWED, per_node=22_310 / 1.255, compare=SERIAL,
    ),
    Deployment(
        name="DeepSeek production, decode", gpu="h800", phase="decode", ranks=144, slots=2, batch=128, context=4989,
        routing=SKEWED, per_node=14_800,
    ),
    Deployment(
        name="DeepSeek production, decode, 88 requests", gpu="h800", phase="decode", ranks=144, slots=2, batch=88,
        context=4989, routing=SKEWED, per_node=14_800,
    ),
    Deployment(
        name="DeepSeek production, prefill", gpu="h800", phase="prefill", ranks=32, slots=9, batch=16384, context=4096,
        routing=SKEWED, per_node=32_206, cached=0.563, compare=AVERAGE,
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """Tokens/s of a node with none and with all of the communication hidden that can be, seconds of a step, requests
    that ran at once on a GPU, share of its cache that they fill, share of the serial seconds by part, and seconds lost
    to imbalance."""

    run: Deployment
    serial: float
    overlap: float
    step_s: tuple[float, float]
    running: float
    cache: float
    parts: dict[str, float]
    lost: float

    @property
    def holds(self) -> bool:
        """Whether the measured value lies in between."""
        return self.serial <= self.run.per_node <= self.overlap

    @property
    def hidden(self) -> float:
        """Share of what could hide that must have been hidden, were everything else right."""
        return (1 / self.serial - 1 / self.run.per_node) / (1 / self.serial - 1 / self.overlap)


def serving_lines() -> tuple[list[Line], list[Served]]:
    """The line of the accuracy table, and the rows of its section."""
    found = [_served(run) for run in DEPLOYMENTS]
    full = [one for one in found if one.run.compare == BRACKET]
    alone = [one for one in found if one.run.compare == SERIAL]
    error = max(abs(one.serial / one.run.per_node - 1) for one in alone) * 100
    lines = [
        Line(
            item="published throughputs inside [serial, full overlap] of the serving simulator",
            measured=sum(one.holds for one in full), target=len(full), rows=len(full), at_most=False, percent=False,
        ),
        Line(
            item="SGLang's decode in one batch, serial, serving simulator, error", measured=error,
            target=MOST_SERIAL_ERROR, rows=len(alone),
        ),
    ]  # fmt: skip
    return lines, found


def _served(run: Deployment) -> Served:
    routed, limits = _routed(UNIFORM if run.routing == EVEN else run.routing), _limits(run)
    model, workload = _model(run, routed), _closed_load(run, limits)
    profiles = drawn(routed, workload)
    runs = [
        serve(workload, profiles, limits, replace(model, hidden=hidden), role=ROLE[run.phase], end_s=RUN_S[run.phase])
        for hidden in (0.0, 1.0)
    ]
    serial, overlap = (_per_node(one, run) for one in runs)
    seconds, first = runs[0].seconds, runs[0]
    lost = sum(seconds[name] for name in ("lost_dispatch", "lost_expert", "lost_combine"))
    return Served(
        run=run,
        serial=serial,
        overlap=overlap,
        step_s=(runs[0].step_s / runs[0].steps, runs[1].step_s / runs[1].steps),
        running=float(first.timeline.running.mean()) / run.ranks,
        cache=float(first.timeline.kv_frac.mean()),
        parts={
            name: seconds[name] / first.step_s for name in ("attention", "outside", "dispatch", "expert", "combine")
        },
        lost=lost / first.step_s,
    )


def _per_node(found: PoolRun, run: Deployment) -> float:
    tokens = found.prompt_tokens if run.phase == "prefill" else found.decode_tokens
    if found.unfinished <= 2 * run.ranks * run.batch // (run.context if run.phase == "prefill" else 1):
        raise RuntimeError(f"{run.name}: the load ended before the run")
    return tokens / found.end_s / run.ranks * GPUS_PER_NODE


def _closed_load(run: Deployment, limits: Limits) -> Workload:
    """All requests at once, twice as many as the run can serve at the measured speed."""
    answers = np.random.default_rng(0).integers(*ANSWER_TOKENS, 1 << 20, dtype=np.int32, endpoint=True)
    mean = float(answers.mean())
    each = run.context * (1 - run.cached) if run.phase == "prefill" else mean
    served = run.per_node / GPUS_PER_NODE * run.ranks * RUN_S[run.phase] / each
    requests = int(3 * served + 2 * run.ranks * limits.running)
    decoding = run.phase == "decode"
    return Workload(
        arrival_s=np.zeros(requests),
        prompt_tokens=np.full(requests, run.context - round(mean / 2) if decoding else run.context, np.int32),
        output_tokens=answers[:requests] if decoding else np.ones(requests, np.int32),
        cached_tokens=np.full(requests, round(run.cached * run.context), np.int32),
        tenant=np.zeros(requests, np.int32),
        tenants=("any",),
        source=run.name,
    )


def _limits(run: Deployment) -> Limits:
    shape, hardware = load_shape("deepseek-v3"), load_profile(run.gpu)
    decoding = run.phase == "decode"
    buffers = step_buffers(shape, run.batch, run.ranks, run.ranks * run.slots, MODE[run.phase])
    memory = rank_memory(shape, hardware.hbm_bytes, run.slots, buffers=buffers or 0)
    if memory is None:
        raise RuntimeError("memory of DeepSeek-V3 is not known")
    return Limits(
        batch_tokens=run.batch,
        chunk_tokens=run.batch,
        running=run.batch if decoding else 4 * run.batch // run.context,
        kv_blocks=memory.blocks(64),
        router="round-robin",
    )


def _model(run: Deployment, routed: Routed) -> StepModel:
    shape, hardware = load_shape("deepseek-v3"), load_profile(run.gpu)
    topology = uniform(run.ranks, GPUS_PER_NODE, run.slots, run.gpu)
    plan = _plan(run, topology)
    cost = layer_cost(hardware, shape, topology, plan.slots_per_rank, MODE[run.phase], run.phase)
    model = step_model(
        routed,
        plan,
        topology,
        cost,
        attention=_attention(shape, hardware),
        outside=_outside(shape, hardware),
        data_ranks=run.ranks,
        rule="sglang-dynamic",
    )
    return evened(model) if run.routing == EVEN else model


def _attention(shape: ModelShape, hardware: HardwareProfile) -> AttentionSeconds:
    found = attention_seconds(shape, hardware)
    passes_s = EXPERT_PASSES_S if hardware.name == "h800" else 0.0
    return AttentionSeconds(
        fixed=found.fixed, weights=found.weights, token=found.token, kv=found.kv, pair=found.pair,
        shared_fixed=found.shared_fixed, shared_weights=found.shared_weights,
        shared_token=found.shared_token + passes_s,
    )  # fmt: skip


def _outside(shape: ModelShape, hardware: HardwareProfile) -> OutsideSeconds:
    found = outside_seconds(shape, hardware)
    return OutsideSeconds(
        host=found.host, dense_layers=found.dense_layers, weights=found.weights, token=found.token,
        head_weights=found.head_weights, head_token=found.head_token,
    )  # fmt: skip


def _plan(run: Deployment, topology: Topology) -> Plan:
    loads = np.rint(_shares(run.routing) * 1e6)
    return make("eplb", Problem(forecast=loads, windows=loads[None].astype(np.int64), topology=topology))


@cache
def _routed(routing: str) -> Routed:
    """Requests whose tokens are drawn one by one: their prompts and answers are alike, and so are all requests."""
    tokens = 2 * REQUESTS * ROW_TOKENS
    ids, rng = np.empty((tokens, 58, 8), np.uint8), np.random.default_rng(0)
    for layer, share in enumerate(_shares(routing)):
        ids[:, layer] = _experts(share, tokens, routing != SKEWED, rng)
    row = np.arange(tokens)
    batch = TokenBatch(
        step=frozen(row // ROW_TOKENS, np.int32),
        request=frozen(row // (2 * ROW_TOKENS), np.int64),
        position=frozen(row % (2 * ROW_TOKENS), np.int32),
        phase=frozen(np.where(row // ROW_TOKENS % 2 == 0, PREFILL, DECODE), np.uint8),
        source_rank=frozen(np.full(tokens, -1), np.int16),
        workload=frozen(np.zeros(tokens), np.int16),
        experts=frozen(ids),
    )
    return routed_requests([batch], ("any",), 256)


def _experts(share: FloatArray, tokens: int, grouped: bool, rng: np.random.Generator) -> AnyArray:
    """uint8[T, 8] distinct experts: the first eight different ones of `CANDIDATES` drawn by their shares, if so within
    four groups of the token (then all shares are alike)."""
    if grouped:
        each = len(share) // GROUPS
        open_groups = rng.random((tokens, GROUPS)).argsort(axis=1)[:, :CHOSEN_GROUPS]
        inside = rng.integers(CHOSEN_GROUPS * each, size=(tokens, CANDIDATES))
        ids = np.take_along_axis(open_groups, inside // each, axis=1) * each + inside % each
    else:
        ids = np.searchsorted(np.cumsum(share)[:-1], rng.random((tokens, CANDIDATES)))
    earlier = np.tri(CANDIDATES, k=-1, dtype=np.bool_)
    again = ((ids[:, :, None] == ids[:, None, :]) & earlier).any(axis=2)
    first = again.argsort(axis=1, kind="stable")[:, :8]
    return np.take_along_axis(ids, first, axis=1).astype(np.uint8)


@cache
def _shares(routing: str) -> FloatArray:
    """float64[58, 256] of the experts."""
    if routing != SKEWED:
        return np.full((58, 256), 1 / 256)
    rows = pd.read_parquet(MMLU).query("seqlen == '4k'").sort_values("layer")
    counts = np.stack(rows.counts.to_list()).astype(np.float64)
    shares: FloatArray = counts / counts.sum(axis=1, keepdims=True)
    return shares
