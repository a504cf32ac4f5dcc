"""What a serving kernel is given and what it leaves behind: a few arrays of records.

N requests · D data-parallel ranks · L MoE layers · R ranks · Q routed requests · B buckets of the timeline.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NOBODY = -1
GONE, WAITING, PROMPT, DECODING = 0, 1, 2, 3
"""Stages of a request: not there (yet, or any more); in a queue; holds cache, its prompt is not done; past that."""

MIXED, PREFILL_ONLY, DECODE_ONLY = 0, 1, 2
ROUND_ROBIN, LEAST_LOADED, AFFINITY = 0, 1, 2
DECODE_FIRST, PREFILL_FIRST = 0, 1

RUNNING, DONE, RECORDED, FULL, STUCK = 0, 1, 2, 3, 4
"""Why a kernel returns: it made the steps asked for; nothing is left to do; the step to record is done; the timeline
needs more buckets; a step had no tokens, which must not happen."""

REBUILD_STEPS = 4096
"""After so many steps sums are made anew, so that rounding does not pile up."""

STRIDE = 2654435761
"""2³² over the golden ratio (Knuth): places of the noise of following steps lie far apart."""

PARTS = (
    "attention",
    "outside",
    "dispatch",
    "expert",
    "combine",
    "hidden",
    "idle",
    "lost_dispatch",
    "lost_expert",
    "lost_combine",
    "balanced",
)


def _record(**fields: str) -> np.dtype[Any]:
    """A record from kinds of numbers and the names of those that are of it."""
    return np.dtype([(name, kind) for kind, names in fields.items() for name in names.split()], align=True)


REQUEST = _record(
    f8="arrival start first finish",
    i4="prompt output cached home prefill decode left held blocks room behind rank preemptions",
    i1="stage refused",
)
"""arrival: seconds · prompt, output, cached: tokens · home: rank of its tenant · prefill, decode: rows of `Model.mean`;
from here on what changes. start, first, finish: seconds or nan · left: output tokens to come · held: tokens in cache
while the prompt is not done · blocks, room: of its cache, free places in the last · behind: next in its queue · rank,
preemptions · refused: 0 or 1."""

DATA_RANK = _record(f8="pairs", i8="free load context tokens reads", i4="head tail queued running served", i1="decodes")
"""head, tail, queued: of its queue · running: requests that hold cache · free: blocks · load: tokens of its requests ·
context: tokens that its decoding requests read; of the step: tokens, reads, pairs as `AttentionSeconds` has them ·
served: requests with tokens · decodes: whether those past their prompt are in it."""

CHUNK = _record(i4="request row tokens")
"""Prompt tokens in the step, spread like row `row` of `Model.mean`."""

BUCKET = _record(i8="tokens steps", f8="step_s running waiting kv")
"""step_s: seconds in steps; the others after it are integrated over them."""

TOTALS = _record(
    f8="now present_s",
    i8="step arrived present finished refused too_long turn decoders chunks noted "
    "prompt_tokens decode_tokens dropped waited",
)
"""now: seconds · present_s: requests in the system over time · step: steps done · arrived: requests looked at ·
present: in the system · too_long: of the refused, those that never fit · turn: next rank in turn · decoders, chunks,
noted: how many · …_tokens: computed · dropped: computed tokens whose cache was given up · waited: steps × data ranks in
which a request that was there got no token."""

SECONDS = _record(f8=" ".join(PARTS))
"""Of all steps, by part."""

SCALARS = _record(
    f8="knot hidden attention_fixed attention_weights attention_token attention_kv attention_pair "
    "shared_fixed shared_weights shared_token "
    "host dense_layers outside_weights outside_token head_weights head_token dispatch_fixed combine_fixed"
)
"""Numbers of a step model."""


class Model(NamedTuple):
    """A step model. noise: float32[≥ L·R] normal numbers · scalars: `SCALARS`[1] · the other arrays as they are."""

    mean: Any
    spread: Any
    noise: Any
    expert_s: Any
    even_expert_s: Any
    chance_rows: Any
    arrive_s: Any
    even_arrive_s: Any
    leave_s: Any
    scalars: Any


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

    requests: `REQUEST`[N] · ranks: `DATA_RANK`[D] · slots: int32[D, running] requests that hold cache in order of
    admission · chunks: `CHUNK`[D · running] in the step · noted: int32[D · running] decoding requests in the step to
    record · sums: float64[1 or D, 2, L, R] mean rows and variance of decoding requests, of each rank where ranks may
    have steps without them · rows: float64[2, L, R] of the step ·
    buckets: `BUCKET`[B] · busy: float64[B, R] seconds that experts compute · totals: `TOTALS`[1] · seconds:
    `SECONDS`[1].
    """

    requests: Any
    ranks: Any
    slots: Any
    chunks: Any
    noted: Any
    sums: Any
    rows: Any
    buckets: Any
    busy: Any
    totals: Any
    seconds: Any
