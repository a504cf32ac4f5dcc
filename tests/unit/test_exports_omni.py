from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.engines import omni
from easybalance_sim.exports.sidecar import read_sidecar
from tests.plan_documents import example_document, example_plan

NOTHING = Deployment()
DAMAGED = r"not a \.npy file of plain arrays, or damaged \(.+Error\) — write it again; pickled objects are never read"


def _pattern(*rows: list[list[int]]) -> AnyArray:
    """int32[R, L, 4] of the experts of each device of each layer."""
    pattern = np.zeros((len(rows[0]), len(rows), 4), np.int32)
    for layer, devices in enumerate(rows):
        for device, experts in enumerate(devices):
            pattern[device, layer, experts] = 1
    return pattern


def _saved(path: Path, array: Any) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize("name", ["pattern.npy", "pattern.npz"])
def test_what_is_written_is_read_with_slots_by_rising_id(name: str, tmp_path: Path) -> None:
    exported = omni.write(example_document(), NOTHING, tmp_path / name, "")
    file = omni.read(tmp_path / name)
    assert [path.name for path in exported.files] == [name, f"{name}.ebsim.json"]
    assert file.rows == ((0, 1, 2, 0, 1, 3), (0, 1, 2, 0, 2, 3))
    assert file.ranks_of_rows == ((3, 3), (3, 3))
    assert (file.experts, file.layers, read_sidecar(tmp_path / name)[1]) == (4, (0, 1), [])
    plan = file.plan(4, 2, "x")
    assert (plan.replicas == example_plan().replicas).all()
    assert omni.check(file, Deployment(ranks=2, experts=4, moe_layers=(3, 4), redundant=2)) == []


def test_a_single_array_of_any_name_and_type_is_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, other=_pattern([[0, 1], [2, 3]]).astype(bool))
    assert omni.read(path).rows == ((0, 1, 2, 3),)


def test_traps_of_a_pattern(tmp_path: Path) -> None:
    file = omni.read(_saved(tmp_path / "p.npy", _pattern([[0, 1], [2, 3]], [[0, 1], [1, 2]], [[0, 1, 2], [3]])))
    found = omni.check(file, Deployment(ranks=3, moe_layers=(3, 4, 5)))
    ours = "Omni-Infer cannot serve it (not run: our rule)"
    assert [(finding.level, finding.layer, finding.message) for finding in found] == [
        ("error", 0, f"2 devices for 3 ranks; {ours}"),
        ("error", 1, f"2 devices for 3 ranks; {ours}"),
        ("error", 2, f"2 devices for 3 ranks; {ours}"),
        ("warning", 2, "devices of 1 to 3 slots; Omni-Infer allows it; the other engines refuse it"),
        ("error", 1, f"expert 3 has no replica; {ours}"),
    ]


def test_several_arrays_without_the_one_of_the_name(tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, a=np.zeros(1), b=np.zeros(1))
    with pytest.raises(PlanError, match=r"no array 'placement' among \['a', 'b'\]"):
        omni.read(path)
    with pytest.raises(PlanError, match=r"a pattern is \.npy or \.npz — check FILE and --engine"):
        omni.read(tmp_path / "p.json")


def _bomb(path: Path) -> None:
    """An .npy whose header promises more than any machine holds."""
    stream = io.BytesIO()
    header = {"descr": "<i8", "fortran_order": False, "shape": (2**40, 1000, 1000)}
    np.lib.format.write_array_header_1_0(stream, header)
    path.write_bytes(stream.getvalue())


def _pickled(path: Path) -> None:
    np.save(path, np.array([object()], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b""), DAMAGED),
        (lambda path: path.write_bytes(b"PK\3\4 cut short"), DAMAGED),
        (_bomb, DAMAGED),
        (_pickled, DAMAGED),
        (lambda path: _saved(path, np.zeros((2, 3))), r"array of shape \(2, 3\), expected \[devices, MoE layers, "),
        (lambda path: _saved(path, np.zeros((0, 1, 4), int)), r"array of shape \(0, 1, 4\), expected "),
        (lambda path: _saved(path, np.full((1, 1, 4), 2)), "a pattern holds 0 and 1 only, this one other numbers"),
        (lambda path: _saved(path, np.ones((1, 1, 4))), "a pattern holds whole numbers, this one float64"),
        (lambda path: path.mkdir(), "no such file"),
        (lambda path: None, "no such file — check the path"),
    ],
)
def test_what_is_no_pattern_is_refused_in_one_line(
    make: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.npy"
    make(path)
    with pytest.raises(PlanError, match=message) as caught:
        omni.read(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_an_output_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the engine reads \.npy or \.npz"):
        omni.write(example_document(), NOTHING, tmp_path / "p.json", "")
    assert list(tmp_path.iterdir()) == []
