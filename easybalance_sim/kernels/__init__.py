"""Hot loops on plain arrays. `load` returns a module; callers never branch on the device.

`reference` is naive loops and is the specification; `numba_cpu` is the same functions compiled.
"""

from __future__ import annotations

import importlib
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
