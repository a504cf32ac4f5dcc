"""A deployment: one pool that does everything, or one for prompts, one for answers, and caches that travel between.

What the model of two pools leaves out: caches travel each at the full bandwidth, whatever else travels, and hold no
blocks on their way; a decode pool that is full does not keep the prefill pool from going on.

A client has its first token when the decode pool takes the request in: the prefill pool computed it, but it is the
decode instance that streams, once the cache is there and has a place (SGLang's process_batch_result_prebuilt). vLLM's
decode instance computes it once more (vllm-project/vllm issue 25373) and streams it a step later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray, frozen, sealed
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY, Limits
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import StepModel
from easybalance_sim.simulate.serving.workload import Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """limits: of each data-parallel rank · model: of its steps under a plan."""

    limits: Limits
    model: StepModel


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Caches from pool to pool. bytes_per_token: of a prompt, all layers · bytes_per_s: of the link that one request's
    cache takes · latency_s: before the first byte. Raises `UsageError` for what cannot be."""

    bytes_per_token: float
    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if self.bytes_per_token < 0 or not self.bytes_per_s > 0 or self.latency_s < 0:
            raise UsageError("a transfer needs bytes ≥ 0, bytes per second > 0, seconds ≥ 0", where="transfer")

    def seconds(self, workload: Workload) -> FloatArray:
        """float64[N] for each prompt's cache."""
        bytes_: FloatArray = workload.prompt_tokens * np.float64(self.bytes_per_token)
        return self.latency_s + bytes_ / self.bytes_per_s


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """As `engine.serve` has them; both of two pools run to the same end, and tell of each request that leaves them."""

    seed: int = 0
    end_s: float = math.inf
    bucket_s: float = 0.0
    samples: int = 0
    progress: Callable[[int], None] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """What requests got from a deployment. first_token_s, finish_s: float64[N] when the client has them, nan where they
    did not come to that; of a request that is handed over the first token comes when the second pool takes it in ·
    refused: bool[N] by any pool · runs: of the pool or the two · handed_over: int64[M] the requests that the second run
    is of, in its order; empty with one pool."""

    workload: Workload
    first_token_s: FloatArray
    finish_s: FloatArray
    refused: BoolArray
    runs: tuple[PoolRun, ...]
    handed_over: IntArray


def colocated(workload: Workload, profile: Profiles, pool: Pool, settings: RunSettings) -> Service:
    """One pool that does everything. Raises what `serve` raises."""
    run = _served(workload, profile, pool, MIXED, settings)
    return Service(
        workload=workload,
        first_token_s=run.first_token_s,
        finish_s=run.finish_s,
        refused=run.refused,
        runs=(run,),
        handed_over=sealed(np.zeros(0, np.int64)),
    )


def disaggregated(
    workload: Workload,
    profile: Profiles,
    prefill: Pool,
    decode: Pool,
    transfer: Transfer,
    settings: RunSettings,
    *,
    decode_profile: Profiles | None = None,
) -> Service:
    """Prompts in one pool up to the first token, the rest in another once the cache is there. An answer of one token
    never comes to the second. decode_profile: rows of the decode pool's model, None = the same as of the first pool's.
    Raises what `serve` raises."""
    first = _served(workload, profile, prefill, PREFILL_ONLY, settings)
    leaves = first.finish_s + transfer.seconds(workload)
    more = np.flatnonzero(first.finished & (workload.output_tokens > 1))
    order = more[np.argsort(leaves[more], kind="stable")]
    first_token, finish, refused = first.first_token_s.copy(), first.finish_s.copy(), first.refused.copy()
    runs = [first]
    if len(order):
        rows = decode_profile or profile
        rows = Profiles(prefill=rows.prefill[order], decode=rows.decode[order])
        second = _served(_arriving(workload, order, leaves), rows, decode, DECODE_ONLY, settings)
        first_token[order], finish[order], refused[order] = second.start_s, second.finish_s, second.refused
        runs.append(second)
    return Service(
        workload=workload,
        first_token_s=sealed(first_token),
        finish_s=sealed(finish),
        refused=sealed(refused),
        runs=tuple(runs),
        handed_over=frozen(order, np.int64),
    )


def _arriving(workload: Workload, order: IntArray, arrival_s: FloatArray) -> Workload:
    """Some requests in another order, at other times."""
    names = ("prompt_tokens", "output_tokens", "cached_tokens", "tenant")
    return replace(workload, arrival_s=arrival_s[order], **{name: getattr(workload, name)[order] for name in names})


def _served(workload: Workload, profile: Profiles, pool: Pool, role: str, settings: RunSettings) -> PoolRun:
    return serve(
        workload,
        profile,
        pool.limits,
        pool.model,
        role=role,
        seed=settings.seed,
        end_s=settings.end_s,
        bucket_s=settings.bucket_s,
        samples=settings.samples,
        progress=settings.progress,
    )
