"""What the fullest step needs beside weights and cache: dispatch buffers and the activations of the experts."""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cost.network import dispatch_bytes, require_mode

USUAL_BUFFER_TOKENS = 128
"""Tokens per rank for which low-latency buffers are usually made (DeepEP's own examples and decode tests)."""

_CONTROL_BYTES = 16
_RANGE_SHARE = 4 / 128
_BUFFER_SETS = 2
_SIGNAL_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Largest whole numbers over steps and layers, each on its own.

    sent: tokens of one source rank in a step · arriving: distinct tokens that reach a rank · rows: assignments that a
    rank computes · slot_rows: assignments of one slot.
    """

    sent: int = 0
    arriving: int = 0
    rows: int = 0
    slot_rows: int = 0

    def joined(self, other: Peak) -> Peak:
        """The peak over the steps of both."""
        return Peak(
            sent=max(self.sent, other.sent),
            arriving=max(self.arriving, other.arriving),
            rows=max(self.rows, other.rows),
            slot_rows=max(self.slot_rows, other.slot_rows),
        )

    def received(self, mode: str) -> int:
        """Copies that the fullest rank takes in: once per assignment in `low_latency` mode, a token once in the others.

        Raises `UsageError` for an unknown mode.
        """
        require_mode(mode)
        return self.rows if mode == "low_latency" else self.arriving


def buffer_bytes(peak: Peak, shape: ModelShape, slots: int, mode: str) -> int | None:
    """Bytes that dispatch needs on a rank at the peak, None when the model is assumed; slots: P of the plan.

    The copies that the fullest rank takes in; low_latency: what must be allocated beforehand so that every rank
    may send `peak.sent` tokens, wherever they go: two sets of a send and a receive buffer with room for that many
    tokens of every slot (P = ranks × slots of a rank), BF16 with a range per 128 values, or a control word. (Source:
    sizes in DeepEP csrc/config.hpp, `get_low_latency_rdma_size_hint`.) Raises `UsageError` for an unknown mode.
    """
    require_mode(mode)
    if shape.assumed:
        return None
    if mode != "low_latency":
        return round(peak.received(mode) * dispatch_bytes(shape, mode))
    back = 2 * shape.hidden + round(shape.hidden * _RANGE_SHARE)
    there = 2 * shape.hidden + _CONTROL_BYTES
    cells = slots * peak.sent
    send, receive = max(cells * back, peak.sent * there), cells * max(back, there)
    return _BUFFER_SETS * (send + receive + slots * _SIGNAL_BYTES)


def activation_bytes(peak: Peak, shape: ModelShape) -> int | None:
    """Bytes of the rows in and out of the experts on the fullest rank, None when the model is assumed.

    Rows × (2H + m·I) × 2 bytes: input and output, and m matrices' worth of intermediate values, all in BF16. These are
    the rows whose traffic the cost model counts, all held at once; engines that compute in chunks hold less.
    """
    if shape.assumed:
        return None
    return peak.rows * 2 * (2 * shape.hidden + shape.matrices * shape.intermediate)
