"""Stored replies of SGLang and vLLM with made-up routing, and their import."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion, Converted

# Two dense layers, then three MoE layers of 8 experts, top-2; 3 prompt tokens and 3 generated: 5 rows.
LAYERS, HIDDEN, EXPERTS, TOP_K, PROMPT, GENERATED = (2, 3, 4), 5, 8, 2, 3, 3
SHAPE: dict[str, Any] = {"experts": EXPERTS, "top_k": TOP_K, "layers": LAYERS, "order": "file", "drain": True}


def routing(tokens: int = PROMPT + GENERATED - 1, seed: int = 0) -> AnyArray:
    """int32[tokens, HIDDEN, K] as engines give it: zeros in the dense layers."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((tokens, HIDDEN, TOP_K), np.int32)
    chosen = rng.random((tokens, len(LAYERS), EXPERTS)).argsort(axis=2)[:, :, :TOP_K]
    ids[:, list(LAYERS)] = chosen
    return ids


def text(blob: bytes) -> str:
    return base64.b64encode(blob).decode()


def npy(ids: AnyArray) -> str:
    stream = io.BytesIO()
    np.save(stream, ids)
    return text(stream.getvalue())


def sglang(ids: AnyArray, **more: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": PROMPT, "completion_tokens": len(ids) + 1 - PROMPT}
    return {"text": "…", "meta_info": counts | {"routed_experts": text(ids.astype("<i4").tobytes())} | more}


def vllm(ids: AnyArray, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": PROMPT, "completion_tokens": len(ids) + 1 - PROMPT}
    choice = {"index": 0, "routed_experts": npy(ids.astype(np.uint8))}
    return {"id": "cmpl-1", "model": "my/moe", "choices": [choice], "usage": usage} | more


def store(path: Path, *found: Any) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in found))
    return path


def run(kind: str, source: Path, output: Path, **settings: Any) -> Converted:
    known = {name: value for name, value in (SHAPE | settings).items() if value is not None}
    (written,) = importers.load(kind).convert(Conversion(source=source, output=output, **known))
    return written
