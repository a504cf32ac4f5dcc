"""Published deployments beside the serving simulator: what counts as inside, and how it is written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench import accuracy_serving
from tests.bench.accuracy_serving import AVERAGE, DEPLOYMENTS, Served
from tests.bench.accuracy_serving_text import PARTS, served_section

EVERY_PART = dict.fromkeys(PARTS, 0.2)


def _found(serial: float, overlap: float) -> list[Served]:
    """Every deployment with a bracket of so many times what was measured."""
    return [
        Served(
            run=run, serial=serial * run.per_node, overlap=overlap * run.per_node, step_s=(0.1, 0.05), running=1.0,
            cache=0.8, parts=EVERY_PART, lost=0.07,
        )
        for run in DEPLOYMENTS
    ]  # fmt: skip


@pytest.mark.parametrize(("serial", "overlap", "holds"), [(0.8, 1.2, True), (1.1, 1.2, False), (0.8, 0.9, False)])
def test_a_bracket_holds_what_lies_between_its_ends(serial: float, overlap: float, holds: bool) -> None:
    assert all(one.holds == holds for one in _found(serial, overlap))


def test_the_hidden_share_is_that_of_seconds() -> None:
    """Half-way in seconds per token, not in tokens per second."""
    one = _found(0.5, 1.0)[0]
    middle = replace(one, run=replace(one.run, per_node=one.run.per_node / 1.5))
    assert one.hidden == pytest.approx(1.0)
    assert middle.hidden == pytest.approx(0.5)


def test_lines_count_full_pools_and_judge_the_serial_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one.run.name: one for one in _found(0.9, 1.2)}
    found["SGLang decode"] = replace(found["SGLang decode"], overlap=1.0)
    found["DeepSeek production, prefill"] = replace(found["DeepSeek production, prefill"], overlap=1.0)
    monkeypatch.setattr(accuracy_serving, "_served", lambda run: found[run.name])
    (inside, serial), rows = accuracy_serving.serving_lines()
    assert (inside.measured, inside.target) == (9, 10)
    assert not inside.passed
    assert serial.measured == pytest.approx(10.0)
    assert serial.passed
    assert len(rows) == len(DEPLOYMENTS)


def test_the_section_has_a_row_for_each_and_says_which_are_outside() -> None:
    found = _found(1.08, 1.2)
    text = "\n".join(served_section(found))
    assert all(f"| {run.name} |" in text for run in DEPLOYMENTS)
    assert text.count("OUTSIDE") == sum(one.run.compare == "bracket" for one in found)
    assert "nothing: a day's mean | outside" in text
    assert "8 % faster than SGLang's own run" in text
    assert max(map(len, text.split("\n\n")[-1].split("\n"))) <= 120


def test_only_a_days_mean_is_not_judged() -> None:
    assert [run.name for run in DEPLOYMENTS if run.compare == AVERAGE] == ["DeepSeek production, prefill"]


@pytest.mark.slow
def test_deepseeks_balanced_decode_lies_inside() -> None:
    (run,) = (run for run in DEPLOYMENTS if run.name == "DeepSeek profile, decode")
    one = accuracy_serving._served(run)
    assert one.holds
    assert one.running == pytest.approx(run.batch)
    assert one.lost == pytest.approx(0.0, abs=1e-9)
