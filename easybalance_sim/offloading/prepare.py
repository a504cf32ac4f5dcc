"""Before any cache: the trace, the experts in bytes, the link, and what each batch size asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, frozen
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cost.attention import AttentionCost, OutsideCost, attention_seconds, outside_seconds
from easybalance_sim.cost.layer import LayerCost, layer_cost
from easybalance_sim.errors import UsageError
from easybalance_sim.offloading.request import USUAL_SHARES, OffloadRequest, require_sound
from easybalance_sim.planning.session import Listener, Session, open_session
from easybalance_sim.simulate.offloading.cache import Transfer
from easybalance_sim.simulate.offloading.link import Link, link_of
from easybalance_sim.simulate.offloading.points import Ground
from easybalance_sim.simulate.offloading.policies import History
from easybalance_sim.simulate.offloading.uses import Sides, expert_seconds, requeued, sides, uses_of
from easybalance_sim.simulate.steps.recorded import RecordedSteps, read_steps
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import PREFILL

MOST_USES = 6e6
"""Experts that layers ask for, past and judged; of longer traces the steps around the boundary are taken."""

MOST_WORK = 1e8
"""Layers of steps × experts that one cache for all layers walks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ready:
    """resident, offloaded: the model as its experts lie on the GPU, and as they are kept elsewhere · cost: of a layer
    on one GPU that holds them all · attention, outside: of a layer and of a step beside its experts · recorded: all
    steps."""

    request: OffloadRequest
    session: Session
    resident: ModelShape
    offloaded: ModelShape
    link: Link
    cost: LayerCost
    attention: AttentionCost
    outside: OutsideCost
    recorded: RecordedSteps


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """One batch size, ready for every policy. sizes: of the cache, experts in all, rising."""

    sides: Sides
    history: History
    ground: Ground
    sizes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _OneGpu:
    """Hears what matters on one GPU: where a token comes from does not."""

    tell: Listener

    def note(self, text: str) -> None:
        if not text.startswith("source ranks"):
            self.tell.note(text)

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        return self.tell.progress(label, total)


def prepare(request: OffloadRequest, tell: Listener) -> Ready:
    """Open the trace and settle bytes, link and cost. Raises `EbsimError` subclasses for what does not fit."""
    require_sound(request)
    session = open_session(replace(request.settings, ranks=1), _OneGpu(tell=tell))
    where = str(request.settings.traces[0])
    if not isinstance(session.trace, TokenTrace):
        raise UsageError("counts do not know steps", where=where, fix="give a token trace")
    layers = len(session.meta.layers)
    if not 1 <= request.ahead <= max(1, layers - 1):
        raise UsageError(f"no layer of {layers} is {request.ahead} behind another", where="--ahead", fix="give 1")
    recorded, notes = read_steps(session.trace, session.selection(), gates=False, scores=False)
    resident, offloaded = (
        replace(session.shape, dtype=dtype or session.shape.dtype)
        for dtype in (request.resident_dtype, request.offload_dtype or request.resident_dtype)
    )
    slots = frozen([session.meta.experts], np.int64)
    cost = layer_cost(session.hardware, resident, session.topology, slots, session.bench.mode, session.phase)
    attention = attention_seconds(resident, session.hardware)
    # Host time is a guess that would make every slow-down look smaller.
    outside = outside_seconds(resident, session.hardware, host_s=0.0)
    reasons = attention.reasons if request.between_us is None else ()
    for line in (*notes, *reasons):
        tell.note(line)
    if offloaded.expert_bytes < resident.expert_bytes:
        tell.note(f"copies in {offloaded.dtype} are fewer bytes; what they cost in quality is not judged")
    elif offloaded.dtype != resident.dtype:
        tell.note(f"copies in {offloaded.dtype} are no fewer bytes than in {resident.dtype}")
    return Ready(
        request=request, session=session, resident=resident, offloaded=offloaded, link=link_of(request.host),
        cost=cost, attention=attention, outside=outside, recorded=recorded,
    )  # fmt: skip


