"""Buffers and activations of the fullest step, against hand-worked bytes."""

from __future__ import annotations

import pytest

from easybalance_sim.cluster.shapes import assumed_shape, load_shape
from easybalance_sim.cost.memory_peak import Peak, activation_bytes, buffer_bytes
from easybalance_sim.errors import UsageError

DSV3 = load_shape("deepseek-v3")
PEAK = Peak(sent=128, arriving=300, rows=500, slot_rows=70)


def test_low_latency_needs_room_for_every_sender_and_slot() -> None:
    """Send and receive 288 slots × 128 tokens × (2·7168 + 56·4) bytes, and a flag for each slot, all of it twice."""
    message = 2 * 7168 + 56 * 4
    assert buffer_bytes(PEAK, DSV3, 288, "low_latency") == 2 * (2 * 288 * 128 * message + 288 * 4)
    assert buffer_bytes(PEAK, DSV3, 288, "low_latency") == pytest.approx(2.15e9, rel=1e-2)


def test_normal_mode_holds_what_arrives_in_fp8() -> None:
    """A value is a byte, 128 of them share a 4-byte scale."""
    assert buffer_bytes(PEAK, DSV3, 288, "normal") == 300 * (7168 + 56 * 4)
    assert (PEAK.received("normal"), PEAK.received("low_latency")) == (300, 500)


def test_activations_are_rows_of_both_widths_in_bf16() -> None:
    assert activation_bytes(PEAK, DSV3) == 500 * 2 * (2 * 7168 + 3 * 2048)


def test_widths_that_nobody_said_give_no_bytes() -> None:
    unknown = assumed_shape((0,), 8, 2)
    assert (buffer_bytes(PEAK, unknown, 8, "normal"), activation_bytes(PEAK, unknown)) == (None, None)


def test_peaks_join_number_by_number() -> None:
    other = Peak(sent=200, arriving=1, rows=501, slot_rows=70)
    whole = Peak(sent=200, arriving=300, rows=501, slot_rows=70)
    assert PEAK.joined(other) == other.joined(PEAK) == whole
    assert Peak().joined(PEAK) == PEAK


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="all-to-all mode"):
        buffer_bytes(PEAK, DSV3, 288, "pigeon")
