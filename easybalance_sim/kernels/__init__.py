"""Hot loops on plain arrays. `load` returns a module; callers never branch on the device.

`reference` is naive loops and is the specification; `numba_cpu` is the same functions compiled.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType

BACKENDS = ("auto", "reference", "numba")


def load(name: str = "auto") -> ModuleType:
    """The kernel module of a backend: `auto` is the fastest that runs here.

    Raises ValueError for a name that is not in `BACKENDS`.
    """
    if name not in BACKENDS:
        raise ValueError(f"no kernel backend {name!r}; there are {', '.join(BACKENDS)}")
    module = "reference" if name == "reference" else "numba_cpu"
    return importlib.import_module(f"easybalance_sim.kernels.{module}")


def compiled_before() -> bool:
    """Whether numba's cache already holds kernels, so that this run need not compile them all.

    Looks where numba looks, without importing it: NUMBA_CACHE_DIR, `__pycache__` beside the kernels, else the user's
    cache folder.
    """
    here = Path(__file__).parent
    places = [here / "__pycache__", Path.home() / ".cache" / "numba"]
    if os.environ.get("NUMBA_CACHE_DIR"):
        places = [Path(os.environ["NUMBA_CACHE_DIR"])]
    return any(next(place.rglob("numba_dispatch.*.nbi"), None) is not None for place in places)
