"""Recordings of serving engines as their own files, small enough to follow by hand; PyTorch only where it is there."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.dataset import open_trace
from easybalance_sim.trace.schema import CountTrace
from easybalance_sim.trace.slot_map import SlotMap

MAP: IntArray = np.array([[0, 1, 2, 3, 0, 1], [0, 2, 1, 3, 2, 0]])
"""Two layers, four experts, six slots: the placement of all examples."""
IN_FORCE = SlotMap(expert_of_slot=MAP, experts=4, name="plan.json")


def run(kind: str, source: Path, output: Path, **settings: Any) -> Converted:
    """The one trace that an importer writes."""
    (written,) = importers.load(kind).convert(Conversion(source=source, output=output, **settings))
    return written


def counts_at(path: Path) -> CountTrace:
    """A written count trace, read back."""
    trace = open_trace([path])
    assert isinstance(trace, CountTrace)
    return trace


def torch_or_skip() -> Any:
    """PyTorch, or a skip that says what is missing, which is a failure where engines are required."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        absent = pytest.fail if os.environ.get("EBSIM_REQUIRE_ENGINES") else pytest.skip
        absent("PyTorch is not installed: pip install torch (CPU is enough)")


def stat(counts: AnyArray) -> dict[str, Any]:
    """A dump of SGLang's modes stat and stat_approx."""
    return {"rank": 0, "logical_count": counts, "average_utilization_rate_over_window": None}


def records(*passes: Mapping[str, Any], slots: AnyArray = MAP) -> dict[str, Any]:
    """A dump of SGLang's modes per_pass and per_token."""
    return {"records": [dict(one) for one in passes], "last_physical_to_logical_map": slots}


def one_pass(number: int, rank: int, counts: Any, **more: Any) -> dict[str, Any]:
    """A record of per_pass."""
    head = {"forward_pass_id": number, "rank": rank, "gatherer_key": "primary"}
    return {**head, "global_physical_count": np.array(counts, np.int32), **more}


def token_pass(number: int, rank: int, slots: Any, positions: Sequence[int], **more: Any) -> dict[str, Any]:
    """A record of per_token. slots: [T][H][k] slot ids, padded to the recorder's width with -1."""
    ids = np.array(slots, np.int32).reshape(len(positions), *np.array(slots).shape[1:])
    table = np.full((*ids.shape[:2], 8), -1, np.int32)
    table[:, :, : ids.shape[2]] = ids
    counts = np.zeros(MAP.shape, np.int32)
    for layer in range(len(MAP)):
        np.add.at(counts[layer], ids[:, layer][ids[:, layer] >= 0], 1)
    said = {"extend_seq_lens": None, "forward_mode": 2, "misc_objects": [], **more}
    return one_pass(
        number, rank, counts,
        input_ids=[0] * len(positions), positions=list(positions), topk_ids_of_layer=table.transpose(1, 0, 2), **said,
    )  # fmt: skip


def save_pt(path: Path, content: Any) -> Path:
    """`torch.save` with arrays as tensors."""
    torch = torch_or_skip()

    def tensors(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.ascontiguousarray(value))
        if isinstance(value, dict):
            return {key: tensors(inner) for key, inner in value.items()}
        return [tensors(inner) for inner in value] if isinstance(value, list) else value

    torch.save(tensors(content), path)
    return path


Dump = Callable[[str, Any], Path]
"""Puts a dump with this content under a name in the folder of the dumps."""


def dumps_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Dump:
    """Dumps whose content is handed over as it stands, so that what they mean is tested without PyTorch."""
    held: dict[Path, Any] = {}
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr("easybalance_sim.trace.sglang_dumps.read_pt", held.__getitem__)

    def put(name: str, content: Any) -> Path:
        path = folder / name
        path.touch()
        held[path] = content
        return path

    return put


def write_statistic(folder: Path, ranks: Sequence[Mapping[str, Any]], experts: int = 4, top_k: int = 2) -> Path:
    """A folder of TensorRT-LLM's expert_statistic; ranks: counts by "ITERATION_LAYER"."""
    folder.mkdir(exist_ok=True)
    (folder / "meta_info.json").write_text(json.dumps({"num_experts": experts, "num_experts_per_token": top_k}))
    for rank, counts in enumerate(ranks):
        save_file({key: np.array(row, np.int64) for key, row in counts.items()}, folder / f"rank{rank}.safetensors")
    return folder


def load_line(step: int, load: Any, slots: Any = None, **more: Any) -> str:
    """A line of vLLM's load file."""
    head = {"record_type": "eplb_load_stats", "version": 1, "step": step, "num_ranks": 2}
    rows = MAP.tolist() if slots is None else slots
    return json.dumps({**head, "expert_load": load, "p2l_map": rows, **more})
