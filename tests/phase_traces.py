"""Traces whose steps take turns between prefill, with many tokens, and decode, with few tokens per expert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.trace_files import Columns, joined, token_meta, write_trace

LAYERS, EXPERTS, TOP_K, RANKS = (3, 5), 32, 2, 8
PREFILL_TOKENS, DECODE_TOKENS = 2048, 32
WIDTHS: dict[str, Any] = {"hidden": 7168, "intermediate": 2048, "weight_dtype": "fp8_block"}
"""Of DeepSeek-V3: seconds are calibrated, and reading an expert's weights costs."""


def phase_steps(phase: str, first_step: int, steps: int, tokens: int) -> Columns:
    """`steps` steps of `tokens` requests of one token; every layer has its own log-normal skew, the same throughout."""
    weight = np.exp(np.random.default_rng(7).normal(0, 1.3, (len(LAYERS), EXPERTS)))
    step, slot = np.repeat(np.arange(first_step, first_step + steps), tokens), np.tile(np.arange(tokens), steps)
    race = np.random.default_rng(first_step).exponential(size=(len(step), len(LAYERS), EXPERTS)) / weight
    return {
        "step": step.astype(np.int32),
        "request": step * PREFILL_TOKENS + slot,
        "position": np.zeros(len(step), np.int32),
        "phase": np.full(len(step), phase),
        "source_rank": (slot % RANKS).astype(np.int16),
        "time_s": step * 0.01,
        "experts": race.argsort(axis=2)[:, :, :TOP_K].astype(np.uint8),
    }


def phase_trace(path: Path, phases: tuple[str, str] = ("prefill", "decode"), rounds: int = 20) -> Path:
    """Rounds of 8 large steps of the first phase and 16 small steps of the second."""
    parts = []
    for first in range(0, 24 * rounds, 24):
        parts.append(phase_steps(phases[0], first, 8, PREFILL_TOKENS))
        parts.append(phase_steps(phases[1], first + 8, 16, DECODE_TOKENS))
    meta = token_meta(LAYERS, EXPERTS, TOP_K, ranks=RANKS, model="two-phases", **WIDTHS)
    return write_trace(path, joined(parts), meta)
