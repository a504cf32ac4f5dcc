"""Makes `sglang_eplb.npz`: what SGLang 0.5.23's port of DeepSeek's EPLB plans for random loads.

    pip download --no-deps sglang==0.5.23 && unzip sglang-*.whl 'sglang/srt/eplb/eplb_algorithms/deepseek.py'
    pip install torch==2.13.0 numpy
    python tests/golden/eplb/make_golden.py sglang/srt/eplb/eplb_algorithms/deepseek.py

Per case `<name>/…`: shape = [ranks, slots per rank, groups, nodes], loads [L, E], counts [L, E] replicas, rank_loads
[L, R] loads of the ranks in ascending order, duplicates [L] replicas that share a rank with another of their expert.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LAYERS = 4

# name: (experts, ranks, slots per rank, groups, nodes, spread of the lognormal loads); groups = nodes = 1 is global
CASES = {
    "e32_r8x5": (32, 8, 5, 1, 1, 1.0),
    "e60_r12x6": (60, 12, 6, 1, 1, 0.7),
    "e64_r8x10": (64, 8, 10, 1, 1, 0.8),
    "e128_r16x9": (128, 16, 9, 1, 1, 1.3),
    "e256_r8x32": (256, 8, 32, 1, 1, 0.6),
    "e256_r8x36": (256, 8, 36, 1, 1, 1.0),
    "e256_r32x9": (256, 32, 9, 1, 1, 1.0),
    "e256_r64x5": (256, 64, 5, 1, 1, 1.0),
    "e256_r144x2": (256, 144, 2, 1, 1, 0.6),
    "h64_g8n2_r8x10": (64, 8, 10, 8, 2, 0.8),
    "h256_g8n2_r16x18": (256, 16, 18, 8, 2, 1.0),
    "h256_g8n4_r32x9": (256, 32, 9, 8, 4, 1.0),
    "h256_g8n8_r64x5": (256, 64, 5, 8, 8, 1.0),
}


def main(port: Path, out: Path) -> None:
    """Run every case through the port and write the numbers."""
    spec = importlib.util.spec_from_file_location("deepseek", port)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{port}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rng = np.random.default_rng(20260101)
    arrays: dict[str, Array] = {}
    for name, (experts, ranks, slots, groups, nodes, spread) in CASES.items():
        loads = (rng.lognormal(11.0, spread, (LAYERS, experts))).astype(np.int32)
        plan = _planned(module, loads, ranks * slots, groups, nodes, ranks).reshape(LAYERS, ranks, slots)
        arrays |= {f"{name}/{key}": value for key, value in _figures(loads, plan).items()}
        arrays[f"{name}/shape"] = np.array([ranks, slots, groups, nodes])
        arrays[f"{name}/loads"] = loads
    np.savez_compressed(out, allow_pickle=False, **arrays)


def _planned(module: Any, loads: Array, slots: int, groups: int, nodes: int, ranks: int) -> Array:
    torch = importlib.import_module("torch")
    weight = torch.from_numpy(loads.astype(np.float32))
    plan, _, _ = module.rebalance_experts(weight, slots, groups, nodes, ranks, enable_hierarchical=nodes > 1)
    expert_of_slot: Array = plan.numpy()
    return expert_of_slot


def _figures(loads: Array, plan: Array) -> dict[str, Array]:
    layers, experts = loads.shape
    counts = np.stack([np.bincount(plan[layer].ravel(), minlength=experts) for layer in range(layers)])
    unit = np.stack([(loads / counts)[layer][plan[layer]] for layer in range(layers)])
    duplicates = [sum(len(rank) - len(set(rank.tolist())) for rank in layer) for layer in plan]
    return {
        "counts": counts.astype(np.int16),
        "rank_loads": np.sort(unit.sum(axis=-1), axis=-1),
        "duplicates": np.array(duplicates, np.int16),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_name("sglang_eplb.npz"))
