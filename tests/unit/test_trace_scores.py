"""Optional score columns of token traces: every expert's score and the runners-up, written and read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import TraceError
from easybalance_sim.trace import importers, source
from easybalance_sim.trace.conversion import Conversion
from easybalance_sim.trace.schema import SCORES, ScoreMeta, TokenBatch, TraceMeta, decode_meta
from easybalance_sim.trace.writer import token_trace_writer
from tests.trace_files import random_ids, token_meta, token_trace

META = token_meta(layers=(3, 5), experts=8, top_k=2)
TOKENS = 12


def batch() -> TokenBatch:
    rng = np.random.default_rng(0)
    return TokenBatch(
        step=np.repeat(np.arange(4, dtype=np.int32), 3),
        request=np.arange(TOKENS),
        position=np.zeros(TOKENS, np.int32),
        phase=np.zeros(TOKENS, np.uint8),
        source_rank=np.zeros(TOKENS, np.int16),
        workload=np.zeros(TOKENS, np.int16),
        experts=random_ids(rng, TOKENS, META),
        all_scores=rng.random((TOKENS, 2, 8)).astype(np.float16),
        runner_up=rng.integers(0, 8, (TOKENS, 2, 3)).astype(np.uint8),
        runner_up_scores=rng.random((TOKENS, 2, 3)).astype(np.float16),
        selection_scores=rng.random((TOKENS, 2, 2)).astype(np.float16),
    )


def write(path: Path, content: TokenBatch, meta: TraceMeta = META) -> Path:
    with token_trace_writer(path, meta, ("(none)",)) as writer:
        writer.append(content)
    return path


def read(path: Path) -> dict[str, AnyArray]:
    parts = list(token_trace(path).batches(scores=True))
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in SCORES}


def test_scores_are_read_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_TOKENS", 4)
    path = write(tmp_path / "t.parquet", batch())
    found = read(path)
    for name in SCORES:
        np.testing.assert_array_equal(found[name], getattr(batch(), name))
    assert all(part.all_scores is None and part.runner_up is None for part in token_trace(path).batches(gates=True))


def test_converting_a_trace_keeps_its_scores(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", batch())
    job = Conversion(source=path, output=tmp_path / "o.parquet")
    importers.find(path).convert(job)
    for name, values in read(tmp_path / "o.parquet").items():
        np.testing.assert_array_equal(values, getattr(batch(), name))


def test_scaled_scores_say_so_in_the_metadata(tmp_path: Path) -> None:
    bias = tuple((0.5,) * 8 for _ in range(2))
    meta = msgspec.structs.replace(META, all_scores=ScoreMeta(dtype="uint16", scale=1 / 1024, shift=-0.5, bias=bias))
    scaled = np.arange(TOKENS * 16, dtype=np.uint16).reshape(TOKENS, 2, 8)
    trace = token_trace(write(tmp_path / "t.parquet", replace(batch(), all_scores=scaled), meta))
    (part,) = trace.batches(scores=True)
    np.testing.assert_array_equal(part.all_scores, scaled)
    assert trace.meta.all_scores == meta.all_scores
    assert b"all_scores" not in META.encode()
    with pytest.raises(TraceError, match="all_scores are 'int8', expected 'float16' or 'uint16'"):
        decode_meta(msgspec.structs.replace(META, all_scores=ScoreMeta(dtype="int8")).encode(), "f")


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("all_scores", pa.array([b"0" * 30] * TOKENS, pa.binary(30)), "packed float16 of 2 layers"),
        ("all_scores", pa.array([[0.5] * 16] * TOKENS), "packed float16 of 2 layers"),
        ("runner_up", pa.array([b"0" * 3] * TOKENS, pa.binary(3)), "packed uint8 of 2 layers"),
        ("selection_scores", pa.array([b"0" * 16] * TOKENS, pa.binary(16)), "packed float16 of 2 layers"),
        ("runner_up_scores", pa.array([b"0" * 8, *[None] * (TOKENS - 1)], pa.binary(8)), "row 1: no value"),
    ],
)
def test_other_score_columns_are_refused_when_asked_for(tmp_path: Path, name: str, column: Any, says: str) -> None:
    path = write(tmp_path / "t.parquet", batch())
    table = pq.read_table(path).drop_columns(name).append_column(name, column)
    pq.write_table(table, path)
    assert sum(part.tokens for part in token_trace(path).batches()) == TOKENS
    with pytest.raises(TraceError, match=f"column {name}.*{says}"):
        read(path)


def with_formula(text: str) -> bytes:
    held = msgspec.to_builtins(msgspec.structs.replace(META, all_scores=ScoreMeta(dtype="uint16")))
    held["all_scores"] = {"dtype": "uint16", "formula": text}
    return msgspec.json.encode(held)


@pytest.mark.parametrize(
    ("text", "scale", "shift"),
    [
        ("score = value/1024 - 0.5; score = sigmoid(router) + bias; order [layer, expert]", 1 / 1024, -0.5),
        ("score = value / 256", 1 / 256, 0.0),
        ("score = value + 2", 1.0, 2.0),
    ],
)
def test_a_formula_says_scale_and_shift(text: str, scale: float, shift: float) -> None:
    meta = decode_meta(with_formula(text), "f")
    assert meta.all_scores == ScoreMeta(dtype="uint16", scale=scale, shift=shift)
    assert b"formula" not in meta.encode()


@pytest.mark.parametrize("text", ["score = value/0", "score = 2*value", "score = value/1024 - 0.5 + x", "", "1024"])
def test_other_formulas_are_refused(text: str) -> None:
    with pytest.raises(TraceError, match="all_scores have formula"):
        decode_meta(with_formula(text), "f")
