"""Lines of `ebsim offset` that hang on single values."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from easybalance_sim.cli import offset_parts, offset_table
from easybalance_sim.cli.offset_options import microseconds, step_range
from easybalance_sim.errors import UsageError


def row(name: str, **changes: Any) -> dict[str, Any]:
    """A lossy row of a front."""
    names = ("step_mean", "step_p99", "window_mean", "window_p99", "heat_mean")
    band = {"low_nats": 0.001, "high_nats": 0.004, "beyond": False}
    price = {"changed": 0.05, "dropped": 0.0, "top1_lost": 0.01, "loss_nats": band}
    return {
        "name": name, "balance": dict.fromkeys(names, 1.25), "price": price, "lossless": False, "stable": True,
        "remark": "", "slots": 64, "floor": False, **changes,
    }  # fmt: skip


def drawn(*rows: dict[str, Any]) -> str:
    report = {
        "plan": {"policy": "p", "ranks": 8, "slots": 64}, "trace": {"layers": 8, "experts": 64},
        "judged": {"first_step": 0, "last_step": 9, "tokens": 100, "step_ms": 25.0},
        "past": {"first_step": 0, "last_step": 9, "files": ["t"]}, "feedback": None,
        "front": {"rows": list(rows), "fronts": []}, "files": dict.fromkeys(("lossy", "plan", "figure")),
        **dict.fromkeys(offset_parts.PARTS),
    }  # fmt: skip
    return offset_table.of(report)


def test_rows_say_whether_they_settle_and_are_offered() -> None:
    table = drawn(
        row("calm"), row("wild", stable=False), row("unknown", stable=None), row("bare", stable=False, remark="only so")
    )
    price = table[table.index("Price of") :].splitlines()
    noted = {line.split()[0]: note.strip() for line, note in pairwise(price)}
    assert (noted["wild"], noted["unknown"], noted["bare"]) == ("unstable", "stability not judged", "unstable")
    assert noted["calm"].startswith("wild") and "  bare †  " in table and table.endswith("  † only so")


def test_what_is_dropped_is_shown_beside_what_is_changed() -> None:
    price = row("")["price"]
    table = drawn(
        row("moves"), row("drops", price=price | {"changed": 0.0, "dropped": 0.061}),
        row("both", price=price | {"dropped": 0.02}),
    )  # fmt: skip
    price = table[table.index("Price of") :].splitlines()
    changed = {line.split()[0]: f"{line}\n{note}" for line, note in pairwise(price)}
    assert "5.0%" in changed["moves"] and "dropped" not in changed["moves"]
    assert "6.1% dropped" in changed["drops"] and "0.0%" not in changed["drops"]
    assert "5.0%" in changed["both"] and changed["both"].endswith("\n    2.0% dropped")


def test_a_lossless_row_has_no_price() -> None:
    table = drawn(row("plan", lossless=True, remark="in hindsight"))
    assert "Price" not in table and "  plan †  " in table and table.endswith("\n  † in hindsight")


@pytest.mark.parametrize(
    ("signs", "says"),
    [
        ({}, ""),
        ({"oscillates": True}, "UNSTABLE: period ~14 steps"),
        ({"grows": True}, "UNSTABLE: 1.50 × the error"),
        ({"oscillates": True, "grows": True}, "UNSTABLE: period ~14 steps, 1.50 × the error"),
    ],
)
def test_unstable_loops_show_by_which_sign(signs: dict[str, bool], says: str) -> None:
    seen = {"oscillates": False, "grows": False, "lag": 7, "heat_ratio": 1.5, "layer_ratio": 0.9} | signs
    run = row("loop", share_of_limit=0.5, warns=True, refused=False, stability={**seen, "unstable": bool(signs)})
    assert offset_parts._unsettled(run) == says
    assert offset_parts._controller(run)[-1] == ("NO" if says else "yes")
    assert offset_parts._controller({**run, "stability": None})[-1] == "not judged"


def test_a_gain_just_below_the_claim_does_not_look_like_it() -> None:
    assert [offset_table._gain(value, 1.4) for value in (1.3996, 1.4, 1.39, 2.0)] == [
        "<x1.40",
        "x1.40",
        "x1.39",
        "x2.00",
    ]


def test_ranges_of_steps_and_times_of_rules() -> None:
    assert (step_range("--steps", ""), step_range("--steps", "5:9"), step_range("--steps", "5:")) == (
        None,
        (5, 9),
        (5, None),
    )
    assert microseconds(None) == () and microseconds(["even=0", "optimum=2.5"]) == (("even", 0.0), ("optimum", 2.5))
    for text in ("optimum", "optimum=", "optimum=x", "=3x"):
        with pytest.raises(UsageError, match="is no time of a rule"):
            microseconds([text])
    with pytest.raises(UsageError, match="once"):
        microseconds(["even=0", "even=1"])
