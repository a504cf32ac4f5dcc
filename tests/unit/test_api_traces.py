"""`write_trace`: arrays become a trace that is read back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import easybalance_sim as ebs
from tests.trace_files import random_ids, read_columns, token_meta, token_trace

STEPS, PER_STEP = 40, 6
META = token_meta(layers=(0, 1), experts=8, top_k=2)
TOKENS = STEPS * PER_STEP


@pytest.fixture
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "experts": random_ids(rng, TOKENS, META).astype(np.int64),
        "step": np.repeat(np.arange(STEPS), PER_STEP),
        "request": np.tile(np.arange(PER_STEP), STEPS),
    }


def written(path: Path, arrays: dict[str, Any], **more: Any) -> Path:
    said = {**arrays, "num_experts": 8, **more}
    return ebs.write_trace(path, said.pop("experts"), **said)


def test_arrays_come_back_in_the_order_of_their_steps(arrays: dict[str, Any], tmp_path: Path) -> None:
    order = np.random.default_rng(5).permutation(TOKENS)
    mixed = {name: values[order] for name, values in arrays.items()}
    path = written(tmp_path / "t.parquet", mixed, phase="decode", workload=["a", "b"] * (TOKENS // 2))
    columns = read_columns(token_trace(path))
    assert (np.diff(columns["step"]) >= 0).all()
    back = np.lexsort((columns["request"], columns["step"]))
    assert (columns["experts"][back] == arrays["experts"]).all()
    assert (columns["position"][back] == arrays["step"]).all()
    assert (columns["phase"] == "decode").all() and set(columns["workload"]) == {"a", "b"}
    assert (columns["source_rank"] == -1).all()


def test_a_written_trace_can_be_planned_on(arrays: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", arrays, source_rank=arrays["request"] % 2, layers=[3, 5])
    made = ebs.plan(path, policy="round_robin", split="request", ranks=2, slots_per_rank=4, window_steps=4)
    assert (made.document.layer_ids, made.report["trace"]["tokens"]) == ((3, 5), TOKENS)


def test_a_model_gives_experts_layers_and_widths(tmp_path: Path) -> None:
    ids = np.tile(np.arange(4), (3, 36, 1))
    path = ebs.write_trace(tmp_path / "t.parquet", ids, step=[0, 0, 1], request=[0, 1, 0], model="gpt-oss-120b")
    meta = token_trace(path).meta
    assert (meta.experts, meta.top_k, meta.layers, meta.hidden) == (128, 4, tuple(range(36)), 2880)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"experts": np.zeros((3, 2), int)}, "experts: array of int64 with shape 3×2 — give whole numbers"),
        ({"experts": np.zeros((0, 2, 2), int)}, "experts: array of int64 with shape 0×2×2"),
        ({"experts": np.zeros((TOKENS, 2, 2))}, "experts: array of float64"),
        ({"experts": np.full((TOKENS, 2, 2), 8)}, "experts: ids are 8 to 8 — give 0 to 7"),
        ({"num_experts": None}, "num_experts: how many experts has a layer?"),
        ({"layers": [1]}, "experts: layers 2, not 1"),
        ({"step": np.arange(3)}, f"step: has shape 3 for {TOKENS} tokens"),
        ({"request": np.full(TOKENS, 0.5)}, "request: holds float64 — give whole numbers"),
        ({"phase": "both"}, "phase: 'both' is no phase"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    arrays: dict[str, Any], tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ebs.UsageError) as refusal:
        written(tmp_path / "t.parquet", arrays, **change)
    assert str(refusal.value).startswith(says)
    assert list(tmp_path.iterdir()) == []


def test_an_expert_twice_in_one_top_k_is_refused(arrays: dict[str, Any], tmp_path: Path) -> None:
    arrays["experts"][7, 1] = 4
    with pytest.raises(ebs.TraceError, match="row 7, layer 1: expert 4 stands twice in one top-2"):
        written(tmp_path / "t.parquet", arrays)
    assert list(tmp_path.iterdir()) == []
