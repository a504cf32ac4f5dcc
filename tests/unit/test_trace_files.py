"""Opening trace files: which files, damage, metadata, one model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.files import (
    LayoutHints,
    expand,
    file_fingerprints,
    fingerprint,
    open_parquet,
    read_meta,
    reading,
    require_same_model,
)
from easybalance_sim.trace.writer import token_trace_writer
from tests.trace_files import random_columns, read_columns, token_meta, token_trace, write_trace

META = token_meta(layers=(3, 5), experts=64, top_k=4)


def some_trace(path: Path, tokens: int = 50, row_group: int | None = None) -> Path:
    columns = random_columns(np.random.default_rng(0), list(range(tokens)), META)
    return write_trace(path, columns, META, row_group=row_group)


def test_folders_give_their_parquet_files_in_name_order(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", ".part.parquet", "notes.txt"):
        (tmp_path / name).touch()
    other = tmp_path / "notes.txt"
    assert expand([other, tmp_path]) == [other, tmp_path / "a.parquet", tmp_path / "b.parquet"]


def test_nothing_to_open(tmp_path: Path) -> None:
    for paths, says in (
        ([], "no trace given"),
        ([tmp_path], r"folder holds no \.parquet file"),
        ([tmp_path / "x.parquet"], "no such file"),
    ):
        with pytest.raises(TraceError, match=says) as caught:
            expand(paths)
        assert caught.value.fix


def test_no_file_twice(tmp_path: Path) -> None:
    path, link = some_trace(tmp_path / "a.parquet"), tmp_path / "link.parquet"
    link.symlink_to(path)
    for paths in ([path, path], [tmp_path, path], [path, link]):
        with pytest.raises(TraceError, match=r"\.parquet: is given twice — name each trace once"):
            expand(paths)


def test_a_folder_named_like_a_trace(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(TraceError, match=r"a\.parquet: cannot be read"):
        open_parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", r"file is empty \(0 bytes\)"),
        (b"P", "not a Parquet file"),
        (b"step,request\n0,0\n", "not a Parquet file"),
        (b"PAR1", "damaged Parquet file"),
        (b"PAR1 and then the recorder was killed", "truncated"),
        (b"PAR1" + b"\x07" * 40 + b"\x10\x00\x00\x00PAR1", "damaged Parquet file"),
        (b"PAR1" + b"\xff\xff\xff\x7fPAR1", "damaged Parquet file"),
    ],
)
def test_what_is_not_parquet(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says) as caught:
        open_parquet(path)
    assert caught.value.where == str(path) and caught.value.fix


def test_a_file_cut_anywhere_is_truncated(tmp_path: Path) -> None:
    path = some_trace(tmp_path / "t.parquet")
    whole = path.read_bytes()
    for size in range(5, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(TraceError, match="truncated"):
            open_parquet(path)


def test_flipped_bytes_are_never_read_as_other_tokens(tmp_path: Path) -> None:
    """With the page checksums that the writer adds, a trace is refused or comes back as it was."""
    path, columns = tmp_path / "t.parquet", random_columns(np.random.default_rng(1), list(range(300)), META)
    source = token_trace(write_trace(tmp_path / "s.parquet", columns, META))
    source.scan()
    with token_trace_writer(path, META, source.workloads) as writer:
        for batch in source.batches(gates=True):
            writer.append(batch)
    whole = path.read_bytes()
    data_end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for place in range(4, data_end, 61):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            found = read_columns(token_trace(path), gates=True)
        except TraceError as error:
            refused += 1
            assert "damaged Parquet file" in str(error)
        else:
            for name, values in columns.items():
                np.testing.assert_array_equal(found[name], values)
    assert refused > 100


def test_reading_names_the_file_even_without_a_reason() -> None:
    with (
        pytest.raises(TraceError, match=r"^f: damaged Parquet file: ArrowInvalid — copy"),
        reading("f"),
    ):
        raise pa.ArrowInvalid("")


def test_metadata_of_the_file_wins_over_hints(tmp_path: Path) -> None:
    file = open_parquet(some_trace(tmp_path / "t.parquet"))
    hints = LayoutHints(layers=(0,), experts=4, top_k=1)
    assert read_meta(file, tmp_path, hints) == META


def test_hints_take_the_kind_from_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"layer": [0], "counts": [[1, 2]]}), path)
    meta = read_meta(open_parquet(path), path, LayoutHints(layers=(0,), experts=300, top_k=1, groups=4, topk_group=2))
    assert (meta.kind, meta.dtype, meta.groups, meta.topk_group) == ("counts", "uint16", 4, 2)


def test_hints_that_contradict_each_other(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"step": [0]}), path)
    with pytest.raises(TraceError, match="top_k is 9 with 8 experts"):
        read_meta(open_parquet(path), path, LayoutHints(layers=(0,), experts=8, top_k=9))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "other"}, "model is 'other' here and 'unknown' in a.parquet"),
        ({"layers": (3, 6)}, r"layers is \(3, 6\) here"),
        ({"experts": 65}, "experts is 65 here and 64"),
        ({"top_k": 2}, "top_k is 2 here and 4"),
        ({"groups": 8}, "groups is 8 here and 1"),
        ({"kind": "counts"}, "kind is 'counts' here and 'tokens'"),
    ],
)
def test_mixed_models(change: dict[str, object], says: str) -> None:
    other = token_meta(**{"layers": (3, 5), "experts": 64, "top_k": 4} | change)  # type: ignore[arg-type]
    with pytest.raises(TraceError, match=rf"b\.parquet: mixed models: {says}"):
        require_same_model([META, other], [Path("a.parquet"), Path("b.parquet")])


def test_ranks_of_several_files_are_the_largest() -> None:
    metas = [token_meta(ranks=ranks) for ranks in (0, 16, 8)]
    assert require_same_model(metas, [Path(str(i)) for i in range(3)]).ranks == 16


def test_fingerprint_depends_on_contents_and_order(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    halves = hashlib.sha256(b"1").digest() + hashlib.sha256(b"2").digest()
    one, two = (fingerprint(file_fingerprints(order)) for order in ([a, b], [b, a]))
    assert one == hashlib.sha256(halves).hexdigest() != two


def test_fingerprinting_tells_of_every_byte(tmp_path: Path) -> None:
    a, b, told = tmp_path / "a", tmp_path / "b", list[int]()
    a.write_bytes(b"x" * 1000)
    b.write_bytes(b"")
    assert file_fingerprints([a, b], told.append) == tuple(
        hashlib.sha256(data).hexdigest() for data in (b"x" * 1000, b"")
    )
    assert sum(told) == 1000
