"""Every CUDA source compiles for the GPUs in use, by NVIDIA's own compiler, on a machine without one."""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from easybalance_sim.kernels import cuda
from tests.conftest import PARITY

ARCHITECTURES = {"sm_80": "A100", "sm_90": "H100, H200", "sm_100": "B200"}


class Nvrtc:
    """The compiler library of the wheel `nvidia-cuda-nvrtc`."""

    def __init__(self) -> None:
        try:
            files = importlib.metadata.files("nvidia-cuda-nvrtc") or []
        except importlib.metadata.PackageNotFoundError:
            pytest.fail("nvidia-cuda-nvrtc is not installed: pip install -e '.[dev]'")
        (path,) = (file for file in files if file.name.startswith("libnvrtc.so"))
        self._library = ctypes.CDLL(str(Path(str(path.locate()))))

    def cubin(self, source: str, architecture: str) -> bytes:
        """Machine code. Raises ValueError with the compiler's log when it refuses."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        options = [option.encode() for option in (f"--gpu-architecture={architecture}", *cuda.OPTIONS)]
        try:
            if self._library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
                raise ValueError(self._bytes("nvrtcGetProgramLog", program).decode())
            return self._bytes("nvrtcGetCUBIN", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, name: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{name}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(name, program, content)
        return content.raw

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        assert code == 0, f"{name} returned {code}"


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc()


def test_every_source_compiles_for_every_architecture(
    nvrtc: Nvrtc, record_property: Callable[[str, object], None]
) -> None:
    compiled = 0
    for name, entries in cuda.ENTRIES.items():
        for architecture in ARCHITECTURES:
            code = nvrtc.cubin(cuda.source(name), architecture)
            assert code[:4] == b"\x7fELF"
            assert all(entry.encode() in code for entry in entries)
            compiled += 1
    assert compiled == len(cuda.ENTRIES) * len(ARCHITECTURES)
    record_property(PARITY, f"3 NVRTC: {compiled} compiled, {len(cuda.ENTRIES)} sources for {', '.join(ARCHITECTURES)}")


def test_every_file_is_named() -> None:
    assert sorted(path.stem for path in Path(cuda.__file__).parent.glob("*.cu")) == list(cuda.ENTRIES)


def test_a_fault_in_a_source_is_told(nvrtc: Nvrtc) -> None:
    with pytest.raises(ValueError, match='identifier "kolumn" is undefined'):
        nvrtc.cubin(cuda.source("count_windows").replace("/ top_k", "/ kolumn"), "sm_90")


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(
        ValueError, match="no CUDA kernel 'nope'; there are count_windows, dispatch, score_plans, search, turns"
    ):
        cuda.source("nope")
