"""The memory section of real runs, and the notes on bursts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from easybalance_sim.planning.memory import tell_of_bursts
from easybalance_sim.planning.session import Session
from easybalance_sim.replay.outcome import Outcome
from tests.listeners import Heard

GB = 10**9


def notes(mode: str = "low_latency", sent: int = 100, frac: float | None = 0.5, buffer: int = GB) -> list[str]:
    """Of a 100 GB GPU, one of four, whose steps have 80 tokens on average."""
    session = SimpleNamespace(topology=SimpleNamespace(ranks=4), bench=SimpleNamespace(mode=mode), hbm_bytes=100 * GB)
    known = frac is not None
    memory: dict[str, Any] = {
        "expert_memory_frac": frac,
        "dispatch_buffer": {"sent_per_rank": sent, "bytes": buffer if known else None},
        "activation_bytes": GB if known else None,
    }
    heard = Heard()
    tell_of_bursts(memory, cast(Session, session), cast(Outcome, SimpleNamespace(tokens_per_step=80.0)), heard)
    return heard.notes


def test_quiet_steps_get_no_note() -> None:
    assert notes() == notes(frac=None) == notes(sent=128) == notes(mode="normal", sent=4096) == []


def test_a_burst_overflows_low_latency_buffers() -> None:
    (note,) = notes(sent=1129)
    assert "up to 1,129 tokens in a step (mean 20)" in note and "usual 128 overflow" in note


@pytest.mark.parametrize(("frac", "told"), [(0.85, False), (0.89, True), (0.95, False)])
def test_a_burst_that_memory_does_not_hold_is_told(frac: float, told: bool) -> None:
    """2 GB of buffer, 1 GB of activations, 90 GB usable; of a plan that does not fit at all the gate speaks."""
    found = notes(frac=frac, buffer=2 * GB)
    assert [text.startswith("the fullest step needs 3.0 GB") for text in found] == [True] * told
