"""SGLang's two EPLB planners as peers in the same run, read from an installed SGLang or from its wheel.

    pip download --no-deps sglang==0.5.23
    EBSIM_SGLANG=sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl python -m pytest -m bench tests/bench -q -s

EBSIM_SGLANG names a wheel or a folder that holds `sglang/`; without it an installed SGLang is taken. Only the two
planner files are run, the package is not imported; they need torch. Two replicas on one rank are left as they come.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan

VARIABLE = "EBSIM_SGLANG"
FOLDER = "sglang/srt/eplb/eplb_algorithms"


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The two modules, as SGLang 0.5.23 has them, and torch."""

    deepseek: Any
    deepseek_vec: Any
    torch: Any

    def plans(self, windows: IntArray, topology: Topology) -> dict[str, Plan]:
        """Plans by name, without groups of experts. windows: int64[W, L, E], summed for `deepseek`, one by one for
        `deepseek_vec`, which replicates for the sum over windows of the largest replica; it may choose badly where
        loads tie."""
        counts, ranks = self.torch.from_numpy(np.array(windows)), topology.ranks
        slots, per_rank = topology.slots, topology.slots // ranks
        placed = {
            "deepseek": self.deepseek.rebalance_experts(counts.sum(dim=0), slots, 1, 1, ranks, False),
            "deepseek_vec": self.deepseek_vec.rebalance_experts(counts, slots, per_rank, 1, 1, False),
        }
        return {
            name: Plan(
                expert_of_slot=found[0].numpy(),
                slots_per_rank=topology.slots_per_rank,
                experts=windows.shape[2],
                policy=f"sglang {name}",
            )
            for name, found in placed.items()
        }


@cache
def sglang_ports() -> Ports | None:
    """The peers, or None with the reason printed."""
    try:
        torch, folder = importlib.import_module("torch"), _root() / FOLDER
        return Ports(deepseek=_module(folder, "deepseek"), deepseek_vec=_module(folder, "deepseek_vec"), torch=torch)
    except ImportError as reason:
        print(f"\nSGLang's ports are left out: {reason}", flush=True)
        return None


def _root() -> Path:
    """Where `sglang/` lies."""
    if given := os.environ.get(VARIABLE):
        return Path(given).resolve()
    spec = find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"sglang is not installed and {VARIABLE} names no wheel or folder")
    return Path(next(iter(spec.submodule_search_locations))).parent


def _module(folder: Path, name: str) -> Any:
    """One file as a module of its own: the package around it imports the whole engine."""
    spec = PathFinder.find_spec(name, [str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder}/{name}.py is not there")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
