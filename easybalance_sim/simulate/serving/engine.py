"""One pool of ranks that serves requests: data-parallel ranks in lockstep, a step at a time.

Expert parallelism makes every step one of all ranks. Before each, what has arrived joins the queues of the ranks; a
rank then takes in the next token of every request past its prompt and, first come first served, chunks of prompts. A
prompt is admitted when the cache has room for all of it; an answer takes blocks as it grows, and where none is left the
request that its rank admitted last gives up its cache, goes to the head of the queue, and computes all its tokens anew
(vLLM's recompute preemption; Kwon et al., SOSP 2023). In a decode pool such a request computes its prompt there, too.
Under prefill-first a rank has a step of prompts alone as long as one fits; not so in a decode pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, frozen, sealed
from easybalance_sim.errors import UsageError
from easybalance_sim.kernels import serving_state as places
from easybalance_sim.kernels.serving_state import Model, Rules, State
from easybalance_sim.simulate.serving.conservation import require_conserved, step_seconds
from easybalance_sim.simulate.serving.kernel_arrays import ROLES, empty_state, model_of, require_fitting, rules_of
from easybalance_sim.simulate.serving.limits import MIXED, Limits
from easybalance_sim.simulate.serving.pool_run import PoolRun, StepSample, Timeline
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import StepModel
from easybalance_sim.simulate.serving.workload import Workload

__all__ = ["PoolRun", "StepSample", "Timeline", "serve"]

STEPS_AT_ONCE = 2000
MOST_BUCKETS = 1 << 20


def serve(
    workload: Workload,
    profile: Profiles,
    limits: Limits,
    model: StepModel,
    *,
    role: str = MIXED,
    seed: int = 0,
    end_s: float = math.inf,
    bucket_s: float = 0.0,
    samples: int = 0,
    progress: Callable[[int], None] | None = None,
    backend: str = "auto",
) -> PoolRun:
    """Serves the requests until all are answered, or the first step that ends at `end_s` or later.

    role: one of `ROLES`; in a decode pool requests arrive with the cache of their prompt and one token. bucket_s: of
    the timeline, 0 for one bucket. samples: most steps to take apart. progress: told how many more requests were
    answered or refused. backend: of the kernels. The same for the same seed.
    Raises `UsageError` for a role there is not, negative seconds, and profiles that do not fit.
    """
    _require(workload, profile, model, role, end_s, bucket_s)
    rules = rules_of(limits, role, end_s, bucket_s)
    run = _Run(
        kernel=kernels.load(backend).serve_steps,
        model=model_of(model, seed),
        rules=rules,
        state=empty_state(workload, profile, model, rules),
    )
    taken = _Samples(most=samples)
    while run.goes_on(taken, progress):
        pass
    result = _result(run.state, rules, taken.thinned())
    require_conserved(result, workload, rules, run.state)
    return result


def _require(workload: Workload, profile: Profiles, model: StepModel, role: str, end_s: float, bucket_s: float) -> None:
    if role not in ROLES:
        raise UsageError(f"no role {role!r}", where="pool", fix=f"use one of {', '.join(ROLES)}")
    if not end_s > 0 or not 0 <= bucket_s < math.inf:
        raise UsageError(f"a run of {end_s:g} s in buckets of {bucket_s:g} s", where="pool", fix="give seconds > 0")
    if model.data_ranks < 1 or model.ranks % model.data_ranks:
        raise UsageError(f"{model.data_ranks} data-parallel ranks on {model.ranks} ranks", where="pool")
    require_fitting(model)
    for name, rows in (("prefill", profile.prefill), ("decode", profile.decode)):
        if rows.shape != (workload.requests,):
            raise UsageError(f"{len(rows)} rows for {workload.requests} requests", where=f"profile.{name}")
        if rows.min() < 0 or rows.max() >= len(model.mean):
            raise UsageError(f"a row outside 0 to {len(model.mean) - 1}", where=f"profile.{name}")


@dataclass(kw_only=True)
class _Samples:
    """Every `stride`-th step, twice as many apart whenever there are twice too many."""

    most: int
    stride: int = 1
    kept: list[StepSample] = field(default_factory=list)

    @property
    def next(self) -> int:
        """The step to take apart next, -1 for none."""
        return -1 if self.most == 0 else self.kept[-1].step + self.stride if self.kept else 0

    def add(self, sample: StepSample) -> None:
        self.kept.append(sample)
        if len(self.kept) == 2 * self.most:
            self.kept = self.kept[::2]
            self.stride *= 2

    def thinned(self) -> tuple[StepSample, ...]:
        return tuple(self.kept[:: max(1, math.ceil(len(self.kept) / max(1, self.most)))])


@dataclass(kw_only=True)
class _Run:
    """A run that goes on from `state`."""

    kernel: Callable[..., int]
    model: Model
    rules: Rules
    state: State

    def goes_on(self, samples: _Samples, progress: Callable[[int], None] | None) -> bool:
        """Makes some steps, at most up to the next one to take apart; False when nothing is left to do."""
        state, before = self.state, _parts(self.state)
        done, ahead = self._gone, samples.next - int(state.totals["step"][0])
        steps = 1 if ahead == 0 else min(STEPS_AT_ONCE, ahead) if ahead > 0 else STEPS_AT_ONCE
        why = self.kernel(self.model, self.rules, state, steps, samples.next)
        if why == places.STUCK:
            raise RuntimeError("a serving step had requests but no tokens")
        if why == places.RECORDED:
            samples.add(_sample(state, before))
        if why == places.FULL:
            if len(state.buckets) > MOST_BUCKETS:
                raise UsageError(f"the timeline has more than {MOST_BUCKETS} buckets", where="pool", fix="longer ones")
            self.state = state._replace(buckets=_doubled(state.buckets), busy=_doubled(state.busy))
        if progress is not None and self._gone > done:
            progress(self._gone - done)
        return why != places.DONE

    @property
    def _gone(self) -> int:
        """Requests that were answered or refused."""
        return int(self.state.totals["finished"][0] + self.state.totals["refused"][0])


def _parts(state: State) -> dict[str, float]:
    """Seconds so far by part."""
    return {name: float(state.seconds[name][0]) for name in places.PARTS}


def _doubled(values: AnyArray) -> AnyArray:
    return np.concatenate([values, np.zeros_like(values)])


def _sample(state: State, before: dict[str, float]) -> StepSample:
    """The step that the kernel just recorded. before: seconds by part at its beginning."""
    parts = {name: seconds - before[name] for name, seconds in _parts(state).items() if name != "idle"}
    totals = state.totals[0]
    chunks, decoders = state.chunks[: totals["chunks"]], state.noted[: totals["noted"]]
    return StepSample(
        step=int(totals["step"]) - 1,
        start_s=float(totals["now"]) - step_seconds(parts),
        seconds=parts,
        request=sealed(np.append(chunks["request"], decoders)),
        prompt=sealed(np.append(chunks["tokens"], np.zeros_like(decoders))),
        decode=sealed(np.append(np.zeros(len(chunks), np.int32), np.ones_like(decoders))),
        row=sealed(np.append(chunks["row"], state.requests["decode"][decoders])),
    )


def _result(state: State, rules: Rules, samples: tuple[StepSample, ...]) -> PoolRun:
    totals, requests = state.totals[0], state.requests
    return PoolRun(
        start_s=frozen(requests["start"]),
        first_token_s=frozen(requests["first"]),
        finish_s=frozen(requests["finish"]),
        data_rank=frozen(requests["rank"]),
        preemptions=frozen(requests["preemptions"]),
        refused=frozen(requests["refused"], np.bool_),
        seconds=_parts(state),
        end_s=float(totals["now"]),
        steps=int(totals["step"]),
        prompt_tokens=int(totals["prompt_tokens"]),
        decode_tokens=int(totals["decode_tokens"]),
        dropped_tokens=int(totals["dropped"]),
        arrived=int(totals["arrived"]),
        too_long=int(totals["too_long"]),
        waited=int(totals["waited"]),
        data_ranks=len(state.ranks),
        present_s=float(totals["present_s"]),
        timeline=_timeline(state, rules),
        samples=samples,
    )


def _timeline(state: State, rules: Rules) -> Timeline:
    """Up to the last bucket in which a step began."""
    began = np.flatnonzero(state.buckets["steps"])
    buckets = state.buckets[: began[-1] + 1 if len(began) else 1]
    per_second = 1.0 / np.maximum(buckets["step_s"], np.finfo(float).tiny)
    return Timeline(
        bucket_s=rules.bucket_s,
        tokens=frozen(buckets["tokens"]),
        steps=frozen(buckets["steps"]),
        step_s=frozen(buckets["step_s"]),
        busy_s=frozen(state.busy[: len(buckets)]),
        running=frozen(buckets["running"] * per_second),
        waiting=frozen(buckets["waiting"] * per_second),
        kv_frac=frozen(buckets["kv"] * per_second),
    )
