"""Synthetic traces: measured load against the truth written beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.inclusion import inclusion
from easybalance_sim.trace.synthesis import KINDS, Recipe, World, synthesise, token_batches, world

SMALL = {"layers": 3, "experts": 16, "top_k": 3, "steps": 200, "tokens_per_step": 40, "ranks": 4}


def make(folder: Path, kind: str, **more: Any) -> tuple[TokenTrace, dict[str, Any]]:
    recipe = Recipe(kind=kind, **{**SMALL, **more})
    truth = synthesise(recipe, folder / f"{kind}.parquet")
    trace = open_trace([folder / f"{kind}.parquet"])
    assert isinstance(trace, TokenTrace)
    return trace, json.loads(truth.read_text())


def measured(trace: TokenTrace, topics: list[str]) -> tuple[IntArray, FloatArray]:
    """Tokens per topic, and share of a topic's tokens that reach each expert [Z, L, E]."""
    tokens, counts = np.zeros(len(topics), np.int64), np.zeros((len(topics), 3, 16))
    for batch in trace.batches():
        for code, name in enumerate(topics):
            chosen = batch.experts[batch.workload == trace.workloads.index(name)]
            tokens[code] += len(chosen)
            for layer in range(3):
                counts[code, layer] += np.bincount(chosen[:, layer].ravel(), minlength=16)
    return tokens, counts / np.maximum(tokens, 1)[:, None, None]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_load_equals_the_truth(tmp_path: Path, kind: str) -> None:
    trace, truth = make(tmp_path, kind)
    tokens, share = measured(trace, truth["topics"])
    wanted = np.array(truth["inclusion"])
    np.testing.assert_allclose(wanted.sum(axis=2), 3, atol=1e-5)
    error = np.sqrt(wanted * (1 - np.minimum(wanted, 1)) / np.maximum(tokens, 1)[:, None, None])
    # Rare experts are counted in single tokens, for which 5 sigma of the normal law is too narrow.
    assert (np.abs(share - wanted) <= 5 * error + 5 / np.maximum(tokens, 1)[:, None, None]).all()
    scan = trace.check()
    assert scan.steps == 200 and scan.max_source == 3 and scan.notes == ()


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        path = tmp_path / f"{name}.parquet"
        synthesise(Recipe(kind="topic-mixture", seed=seed, **SMALL), path)
        files.append((path.read_bytes(), path.with_suffix(".truth.json").read_bytes()))
    assert files[0] == files[1]
    assert files[0][0] != files[2][0] and files[0][1] != files[2][1]


def test_a_burst_doubles_the_tokens_and_ends(tmp_path: Path) -> None:
    trace, truth = make(tmp_path, "burst")
    per_step = np.zeros(200, np.int64)
    for batch in trace.batches():
        per_step += np.bincount(batch.step, minlength=200)
    assert per_step[:90].tolist() == [40] * 90
    assert per_step[90:120].tolist() == [80] * 30
    assert per_step[120:].tolist() == [40] * 80
    assert [knot["step"] for knot in truth["schedule"]] == [0, 89, 90, 119, 120]


def test_a_tenant_shift_swaps_who_is_served(tmp_path: Path) -> None:
    trace, _ = make(tmp_path, "tenant-shift")
    first = trace.scan() and trace.workloads.index("tenant-a")
    shares = np.zeros((2, 2))
    for batch in trace.batches():
        for late in (0, 1):
            chosen = batch.workload[(batch.step >= 100 + 60 * late) == bool(late)]
            shares[late] += np.bincount(chosen == first, minlength=2)
    early, late_share = shares[:, 1] / shares.sum(axis=1)
    assert early > 0.7 and late_share < 0.35


def test_single_expert_sends_every_token_to_the_same_experts(tmp_path: Path) -> None:
    trace, truth = make(tmp_path, "single-expert")
    (hot,) = np.array(truth["weights"])
    for batch in trace.batches():
        assert (batch.experts[:, :, 0] == hot.argmax(axis=1)).mean() > 0.999
        assert (np.sort(batch.experts, axis=2) == np.sort(batch.experts[0], axis=1)).all()


