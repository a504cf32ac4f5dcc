"""The texts of `ebsim rebalance`."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cli.rebalance_table import of

HEAD: dict[str, Any] = {
    "trace": {"windows": 50, "offline_windows": 10, "steps": 4000.0, "tokens_per_step": 512.0},
    "cluster": {"ranks": 8, "slots_per_rank": 9},
    "offline_policy": "eplb",
    "cost": {"label": "h200", "other_us": 0.0},
}


def _loop(policy: str, **changes: Any) -> dict[str, Any]:
    return {
        "policy": policy, "seconds": 7200.0, "saved_s_per_hour": 12.34, "step_us": {"p99": 900.0},
        "step_us_with_pauses": {"p99": 1000.0}, "rank_imbalance": {"mean": 1.25, "p99": 1.5}, "replans": 2,
        "oscillations": 1, "bytes": 3e9, "pause_s": 4.5, "longest_pause_s": 2.5, "break_even_steps": 1234.4,
        "alarms": [7], "events": [], **changes,
    }  # fmt: skip


EVENT = {"window": 1234, "moves": 5, "bytes": 2e9, "oscillates": True}


def test_a_loop_a_line() -> None:
    text = of({**HEAD, "loops": [_loop("never", break_even_steps=None), _loop("vllm")]})
    assert text.startswith(
        "8 ranks × 9 slots, 40 windows of 100 steps of 512 tokens served, 2.00 h of serving\n"
        "the offline plan is eplb, from 10 windows before them\n"
    )
    never, vllm = text.splitlines()[-2:]
    assert never.split()[0] == "never" and never.endswith("–")
    assert vllm.split()[:8] == ["vllm", "+12.3", "900", "1,000", "1.250", "1.500", "2", "1"]
    assert vllm.split()[8:] == ["3.00", "4.50", "2.50", "1,234", "steps"]


def test_what_ours_did_is_told() -> None:
    text = of({**HEAD, "loops": [_loop("never"), _loop("guarded", events=[EVENT])]})
    assert text.endswith(
        "guarded: 1 alarms, 1 re-plans\n  after window 1,234: 5 experts, 2 GB, takes back the change before"
    )


def test_strata_under_their_names() -> None:
    one = {**HEAD, "loops": [_loop("never")]}
    text = of({"by": "phase", "strata": {"prefill": one, "decode": one}})
    assert text.startswith("phase prefill\n8 ranks") and "\n\nphase decode\n8 ranks" in text


def test_an_arrow_is_at_the_setting_that_was_chosen() -> None:
    half = {"seconds": 1.0, "saved_s_per_hour": 5.0, "step_us": {"p99": 9.0}, "replans": 1, "bytes": 1e9}
    rows = [
        {"family": "guarded", "setting": {"min_gain": gain}, "chosen_on": half, "judged_on": half}
        for gain in (0.005, 0.02)
    ]
    text = of({**HEAD, "rows": rows, "chosen": {"guarded": rows[1]}})
    marked = [line for line in text.splitlines() if line.endswith("←")]
    assert len(marked) == 1 and "min gain 0.02" in marked[0] and "h of serving" not in text
