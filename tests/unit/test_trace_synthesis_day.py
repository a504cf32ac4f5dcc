"""A synthetic day: the counts against the schedule written beside them, and a still day that does not change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.dataset import open_trace
from easybalance_sim.trace.schema import CountTrace
from easybalance_sim.trace.synthesis_day import BURST_FACTOR, DayRecipe, day, synthesise_day

SMALL: dict[str, Any] = {"layers": 2, "experts": 16, "top_k": 3}
WINDOWS, HOUR = 1440, 60


def make(folder: Path, **more: Any) -> tuple[CountTrace, dict[str, Any]]:
    truth = synthesise_day(DayRecipe(**{**SMALL, **more}), folder / "day.parquet")
    trace = open_trace([folder / "day.parquet"])
    assert isinstance(trace, CountTrace)
    return trace, json.loads(truth.read_text())


def expected(truth: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Share of the assignments that each expert gets [W, L, E], and its variance between windows of endless tokens."""
    mix = np.array([entry["topic_mix"] for entry in truth["schedule"]])
    of_topic = np.array(truth["inclusion"]) / truth["recipe"]["top_k"]
    mean = np.tensordot(mix, of_topic, axes=1)
    spread = np.tensordot(mix, of_topic**2, axes=1) - mean**2
    return mean, spread / (truth["recipe"]["within"] + 1)


def shares(trace: CountTrace) -> FloatArray:
    return np.asarray(trace.tokens / trace.tokens.sum(axis=2, keepdims=True), np.float64)