def test_requests_keep_topic_and_rank_and_count_their_positions(tmp_path: Path) -> None:
    trace, _ = make(tmp_path, "topic-mixture")
    batches = list(trace.batches())
    request = np.concatenate([batch.request for batch in batches])
    position = np.concatenate([batch.position for batch in batches])
    topic = np.concatenate([batch.workload for batch in batches])
    rank = np.concatenate([batch.source_rank for batch in batches])
    assert (rank == request % 4).all()
    for one in np.unique(request)[::17]:
        mine = request == one
        assert position[mine].tolist() == list(range(mine.sum()))
        assert len(set(topic[mine].tolist())) == 1


@pytest.mark.parametrize("steps", [8, 64])
def test_requests_last_as_long_as_the_recipe_says(steps: int) -> None:
    recipe = Recipe(kind="uniform", layers=1, experts=4, top_k=1, steps=2000, tokens_per_step=16, request_steps=steps)
    batches = list(token_batches(recipe, world(recipe)))
    requests = len(np.unique(np.concatenate([batch.request for batch in batches])))
    assert 2000 * 16 / requests == pytest.approx(steps, rel=0.15)


def test_topics_prefer_whole_groups() -> None:
    grouped = world(Recipe(kind="topic-mixture", groups=4, concentration=0.1, layers=4, experts=64))
    assert grouped.weights.reshape(4, 4, 4, 16).sum(axis=3).max(axis=2).mean() > 0.6


def test_the_mix_is_linear_between_knots() -> None:
    drift = World(
        names=("a", "b"),
        weights=np.ones((2, 1, 4)) / 4,
        knots=np.array([0, 10]),
        mix=np.array([[1.0, 0.0], [0.0, 1.0]]),
        tokens=np.array([5, 7]),
    )
    assert drift.mix_at(4).tolist() == pytest.approx([0.6, 0.4])
    assert [drift.tokens_at(step) for step in (0, 9, 10, 99)] == [5, 5, 7, 7]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"kind": "zipf"}, "no kind 'zipf'"),
        ({"top_k": 17}, "--top-k: top-17 of 16 experts"),
        ({"steps": 0}, "--steps: is 0"),
        ({"tokens_per_step": -1}, "--tokens-per-step: is -1"),
        ({"groups": 3}, "--groups: 16 experts in 3 groups"),
        ({"skew": -1.0}, "--skew: is -1 — give 0 to 6"),
        ({"skew": 6.1}, "--skew: is 6.1 — give 0 to 6"),
        ({"skew": float("nan")}, "--skew: is nan"),
        ({"concentration": 0.0}, "--concentration: is 0 — give 0.01 to 100"),
        ({"concentration": float("inf")}, "--concentration: is inf"),
    ],
)
def test_bad_recipes_name_the_flag(more: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Recipe(**{"kind": "uniform", **SMALL, **more})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "more",
    [
        {"kind": "topic-mixture", "concentration": 0.01, "groups": 4},
        {"kind": "power-law", "skew": 6.0, "experts": 512, "layers": 1},
        {"kind": "burst", "skew": 6.0},
        {"kind": "tenant-shift", "skew": 6.0},
    ],
    ids=lambda more: str(more["kind"]),
)
def test_the_most_extreme_recipes_still_have_a_truth(more: dict[str, Any], seed: int) -> None:
    recipe = Recipe(**{**SMALL, "seed": seed, **more})
    truth = world(recipe)
    np.testing.assert_allclose(truth.weights.sum(axis=-1), 1.0)
    share = inclusion(truth.weights, recipe.top_k)
    np.testing.assert_allclose(share.sum(axis=-1), recipe.top_k, rtol=0.01)
    for part in token_batches(recipe, truth):
        assert (np.diff(np.sort(part.experts, axis=2), axis=2) > 0).all()


def test_nothing_is_written_when_the_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write here"):
        synthesise(Recipe(kind="uniform", **SMALL), tmp_path / "absent" / "o.parquet")
    assert list(tmp_path.iterdir()) == []
