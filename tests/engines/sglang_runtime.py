"""SGLang 0.5.23's own plan loader and load recorder, run without a GPU and without starting the engine.

    pip install torch einops && pip install --no-deps sglang==0.5.23 && pytest -m engine_loader

EBSIM_SGLANG names a wheel or a folder that holds `sglang/`; without it an installed SGLang is taken. Only files of
`sglang/srt/eplb` are run. What they ask the rest of the engine for is answered by stand-ins: its settings, the model's
numbers of layers and experts, the profiler's batch type and metrics.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

VERSION = "0.5.23"
VARIABLE = "EBSIM_SGLANG"
PACKAGES = ("sglang", "sglang.srt", "sglang.srt.eplb")
TOP_K_WIDTH = 8
"""Columns of the recorder's table of single tokens, whatever the model's top-k is."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What SGLang is started with. ranks: --ep-size · nodes: --nnodes · experts, hidden_layers: of the model ·
    redundant: --ep-num-redundant-experts · a2a, dispatch: --moe-a2a-backend, --ep-dispatch-algorithm · recorder,
    buffer: --expert-distribution-recorder-mode, -buffer-size."""

    ranks: int
    experts: int
    hidden_layers: int
    redundant: int
    nodes: int = 1
    a2a: str = "deepep"
    dispatch: str = "static"
    recorder: str | None = None
    buffer: int = -1

    def moe(self, location: str) -> SimpleNamespace:
        """The engine's settings of its experts."""
        return SimpleNamespace(
            ep_num_redundant_experts=self.redundant,
            ep_join_mode=None,
            moe_a2a_backend=self.a2a,
            deepep_mode="normal",
            elastic_ep_backend=None,
            ep_dispatch_algorithm=self.dispatch,
            eplb_algorithm="auto",
            init_expert_location=location,
            expert_distribution_recorder_mode=self.recorder,
            expert_distribution_recorder_buffer_size=self.buffer,
            expert_balancedness_report_mode="off",
            eplb_min_rebalancing_utilization_threshold=1.0,
        )


@dataclass(frozen=True, kw_only=True)
class ForwardBatch:
    """What the recorder reads of a batch; input_ids, positions: int64[T] tensors · forward_mode: 1 extend, 2 decode."""

    input_ids: Any
    positions: Any
    extend_seq_lens_cpu: list[int] | None
    forward_mode: Any


class SGLang:
    """The engine's own modules with stand-ins around them; one per process, made by `running`."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.settings: dict[str, Any] = {}

    def load(self, plan: str | Path, serving: Serving, rank: int = 0) -> Any:
        """`ExpertLocationMetadata` as rank `rank` builds it from --init-expert-location `plan` (a path or the JSON)."""
        self._serve(serving, str(plan))
        location = importlib.import_module("sglang.srt.eplb.expert_location")
        self.settings["model"] = location.ModelConfigForExpertLocation(
            num_layers=serving.hidden_layers, num_logical_experts=serving.experts
        )
        return location.compute_initial_expert_location_metadata(SimpleNamespace(hf_config=None), rank)

    def recorder(self, metadata: Any, serving: Serving, rank: int, folder: Path) -> Any:
        """A started `ExpertDistributionRecorder` of one rank that dumps to `folder`."""
        self._serve(serving, "")
        self.settings["folder"] = str(folder)
        distribution = importlib.import_module("sglang.srt.eplb.expert_distribution")
        recorder = distribution.ExpertDistributionRecorder.init_new(metadata, rank)
        recorder.start_record()
        return recorder

    def replicas(self, metadata: Any, layer: int, expert: int) -> list[int]:
        """Slots of this rank's view that hold an expert, as the weight loader asks for them."""
        return list(metadata.logical_to_all_physical(layer, expert))

    def _serve(self, serving: Serving, location: str) -> None:
        self.settings["exec"] = SimpleNamespace(
            moe=serving.moe(location), overlap=SimpleNamespace(enable_two_batch_overlap=False)
        )
        self.settings["parallel"] = SimpleNamespace(
            ep_size=serving.ranks, tp_size=serving.ranks, nnodes=serving.nodes,
            elastic_ep_initial_size=None, ep_join_rank_offset=0,
        )  # fmt: skip


