"""Before any cache: the trace, the experts in bytes, the link, and what each batch size asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.model_shape import ModelShape
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

MOST_WORK = 1e8
"""Positions × experts that a cache for all layers walks; of longer traces the steps around the boundary are taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ready:
    """resident, offloaded: the model as its experts lie on the GPU, and as they are kept elsewhere · cost: of a layer
    on one GPU that holds them all · recorded: all steps."""

    request: OffloadRequest
    session: Session
    resident: ModelShape
    offloaded: ModelShape
    link: Link
    cost: LayerCost
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
    if not 0 < request.ahead < layers:
        raise UsageError(f"{layers} layers do not have {request.ahead} between them", where="--ahead", fix="give 1")
    recorded, notes = read_steps(session.trace, session.selection(), gates=False, scores=False)
    resident, offloaded = (
        replace(session.shape, dtype=dtype or session.shape.dtype)
        for dtype in (request.resident_dtype, request.offload_dtype or request.resident_dtype)
    )
    for line in (*notes, *_caveats(request, resident, offloaded)):
        tell.note(line)
    slots = frozen([session.meta.experts], np.int64)
    cost = layer_cost(session.hardware, resident, session.topology, slots, session.bench.mode, session.phase)
    return Ready(
        request=request, session=session, resident=resident, offloaded=offloaded, link=link_of(request.host),
        cost=cost, recorded=recorded,
    )  # fmt: skip


def _caveats(request: OffloadRequest, resident: ModelShape, offloaded: ModelShape) -> list[str]:
    found = []
    if offloaded.expert_bytes < resident.expert_bytes:
        found.append(f"copies in {offloaded.dtype} are fewer bytes; what they cost in quality is not judged")
    if not request.between_us:
        found.append(
            "attention and all else between the experts of two layers is left out (--between-us), so slow-downs are "
            "upper limits"
        )
    return found


def batch_of(ready: Ready, at_once: int | None, tell: Listener) -> Batch:
    """The steps as recorded, or with so many requests at once, in their past and judged halves."""
    request = ready.request
    steps = ready.recorded if at_once is None else requeued(ready.recorded, at_once)
    two = sides(_around_boundary(steps, request, tell), request.held_out)
    past, judged = uses_of(two.past), uses_of(two.judged)
    ground = Ground(
        uses=judged,
        compute=frozen(expert_seconds(two.judged, ready.cost) + request.between_us * 1e-6),
        tokens=two.judged.tokens,
        transfer=Transfer(latency_s=ready.link.latency_s, item_s=ready.offloaded.expert_bytes / ready.link.bytes_per_s),
        resident_bytes=ready.resident.expert_bytes,
        link_bytes=ready.offloaded.expert_bytes,
    )
    history = History(past=past, judged=judged, frequency=two.frequency())
    return Batch(sides=two, history=history, ground=ground, sizes=_sizes(request, ground))


def _around_boundary(steps: RecordedSteps, request: OffloadRequest, tell: Listener) -> RecordedSteps:
    """All steps, or as many as one cache for all layers can be walked through."""
    most = int(MOST_WORK / (steps.layers**2 * steps.meta.experts))
    if request.scope == "layer" or len(steps) <= most:
        return steps
    first = int((len(steps) - most) * (1 - request.held_out))
    tell.note(f"one cache for all layers: {most:,} of {len(steps):,} steps, around the boundary of past and judged")
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
            f"a cache of {min(wanted)} experts has not one for each of {least} {'layers' if least > 1 else 'caches'}",
            where="--cached-share" if request.gpu_gb is None else f"--gpu-gb {request.gpu_gb:g}",
            fix=f"give at least {ground.gpu_bytes(least) / 1e9:.3g} GB, or {least / items:.2g} of the experts",
        )
    return tuple(sorted(set(wanted)))
