"""Importers on sources small enough to follow by hand, and on bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.errors import EbsimError, TraceError, UsageError
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import DECODE, CountTrace, TokenBatch

LAYERS, EXPERTS, TOP_K = 2, 8, 2
# Request 7 has 3 tokens, 5 has 1, 9 has 2; rows stand out of order.
REQUEST, POSITION = [7, 5, 7, 9, 7, 9], [11, 4, 10, 0, 12, 1]
IDS = [[0, 1, 2, 3], [4, 5, 6, 7], [1, 0, 3, 2], [2, 4, 0, 7], [6, 5, 4, 3], [7, 0, 1, 6]]


def write_source(path: Path, **changes: Any) -> Path:
    columns: dict[str, Any] = {
        "request_id": REQUEST,
        "token_pos": POSITION,
        "experts": pa.array(IDS, pa.list_(pa.uint8())),
    }
    columns.update(changes)
    pq.write_table(pa.table({name: values for name, values in columns.items() if values is not None}), path)
    return path


def convert(source: Path, output: Path, **settings: Any) -> list[Converted]:
    job = Conversion(source=source, output=output, **settings)
    return importers.find(source).convert(job)


def tokens_of(path: Path) -> tuple[TokenTrace, TokenBatch]:
    trace = open_trace([path])
    assert isinstance(trace, TokenTrace)
    parts = list(trace.batches())
    names = ("step", "request", "position", "phase", "source_rank", "workload", "experts")
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    times = [part.time_s for part in parts if part.time_s is not None]
    return trace, TokenBatch(**columns, time_s=np.concatenate(times) if times else None)


def shape(**more: Any) -> dict[str, Any]:
    return {"experts": EXPERTS, "top_k": TOP_K, "order": "file", "concurrency": 2, "drain": True, **more}


def test_every_importer_can_be_loaded_by_name() -> None:
    assert {"count_table", "request_tokens", "token_trace"} <= set(importers.names())
    for name in importers.names():
        importer = importers.load(name)
        assert callable(importer.convert)
    with pytest.raises(KeyError):
        importers.load("no_such_importer")


def test_requests_join_a_batch_of_two_slots(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    (written,) = convert(write_source(tmp_path / "in.parquet"), out, **shape(ranks=2))
    trace, batch = tokens_of(out)
    # Steps 0..2 hold request 7; 5 runs in step 0 beside it; 9 takes its slot in steps 1 and 2.
    assert batch.step.tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.request.tolist() == [7, 5, 7, 9, 7, 9]
    assert batch.position.tolist() == [10, 4, 11, 0, 12, 1]
    assert batch.experts.reshape(6, 4).tolist() == [IDS[2], IDS[1], IDS[0], IDS[3], IDS[4], IDS[5]]
    assert batch.source_rank.tolist() == [0, 1, 0, 0, 0, 0]
    assert (batch.phase == DECODE).all()
    assert batch.time_s is None
    assert trace.meta.layers == (0, 1) and trace.meta.ranks == 2
    assert trace.meta.origin["concurrency"] == 2 and trace.meta.origin["order"] == "file"
    assert (written.tokens, written.steps, written.notes) == (6, 3, ())


def test_a_server_met_midway_has_no_common_start_and_no_ramp_down(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    request, position = np.repeat(np.arange(60), 10), np.tile(np.arange(10), 60)
    ids = np.argsort(rng.random((600, 2, 8)), axis=2)[:, :, :2].reshape(600, 4)
    source = write_source(
        tmp_path / "in.parquet", request_id=request, token_pos=position, experts=pa.array(ids.tolist())
    )
    (written,) = convert(source, tmp_path / "out.parquet", **shape(drain=False, midway=True, concurrency=16, seed=4))
    trace, batch = tokens_of(tmp_path / "out.parquet")
    per_step = np.bincount(batch.step)
    assert (per_step == 16).all()
    assert len(set(batch.position[batch.step == 0].tolist())) > 4
    # What a request decodes is its own tokens in order, to the last one unless the trace ends before.
    for one in np.unique(batch.request):
        mine = batch.request == one
        first = int(batch.position[mine][0])
        assert batch.position[mine].tolist() == list(range(first, first + int(mine.sum())))
        assert first == 0 or one < 16
        rows = np.flatnonzero(request == one)[first : first + int(mine.sum())]
        assert batch.experts[mine].reshape(-1, 4).tolist() == ids[rows].tolist()
    assert written.tokens == batch.tokens
    left_out = [int(note.split(" of 600 tokens left out")[0]) for note in written.notes]
    assert len(left_out) == 2 and sum(left_out) == 600 - batch.tokens and "--drain" in written.notes[0]
    assert (trace.meta.origin["drain"], trace.meta.origin["midway"]) == (False, True)


def test_without_midway_every_first_request_starts_at_its_beginning(tmp_path: Path) -> None:
    request, position = np.repeat(np.arange(20), 5), np.tile(np.arange(5), 20)
    ids = np.tile(np.array([[0, 1, 2, 3]]), (100, 1))
    source = write_source(
        tmp_path / "in.parquet", request_id=request, token_pos=position, experts=pa.array(ids.tolist())
    )
    (written,) = convert(source, tmp_path / "out.parquet", **shape(drain=False, concurrency=8))
    _, batch = tokens_of(tmp_path / "out.parquet")
    assert batch.position[batch.step == 0].tolist() == [0] * 8
    assert (np.bincount(batch.step) == 8).all()
    assert written.notes == (
        f"{100 - batch.tokens} of 100 tokens left out: the ramp-down with fewer than 8 requests is no traffic of a "
        "loaded server (--drain keeps it)",
    )


def test_too_few_requests_are_all_kept_and_said(tmp_path: Path) -> None:
    (written,) = convert(
        write_source(tmp_path / "in.parquet"), tmp_path / "o.parquet", **shape(concurrency=9, drain=False)
    )
    assert written.tokens == 6
    assert written.notes == ("3 requests never fill 9 slots; all tokens are kept",)


def test_arrivals_set_steps_and_seconds(tmp_path: Path) -> None:
    arrivals = tmp_path / "arrivals.csv"
    arrivals.write_text(
        "TIMESTAMP,ContextTokens\n2023-11-16 18:00:00.00,1\n2023-11-16 18:00:00.05,1\n2023-11-16 18:00:01.00,1\n"
    )
    convert(write_source(tmp_path / "in.parquet"), tmp_path / "o.parquet", **shape(arrivals=arrivals, step_s=0.025))
    _, batch = tokens_of(tmp_path / "o.parquet")
    assert batch.step.tolist() == [0, 1, 2, 2, 40, 41]
    assert batch.time_s is not None
    np.testing.assert_allclose(batch.time_s, batch.step * 0.025)


def test_a_folder_names_workloads_in_its_request_table(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    folder.mkdir()
    write_source(folder / "routing_tokens.parquet")
    pq.write_table(pa.table({"request_id": [9, 7, 5], "dataset": ["law", "code", "law"]}), folder / "requests.parquet")
    convert(folder, tmp_path / "o.parquet", **shape(order="by-workload", concurrency=1))
    trace, batch = tokens_of(tmp_path / "o.parquet")
    assert [trace.workloads[code] for code in batch.workload] == ["code"] * 3 + ["law"] * 3
    assert batch.request.tolist() == [7, 7, 7, 5, 9, 9]


@pytest.mark.parametrize("layout", ["list", "fixed_size_list", "packed"])
def test_layouts_of_the_experts_column_agree(tmp_path: Path, layout: str) -> None:
    flat = np.array(IDS, np.uint8)
    columns = {
        "list": pa.array(IDS, pa.list_(pa.int64())),
        "fixed_size_list": pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), 4),
        "packed": pa.array([row.tobytes() for row in flat], pa.binary(4)),
    }
    convert(write_source(tmp_path / "in.parquet", experts=columns[layout]), tmp_path / "o.parquet", **shape())
    _, batch = tokens_of(tmp_path / "o.parquet")
    assert batch.experts.reshape(6, 4).tolist() == [IDS[2], IDS[1], IDS[0], IDS[3], IDS[4], IDS[5]]


def test_the_file_itself_may_say_the_shape(tmp_path: Path) -> None:
    source = write_source(tmp_path / "in.parquet")
    table = pq.read_table(source).replace_schema_metadata({"num_experts": "8", "top_k": "2", "model": "my/own-moe"})
    pq.write_table(table, source)
    convert(source, tmp_path / "o.parquet", order="file")
    trace, _ = tokens_of(tmp_path / "o.parquet")
    assert (trace.meta.experts, trace.meta.top_k, trace.meta.model) == (8, 2, "my/own-moe")


def bad_ids(row: int, ids: list[int]) -> pa.Array:
    changed = [list(one) for one in IDS]
    changed[row] = ids
    return pa.array(changed, pa.list_(pa.int64()))


@pytest.mark.parametrize(
    ("changes", "settings", "says"),
    [
        ({}, {"experts": None}, r"in\.parquet: the number of experts is unknown — pass --model NAME"),
        ({}, {"top_k": None}, "number of top-k is unknown"),
        ({}, {"top_k": 3}, "4 ids per token, not a multiple of top-3"),
        ({}, {"top_k": 9}, "top-9 of 8 experts"),
        ({}, {"layers": (3, 4, 5)}, "holds 2 layers, 3 expected"),
        ({}, {"concurrency": 0}, "--concurrency is 0"),
        ({}, {"ranks": 0}, "--ranks is 0"),
        ({}, {"order": "random"}, "--order is 'random'"),
        ({"experts": bad_ids(4, [6, 5, 4, 8])}, {}, r"column experts, row 4, layer 1: id 8 is not in 0\.\.7"),
        ({"experts": bad_ids(2, [1, 1, 3, 2])}, {}, "column experts, row 2, layer 0: expert 1 stands twice"),
        ({"experts": bad_ids(3, [-1, 1, 3, 2])}, {}, "column experts, row 3, layer 0: id -1"),
        ({"experts": bad_ids(3, [1, 3, 2])}, {}, "column experts, row 3: 3 ids, expected 4"),
        ({"token_pos": [11, 4, 10, 0, 10, 1]}, {}, "rows 2 and 4: the same request and position"),
        ({"request_id": [7.5, 5, 7, 9, 7, 9]}, {}, "column request_id must hold whole numbers"),
        ({"experts": [0.5] * 6}, {}, "column experts has type double"),
    ],
)
def test_bad_routed_tokens_leave_the_old_file(
    tmp_path: Path, changes: dict[str, Any], settings: dict[str, Any], says: str
) -> None:
    out = tmp_path / "out.parquet"
    out.write_text("old")
    source = write_source(tmp_path / "in.parquet", **changes)
    with pytest.raises(EbsimError, match=says) as caught:
        convert(source, out, **shape(**settings))
    assert "\n" not in str(caught.value)
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time\n1\n", "column TIMESTAMP is missing"),
        ("TIMESTAMP\n0\n1\n", "2 arrivals for 3 requests"),
        ("TIMESTAMP\nnever\n", "column TIMESTAMP"),
        ("", "not a CSV table"),
    ],
)
def test_bad_arrivals(tmp_path: Path, text: str, says: str) -> None:
    arrivals = tmp_path / "a.csv"
    arrivals.write_text(text)
    with pytest.raises(EbsimError, match=says):
        convert(write_source(tmp_path / "in.parquet"), tmp_path / "o.parquet", **shape(arrivals=arrivals))
    assert not (tmp_path / "o.parquet").exists()


def test_unknown_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        importers.find(tmp_path / "absent.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(TraceError, match="none of the layouts"):
        importers.find(tmp_path / "a.parquet")
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(TraceError, match="neither Parquet nor"):
        importers.find(tmp_path / "text.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="none of the layouts"):
        importers.find(tmp_path / "empty")


COUNTS = [[5, 1, 2, 0], [0, 3, 3, 2]]


def write_counts(path: Path, **changes: Any) -> Path:
    columns: dict[str, Any] = {
        "seqlen": ["4k", "4k", "8k", "8k"],
        "layer": [4, 3, 3, 4],
        "counts": COUNTS[::-1] + COUNTS,
    }
    columns.update(changes)
    pq.write_table(pa.table({name: values for name, values in columns.items() if values is not None}), path)
    return path


def test_a_count_table_makes_one_trace_per_group(tmp_path: Path) -> None:
    written = convert(write_counts(tmp_path / "in.parquet"), tmp_path / "o.parquet", top_k=2)
    assert [one.path.name for one in written] == ["o-4k.parquet", "o-8k.parquet"]
    for one, group in zip(written, ("4k", "8k"), strict=True):
        trace = open_trace([one.path])
        assert isinstance(trace, CountTrace)
        assert trace.meta.layers == (3, 4)
        assert trace.tokens.tolist() == [COUNTS]
        assert trace.batch_tokens.tolist() == [4]
        assert trace.workloads[trace.workload[0]] == group


def test_an_ungrouped_csv_of_counts_makes_the_named_file(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('layer,counts\n0,"[5, 1, 2, 0]"\n1,"0 3 3 2"\n')
    (written,) = convert(tmp_path / "in.csv", tmp_path / "o.parquet", top_k=2)
    trace = open_trace([written.path])
    assert isinstance(trace, CountTrace)
    assert trace.tokens.tolist() == [COUNTS]


@pytest.mark.parametrize(
    ("changes", "settings", "says"),
    [
        ({}, {"top_k": None}, "number of top-k is unknown"),
        ({"seqlen": None}, {}, "layer 3 stands in 2 rows"),
        ({"corpus": ["a", "b", "a", "b"]}, {}, r"several text columns \(seqlen, corpus\)"),
        ({}, {"group_by": "nothing"}, "no grouping column nothing"),
        ({"counts": [[1, 2], [1, 2], [1, 2], [1]]}, {}, "rows hold 1 to 2 counts"),
        ({"counts": [[1, 2], [1, -2], [1, 2], [1, 2]]}, {}, "group 4k: column counts, layer 3: not a list of counts"),
        ({}, {"experts": 8}, "rows hold 4 counts, 8 experts expected"),
        ({}, {"layers": (3, 4, 5)}, r"holds layers 3\.\.4 \(2\), not 3\.\.5 \(3\)"),
        ({"layer": [4, -3, 3, 4]}, {}, "column layer must hold layer ids"),
    ],
)
def test_bad_count_tables_write_nothing(
    tmp_path: Path, changes: dict[str, Any], settings: dict[str, Any], says: str
) -> None:
    source = write_counts(tmp_path / "in.parquet", **changes)
    with pytest.raises(EbsimError, match=says):
        convert(source, tmp_path / "o.parquet", **{"top_k": 2, **settings})
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_list_and_long_traces_are_rewritten_packed(tmp_path: Path) -> None:
    step, request = [0, 0, 1], [1, 2, 1]
    lists = pa.table({"step": step, "request": request, "experts": pa.array(IDS[:3], pa.list_(pa.int32()))})
    pq.write_table(lists, tmp_path / "list.parquet")
    long = pa.table(
        {
            "step": np.repeat(step, 2),
            "request": np.repeat(request, 2),
            "layer": [0, 1] * 3,
            "experts": pa.array(np.array(IDS[:3]).reshape(6, 2).tolist(), pa.list_(pa.int32())),
        }
    )
    pq.write_table(long, tmp_path / "long.parquet")
    for name in ("list", "long"):
        out = tmp_path / f"packed-{name}.parquet"
        convert(tmp_path / f"{name}.parquet", out, experts=EXPERTS, top_k=TOP_K, layers=(0, 1))
        _, batch = tokens_of(out)
        assert batch.experts.reshape(3, 4).tolist() == IDS[:3]
        assert pa.types.is_fixed_size_binary(pq.read_schema(out).field("experts").type)


def test_a_trace_without_metadata_needs_layers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"step": [0], "request": [0], "experts": [IDS[0]]}), tmp_path / "in.parquet")
    with pytest.raises(UsageError, match="layers are unknown"):
        convert(tmp_path / "in.parquet", tmp_path / "o.parquet", experts=EXPERTS, top_k=TOP_K)
    with pytest.raises(TraceError, match=r"metadata key ebsim\.trace is missing"):
        convert(tmp_path / "in.parquet", tmp_path / "o.parquet")


def test_a_model_that_does_not_fit_the_trace_is_refused(tmp_path: Path) -> None:
    convert(write_source(tmp_path / "in.parquet"), tmp_path / "o.parquet", **shape())
    with pytest.raises(UsageError, match=r"2 layers × 8 experts, top-2; gpt-oss-20b has 24 × 32"):
        convert(tmp_path / "o.parquet", tmp_path / "p.parquet", model=load_shape("gpt-oss-20b"))


def test_converting_a_count_trace_keeps_it(tmp_path: Path) -> None:
    first, _ = convert(write_counts(tmp_path / "in.parquet"), tmp_path / "o.parquet", top_k=2)
    (again,) = convert(first.path, tmp_path / "again.parquet")
    assert (again.kind, again.tokens, again.steps) == ("counts", 4, 1)
    trace = open_trace([again.path])
    assert isinstance(trace, CountTrace)
    assert trace.tokens.tolist() == [COUNTS]
