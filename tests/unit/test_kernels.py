"""Where compiled kernels are kept, and on which device they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from easybalance_sim import kernels
from easybalance_sim.cli.console import Console
from easybalance_sim.cli.report_table import warn_of_first_run
from tests.cuda_on_cpu.stand_in import gpu_kernels
from tests.ebsim_process import SAMPLE, python


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache folder that cannot be made: it would lie inside a file."""
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "cache"
    monkeypatch.setattr(kernels, "_cache_places", lambda: [place])
    monkeypatch.setenv("NUMBA_CACHE_DIR", "as it was")
    return place


def test_without_a_writable_place_the_cache_is_a_folder_of_this_run(nowhere: Path) -> None:
    kernels.require_cache()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.is_dir() and os.access(folder, os.W_OK)
    assert not kernels.keeps_compiled() and not kernels.compiled_before()


def test_the_user_hears_that_nothing_is_kept(nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_first_run(Console())
    assert capsys.readouterr().err.startswith(
        "note: compiling kernels, some 10 seconds in every run: set NUMBA_CACHE_DIR"
    )


@pytest.mark.parametrize("inside", [".", "not/yet/there"])
def test_a_writable_place_is_left_to_numba(inside: str, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_cache_places", lambda: [nowhere, nowhere.parents[1] / inside])
    kernels.require_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == "as it was"


def test_kernels_run_without_a_home_and_leave_nothing(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\nfrom easybalance_sim import kernels\n"
        f"kernels._cache_places = lambda: [Path({str(SAMPLE / 'cache')!r})]\n"
        "import numpy as np\n"
        "print(kernels.load().local_rows(np.zeros(3, np.int32), np.array([0, 1, 0], np.int16), 2).tolist())\n"
    )
    done = python("-c", script, env={"TMPDIR": str(tmp_path), "HOME": "/nonexistent"})
    assert (done.returncode, done.stdout) == (0, "[0, 0, 1]\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unsettled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No device was chosen and no GPU looked for yet."""
    monkeypatch.setitem(kernels._used, "device", "auto")
    monkeypatch.delenv("EBSIM_DEVICE", raising=False)
    kernels.gpu_fault.cache_clear()
    yield
    kernels.gpu_fault.cache_clear()


def cupy_that(count: Any) -> Any:
    """A cupy whose count of devices is what a function says."""
    return SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=count)))


def no_driver() -> int:
    raise RuntimeError("cudaErrorInsufficientDriver: too old\nmore")


def the_module(name: str = "auto") -> str:
    return kernels.load(name).__name__.rpartition(".")[2]


@pytest.mark.parametrize(
    ("count", "fault"),
    [(no_driver, "RuntimeError: cudaErrorInsufficientDriver: too old"), (lambda: 0, "there is no device")],
)
def test_a_gpu_that_cannot_be_used_leaves_the_cpu(count: Any, fault: str, unsettled: None) -> None:
    with gpu_kernels(cupy_that(count)):
        assert kernels.gpu_fault() == fault
        assert the_module() == "numba_cpu"
        for name in ("cuda", "auto"):
            kernels.use("gpu")
            with pytest.raises(RuntimeError, match=f"no usable GPU: {fault}"):
                kernels.load(name)


def test_without_cupy_nothing_is_looked_for(unsettled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "easybalance_sim.kernels.cupy_gpu", raising=False)
    monkeypatch.delitem(sys.modules, "easybalance_sim.kernels.cupy_tiles", raising=False)
    assert kernels.gpu_fault() == kernels.NO_CUPY
    assert the_module() == "numba_cpu"


def test_a_cupy_that_does_not_load_is_told(unsettled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> ModuleType:
        raise ImportError("libcuda.so.1: cannot open\nmore")

    monkeypatch.setattr(kernels, "_module", broken)
    assert kernels.gpu_fault() == "ImportError: libcuda.so.1: cannot open"


def test_a_gpu_that_works_is_taken_unless_the_cpu_is_chosen(unsettled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu_kernels(cupy_that(lambda: 1)) as module:
        monkeypatch.setattr(module, "fault", lambda: "")
        assert the_module() == "cupy_gpu"
        assert kernels.layers_at_once() == kernels.GPU_LAYERS
        monkeypatch.setenv("EBSIM_DEVICE", "cpu")
        assert the_module() == "numba_cpu"
        assert kernels.layers_at_once() == len(os.sched_getaffinity(0))
        kernels.use("gpu")
        assert the_module() == "cupy_gpu"
        kernels.use("cpu")
        assert the_module() == "numba_cpu"
        assert the_module("cuda") == "cupy_gpu"


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no kernel backend 'nope'; there are auto, reference, numba, cuda"):
        kernels.load("nope")
    with pytest.raises(ValueError, match="no device 'nope'; there are auto, cpu, gpu"):
        kernels.use("nope")


def test_every_backend_has_every_kernel() -> None:
    names = kernels.load("reference").__all__
    assert kernels.load("numba").__all__ == names
    with gpu_kernels(cupy_that(lambda: 1)) as module:
        assert module.__all__ == names
        assert all(callable(getattr(module, name)) for name in names)
        assert module.greedy is kernels.load("numba").greedy
        with pytest.raises(AttributeError, match="has no attribute 'nope'"):
            _ = module.nope
