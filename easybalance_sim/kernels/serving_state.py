"""What a serving kernel is given and what it leaves behind: plain arrays, grouped under names.

N requests · D data-parallel ranks · L MoE layers · R ranks · Q routed requests · B buckets of the timeline.
"""

from __future__ import annotations

from typing import Any, NamedTuple

GONE, WAITING, PROMPT, DECODING = 0, 1, 2, 3
"""Stages of a request: not there (yet, or any more); in a queue; holds cache, its prompt is not done; past that."""

MIXED, PREFILL_ONLY, DECODE_ONLY = 0, 1, 2
ROUND_ROBIN, LEAST_LOADED, AFFINITY = 0, 1, 2
DECODE_FIRST, PREFILL_FIRST = 0, 1

ATTENTION, OUTSIDE, DISPATCH, EXPERT, COMBINE, HIDDEN, IDLE = 0, 1, 2, 3, 4, 5, 6
LOST_DISPATCH, LOST_EXPERT, LOST_COMBINE, BALANCED = 7, 8, 9, 10
PARTS = (
    "attention", "outside", "dispatch", "expert", "combine", "hidden", "idle", "lost_dispatch", "lost_expert",
    "lost_combine", "balanced",
)  # fmt: skip
"""Names of the seconds in `State.seconds`, in their order."""

STEP, ARRIVED, PRESENT, FINISHED, REFUSED, TOO_LONG, TURN, DECODERS, CHUNKS, PROMPT_TOKENS, DECODE_TOKENS = range(11)
DROPPED, WAITED, NOTED = 11, 12, 13
COUNTS = 14
"""Places in `State.counts`. STEP: steps done · ARRIVED: requests looked at · PRESENT: in the system · TOO_LONG: of the
refused, those that never fit · TURN: next rank in turn · DECODERS, CHUNKS: in the step · …_TOKENS: computed · DROPPED:
computed tokens whose cache was given up · WAITED: steps × ranks in which a request that was there got no token."""

NOW, AREA = 0, 1
"""Places in `State.clock`: seconds; requests in the system integrated over time."""

RUNNING, DONE, RECORDED, FULL, STUCK = 0, 1, 2, 3, 4
"""Why a kernel returns: it made the steps asked for; nothing is left to do; the step to record is done; the timeline
needs more buckets; a step had no tokens, which must not happen."""

REBUILD_STEPS = 4096
"""After so many steps sums are made anew, so that rounding does not pile up."""

STRIDE = 2654435761
"""2³² over the golden ratio (Knuth): places of the noise of following steps lie far apart."""


class Requests(NamedTuple):
    """arrival: float64[N] · prompt, output, cached: int32[N] tokens · home: int32[N] rank of its tenant · prefill,
    decode: int32[N] rows of `Model.mean`."""

    arrival: Any
    prompt: Any
    output: Any
    cached: Any
    home: Any
    prefill: Any
    decode: Any


class Model(NamedTuple):
    """The arrays of a step model · noise: float32[≥ L·R] normal numbers · attention: float64[5] fixed, weights, token,
    kv, pair · outside: float64[4] host, dense layers, weights, token."""

    mean: Any
    spread: Any
    noise: Any
    expert_s: Any
    even_expert_s: Any
    chance_s: Any
    arrive_s: Any
    even_arrive_s: Any
    leave_s: Any
    link_fixed_s: Any
    attention: Any
    outside: Any
    knot: float
    hidden: float


class Rules(NamedTuple):
    """Limits of a data-parallel rank as numbers · bucket_s: inf for a single bucket."""

    batch_tokens: int
    chunk_tokens: int
    running: int
    kv_blocks: int
    block_tokens: int
    waiting: int
    router: int
    schedule: int
    role: int
    end_s: float
    bucket_s: float


class State(NamedTuple):
    """Everything that changes, so that a run can go on where it stopped.

    left, held: int32[N] output tokens to come, tokens in cache while the prompt is not done · blocks, room: int32[N]
    blocks of its cache, free places in the last · stage: int8[N] · behind: int32[N] next in its queue or -1 · rank,
    preemptions: int32[N] · refused: bool[N] · start, first, finish: float64[N].
    head, tail, queued: int32[D] queue · running: int32[D] · slots: int32[D, running] requests that hold cache in order
    of admission · free: int64[D] blocks · load: int64[D] tokens of its requests · context: int64[D] tokens that its
    decoding requests read · tokens, reads: int64[D], pairs: float64[D] of the step · served: int32[D] requests with
    tokens in the step · preempted: bool[D] in the step.
    mean_sum, spread_sum: float64[L, R] over decoding requests · rows, noisy: float64[L, R] of the step · chunk_of,
    chunk_row, chunk: int32[D · running] prompts in the step, their rows of `Model.mean`, their tokens · noted:
    int32[D · running] decoding requests in the step to record.
    counts, clock, seconds: see the constants · tokens_at, steps_at: int64[B] · step_s_at, running_at, waiting_at,
    kv_at: float64[B] seconds in steps, and the others integrated over them · busy_at: float64[B, R].
    """

    left: Any
    held: Any
    blocks: Any
    room: Any
    stage: Any
    behind: Any
    rank: Any
    preemptions: Any
    refused: Any
    start: Any
    first: Any
    finish: Any
    head: Any
    tail: Any
    queued: Any
    running: Any
    slots: Any
    free: Any
    load: Any
    context: Any
    tokens: Any
    reads: Any
    pairs: Any
    served: Any
    preempted: Any
    mean_sum: Any
    spread_sum: Any
    rows: Any
    noisy: Any
    chunk_of: Any
    chunk_row: Any
    chunk: Any
    noted: Any
    counts: Any
    clock: Any
    seconds: Any
    tokens_at: Any
    steps_at: Any
    step_s_at: Any
    running_at: Any
    waiting_at: Any
    kv_at: Any
    busy_at: Any
