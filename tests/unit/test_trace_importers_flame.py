"""Routing of FLAME-MoE: a Parquet file per layer, rows aligned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import EbsimError
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.importers import flame_moe
from tests.trace_files import read_columns, token_trace

EXPERTS, TOP_K, TOKENS = 8, 3, 20


def routing(layers: int = 2) -> tuple[AnyArray, AnyArray]:
    rng = np.random.default_rng(0)
    ids = rng.random((TOKENS, layers, EXPERTS)).argsort(axis=2)[:, :, :TOP_K].astype(np.int16)
    return ids, -np.sort(-rng.random(ids.shape), axis=2).astype(np.float16)


def write(folder: Path, ids: AnyArray, scores: AnyArray | None, first: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    for layer in range(ids.shape[1]):
        columns: dict[str, Any] = {"indices": pa.array(ids[:, layer].tolist(), pa.list_(pa.int16()))}
        if scores is not None:
            flat = pa.array(scores[:, layer].ravel())
            columns["scores"] = pa.FixedSizeListArray.from_arrays(flat, TOP_K)
        # Row groups of another size in each layer.
        pq.write_table(pa.table(columns), folder / f"layer_{layer + first:02}.parquet", row_group_size=7 + 4 * layer)
    return folder


def run(source: Path, output: Path, **settings: Any) -> Converted:
    known: dict[str, Any] = {"experts": EXPERTS, "concurrency": 8, "ranks": 2} | settings
    (written,) = importers.load("flame_moe").convert(Conversion(source=source, output=output, **known))
    return written


@pytest.mark.parametrize("chunk", [8, 65536])
def test_rows_of_all_layers_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(flame_moe, "CHUNK_TOKENS", chunk)
    ids, scores = routing()
    written = run(write(tmp_path / "iter_0540", ids, scores), tmp_path / "o.parquet")
    trace = token_trace(tmp_path / "o.parquet")
    columns = read_columns(trace, gates=True)
    assert trace.meta.layers == (2, 3) and trace.meta.top_k == TOP_K
    np.testing.assert_array_equal(columns["experts"], ids)
    np.testing.assert_array_equal(columns["gates"], scores)
    assert np.bincount(columns["step"]).tolist() == [8, 8, 4]
    assert columns["source_rank"].tolist() == ([0] * 4 + [1] * 4) * 2 + [0] * 4
    assert columns["request"].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert (written.tokens, written.steps) == (20, 3)
    assert written.notes == ("training tokens in file order, no requests: every 8 of them are a step",)


def test_scores_may_be_missing_or_out_of_order(tmp_path: Path) -> None:
    ids, scores = routing()
    run(write(tmp_path / "bare", ids, None), tmp_path / "o.parquet")
    columns = read_columns(token_trace(tmp_path / "o.parquet"), gates=True)
    assert "gates" not in columns
    np.testing.assert_array_equal(columns["experts"], ids)
    run(write(tmp_path / "turned", ids[:, :, ::-1], scores[:, :, ::-1]), tmp_path / "o.parquet")
    columns = read_columns(token_trace(tmp_path / "o.parquet"), gates=True)
    np.testing.assert_array_equal(columns["gates"], scores)
    np.testing.assert_array_equal(np.sort(columns["experts"], axis=2), np.sort(ids.astype(np.uint8), axis=2))


def faulty(folder: Path, fault: str) -> Path:
    ids, scores = routing()
    if fault == "id":
        ids[13, 1, 2] = 8
    if fault == "twice":
        ids[13, 1] = [4, 4, 5]
    if fault == "nan":
        scores[13, 0, 1] = np.nan
    write(folder, ids, scores)
    if fault == "short":
        pq.write_table(pq.read_table(folder / "layer_03.parquet").slice(0, 9), folder / "layer_03.parquet")
    if fault == "ragged":
        pq.write_table(pa.table({"indices": [[1, 2, 3]] * 19 + [[1, 2]]}), folder / "layer_03.parquet")
        pq.write_table(pq.read_table(folder / "layer_02.parquet").select(["indices"]), folder / "layer_02.parquet")
    if fault == "samples":
        pq.write_table(pa.table({"token_id": list(range(TOKENS))}), folder / "layer_03.parquet")
    if fault == "floats":
        pq.write_table(pa.table({"indices": [[0.5, 1.0, 2.0]] * TOKENS}), folder / "layer_02.parquet")
    if fault == "name":
        (folder / "layer_03.parquet").rename(folder / "003.parquet")
    if fault == "iterations":
        (folder / "layer_03.parquet").rename(folder / "iter_9_layer_02.parquet")
    if fault == "damaged":
        content = (folder / "layer_03.parquet").read_bytes()
        (folder / "layer_03.parquet").write_bytes(content[:40] + b"\xff" * 20 + content[60:])
    return folder


AT = "/layer_03.parquet"


@pytest.mark.parametrize(
    ("fault", "settings", "says"),
    [
        ("id", {}, ": token 13, layer 3: id 8 is not in 0..7 — correct --experts or --model"),
        ("twice", {}, ": token 13, layer 3: expert 4 stands twice in one top-3 — correct --top-k"),
        ("nan", {}, "/layer_02.parquet: column scores, row 13: not a number — copy it again"),
        ("short", {}, f"{AT}: holds 9 tokens, the first layer 20 — copy all files whole"),
        ("ragged", {}, f"{AT}: column indices, row 19: 2 indices, expected 3 — correct layers"),
        ("samples", {}, f"{AT}: column indices is missing — give the files below actives/"),
        ("floats", {}, "/layer_02.parquet: column indices has type list<"),
        ("name", {}, "/003.parquet: no layer number in the name — name the files layer_02.parquet, …"),
        (
            "iterations",
            {},
            f"{AT.replace('3', '2')}: layer 2 is in iter_9_layer_02.parquet, too — import one",
        ),
        ("damaged", {}, f"{AT}: damaged Parquet file: "),
        ("", {"top_k": 2}, ": holds 3 ids per token, not top-2 of 8 experts — correct --top-k, --experts or --model"),
        ("", {"layers": (0, 1, 2)}, ": holds 2 layers, 3 expected — correct --model or --layers"),
        ("", {"experts": None}, ": the number of experts is unknown — pass --model NAME"),
    ],
)
def test_faults_are_named(tmp_path: Path, fault: str, settings: dict[str, Any], says: str) -> None:
    source = faulty(tmp_path / "in", fault)
    with pytest.raises(EbsimError) as caught:
        run(source, tmp_path / "o.parquet", **settings)
    assert str(caught.value).removeprefix(str(source)).startswith(says)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_folder_of_iterations_is_not_one(tmp_path: Path) -> None:
    write(tmp_path / "iter_0540", *routing())
    with pytest.raises(EbsimError, match=r"folder of one iteration expected, with a layer_NN\.parquet per layer"):
        run(tmp_path, tmp_path / "o.parquet")
