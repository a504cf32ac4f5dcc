"""The `memory` section of a report: what a plan's experts, its rollout and its fullest step need on a GPU."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cluster.shapes import find_shape, load_shape
from easybalance_sim.cost.memory import USABLE_HBM_FRAC, KvRoom, kv_loss_frac, staging_bytes
from easybalance_sim.cost.memory_peak import USUAL_BUFFER_TOKENS, activation_bytes, buffer_bytes
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.replay.outcome import Outcome

KV_DTYPES = {"bf16": 1.0, "fp8": 0.5}
"""Bytes against those of `ModelShape.kv_bytes_per_token`, which is at 2 bytes a value."""


def kv_room(session: Session, kv_dtype: str = "bf16") -> KvRoom:
    """KV cache of one GPU; what the trace's metadata does not say is taken from the model that it names."""
    shape, settings = session.shape, session.settings
    known = load_shape(settings.model) if settings.model else find_shape(session.meta.model)
    if known is None or (known.experts, known.top_k) != (shape.experts, shape.top_k):
        known = shape
    return KvRoom(
        token_bytes=(shape.kv_bytes_per_token or known.kv_bytes_per_token) * KV_DTYPES[kv_dtype],
        moe_layers=len(known.layers),
        hbm_bytes=session.hbm_bytes,
    )


def memory_section(session: Session, before: Outcome, after: Outcome) -> dict[str, Any]:
    """Memory of a rank under `after`, against `before`; null where the model's widths are not known.

    `expert_memory_frac` is what the gate limits: experts of the fullest rank and the staging buffer of the rollout.
    `warnings` say in words what the experts or the fullest step overflow.
    """
    shape, room, slots = session.shape, kv_room(session), after.plan.slots_per_rank
    staging = staging_bytes(moving_slots(before.plan, after.plan, session.held), slots, shape)
    frac = room.expert_frac(int(slots.max()), staging or 0, shape)
    peak, mode = after.peak, session.bench.mode
    memory = {
        "kv_cache_loss_frac": kv_loss_frac(slots, before.plan.slots_per_rank, shape, session.hbm_bytes),
        "kv_tokens_lost": room.tokens_lost(int((slots - before.plan.slots_per_rank).max()), shape),
        "bytes_per_redundant_slot": None if shape.assumed else room.slot_bytes(shape),
        "staging_bytes": staging,
        "expert_memory_frac": None if frac is None else round(frac, 9),
        "dispatch_buffer": {
            "sent_per_rank": peak.sent,
            "tokens_per_rank": peak.received(mode),
            "tokens_per_expert": peak.slot_rows,
            "bytes": buffer_bytes(peak, shape, after.plan.slots, mode),
        },
        "activation_bytes": activation_bytes(peak, shape),
    }
    return {**memory, "warnings": burst_warnings(memory, session, after)}


def tell_of_bursts(memory: dict[str, Any], tell: Listener) -> None:
    """The warnings of a `memory_section` as notes."""
    for warning in memory["warnings"]:
        tell.note(warning)


def burst_warnings(memory: dict[str, Any], session: Session, after: Outcome) -> list[str]:
    """What the experts or the fullest step overflow, in words; memory: the other keys of a `memory_section`."""
    found = []
    sent, usual = memory["dispatch_buffer"]["sent_per_rank"], after.tokens_per_step / session.topology.ranks
    if session.bench.mode == "low_latency" and sent > USUAL_BUFFER_TOKENS:
        found.append(
            f"a rank sends up to {sent:,} tokens in a step (mean {usual:,.0f}): low-latency buffers for the usual "
            f"{USUAL_BUFFER_TOKENS} overflow"
        )
    frac = memory["expert_memory_frac"]
    if frac is None:
        return found
    burst = memory["dispatch_buffer"]["bytes"] + memory["activation_bytes"]
    room = (USABLE_HBM_FRAC - frac) * session.hbm_bytes
    if room < 0:
        taken = frac * session.hbm_bytes
        found.append(f"experts and staging take {taken / 1e9:,.1f} GB, {-room / 1e9:,.1f} GB over the usable memory")
    elif room < burst:
        found.append(
            f"the fullest step needs {burst / 1e9:,.1f} GB, the experts leave {room / 1e9:,.1f} GB of the usable memory"
        )
    return found