@contextmanager
def running() -> Iterator[SGLang]:
    """SGLang's modules, importable until the end; nothing may be `missing`."""
    torch = importlib.import_module("torch")
    engine = SGLang(torch)
    before = {name: sys.modules[name] for name in sys.modules if name.split(".")[0] == "sglang"}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in {**_packages(_root()), **_stand_ins(engine)}.items():
            patch.setitem(sys.modules, name, module)
        # The recorder asks whether a CUDA graph is being captured, and empties the device's cache.
        device = SimpleNamespace(is_current_stream_capturing=lambda: False, empty_cache=lambda: None)
        patch.setattr(torch, "get_device_module", lambda *asked: device)
        yield engine
        for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
            del sys.modules[name]
    sys.modules.update(before)


def missing() -> str:
    """What is not installed, "" when the engine can run."""
    absent = [name for name in ("torch", "einops") if find_spec(name) is None]
    return ", ".join([*absent, *(() if _root() else ("sglang",))])


@cache
def _root() -> str:
    """The folder, or the wheel, that `sglang/` lies in; "" when there is none."""
    if given := os.environ.get(VARIABLE):
        return str(Path(given).resolve())
    spec = find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        return ""
    return str(Path(next(iter(spec.submodule_search_locations))).parent)


def _packages(root: str) -> dict[str, ModuleType]:
    """The package folders without their `__init__`, which import the whole engine."""
    packages = {}
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [f"{root}/{name.replace('.', '/')}"]
        package.__spec__ = ModuleSpec(name, None, is_package=True)
        packages[name] = package
    return packages


def _stand_ins(engine: SGLang) -> dict[str, ModuleType]:
    """Modules that the files of `sglang/srt/eplb` import, with the names that they take from them."""
    settings = engine.settings
    model = SimpleNamespace(get_model_config_for_expert_location=lambda hf_config: settings["model"])
    recorder_folder = SimpleNamespace(get=lambda: settings["folder"])
    answers: dict[str, dict[str, Any]] = {
        "runtime_context": {
            "get_device": lambda: SimpleNamespace(device="cpu"),
            "get_exec": lambda: settings["exec"],
            "get_parallel": lambda: settings["parallel"],
            "get_platform": lambda: SimpleNamespace(is_hip=False),
            "get_resources": lambda: SimpleNamespace(expert_location_metadata=None, expert_distribution_recorder=None),
            "get_schedule": lambda: SimpleNamespace(chunked_prefill_size=16),
            "reports_expert_balancedness": lambda: False,
            "logs_expert_balancedness_to_server_log": lambda: False,
        },
        "elastic_ep": {"__path__": []},
        "elastic_ep.elastic_ep": {"elastic_expanded_world_enabled": lambda: False},
        "model_loader": {"get_model_architecture": lambda config: (model, "Model")},
        "environ": {"envs": SimpleNamespace(SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR=recorder_folder)},
        "layers": {"__path__": []},
        "layers.moe": {"get_moe_a2a_backend": SimpleNamespace},
        "model_executor": {"__path__": []},
        "model_executor.forward_batch_info": {"ForwardBatch": ForwardBatch, "ForwardMode": SimpleNamespace},
        "observability": {"__path__": []},
        "observability.metrics_collector": {
            "STAT_LOGGER_ROLE_EXPERT_DISPATCH": "",
            "ExpertDispatchCollector": SimpleNamespace,
            "resolve_collector_class": lambda role, default: default,
        },
        "utils": {"Withable": Withable, "get_device": lambda: "cpu", "get_int_env_var": lambda name, default: default},
    }
    return {f"sglang.srt.{name}": _module(f"sglang.srt.{name}", inside) for name, inside in answers.items()}


def _module(name: str, inside: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(inside)
    return module


class Withable:
    """A value that holds for the length of a `with`."""

    def __init__(self) -> None:
        self.value: Any = None

    @contextmanager
    def with_value(self, value: Any) -> Iterator[None]:
        """Hold `value` inside the block."""
        self.value = value
        try:
            yield
        finally:
            self.value = None
