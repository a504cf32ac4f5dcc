"""Hot loops on plain arrays. `load` returns a module; callers never branch on the device.

`reference` is naive loops and is the specification; `numba_cpu` is the same functions compiled.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

BACKENDS = ("auto", "reference", "numba")


def load(name: str = "auto") -> ModuleType:
    """The kernel module of a backend: `auto` is the fastest that runs here.

    Raises ValueError for a name that is not in `BACKENDS`.
    """
    if name not in BACKENDS:
        raise ValueError(f"no kernel backend {name!r}; there are {', '.join(BACKENDS)}")
    if name == "reference":
        return importlib.import_module("easybalance_sim.kernels.reference")
    if "numba" not in sys.modules:
        require_cache()
    return importlib.import_module("easybalance_sim.kernels.numba_cpu")


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
