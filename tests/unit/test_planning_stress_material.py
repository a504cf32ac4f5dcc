"""What stress traffic is made of: kinds told by label or by topic, mixes and bursts of the right size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.selection import Selection
from easybalance_sim.load.split import HELD_OUT, make_split
from easybalance_sim.planning.stress import tokens as from_tokens
from easybalance_sim.planning.stress.counts import CountMaterial, count_material
from easybalance_sim.planning.stress.tokens import TokenMaterial, token_material
from easybalance_sim.replay.traffic import CountTraffic
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import CountTrace
from tests.skewed_traces import skewed_counts
from tests.stress_cases import AT_ONCE, EXPERTS, TOP_K, kinds_columns, kinds_trace
from tests.trace_files import token_meta, write_trace

EVERYTHING = Selection()


def opened(path: Path) -> TokenTrace:
    trace = open_trace((path,))
    assert isinstance(trace, TokenTrace)
    return trace


def material(path: Path, held: Selection = EVERYTHING, **said: Any) -> TokenMaterial:
    trace = opened(path)
    windowing = said.pop("windowing", Windowing(steps=16))
    return token_material(trace, held, trace.tokens, windowing, said.pop("seed", 0))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kinds_trace(tmp_path_factory.mktemp("material") / "kinds.parquet")


def share(found: TokenMaterial, kind: int, batch: Any) -> float:
    """Of a workload in a batch."""
    return float((batch.workload == found.steps.workloads.index(found.kinds[kind])).mean())


def test_kinds_are_workloads_the_largest_first(trace: Path) -> None:
    found = material(trace)
    assert (found.kinds, found.left_out, found.why_alike) == (("usual", "rare"), (), "")
    assert set(found.steps.workload[found.kind[found.requests.of_token] == 1]) == {found.steps.workloads.index("rare")}


def test_a_kind_dominates_as_said_in_steps_of_the_usual_size(trace: Path) -> None:
    found = material(trace)
    for kind in (0, 1):
        batch = found.dominated(kind).batch
        assert share(found, kind, batch) == pytest.approx(0.8, abs=0.02)
        assert set(np.bincount(batch.step)) == {AT_ONCE}
        assert len(np.unique(batch.step)) == len(found.steps)


def test_bursts_are_four_times_as_large_and_the_excess_of_one_kind(trace: Path) -> None:
    found = material(trace)
    usual = found.burst(None).batch
    assert set(np.bincount(usual.step)) == {4 * AT_ONCE}
    assert share(found, 1, usual) == pytest.approx(1 / 8, abs=0.02)
    assert share(found, 1, found.burst(1).batch) == pytest.approx((3 + 1 / 8) / 4, abs=0.02)
    # The gate wants 64 steps where so many are held out at all.
    assert len(np.unique(usual.step)) == 64


def test_uniform_routing_changes_the_experts_alone(trace: Path) -> None:
    found = material(trace)
    came, drawn = found.as_held_out().batch, found.uniform().batch
    for name in ("step", "request", "source_rank", "position"):
        np.testing.assert_array_equal(getattr(came, name), getattr(drawn, name))
    even = came.tokens * TOP_K / EXPERTS
    for layer in range(2):
        counts = np.bincount(drawn.experts[:, layer].ravel(), minlength=EXPERTS)
        assert abs(counts / even - 1).max() < 0.05
    assert np.bincount(came.experts[:, 0].ravel()).max() > 2 * even


def test_without_labels_topics_are_told_from_the_experts(tmp_path: Path) -> None:
    columns = kinds_columns(shares={"usual": 1, "rare": 1})
    label = columns.pop("workload")
    path = write_trace(tmp_path / "plain.parquet", columns, token_meta((3, 5), EXPERTS, TOP_K))
    found = material(path)
    assert found.kinds and all(name.startswith("topic ") for name in found.kinds)
    of_token = found.kind[found.requests.of_token]
    for kind in range(len(found.kinds)):
        mine = label[of_token == kind]
        assert max(np.mean(mine == "usual"), np.mean(mine == "rare")) > 0.9
        batch = found.dominated(kind).batch
        assert batch.tokens == found.steps.tokens


def test_few_requests_are_no_kind_and_named(tmp_path: Path) -> None:
    columns = kinds_columns(24)
    some = np.unique(columns["request"])[:7]
    columns["workload"] = np.where(np.isin(columns["request"], some), "seldom", columns["workload"])
    found = material(write_trace(tmp_path / "seldom.parquet", columns, token_meta((3, 5), EXPERTS, TOP_K)))
    assert (found.kinds, found.left_out) == (("usual", "rare"), ("seldom",))


def test_requests_that_are_all_alike_make_no_mix(tmp_path: Path) -> None:
    columns = kinds_columns(4)
    columns["experts"] = np.zeros_like(columns["experts"]) + np.arange(TOP_K, dtype=np.uint8)
    columns["workload"] = np.full(len(columns["step"]), "one")
    found = material(write_trace(tmp_path / "alike.parquet", columns, token_meta((3, 5), EXPERTS, TOP_K)))
    assert found.kinds == () and found.why_alike.endswith("held-out requests cannot be told apart")
    assert found.burst(None).batch.tokens == 4 * 4 * AT_ONCE


def test_only_the_chosen_side_is_read(trace: Path) -> None:
    whole = opened(trace)
    split = make_split(whole.scan(), whole.workloads, "request", 0.5, 3, 16)
    found = material(trace, Selection(split=split, side=HELD_OUT))
    held = split.request[split.side == HELD_OUT]
    assert 0 < len(held) < whole.scan().requests
    np.testing.assert_array_equal(np.unique(found.steps.request), held)


def test_of_much_traffic_some_windows_are_taken(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = material(trace)
    monkeypatch.setattr(from_tokens, "MOST_ASSIGNMENTS", whole.steps.tokens * 2 * TOP_K // 3)
    part = material(trace)
    assert len(part.steps) == len(whole.steps) // 3
    assert set(part.steps.step // 16) < set(whole.steps.step // 16)
    assert part.kinds == whole.kinds


def test_windows_of_seconds_become_windows_of_steps(tmp_path: Path) -> None:
    columns = kinds_columns(48)
    columns["time_s"] = columns["step"] * 0.5
    path = write_trace(tmp_path / "timed.parquet", columns, token_meta((3, 5), EXPERTS, TOP_K))
    assert material(path, windowing=Windowing(seconds=6.0)).windowing == Windowing(steps=12)


def counts_of(tmp_path: Path, windows: int, held: Any) -> CountMaterial:
    trace = open_trace((skewed_counts(tmp_path / "counts.parquet", windows),))
    assert isinstance(trace, CountTrace)
    mask = np.zeros(windows, np.bool_)
    mask[held] = True
    return count_material(CountTraffic(trace=trace, fit=~mask, held=mask, settings={}), 0)


def test_counts_mix_windows_of_workloads(tmp_path: Path) -> None:
    found = counts_of(tmp_path, 8, slice(2, 8))
    assert (found.kinds, found.why_alike, found.left_out) == (("left", "right"), "", ())
    mine, rest = found.tokens[found.kind == 1], found.tokens[found.kind == 0].sum(axis=0)
    mixed = found.dominated(1).tokens
    expected = 0.8 * mine + 0.2 * mine.sum(axis=2, keepdims=True) * rest / rest.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mixed, expected, atol=0.5)
    burst = found.burst(1)
    assert burst.times == 4 and len(burst.tokens) == len(mine)


def test_counts_of_one_workload_make_bursts_and_uniform_traffic_alone(tmp_path: Path) -> None:
    found = counts_of(tmp_path, 8, [1, 3, 5])
    assert found.kinds == () and found.why_alike.startswith("counts know no requests")
    np.testing.assert_array_equal(found.burst(None).tokens, found.tokens)
    drawn = found.uniform().tokens
    np.testing.assert_array_equal(drawn.sum(axis=2), found.tokens.sum(axis=2))
    assert drawn.max() < 1.3 * drawn.mean()
