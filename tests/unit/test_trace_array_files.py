"""Arrays are read from files of four formats, and nothing else in them is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace import array_files
from easybalance_sim.trace.array_files import as_counts, read_arrays, read_only_array

ARRAY = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


def test_npy_npz_and_safetensors_hold_the_same(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAY)
    np.savez_compressed(tmp_path / "a.npz", load=ARRAY)
    save_file({"load": ARRAY}, tmp_path / "a.safetensors")
    for name, key in (("a.npy", ""), ("a.npz", "load"), ("a.safetensors", "load")):
        found = read_arrays(tmp_path / name)
        assert list(found) == [key]
        assert (found[key].dtype, found[key].tolist()) == (ARRAY.dtype, ARRAY.tolist())


def test_several_arrays_are_too_many_for_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", load=ARRAY, more=ARRAY)
    with pytest.raises(TraceError, match=r"a\.npz: holds 2 arrays \(load, more\), expected one — keep one"):
        read_only_array(tmp_path / "a.npz")


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickled_objects_are_refused_and_never_run(tmp_path: Path, name: str) -> None:
    values = np.array([Trap(tmp_path / "ran")], object)
    np.savez(tmp_path / name, values) if name == "a.npz" else np.save(tmp_path / name, values)
    with pytest.raises(TraceError, match=r"of plain arrays, or damaged \(ValueError\) — .*pickled objects are never"):
        read_arrays(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.npy", b"", "not a .npy file of plain arrays, or damaged"),
        ("a.npz", b"PK\x03\x04", "not a .npz file of plain arrays, or damaged"),
        ("a.safetensors", b"\xff" * 16, "not a .safetensors file of plain arrays, or damaged"),
        ("a.pkl", b"", r"a\.pkl: \.pkl ending — give one of \.npy, \.npz, \.pt, \.safetensors"),
    ],
)  # fmt: skip
def test_damaged_and_foreign_files_are_one_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=says) as refused:
        read_arrays(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_a_shape_beyond_the_file_asks_for_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as stream:
        header = {"descr": "<i8", "fortran_order": False, "shape": (1 << 50,)}
        np.lib.format.write_array_header_1_0(stream, header)
    with pytest.raises(TraceError, match=r"or damaged \(ValueError\)"):
        read_arrays(tmp_path / "a.npy")


def test_a_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"a\.npy: no such file — check the path"):
        read_arrays(tmp_path / "a.npy")


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "a.pt").touch()
    with pytest.raises(UsageError, match=r"a\.pt: a \.pt file needs PyTorch — .*pip install '\.\[torch\]'"):
        read_arrays(tmp_path / "a.pt")


@pytest.mark.parametrize("version", ["1.13.1", "2.5.1+cu124", "unknown"])
def test_a_torch_that_can_be_led_to_run_code_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version))
    (tmp_path / "a.pt").touch()
    with pytest.raises(UsageError, match=rf"PyTorch {re.escape(version)} may run code .* — pip install 'torch>=2.6'"):
        read_arrays(tmp_path / "a.pt")


def test_an_archive_that_unpacks_to_more_than_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(10**6))
    monkeypatch.setattr(array_files, "_MOST_UNPACKED_BYTES", 10**6)
    with pytest.raises(TraceError, match=r"a\.npz: unpacks to 0 GB — split it, or give arrays as \.npy"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([[1.0, 2.5]], r"load\[0, 1\]: 2\.5 is not a count"),
        ([[3, -1]], r"load\[0, 1\]: -1 is not a count"),
        ([[float("nan")]], "nan is not a count"),
        ([[2**60]], "is not a count"),
        ([[2**45 + 1]], "35184372088833 is not a count"),
        ([[True]], "load: numbers of type bool"),
        ([["3"]], "load: numbers of type"),
    ],
)
def test_what_is_no_count_is_named(values: Any, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        as_counts(np.array(values), "a.npy", "load")


def test_whole_floats_are_counts() -> None:
    counts = as_counts(np.array([[1.0, 0.0]], np.float32), "a.npy")
    assert counts.dtype == np.int64
    assert counts.tolist() == [[1, 0]]
