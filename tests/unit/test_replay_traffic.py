"""The two kinds of traffic behind one interface: which tokens and windows each side holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.selection import Selection
from easybalance_sim.load.split import FIT, HELD_OUT, make_split
from easybalance_sim.replay import traffic
from easybalance_sim.replay.engine import links
from easybalance_sim.replay.expected import replay_counts
from easybalance_sim.replay.traffic import Bench, CountTraffic, TokenTraffic, split_counts
from easybalance_sim.trace.schema import CountTrace, TraceMeta
from tests.replay_cases import batch_of, cost_of, random_plan, same
from tests.trace_files import Columns, random_columns, token_meta, token_trace, write_trace

RANKS, WINDOWING = 4, Windowing(steps=2)
TOPOLOGY = uniform(RANKS, 2, 3)
PLANS = [random_plan(seed, 2, 8, TOPOLOGY.slots_per_rank) for seed in range(2)]


def bench(progress: Callable[[str, int], Callable[[int], None]] | None = None, **changes: Any) -> Bench:
    settings: dict[str, Any] = {
        "topology": TOPOLOGY,
        "cost": lambda plan: cost_of(plan, TOPOLOGY),
        "rule": "even",
        "mode": "low_latency",
        "windowing": WINDOWING,
        "seed": 0,
        "recorded_ranks": RANKS,
        "step_tokens": 32,
        "progress": progress or (lambda label, total: lambda done: None),
    }
    return Bench(**{**settings, **changes})


@pytest.fixture
def columns() -> Columns:
    return random_columns(np.random.default_rng(0), np.repeat(np.arange(20), 6).tolist(), token_meta())


@pytest.fixture
def tokens(tmp_path: Path, columns: Columns) -> TokenTraffic:
    trace = token_trace(write_trace(tmp_path / "t.parquet", columns, token_meta(), row_group=50))
    split = make_split(trace.scan(), trace.workloads, "request", 0.5, 0, 2)
    return TokenTraffic(
        trace=trace, selection=Selection(), split=split, windowing=WINDOWING, settings={"by": "request"}
    )


def counts_of(columns: Columns, rows: AnyArray) -> list[list[int]]:
    """[L][E] assignments of the chosen rows."""
    return [np.bincount(columns["experts"][rows, layer].ravel(), minlength=8).tolist() for layer in range(2)]


def test_the_two_sides_of_a_token_trace_are_its_requests(tokens: TokenTraffic, columns: Columns) -> None:
    assert tokens.split is not None
    held = np.isin(columns["request"], tokens.split.request[tokens.split.side == HELD_OUT])
    for side, rows in ((HELD_OUT, held), (FIT, ~held)):
        found = tokens.replay(PLANS, side, bench())
        assert [one.expert_tokens.tolist() for one in found] == [counts_of(columns, rows)] * 2
        assert [one.plan for one in found] == PLANS
    assert tokens.fit_windows().total.tolist() == counts_of(columns, ~held)
    assert tokens.has_held_out()
    assert tokens.describe_split() == {"by": "request"}


def test_without_a_split_everything_is_replayed(tokens: TokenTraffic, columns: Columns) -> None:
    whole = TokenTraffic(
        trace=tokens.trace, selection=Selection(), split=None, windowing=WINDOWING, settings={}
    )  # fmt: skip
    (found,) = whole.replay(PLANS[:1], HELD_OUT, bench())
    assert found.expert_tokens.tolist() == counts_of(columns, np.arange(120))


def test_only_a_long_fit_side_is_sampled_by_whole_windows(
    tokens: TokenTraffic, columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tokens.split is not None
    held = np.isin(columns["request"], tokens.split.request[tokens.split.side == HELD_OUT])
    # 120 tokens × 2 layers × top-2 × 2 plans are 960 assignments: every third window is kept.
    monkeypatch.setattr(traffic, "SCORING_ASSIGNMENTS", 320.0)
    step = columns["step"]
    kept = Selection().sampled(3, WINDOWING).mask(batch_of(step, np.zeros(120), columns["experts"]))
    assert kept is not None and len(np.unique(step[kept] // 2)) == 3
    assert tokens.replay(PLANS, FIT, bench())[0].expert_tokens.tolist() == counts_of(columns, ~held & kept)
    assert tokens.replay(PLANS, HELD_OUT, bench())[0].expert_tokens.tolist() == counts_of(columns, held)


def test_progress_names_the_side_and_counts_its_tokens(tokens: TokenTraffic, columns: Columns) -> None:
    stages: list[tuple[str, int]] = []
    done: list[int] = []

    def progress(label: str, total: int) -> Callable[[int], None]:
        stages.append((label, total))
        return done.append

    found = tokens.replay(PLANS[:1], HELD_OUT, bench(progress))
    assert stages == [("replaying the held-out side", 120)]
    assert sum(done) == 120 > found[0].tokens > 0
    tokens.replay(PLANS[:1], FIT, bench(progress))
    assert stages[1][0] == "scoring candidates on the fit side"
    assert sum(done) == 240


def test_an_empty_selection_is_an_error(tokens: TokenTraffic) -> None:
    nothing = TokenTraffic(
        trace=tokens.trace, selection=Selection(workloads=(99,)), split=None, windowing=WINDOWING, settings={}
    )
    with pytest.raises(UsageError, match="no token is left to judge on"):
        nothing.replay(PLANS, HELD_OUT, bench())


def count_trace(windows: int = 10, workloads: tuple[int, ...] = (0, 1)) -> CountTrace:
    tokens = np.random.default_rng(1).integers(1, 50, (windows, 2, 8))
    return CountTrace(
        meta=TraceMeta(kind="counts", layers=(3, 5), experts=8, top_k=2),
        paths=("counts.parquet",),
        tokens=tokens,
        window=np.arange(windows),
        start_s=np.zeros(windows),
        span_s=np.ones(windows),
        phase=np.ones(windows, np.uint8),
        workload=np.resize(np.array(workloads, np.int16), windows),
        batch_tokens=tokens.sum(axis=(1, 2)) // 4,
        workloads=("chat", "code"),
    )


def test_counts_are_replayed_side_by_side() -> None:
    trace = count_trace()
    fit, held = split_counts(trace, np.ones(10, np.bool_), "time", 0.3, 0)
    both = CountTraffic(trace=trace, fit=fit, held=held, settings={"by": "time"})
    assert (fit.tolist(), held.tolist()) == ([True] * 7 + [False] * 3, [False] * 7 + [True] * 3)
    for side, keep in ((FIT, fit), (HELD_OUT, held)):
        found = both.replay(PLANS, side, bench())
        alone = [
            replay_counts(
                trace.tokens[keep], 2, plan, cost_of(plan, TOPOLOGY), TOPOLOGY, links(TOPOLOGY, "low_latency"), 32, 0
            )
            for plan in PLANS
        ]
        assert all(same(one, other) for one, other in zip(found, alone, strict=True))
    assert both.fit_windows().tokens.tolist() == trace.tokens[fit].tolist()
    assert both.has_held_out()
    assert both.describe_split() == {"by": "time"}


@pytest.mark.parametrize(
    ("windows", "share", "held"), [(2, 0.5, 1), (3, 0.2, 1), (3, 0.9, 2), (10, 0.25, 2), (1, 0.5, 0)]
)
def test_either_side_of_a_split_by_time_has_a_window(windows: int, share: float, held: int) -> None:
    fit, away = split_counts(count_trace(windows), np.ones(windows, np.bool_), "time", share, 0)
    assert away.tolist() == [False] * (windows - held) + [True] * held
    assert (fit ^ away).all()


def test_windows_outside_the_selection_are_on_neither_side() -> None:
    keep = np.arange(10) % 2 == 0
    fit, held = split_counts(count_trace(), keep, "time", 0.4, 0)
    assert np.flatnonzero(fit).tolist() == [0, 2, 4]
    assert np.flatnonzero(held).tolist() == [6, 8]


def test_a_split_by_workload_holds_out_whole_workloads_by_seed() -> None:
    trace = count_trace()
    sides = [split_counts(trace, np.ones(10, np.bool_), "workload", 0.5, seed) for seed in range(8)]
    for fit, held in sides:
        assert len({*trace.workload[fit]} & {*trace.workload[held]}) == 0
        assert fit.sum() == held.sum() == 5
    assert len({tuple(held.tolist()) for _, held in sides}) == 2


@pytest.mark.parametrize(
    ("by", "share", "says"),
    [
        ("request", 0.5, "a count trace has no requests"),
        ("random", 0.5, "no split 'random'"),
        ("time", 0.0, "held-out share 0 is not between"),
        ("time", 1.0, "held-out share 1 is not between"),
        ("time", float("nan"), "held-out share nan is not between"),
    ],
)
def test_splits_that_counts_cannot_have(by: str, share: float, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        split_counts(count_trace(), np.ones(10, np.bool_), by, share, 0)


def test_nothing_to_split() -> None:
    with pytest.raises(UsageError, match="no window is left"):
        split_counts(count_trace(), np.zeros(10, np.bool_), "time", 0.5, 0)
    with pytest.raises(UsageError, match="only one workload"):
        split_counts(count_trace(workloads=(1,)), np.ones(10, np.bool_), "workload", 0.5, 0)


def test_one_window_alone_is_fit() -> None:
    trace = count_trace(1)
    fit, held = split_counts(trace, np.ones(1, np.bool_), "time", 0.5, 0)
    assert not CountTraffic(trace=trace, fit=fit, held=held, settings={}).has_held_out()
