"""Hot loops on plain arrays. `load` returns a module; callers never branch on the device.

`reference` is naive loops and is the specification; `numba_cpu` is the same functions compiled, `cupy_gpu` too, with
those that have a CUDA twin on the GPU.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType

from easybalance_sim.kernels.threads import cores

BACKENDS = ("auto", "reference", "numba", "cuda")
DEVICES = ("auto", "cpu", "gpu")
DEVICE_VARIABLE = "EBSIM_DEVICE"
"""Environment variable that says where `auto` kernels run as long as `use` was not told."""

NO_CUPY = "cupy is not installed"

GPU_LAYERS = 64

_MODULES = {"reference": "reference", "numba": "numba_cpu", "cuda": "cupy_gpu"}
_used = {"device": "auto"}


def load(name: str = "auto") -> ModuleType:
    """The kernel module of a backend: `auto` is the fastest that runs on the device in use.

    Raises ValueError for a name that is not in `BACKENDS`, RuntimeError for `cuda`, or `auto` where the GPU was
    demanded, without a GPU that works.
    """
    if name not in BACKENDS:
        raise ValueError(f"no kernel backend {name!r}; there are {', '.join(BACKENDS)}")
    if name == "auto":
        name = _fastest()
    if name == "cuda" and gpu_fault():
        raise RuntimeError(f"no usable GPU: {gpu_fault()}")
    return _module(name)


def use(device: str) -> None:
    """Where `auto` kernels run from now on.

    `cpu`, `gpu`, or `auto`: what EBSIM_DEVICE says, else a GPU that works, else the CPU. Raises ValueError for a name
    that is not in `DEVICES`.
    """
    if device not in DEVICES:
        raise ValueError(f"no device {device!r}; there are {', '.join(DEVICES)}")
    _used["device"] = device


def device_in_use() -> str:
    """`cpu`, `gpu` or `auto`, as `use` or EBSIM_DEVICE say. The variable's text is returned as it is."""
    said = _used["device"]
    return said if said != "auto" else os.environ.get(DEVICE_VARIABLE) or "auto"


@cache
def gpu_fault() -> str:
    """Why kernels cannot run on a GPU, `NO_CUPY` without cupy; empty when they can. Looked up once."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return str(_module("cuda").fault())
    except ModuleNotFoundError as error:
        return NO_CUPY if error.name == "cupy" else str(error)
    # An installed cupy whose libraries are missing raises what its loader raises.
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _module(backend: str) -> ModuleType:
    if backend != "reference" and "numba" not in sys.modules:
        require_cache()
    return importlib.import_module(f"easybalance_sim.kernels.{_MODULES[backend]}")


def in_use() -> str:
    """Where `auto` kernels run, in words."""
    if _fastest() == "cuda":
        return f"kernels on the GPU ({_module('cuda').device_name()})"
    return f"kernels on the CPU ({cores()} cores)"


def layers_at_once() -> int:
    """Layers that a search is best given together: one for each core in use, on a GPU as many as large models have."""
    return GPU_LAYERS if _fastest() == "cuda" else cores()


def _fastest() -> str:
    device = device_in_use()
    return "cuda" if device == "gpu" or (device != "cpu" and not gpu_fault()) else "numba"


def compiled_before() -> bool:
    """Whether numba's cache already holds kernels, so that this run need not compile them all."""
    return any(next(place.rglob("numba_dispatch.*.nbi"), None) is not None for place in _cache_places())


def keeps_compiled() -> bool:
    """Whether numba has a place where what it compiles outlives the program."""
    return any(_writable(place) for place in _cache_places())


def require_cache() -> None:
    """Where numba could keep nothing it refuses to compile at all: give it a folder that goes when the program ends."""
    if not keeps_compiled():
        folder = tempfile.mkdtemp(prefix="ebsim-kernels-")
        os.environ["NUMBA_CACHE_DIR"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _cache_places() -> list[Path]:
    """Where numba looks, without importing it: NUMBA_CACHE_DIR, else beside the kernels, else the user's cache."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(os.environ["NUMBA_CACHE_DIR"])]
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 — raises without a home
    return [Path(__file__).parent / "__pycache__", Path(user) / "numba"]


def _writable(folder: Path) -> bool:
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
