"""Peers of the greedy: SGLang's two ports of EPLB and vLLM's numpy form, from where the user has them.

    pip install torch && pip download --no-deps vllm==0.33.0
    export EBSIM_VLLM=$PWD/$(ls vllm-0.33.0-*.whl)

EBSIM_VLLM names a wheel or a folder that holds `vllm/`; without it an installed vLLM is taken. Only its policy file and
that file's abstract parent are run, the package is not imported; they need torch. SGLang: see `sglang_ports`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from easybalance_sim.arrays import FloatArray
from tests.bench.sglang_ports import sglang_ports

VARIABLE = "EBSIM_VLLM"
FOLDER = "vllm/distributed/eplb/policy"
PACKAGE = "vllm_eplb_policy"


def peers(weight: FloatArray, ranks: int, slots: int) -> dict[str, Callable[[], Any]]:
    """By name, what makes a plan of float64[L, E] loads on `slots` slots, all ranks equal and no groups; on one core.

    What cannot be found is left out, with the reason printed.
    """
    found: dict[str, Callable[[], Any]] = {}
    sglang, vllm = sglang_ports(), vllm_policy()
    if sglang is None and vllm is None:
        return found
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    loads = torch.tensor(weight)
    if sglang is not None:
        found["SGLang deepseek"] = lambda: sglang.deepseek.rebalance_experts(loads, slots, 1, 1, ranks, False)
        found["SGLang deepseek_vec"] = lambda: sglang.deepseek_vec.rebalance_experts(
            loads[None], slots, slots // ranks, 1, 1, False
        )
    if vllm is not None:
        found["vLLM default"] = lambda: vllm.rebalance_experts(loads, slots, 1, 1, ranks)
    return found


def vllm_policy() -> Any:
    """vLLM's `DefaultEplbPolicy`, or None with the reason printed."""
    try:
        importlib.import_module("torch")
        return _policy_module(_root() / FOLDER).DefaultEplbPolicy
    except ImportError as reason:
        print(f"\nvLLM's policy is left out: {reason}", flush=True)
        return None


def _root() -> Path:
    """Where `vllm/` lies."""
    if given := os.environ.get(VARIABLE):
        return Path(given).resolve()
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"vllm is not installed and {VARIABLE} names no wheel or folder")
    return Path(next(iter(spec.submodule_search_locations))).parent


def _policy_module(folder: Path) -> ModuleType:
    """The file in a package of its own, which stands in for those that import the whole engine."""
    package = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[PACKAGE] = package
    return importlib.import_module(f"{PACKAGE}.default")
