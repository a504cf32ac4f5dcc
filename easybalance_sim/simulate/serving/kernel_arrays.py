"""What a serving kernel is given, from the values of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, require_shape, sealed, stream
from easybalance_sim.kernels import serving_state as places
from easybalance_sim.kernels.serving_state import Model, Rules, State
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY, ROUTERS, SCHEDULES, Limits
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import StepModel
from easybalance_sim.simulate.serving.workload import Workload

ROLES = (MIXED, PREFILL_ONLY, DECODE_ONLY)
NOISE = 1 << 18
"""Normal numbers that all steps draw from, each from another place."""

BUCKETS = 256
"""Of the timeline at first; more are added as a run goes on."""


def require_fitting(model: StepModel) -> None:
    """Raises `EbsimError` naming the array of a step model that does not fit the others: kernels check no bounds."""
    layers, ranks, knots = model.layers, model.ranks, model.expert_s.shape[-1]
    shapes: dict[str, tuple[int | None, ...]] = {
        "mean": (None, layers, ranks),
        "spread": model.mean.shape,
        "expert_s": (layers, ranks, max(knots, 2)),
        "even_expert_s": (layers, knots),
        "chance_rows": (layers, knots),
        "sum_row_s": (layers, ranks),
        "arrive_s": (2, layers, ranks),
        "even_arrive_s": (2, layers),
        "leave_s": (2, layers),
        "link_fixed_s": (2,),
    }
    for name, shape in shapes.items():
        require_shape(f"step model's {name}", getattr(model, name), shape)


def model_of(model: StepModel, seed: int) -> Model:
    """The step model as arrays, and normal numbers of the seed."""
    attention, outside = model.attention, model.outside
    noise = stream(seed, "serving").standard_normal(max(NOISE, 4 * model.layers * model.ranks), np.float32)
    scalars = {
        "knot": model.knot,
        "hidden": model.hidden,
        **{f"attention_{name}": getattr(attention, name) for name in ("fixed", "weights", "token", "kv", "pair")},
        **{name: getattr(attention, name) for name in ("shared_fixed", "shared_weights", "shared_token")},
        **{name: getattr(outside, name) for name in ("host", "dense_layers", "head_weights", "head_token")},
        **{f"outside_{name}": getattr(outside, name) for name in ("weights", "token")},
        "dispatch_fixed": model.link_fixed_s[0],
        "combine_fixed": model.link_fixed_s[1],
    }
    return Model(
        mean=model.mean,
        spread=model.spread,
        noise=sealed(noise),
        expert_s=sealed(model.expert_s + model.summing_s),
        even_expert_s=sealed(model.even_expert_s + model.summing_s.mean(axis=1)),
        chance_rows=model.chance_rows,
        arrive_s=model.arrive_s,
        even_arrive_s=model.even_arrive_s,
        leave_s=model.leave_s,
        scalars=sealed(_filled(1, places.SCALARS, scalars)),
    )


def rules_of(limits: Limits, role: str, end_s: float, bucket_s: float) -> Rules:
    """The limits as numbers."""
    return Rules(
        batch_tokens=limits.batch_tokens,
        chunk_tokens=limits.chunk_tokens,
        running=min(limits.running, limits.batch_tokens),
        kv_blocks=limits.kv_blocks,
        block_tokens=limits.block_tokens,
        waiting=limits.waiting,
        router=ROUTERS.index(limits.router),
        schedule=SCHEDULES.index(limits.schedule),
        role=ROLES.index(role),
        end_s=float(end_s),
        bucket_s=float(bucket_s) or math.inf,
    )


def empty_state(workload: Workload, profile: Profiles, model: StepModel, rules: Rules) -> State:
    """Before the first request."""
    ranks, rows = model.data_ranks, (2, model.layers, model.ranks)
    apart = ranks if rules.schedule == places.PREFILL_FIRST and rules.role != places.DECODE_ONLY else 1
    buckets = BUCKETS if rules.bucket_s < math.inf else 1
    requests = {
        "arrival": workload.arrival_s,
        "prompt": workload.prompt_tokens,
        "output": workload.output_tokens,
        "cached": workload.cached_tokens,
        "home": workload.tenant % ranks,
        "prefill": profile.prefill,
        "decode": profile.decode,
        **dict.fromkeys(("start", "first", "finish"), np.nan),
        **dict.fromkeys(("behind", "rank"), places.NOBODY),
    }
    return State(
        requests=_filled(workload.requests, places.REQUEST, requests),
        ranks=_filled(ranks, places.DATA_RANK, {"free": rules.kv_blocks, "head": places.NOBODY, "tail": places.NOBODY}),
        slots=np.zeros((ranks, rules.running), np.int32),
        chunks=_filled(ranks * rules.running, places.CHUNK, {}),
        noted=np.zeros(ranks * rules.running, np.int32),
        sums=np.zeros((apart, *rows)),
        rows=np.zeros(rows),
        buckets=_filled(buckets, places.BUCKET, {}),
        busy=np.zeros((buckets, model.ranks)),
        totals=_filled(1, places.TOTALS, {}),
        seconds=_filled(1, places.SECONDS, {}),
    )


def _filled(count: int, record: np.dtype[Any], values: Mapping[str, Any]) -> AnyArray:
    """Records with the values of some fields, 0 in the others."""
    records: AnyArray = np.zeros(count, record)
    for name, value in values.items():
        records[name] = value
    return records
