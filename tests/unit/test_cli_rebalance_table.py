"""The texts of `ebsim rebalance`."""

from __future__ import annotations

from typing import Any

import pytest

from easybalance_sim.cli.rebalance_table import of
from easybalance_sim.planning.candidates import TIE_FRAC
from easybalance_sim.report.rebalance_words import AGAIN, KEEP, ONCE, TIE, answer, tie_of
from tests.one_text import unbroken

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


def _never(**changes: Any) -> dict[str, Any]:
    still = {"saved_s_per_hour": 0.0, "replans": 0, "bytes": 0, "pause_s": 0.0}
    return _loop("never", **still, **changes)


EVENT = {"window": 1234, "moves": 5, "bytes": 2e9, "oscillates": True}


def test_a_loop_a_line() -> None:
    text = of({**HEAD, "loops": [_never(break_even_steps=None), _loop("vllm", saved_s_per_hour=212.34)]})
    assert unbroken(text).startswith(
        "RE-PLAN: vllm saves +212.3 s per hour with 2 re-plans that move 3.0 GB and stop serving for 4.50 s. "
        "8 ranks × 9 slots, 40 windows of 100 steps of 512 tokens served, 2.00 h of serving "
        "the offline plan is eplb, from 10 windows before them "
    )
    gains, costs = (block.splitlines()[-2:] for block in text.split("\n\n")[1:])
    assert gains[0].split()[0] == "never" and gains[0].endswith("–")
    assert gains[1].split() == ["vllm", "+212.3", "900", "1,000", "1.250", "1.500", "1,234"]
    assert costs[1].split() == ["vllm", "2", "1", "3.00", "4.50", "2.50"]


@pytest.mark.parametrize(("saved", "more"), [(-3.0, ""), (0.9, " The best of them, vllm, saves +0.9 s per hour.")])
def test_where_no_loop_saves_anything_to_speak_of_that_comes_first_as_on_the_page(saved: float, more: str) -> None:
    run = {**HEAD, "loops": [_never(), _loop("vllm", saved_s_per_hour=saved)]}
    said = f"No loop saves a thousandth of the time: keep the plan in force.{more}"
    assert answer(run) == (KEEP, said) and unbroken(of(run)).startswith(f"KEEP THE PLAN: {said} 8 ranks")


def test_of_what_the_model_cannot_tell_apart_the_loop_that_moves_least_is_advised() -> None:
    never, still = _never(), _loop("offline", replans=0, bytes=0, pause_s=0.0)
    many, few = _loop("many", saved_s_per_hour=400.0, bytes=9e11), _loop("few", saved_s_per_hour=230.0, bytes=1e9)
    tie = "within the model's tie of 180.0 s per hour (5 % of the MoE layers' time)"
    how = "with 2 re-plans that move {} and stop serving for 4.50 s"
    assert tie_of(HEAD, 7200.0) == 180.0 and TIE == TIE_FRAC
    cases: list[tuple[list[dict[str, Any]], str, str]] = [
        ([_loop("vllm")], KEEP, f"vllm saves most, +12.3 s per hour, {how.format('3.0 GB')}: {tie}."),
        (
            [still, _loop("vllm", saved_s_per_hour=13.0)], ONCE,
            f"offline saves +12.3 s per hour without a single re-plan; vllm, {how.format('3.0 GB')}, saves 0.7 s per "
            f"hour more, {tie}. So is what offline saves against never re-planning.",
        ),
        ([still], ONCE, "offline saves +12.3 s per hour without a single re-plan; re-planning adds nothing here."),
        (
            [still, many, few], AGAIN,
            f"few saves +230.0 s per hour {how.format('1.0 GB')}; many, {how.format('900.0 GB')}, saves 170.0 s per "
            f"hour more, {tie}.",
        ),
        (
            [still, many], AGAIN,
            f"many saves +400.0 s per hour {how.format('900.0 GB')}: 387.7 s more than offline, which moves nothing.",
        ),
    ]  # fmt: skip
    for loops, word, said in cases:
        assert answer({**HEAD, "loops": [never, *loops]}) == (word, said)


def test_the_tie_is_of_what_the_model_predicts() -> None:
    stated = HEAD | {"cost": {"label": "h200", "other_us": 0.9e6}}
    assert tie_of(stated, 7200.0) == pytest.approx(90.0) and tie_of(stated, 3000.0) == 0.0


def test_what_ours_did_is_told() -> None:
    text = of({**HEAD, "loops": [_never(), _loop("guarded", events=[EVENT])]})
    assert text.endswith(
        "guarded: 1 alarms, 1 re-plans\n  after window 1,234: 5 experts, 2 GB, takes back the change before"
    )


def test_strata_under_their_names() -> None:
    one = {**HEAD, "loops": [_never()]}
    text = of({"by": "phase", "strata": {"prefill": one, "decode": one}})
    assert text.startswith("phase prefill\nKEEP THE PLAN: ") and "\n\nphase decode\nKEEP THE PLAN: " in text


def test_an_arrow_is_at_the_setting_that_was_chosen() -> None:
    half = {"seconds": 1.0, "saved_s_per_hour": 5.0, "step_us": {"p99": 9.0}, "replans": 1, "bytes": 1e9}
    settings: list[dict[str, float]] = [{}, {"min_gain": 0.005}, {"min_gain": 0.02}]
    rows = [{"family": "guarded", "setting": one, "chosen_on": half, "judged_on": half} for one in settings]
    text = of({**HEAD, "rows": rows, "chosen": {"guarded": rows[2]}})
    *marked, _ = [line.split() for line in text.splitlines() if line.startswith("→")]
    assert marked == [["→", "guarded", "0.02", "+5.0", "+5.0", "9", "1", "1.00"]] and "h of serving" not in text
    assert [block.count("guarded") for block in text.split("\n\n")[1:]] == [1, 2, 0]