def worst_hour(trace: CountTrace, mean: FloatArray, spread: FloatArray) -> float:
    """Largest deviation of an hour's summed shares from their expectation, in standard deviations."""
    noise = mean * (1 - mean) / (trace.batch_tokens * trace.meta.top_k)[:, None, None] + spread
    hourly = (len(trace.tokens) // HOUR, HOUR, *mean.shape[1:])
    off = (shares(trace) - mean).reshape(hourly).sum(axis=1)
    return float(np.abs(off / np.sqrt(noise.reshape(hourly).sum(axis=1))).max())


def change_over_day(trace: CountTrace) -> float:
    """Mean square of the change of an expert's share from the first half to the second, in standard deviations."""
    first, second = np.split(shares(trace), 2)
    noise = first.var(axis=0) / len(first) + second.var(axis=0) / len(second)
    return float(((first.mean(axis=0) - second.mean(axis=0)) ** 2 / noise).mean())


@pytest.mark.parametrize("seed", [0, 1])
def test_every_hour_is_as_scheduled(tmp_path: Path, seed: int) -> None:
    trace, truth = make(tmp_path, seed=seed)
    mean, spread = expected(truth)
    np.testing.assert_allclose(mean.sum(axis=2), 1, atol=1e-5)
    assert worst_hour(trace, mean, spread) < 5
    late = np.roll(mean, HOUR, axis=0), np.roll(spread, HOUR, axis=0)
    assert worst_hour(trace, *late) > 20


def test_the_file_says_windows_tokens_and_tenants(tmp_path: Path) -> None:
    trace, truth = make(tmp_path)
    assert (trace.meta.kind, trace.meta.model, trace.tokens.shape) == ("counts", "synthetic-day", (WINDOWS, 2, 16))
    assert trace.meta.origin == truth["recipe"]
    assert trace.start_s.tolist() == [60.0 * window for window in range(WINDOWS)]
    assert set(trace.span_s.tolist()) == {60.0}
    assert trace.batch_tokens.tolist() == [entry["tokens"] for entry in truth["schedule"]]
    tenant_of = [topic["tenant"] for topic in truth["topics"]]
    for window in range(0, WINDOWS, 97):
        entry, served = truth["schedule"][window], dict.fromkeys(tenant_of, 0.0)
        for tenant, share in zip(tenant_of, entry["topic_mix"], strict=True):
            served[tenant] += share
        assert trace.workloads[trace.workload[window]] == max(served, key=lambda name: served[name])
        assert sorted(name for name, share in served.items() if share) == entry["active_tenants"]


@pytest.mark.parametrize("seed", range(5))
def test_switches_change_one_tenant_and_nothing_else_does(seed: int) -> None:
    recipe = DayRecipe(**SMALL, seed=seed)
    truth = day(recipe)
    assert len(truth.switches) == 4 and (truth.active.sum(axis=1) == 2).all()
    changes = np.flatnonzero((truth.active[1:] != truth.active[:-1]).any(axis=1)) + 1
    assert changes.tolist() == [one.window for one in truth.switches]
    for one in truth.switches:
        before, after = truth.active[one.window - 1], truth.active[one.window]
        assert (before[one.left], after[one.left], before[one.entered], after[one.entered]) == (1, 0, 0, 1)
    np.testing.assert_array_equal(truth.mix > 0, truth.active[:, truth.owner])
    np.testing.assert_allclose(truth.mix.sum(axis=1), 1)
    calm = np.ones(WINDOWS - 1, bool)
    assert truth.burst
    events = [*changes, truth.burst.window, truth.burst.window + truth.burst.windows]
    calm[np.array(events) - 1] = False
    assert np.abs(np.diff(truth.mix, axis=0))[calm].max() < 0.01


@pytest.mark.parametrize("seed", range(5))
def test_a_burst_multiplies_one_active_topic(seed: int) -> None:
    truth = day(DayRecipe(**SMALL, seed=seed))
    burst = truth.burst
    assert burst and burst.windows == 10
    inside, before = burst.window, burst.window - 1
    share = truth.mix[[before, inside], burst.topic]
    odds = share / (1 - share)
    assert odds[1] / odds[0] == pytest.approx(BURST_FACTOR, rel=0.05)
    more = 1 + (BURST_FACTOR - 1) * share[0]
    assert truth.tokens[inside] / truth.tokens[before] == pytest.approx(more, rel=0.05)
    assert truth.tokens[burst.window + 10] / truth.tokens[before] == pytest.approx(1, rel=0.05)


def test_tokens_follow_the_hour() -> None:
    recipe = DayRecipe(**SMALL, tokens_per_step=100, step_ms=20)
    truth = day(recipe)
    assert truth.burst
    calm = np.delete(truth.tokens, np.arange(truth.burst.window, truth.burst.window + truth.burst.windows))
    assert calm.mean() / (100 * 3000) == pytest.approx(1, abs=0.01)
    assert (truth.tokens[3 * HOUR], truth.tokens[15 * HOUR]) == pytest.approx((120_000, 480_000), rel=0.001)


def test_a_still_day_differs_by_chance_alone(tmp_path: Path) -> None:
    still, truth = make(tmp_path, stationary=True)
    assert (truth["switches"], truth["burst"], truth["drift"]) == ([], None, None)
    assert set(still.batch_tokens.tolist()) == {64 * 2400}
    assert len({str(entry["topic_mix"]) for entry in truth["schedule"]}) == 1
    assert worst_hour(still, *expected(truth)) < 5
    assert change_over_day(still) < 4
    moving, _ = make(tmp_path)
    assert change_over_day(moving) > 40


def test_drift_alone_shows_within_hours() -> None:
    truth = day(DayRecipe(**SMALL, seed=3))
    first = truth.switches[0].window
    quiet = truth.mix[:first]
    assert np.abs(quiet[-1] - quiet[0]).max() > 0.05
    assert (day(DayRecipe(**SMALL, seed=3, stationary=True)).weights == truth.weights).all()


@pytest.mark.parametrize("within", [5.0, 400.0])
def test_windows_differ_as_much_as_within_says(tmp_path: Path, within: float) -> None:
    trace, truth = make(tmp_path, stationary=True, within=within)
    mean, spread = expected(truth)
    noise = mean * (1 - mean) / (trace.batch_tokens * 3)[:, None, None]
    found, wanted = shares(trace).var(axis=0).sum(), (spread + noise).mean(axis=0).sum()
    assert found / wanted == pytest.approx(1, abs=0.1)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        path = tmp_path / f"{name}.parquet"
        synthesise_day(DayRecipe(**SMALL, hours=2, seed=seed), path)
        files.append((path.read_bytes(), path.with_suffix(".truth.json").read_bytes()))
    assert files[0] == files[1]
    assert files[0][0] != files[2][0] and files[0][1] != files[2][1]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"layers": 0}, "--layers: is 0"),
        ({"top_k": 17}, "--top-k: top-17 of 16 experts"),
        ({"groups": 3}, "--groups: 16 experts in 3 groups"),
        ({"skew": -1.0}, "--skew: is -1 — give 0 to 6"),
        ({"concentration": 0.0}, "--concentration: is 0"),
        ({"within": 0.5}, "--within: is 0.5 — give 1 to"),
        ({"window_seconds": float("nan")}, "--window-seconds: is nan"),
        ({"hours": float("inf")}, "--hours: is inf"),
        ({"step_ms": 0.0}, "--step-ms: is 0"),
        ({"tenants": 1}, "--tenants: 1 tenants with 8 topics"),
        ({"tenants": 9}, "--tenants: 9 tenants with 8 topics — give at least 2, and a topic for each"),
        ({"hours": 0.25}, "--window-seconds: 15 windows in 0.25 hours — give 16 or more"),
        ({"tokens_per_step": 10**12}, "--tokens-per-step: is 1000000000000"),
    ],
)
def test_bad_recipes_name_the_flag(more: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        DayRecipe(**{**SMALL, **more})


def test_nothing_is_written_unless_everything_is(tmp_path: Path) -> None:
    def stopping(what: str, total: int) -> Callable[[int], None]:
        def advance(done: int) -> None:
            raise KeyboardInterrupt

        return advance

    with pytest.raises(KeyboardInterrupt):
        synthesise_day(DayRecipe(**SMALL, hours=2), tmp_path / "o.parquet", stopping)
    with pytest.raises(UsageError, match="cannot write here"):
        synthesise_day(DayRecipe(**SMALL, hours=2), tmp_path / "absent" / "o.parquet")
    assert list(tmp_path.iterdir()) == []
