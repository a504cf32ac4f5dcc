"""Ids as recorders leave them, `.npy` bytes and JSON documents: what is taken and what is named."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.json_documents import Document, decoded, documents
from easybalance_sim.trace.npy_bytes import MAGIC, array_of
from easybalance_sim.trace.recorded_ids import blank_rows, checked_ids
from tests.trace_files import token_meta

META = token_meta(layers=(3, 5), experts=300, top_k=2)


def test_blank_rows_are_zeros_or_minus_one() -> None:
    ids = np.array([[[0, 0], [0, 1]], [[-1, -1], [-1, 3]], [[5, 0], [0, 0]]])
    assert blank_rows(ids).tolist() == [[True, False], [True, False], [False, True]]
    assert blank_rows(ids.astype(np.uint8)).tolist() == [[True, False], [False, False], [False, True]]
    assert blank_rows(ids[:, :, :1]).tolist() == [[False, False], [True, True], [False, False]]


def test_ids_are_narrowed_once_they_fit() -> None:
    ids = np.array([[[299, 0], [1, 2]]])
    narrow = checked_ids(ids, META, "f")
    assert narrow.dtype == np.uint16 and narrow.tolist() == ids.tolist() and not narrow.flags.writeable
    for bad, says in (
        (300, "f: token 0, layer 5: id 300 is not in 0..299"),
        (-1, "f: token 0, layer 5: id -1 is not in 0..299"),
        (65538, "f: token 0, layer 5: id 65538 is not in 0..299"),
        (1, "f: token 0, layer 5: expert 1 stands twice in one top-2"),
    ):
        with pytest.raises(TraceError, match=says):
            checked_ids(np.array([[[299, 0], [1, bad]]]), META, "f")
    with pytest.raises(TraceError, match="token 17, layer 3"):
        checked_ids(np.array([[[7, 7], [1, 2]]]), META, "f", np.array([17]))


def test_npy_bytes_in_either_order() -> None:
    for array in (np.arange(12, dtype=np.uint16).reshape(3, 4), np.asfortranarray(np.arange(12).reshape(3, 4))):
        stream = io.BytesIO()
        np.save(stream, array)
        assert array_of(stream.getvalue(), "f").tolist() == array.tolist()


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (MAGIC, r"not a \.npy array, or damaged"),
        (MAGIC + b"\x09\x00" + b" " * 200, r"not a \.npy array, or damaged \(KeyError\)"),
        (MAGIC + b"\x01\x00\x10\x00" + b"{'descr': '<u1',\n", r"not a \.npy array, or damaged"),
        (
            MAGIC + b"\x01\x00\x46\x00" + b"{'descr': '<u1', 'fortran_order': False, 'shape': (99999999999,)}     ",
            r"array of uint8 and shape \(99999999999,\) with 0 bytes",
        ),
    ],
)
def test_damaged_npy_bytes(blob: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        array_of(blob, "f")


def test_documents_of_lines_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "10.json").write_text("[1]")
    (tmp_path / "b" / "9.json").write_text("[2]")
    (tmp_path / "a.jsonl").write_text("[3]\n\n[4]\n")
    (tmp_path / ".hidden.json").write_text("[5]")
    (tmp_path / "notes.txt").write_text("[6]")
    found = list(documents(tmp_path))
    assert [one.content.strip() for one in found] == [b"[3]", b"[4]", b"[2]", b"[1]"]
    assert [one.workload for one in found] == ["(none)", "(none)", "b", "b"]
    assert found[1].where == f"{tmp_path / 'a.jsonl'}, line 3"
    with pytest.raises(TraceError, match=r"\.txt ending — give one of \.json, \.jsonl, \.ndjson"):
        list(documents(tmp_path / "notes.txt"))


@pytest.mark.parametrize("content", [b"", b"{", b"[1", b"\xff", b'"\xff"', b"[" * 4000, b"1e999"])
def test_what_is_no_json(content: bytes) -> None:
    with pytest.raises(TraceError, match="f: not JSON: ") as caught:
        decoded(Document(where="f", workload="", content=content), list[int], "JSON")
    assert len(str(caught.value)) < 300
