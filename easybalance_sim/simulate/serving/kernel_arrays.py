"""What a serving kernel is given, from the values of a run."""

from __future__ import annotations

import math

import numpy as np

from easybalance_sim.arrays import frozen, sealed, stream
from easybalance_sim.kernels import serving_state as places
from easybalance_sim.kernels.serving_state import Model, Requests, Rules, State
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY, ROUTERS, SCHEDULES, Limits
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import StepModel
from easybalance_sim.simulate.serving.workload import Workload

ROLES = (MIXED, PREFILL_ONLY, DECODE_ONLY)
NOISE = 1 << 18
"""Normal numbers that all steps draw from, each from another place."""

BUCKETS = 256
"""Of the timeline at first; more are added as a run goes on."""


def requests_of(workload: Workload, profile: Profiles, model: StepModel) -> Requests:
    """The requests as arrays."""
    return Requests(
        arrival=workload.arrival_s,
        prompt=workload.prompt_tokens,
        output=workload.output_tokens,
        cached=workload.cached_tokens,
        home=frozen(workload.tenant % model.data_ranks, np.int32),
        prefill=profile.prefill,
        decode=profile.decode,
    )


def model_of(model: StepModel, seed: int) -> Model:
    """The step model as arrays, and normal numbers of the seed."""
    attention, outside = model.attention, model.outside
    noise = stream(seed, "serving").standard_normal(max(NOISE, 4 * model.layers * model.ranks), np.float32)
    return Model(
        mean=model.mean,
        spread=model.spread,
        noise=sealed(noise),
        expert_s=model.expert_s,
        even_expert_s=model.even_expert_s,
        chance_s=frozen(
            np.zeros_like(model.even_expert_s) if (chance := getattr(model, "chance_s", None)) is None else chance
        ),
        arrive_s=model.arrive_s,
        even_arrive_s=model.even_arrive_s,
        leave_s=model.leave_s,
        link_fixed_s=model.link_fixed_s,
        attention=frozen([attention.fixed, attention.weights, attention.token, attention.kv, attention.pair], float),
        outside=frozen([outside.host, outside.dense_layers, outside.weights, outside.token], float),
        knot=float(model.knot),
        hidden=float(model.hidden),
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


def empty_state(requests: int, model: StepModel, rules: Rules) -> State:
    """Before the first request."""
    ranks, shape = model.data_ranks, (model.layers, model.ranks)
    buckets = BUCKETS if rules.bucket_s < math.inf else 1
    int32 = {
        **dict.fromkeys(("left", "held", "blocks", "room", "preemptions"), (requests,)),
        **dict.fromkeys(("queued", "running", "served"), (ranks,)),
        **dict.fromkeys(("chunk_of", "chunk_row", "chunk", "noted"), (ranks * rules.running,)),
        "slots": (ranks, rules.running),
    }
    int64 = dict.fromkeys(("load", "context", "tokens", "reads"), (ranks,)) | {"counts": (places.COUNTS,)}
    floats = {
        **dict.fromkeys(("mean_sum", "spread_sum", "rows", "noisy"), shape),
        "pairs": (ranks,),
        "clock": (2,),
        "seconds": (len(places.PARTS),),
    }
    return State(
        **{name: np.zeros(size, np.int32) for name, size in int32.items()},
        **{name: np.zeros(size, np.int64) for name, size in int64.items()},
        **{name: np.zeros(size) for name, size in floats.items()},
        **{name: np.full(requests, -1, np.int32) for name in ("behind", "rank")},
        **{name: np.full(ranks, -1, np.int32) for name in ("head", "tail")},
        **{name: np.full(requests, np.nan) for name in ("start", "first", "finish")},
        **{name: np.zeros(buckets, np.int64) for name in ("tokens_at", "steps_at")},
        **{name: np.zeros(buckets) for name in ("step_s_at", "running_at", "waiting_at", "kv_at")},
        busy_at=np.zeros((buckets, model.ranks)),
        stage=np.zeros(requests, np.int8),
        refused=np.zeros(requests, np.bool_),
        preempted=np.zeros(ranks, np.bool_),
        free=np.full(ranks, rules.kv_blocks, np.int64),
    )
