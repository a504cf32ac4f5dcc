"""Files of PyTorch: tensors and plain values come out as arrays and values, nothing else is ever made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.array_files import read_arrays
from easybalance_sim.trace.torch_files import read_pt
from tests.recordings import torch_or_skip

pytestmark = pytest.mark.engine_loader


@pytest.fixture
def torch() -> Any:
    return torch_or_skip()


def test_tensors_become_arrays(torch: Any, tmp_path: Path) -> None:
    content = {"a": torch.arange(6, dtype=torch.int32).reshape(2, 3), "b": [None, 1.5, (torch.zeros(0),)], "c": "x"}
    torch.save(content, tmp_path / "a.pt")
    found = read_pt(tmp_path / "a.pt")
    assert (found["a"].dtype, found["a"].tolist()) == (np.int32, [[0, 1, 2], [3, 4, 5]])
    assert (found["b"][:2], found["b"][2][0].shape, found["c"]) == ([None, 1.5], (0,), "x")


def test_widths_that_numpy_lacks_and_views_are_read(torch: Any, tmp_path: Path) -> None:
    values = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    torch.save(values.T, tmp_path / "a.pt")
    assert read_arrays(tmp_path / "a.pt")[""].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_objects_are_refused_and_never_made(torch: Any, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"logical_count": Trap()}, tmp_path / "a.pt")
    with pytest.raises(TraceError, match=r"a\.pt: not a PyTorch file of tensors .* pickled objects are never read"):
        read_pt(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()


def test_a_tensor_larger_than_its_bytes_is_refused(torch: Any, tmp_path: Path) -> None:
    torch.save(torch.zeros(1).expand(1 << 40), tmp_path / "a.pt")
    with pytest.raises(TraceError, match="or damaged"):
        read_pt(tmp_path / "a.pt")


@pytest.mark.parametrize("content", [b"", b"\x80\x02K\x01.", b"PK\x03\x04", b"not torch at all"])
def test_other_bytes_are_one_line(torch: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(TraceError, match="or damaged"):
        read_pt(tmp_path / "a.pt")


def test_a_dictionary_of_more_than_tensors_is_no_array_file(torch: Any, tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2), "b": 1}, tmp_path / "a.pt")
    with pytest.raises(TraceError, match="holds more than tensors — save one tensor"):
        read_arrays(tmp_path / "a.pt")
