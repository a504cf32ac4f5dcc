"""What is timed on a GPU, with numpy and g++ in its place: products are right, nothing leaves its array."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.kernels.measurable import DTYPES
from easybalance_sim.kernels.timing import open_gpu
from tests.cuda_on_cpu import compiled
from tests.cuda_on_cpu.stand_in import gpu_kernels
from tests.cuda_on_cpu.stand_in_timing import BF16, FP16, HOST, TimingStandIn, floats
from tests.parity.timing_cases import layer_problems, unread

HIDDEN, INTERMEDIATE, SLOTS = 16, 12, 5


@pytest.fixture
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> TimingStandIn:
    if compiled.compiler() is None:
        pytest.skip("g++ is not installed: the CUDA sources cannot be run on the CPU (apt-get install g++)")
    return TimingStandIn(tmp_path_factory.getbasetemp().parent / "cuda_on_cpu", gpus=3)


@pytest.fixture
def timing(stand_in: TimingStandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    with gpu_kernels(stand_in):
        module = importlib.import_module("easybalance_sim.kernels.cupy_timing")
        monkeypatch.setattr(module, "_THREADS", 8)
        yield module


def memory(words: Any, kind: int) -> FloatArray:
    """float32[...] of words on the device."""
    return floats(words.memory.view(np.uint16), kind)


def test_the_gpu_says_what_it_is(timing: ModuleType) -> None:
    assert tuple(timing._DTYPES) == DTYPES
    assert timing.Gpu().about == ("a CPU", 512, 1 << 31, 1 << 30, 3, 12080)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("matrices", [2, 3])
def test_a_layer_is_the_product_of_its_active_experts(dtype: str, matrices: int, timing: ModuleType) -> None:
    assert layer_problems(timing.Gpu(), dtype, matrices) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self.between, self._wide, self.out", "self.between, self._intermediate, self.out"),
        ("2 * slot * wide * deep", "slot * wide * deep"),
        ("tokens * pitch", "tokens * deep"),
        (
            "(self._wide, self._hidden), (self._hidden, self._intermediate)",
            "(self._wide, self._hidden), (self._hidden, self._hidden)",
        ),
    ],
)
def test_a_planted_error_is_found(right: str, wrong: str, timing: ModuleType) -> None:
    """Slots that are not those asked for, rows or weights that begin elsewhere: the product or the address is wrong."""
    source = Path(str(timing.__file__)).read_text(encoding="utf-8")
    assert source.count(right) == 1
    planted: dict[str, Any] = {"__name__": timing.__name__}
    exec(compile(source.replace(right, wrong), "planted", "exec"), planted)
    planted["_THREADS"] = 8
    try:
        problems = layer_problems(planted["Gpu"](), "bf16", 3)
    except ValueError as error:
        problems = [str(error)]
    assert problems != []


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", BF16), ("fp16", FP16)])
def test_weights_are_random_and_small(dtype: str, kind: int, timing: ModuleType) -> None:
    gpu = timing.Gpu()
    experts = gpu.experts(64, 64, 3, 4, dtype)
    gpu.stream.synchronize()
    values = memory(experts._down, kind)
    assert np.abs(values).min() >= 2**-6 and np.abs(values).max() < 2**-5
    assert abs((values > 0).mean() - 0.5) < 0.02
    assert len(np.unique(values)) > 200


def test_every_run_is_timed_in_order_and_takes_other_slots(timing: ModuleType, stand_in: TimingStandIn) -> None:
    experts = timing.Gpu().experts(HIDDEN, INTERMEDIATE, 3, SLOTS, "bf16")
    runs = experts.times(2, 4, 6)
    assert np.array(runs).shape == (6, 2) and np.array(runs).min() > 0
    assert [experts.first_slot(run, 2) for run in range(5)] == [0, 2, 0, 2, 0]
    assert [experts.first_slot(run, SLOTS) for run in range(3)] == [0, 0, 0]
    assert stand_in.multiplied == [(2, 24, 4, 16), (2, 16, 4, 12)] * (6 + timing.WARM_UPS)
    assert experts.out is None and stand_in.freed == 1


def test_the_cache_is_read_over_before_every_run(timing: ModuleType, stand_in: TimingStandIn) -> None:
    gpu = timing.Gpu()
    before = len(stand_in.launches)
    gpu.read(4096, 5)
    assert gpu._flushed.nbytes == 8 * 512
    assert stand_in.launches[before:] == ["fill_words", *["read_words"] * 2 * (5 + timing.WARM_UPS)]


@pytest.mark.parametrize("size", [8, 200, 4000, 4096])
def test_a_read_reads_every_word(size: int, timing: ModuleType) -> None:
    assert not unread(timing.Gpu(), size)


def test_copies_are_made_in_every_run(timing: ModuleType, stand_in: TimingStandIn) -> None:
    gpu = timing.Gpu()
    for what, peer, source in (("copy-device", 0, 0), ("copy-host", 0, HOST), ("copy-peer", 1, 0)):
        stand_in.copies.clear()
        times = gpu.copy(what, 1000, 4, peer)
        assert len(times) == 4 and min(times) >= 0
        assert stand_in.copies == [(source, peer, 1000)] * (4 + timing.WARM_UPS)
    assert (gpu.reaches(1), gpu.reaches(2), stand_in.reached) == (True, False, [1])
    gpu.copy("copy-peer", 8, 1, 1)
    gpu.copy("copy-peer", 8, 1, 2)
    assert stand_in.reached == [1]


def test_memory_that_is_not_there_is_a_memory_error(timing: ModuleType, stand_in: TimingStandIn) -> None:
    gpu = timing.Gpu()
    experts = gpu.experts(HIDDEN, INTERMEDIATE, 3, SLOTS, "bf16")
    stand_in.memory_bytes = 10_000
    with pytest.raises(MemoryError):
        experts.times(5, 1000, 2)
    assert experts.given is None
    assert len(experts.times(5, 2, 2)) == 2


def test_the_gpu_is_opened_or_the_reason_told(timing: ModuleType, stand_in: TimingStandIn) -> None:
    assert open_gpu().about.name == "a CPU"

    def missing() -> int:
        raise ImportError("Failure finding libcublas.so.12\nin no folder")

    stand_in.cuda.device.get_cublas_handle = missing
    with pytest.raises(RuntimeError, match=r"^ImportError: Failure finding libcublas.so.12$"):
        open_gpu()


def test_without_cupy_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "easybalance_sim.kernels.cupy_timing", raising=False)
    with pytest.raises(RuntimeError, match=r"^cupy is not installed$"):
        open_gpu()


def test_the_stand_in_refuses_what_leaves_its_array(stand_in: TimingStandIn) -> None:
    words = stand_in.empty(4, np.uint64)
    assert stand_in.at(words.data.ptr + 8, 24).nbytes == 24
    with pytest.raises(ValueError, match="in no array"):
        stand_in.at(words.data.ptr + 8, 25)
