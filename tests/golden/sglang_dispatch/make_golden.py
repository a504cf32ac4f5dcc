"""Makes `sglang_dispatch.npz`: where SGLang 0.5.23 sends the tokens of every rank under loaded plans.

    pip download --no-deps sglang==0.5.23 && unzip sglang-*.whl 'sglang/srt/eplb/*' -d ROOT
    pip install torch==2.13.0 numpy
    python tests/golden/sglang_dispatch/make_golden.py ROOT

Each plan is loaded by `compute_initial_expert_location_metadata` on every rank, with an all-to-all backend and the
dispatch algorithm `static`; the modules that it asks for its settings are replaced by stand-ins.
Per case `<name>/…`: shape = [ranks, slots per rank, nodes], plan [L, P], table [R, L, E] slot of the static algorithm,
candidates [R, L, E, X] slots that the dynamic algorithm draws from, -1 padded.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LAYERS = 3

# name: (experts, ranks, slots per rank, nodes, may a rank hold an expert twice)
CASES = {
    "no_redundancy": (16, 8, 2, 2, False),
    "one_node": (16, 8, 3, 1, False),
    "one_rank": (6, 1, 6, 1, False),
    "two_nodes": (32, 8, 6, 2, False),
    "four_nodes": (60, 16, 5, 4, False),
    "two_ranks_per_node": (12, 8, 3, 4, False),
    "hot_experts": (8, 16, 4, 1, False),
    "twice_on_a_rank": (8, 4, 5, 2, True),
}


def main(root: Path, out: Path) -> None:
    """Load every case on every rank and write what came out."""
    settings = SimpleNamespace(state=SimpleNamespace())
    _stand_in(root, settings)
    rng = np.random.default_rng(20260102)
    arrays: dict[str, Array] = {}
    for name, (experts, ranks, slots, nodes, twice) in CASES.items():
        plan = np.stack([_random_layer(rng, experts, ranks, slots, twice) for _ in range(LAYERS)])
        loaded = [_load(plan, experts, ranks, nodes, rank, settings) for rank in range(ranks)]
        width = max(int((one.logical_to_all_physical_map >= 0).sum(dim=-1).max()) for one in loaded)
        arrays[f"{name}/shape"] = np.array([ranks, slots, nodes])
        arrays[f"{name}/plan"] = plan.astype(np.int16)
        arrays[f"{name}/table"] = np.stack(
            [one.logical_to_rank_dispatch_physical_map.numpy() for one in loaded]
        ).astype(np.int16)
        arrays[f"{name}/candidates"] = np.stack(
            [one.logical_to_all_physical_map[..., :width].numpy() for one in loaded]
        ).astype(np.int16)
    np.savez_compressed(out, allow_pickle=False, **arrays)


def _random_layer(rng: np.random.Generator, experts: int, ranks: int, slots: int, twice: bool) -> Array:
    """One layer [P] in which every expert has a replica and, unless `twice`, no rank holds an expert twice."""
    favour = 1 / np.arange(1, experts + 1)
    while True:
        spare = rng.choice(experts, ranks * slots - experts, p=favour / favour.sum())
        layer = rng.permutation(np.concatenate([np.arange(experts), spare])).reshape(ranks, slots)
        for _ in range(10_000):
            bad = [rank for rank in range(ranks) if len(set(layer[rank].tolist())) < slots]
            if twice or not bad:
                return layer.ravel()
            a, b = (bad[0], rng.integers(slots)), (rng.integers(ranks), rng.integers(slots))
            layer[a], layer[b] = layer[b], layer[a]


def _load(plan: Array, experts: int, ranks: int, nodes: int, rank: int, settings: SimpleNamespace) -> Any:
    settings.state.parallel = SimpleNamespace(
        ep_size=ranks, nnodes=nodes, tp_size=ranks, elastic_ep_initial_size=None, ep_join_rank_offset=0
    )
    moe = SimpleNamespace(
        ep_num_redundant_experts=plan.shape[1] - experts,
        ep_join_mode=None,
        moe_a2a_backend="deepep",
        ep_dispatch_algorithm="static",
        eplb_algorithm="auto",
        init_expert_location=json.dumps({"physical_to_logical_map": plan.tolist()}),
    )
    settings.state.exec = SimpleNamespace(moe=moe)
    location = importlib.import_module("sglang.srt.eplb.expert_location")
    settings.state.model = location.ModelConfigForExpertLocation(num_layers=len(plan), num_logical_experts=experts)
    return location.compute_initial_expert_location_metadata(SimpleNamespace(hf_config=None), rank)


def _stand_in(root: Path, settings: SimpleNamespace) -> None:
    """Register the package folders without running their `__init__`, and modules that answer from `settings`."""
    for name in ("sglang", "sglang.srt", "sglang.srt.eplb", "sglang.srt.elastic_ep"):
        package = ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = package
    answers: dict[str, dict[str, Any]] = {
        "sglang.srt.runtime_context": {
            "get_device": lambda: SimpleNamespace(device="cpu"),
            "get_exec": lambda: settings.state.exec,
            "get_parallel": lambda: settings.state.parallel,
            "get_resources": lambda: SimpleNamespace(expert_location_metadata=None),
        },
        "sglang.srt.elastic_ep.elastic_ep": {"elastic_expanded_world_enabled": lambda: False},
        "sglang.srt.model_loader": {"get_model_architecture": lambda config: (_model(settings), "Model")},
    }
    for name, functions in answers.items():
        module = ModuleType(name)
        vars(module).update(functions)
        sys.modules[name] = module


def _model(settings: SimpleNamespace) -> Any:
    return SimpleNamespace(get_model_config_for_expert_location=lambda hf_config: settings.state.model)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_name("sglang_dispatch.npz"))
