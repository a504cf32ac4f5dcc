"""The memory section of real runs, and the notes on bursts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from easybalance_sim.planning.memory import burst_warnings, tell_of_bursts
from easybalance_sim.planning.session import Session
from easybalance_sim.replay.outcome import Outcome
from tests.listeners import Heard
from tests.plan_runs import run

GB = 10**9
TINYMOE = Path(__file__).parents[2] / "traces" / "tinymoe.parquet"


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
    outcome = cast(Outcome, SimpleNamespace(tokens_per_step=80.0))
    tell_of_bursts({"warnings": burst_warnings(memory, cast(Session, session), outcome)}, heard)
    return heard.notes


def test_quiet_steps_get_no_note() -> None:
    assert notes() == notes(frac=None) == notes(sent=128) == notes(mode="normal", sent=4096) == []


def test_a_burst_overflows_low_latency_buffers() -> None:
    (note,) = notes(sent=1129)
    assert "up to 1,129 tokens in a step (mean 20)" in note and "usual 128 overflow" in note


@pytest.mark.parametrize(
    ("frac", "told"),
    [
        (0.85, []),
        (0.89, ["the fullest step needs 3.0 GB, the experts leave 1.0 GB of the usable memory"]),
        (0.95, ["experts and staging take 95.0 GB, 5.0 GB over the usable memory"]),
    ],
)
def test_what_memory_does_not_hold_is_told(frac: float, told: list[str]) -> None:
    """2 GB of buffer, 1 GB of activations, 90 GB usable."""
    assert notes(frac=frac, buffer=2 * GB) == told


def test_a_plan_that_does_not_fit_is_rejected(tmp_path: Path) -> None:
    """Nine slots of 393,216 bytes are more than nine tenths of 0.003 GiB; on a whole GPU they are nothing."""
    small = tmp_path / "small.toml"
    small.write_text(
        'ranks = 8\nranks_per_node = 8\nslots_per_rank = 9\nprofile = "h200"\nhbm_gib = 0.003\n', encoding="utf-8"
    )
    reports = [
        run(TINYMOE, said={"ranks": None, "slots_per_rank": None, **said}, policies=("eplb",), force=True)
        for said in ({"cluster": small}, {"ranks": 8, "slots_per_rank": 9})
    ]
    findings = [{one.criterion: one for one in verdict.findings}["expert_memory_frac_max"] for _, verdict in reports]
    assert [one.ok for one in findings] == [False, True]
    memory = reports[1][0]["memory"]
    arriving, left = divmod(memory["staging_bytes"], 393_216 // 8)
    assert (memory["bytes_per_redundant_slot"], left) == (393_216, 0) and 1 <= arriving <= 9
    taken = 9 * 393_216 + memory["staging_bytes"]
    assert memory["expert_memory_frac"] == pytest.approx(taken / (141 * 2**30), rel=1e-3)
    assert reports[1][0]["plan"]["redundant_slots"] == 8
