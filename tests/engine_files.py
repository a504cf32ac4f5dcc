"""Texts of placement files as each engine writes them, right or wrong."""

from __future__ import annotations

import json
from typing import Any

GOOD = [[0, 1, 2, 3, 0, 1], [0, 2, 1, 3, 2, 0]]
"""Two layers, four experts, two ranks of three slots: nothing is wrong with it anywhere."""


def sglang(rows: Any, **more: Any) -> str:
    return json.dumps({"physical_to_logical_map": rows, **more})


def trtllm(rows: Any, slots: Any = 6, keys: tuple[Any, ...] = (0, 1), **more: Any) -> str:
    """JSON is YAML, but for its keys: those are written bare."""
    lines = [f"  {key}: {json.dumps(row)}" for key, row in zip(keys, rows, strict=True)]
    extra = [f"{key}: {json.dumps(value)}" for key, value in more.items()]
    return "\n".join([f"num_slots: {json.dumps(slots)}", "initial_global_assignments:", *lines, *extra, ""])


def record(rows: Any, **said: Any) -> str:
    content = {
        "record_type": "eplb_initial_mapping",
        "version": 1,
        "num_redundant_experts": 2,
        "num_slots": 6,
        "initial_global_assignments": {str(layer): row for layer, row in enumerate(rows)},
    }
    return json.dumps({**content, **said}) + "\n"


def ascend(layers: Any, **said: Any) -> str:
    listed = [
        {
            "layer_id": layer,
            "device_count": len(devices),
            "device_list": [{"device_id": rank, "device_expert": row} for rank, row in enumerate(devices)],
        }
        for layer, devices in enumerate(layers)
    ]
    return json.dumps({"moe_layer_count": len(layers), "layer_list": listed, **said})


def halves(rows: Any) -> Any:
    """Rows as two devices each."""
    return [[row[: len(row) // 2], row[len(row) // 2 :]] for row in rows]


def second(row: list[Any]) -> list[Any]:
    """The good rows with another second one."""
    return [GOOD[0], row]
