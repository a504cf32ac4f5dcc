"""`PoolRun`: what became of every request of one pool of ranks, and where the seconds went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, Int32Array, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """B buckets of `bucket_s` seconds, a step in the one that it begins in. A bucket of inf seconds is the whole run.

    tokens, steps: int64[B] · step_s: float64[B] seconds in steps, the others of a bucket are idle · busy_s:
    float64[B, R] seconds that a rank's experts compute · running, waiting: float64[B] requests that hold cache and
    that wait, mean over the seconds in steps · kv_frac: float64[B] share of the cache blocks in use, likewise.
    """

    bucket_s: float
    tokens: IntArray
    steps: IntArray
    step_s: FloatArray
    busy_s: FloatArray
    running: FloatArray
    waiting: FloatArray
    kv_frac: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class StepSample:
    """One step, taken apart. start_s: when it began · seconds: of each part · request: int32[n] those with tokens in
    it, in the order of their data-parallel ranks within each kind · prompt, decode: int32[n] their tokens, one of the
    two is 0 · row: int32[n] of `StepModel.mean` by which they are spread: in a decode pool the token that a request
    came with is the prompt's last in its place, but spread like its answer."""

    step: int
    start_s: float
    seconds: dict[str, float]
    request: Int32Array
    prompt: Int32Array
    decode: Int32Array
    row: Int32Array


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolRun:
    """N requests through one pool.

    start_s: float64[N] when a request was first given cache, i.e. the step began that it was first in · first_token_s:
    end of the step that made its first token here · finish_s: of its last; nan where it did not come to that ·
    data_rank: int32[N], -1 for refused ones and those that never came · preemptions: int32[N] · refused: bool[N].
    seconds: of all steps by part: attention, outside, dispatch, expert, combine as if one after the other, `hidden` of
    them behind others; idle; lost_dispatch, lost_expert, lost_combine: above what even ranks would take, one after the
    other; balanced: the whole steps with even ranks, likewise hidden.
    end_s: when the run ended · steps: of all ranks together · prompt_tokens, decode_tokens: computed, tokens that
    preemption made necessary once more included: at most `dropped_tokens` · arrived: requests that came before the
    end · too_long: of the refused, those whose tokens a rank's cache never holds · waited: steps × data ranks in which
    a request that was there got no token, out of steps · data_ranks · present_s: requests in the system integrated
    over time · samples: steps evenly spread over the run.
    """

    start_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    data_rank: Int32Array
    preemptions: Int32Array
    refused: BoolArray
    seconds: dict[str, float]
    end_s: float
    steps: int
    prompt_tokens: int
    decode_tokens: int
    dropped_tokens: int
    arrived: int
    too_long: int
    waited: int
    data_ranks: int
    present_s: float
    timeline: Timeline
    samples: tuple[StepSample, ...] = ()

    @property
    def finished(self) -> BoolArray:
        """bool[N] requests that were answered to the end."""
        done: BoolArray = ~np.isnan(self.finish_s)
        return done

    @property
    def step_s(self) -> float:
        """Seconds of all steps."""
        return float(self.timeline.step_s.sum())

    @property
    def unfinished(self) -> int:
        """Requests that were in the system at the end."""
        return self.arrived - int(self.refused.sum()) - int(self.finished.sum())

    @property
    def busy_frac(self) -> AnyArray:
        """float64[R] share of the run's seconds in which each rank's experts computed."""
        busy: AnyArray = self.timeline.busy_s.sum(axis=0)
        return busy / self.end_s if self.end_s > 0 else busy