def batch_of(ready: Ready, at_once: int | None, tell: Listener) -> Batch:
    """The steps as recorded, or with so many requests at once, in their past and judged halves."""
    request = ready.request
    steps = ready.recorded if at_once is None else requeued(ready.recorded, at_once)
    two = sides(_around_boundary(steps, request, tell), request.held_out)
    past, judged = uses_of(two.past), uses_of(two.judged)
    ground = Ground(
        uses=judged,
        compute=frozen(expert_seconds(two.judged, ready.cost) + _beside(ready, two.judged)),
        tokens=two.judged.tokens,
        transfer=Transfer(latency_s=ready.link.latency_s, item_s=ready.offloaded.expert_bytes / ready.link.bytes_per_s),
        resident_bytes=ready.resident.expert_bytes,
        link_bytes=ready.offloaded.expert_bytes,
    )
    history = History(past=past, judged=judged, frequency=two.frequency())
    return Batch(sides=two, history=history, ground=ground, sizes=_sizes(request, ground))


def _beside(ready: Ready, steps: RecordedSteps) -> FloatArray:
    """float64[P] seconds between the experts of each layer and those of the next; what a step does outside its layers
    follows the last one."""
    if ready.request.between_us is not None:
        return np.full(len(steps) * steps.layers, ready.request.between_us * 1e-6)
    part, tokens = ready.attention, np.diff(steps.start)
    before = steps.position.astype(np.float64)
    prompt = steps.phase == PREFILL
    context, pairs = (np.add.reduceat(np.where(mine, before, 0), steps.start[:-1]) for mine in (~prompt, prompt))
    layer = part.fixed + np.maximum(part.weights, part.token * tokens) + part.kv * context + part.pair * pairs
    shared = part.shared_fixed + np.maximum(part.shared_weights, part.shared_token * tokens)
    beside = np.repeat((layer + shared)[:, None], steps.layers, axis=1)
    each = zip(tokens.tolist(), _requests(steps).tolist(), layer.tolist(), strict=True)
    beside[:, -1] += [ready.outside.seconds(*one) for one in each]
    return np.asarray(beside.ravel())


def _requests(steps: RecordedSteps) -> IntArray:
    """int64[S] different requests of each step."""
    step = np.repeat(np.arange(len(steps)), np.diff(steps.start))
    pairs = np.unique(np.stack([step, steps.request]), axis=1)
    return np.bincount(pairs[0], minlength=len(steps))


def _around_boundary(steps: RecordedSteps, request: OffloadRequest, tell: Listener) -> RecordedSteps:
    """All steps, or as many as caches can be walked through."""
    layers, experts = steps.layers, steps.meta.experts
    asked = layers * min(experts, steps.meta.top_k * steps.tokens / len(steps))
    most = int(MOST_USES / asked)
    if request.scope == "model":
        most = min(most, int(MOST_WORK / (layers * layers * experts)))
    if len(steps) <= most:
        return steps
    first = int((len(steps) - most) * (1 - request.held_out))
    tell.note(f"{most:,} of {len(steps):,} steps are looked at, around the boundary of past and judged ones")
    return steps.between(first, first + most)


def _sizes(request: OffloadRequest, ground: Ground) -> tuple[int, ...]:
    """Experts of the asked shares or memory; at least one for each cache."""
    items = ground.uses.items
    least = ground.uses.layers if request.scope == "layer" else 1
    if request.gpu_gb is None:
        wanted = [int(share * items + 1e-9) for share in request.shares or USUAL_SHARES]
    else:
        wanted = [ground.experts_in(request.gpu_gb * 1e9)]
    if min(wanted) < least:
        raise UsageError(
            f"{min(wanted)} of the experts are not one for each of {least} layers"
            if least > 1
            else "not one expert fits",
            where="--cached-share" if request.gpu_gb is None else f"--gpu-gb {request.gpu_gb:g}",
            fix=f"give at least {ground.gpu_bytes(least) / 1e9:.3g} GB, or {least / items:.2g} of the experts",
        )
    return tuple(sorted(set(wanted)))
