"""Rows and seconds of a serving step as naive loops: the specification of `numba_serving_seconds`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels.serving_state import STRIDE, Model

Floats = npt.NDArray[np.float64]


@dataclass(kw_only=True)
class RankStep:
    """What a data-parallel rank has in a step. tokens · reads: cached that decoding requests read · pairs: prompt
    tokens times the tokens they attend to · served: requests with tokens · decodes: those past their
    prompt are in it."""

    tokens: int = 0
    reads: int = 0
    pairs: float = 0.0
    served: int = 0
    decodes: bool = False


@dataclass(kw_only=True)
class StepSeconds:
    """total: of the step · parts: by name as in `PARTS` · busy: float64[R] seconds that experts compute."""

    total: float
    parts: dict[str, float]
    busy: Floats


def step_seconds(model: Model, step: int, ranks: Sequence[RankStep], tokens: Sequence[tuple[int, int]]) -> StepSeconds:
    """The seconds of step number `step`. tokens: (row of `model.mean`, tokens) for all that is in the step."""
    scalars = {name: float(model.scalars[name][0]) for name in model.scalars.dtype.names}
    layers, width = model.mean.shape[1:]
    place = (step + 1) * STRIDE % 2**32 % (len(model.noise) - layers * width + 1)
    z = model.noise[place : place + layers * width].reshape(layers, width).astype(float)
    most = max(rank.tokens for rank in ranks)
    bare = scalars["attention_fixed"] + max(_attention(rank, scalars) for rank in ranks)
    attention = scalars["attention_fixed"] + scalars["shared_fixed"]
    attention += max(_attention(rank, scalars) + _shared(rank, scalars) for rank in ranks)
    outside = scalars["host"] + max(scalars["outside_weights"], scalars["outside_token"] * most)
    outside += max(scalars["head_weights"], scalars["head_token"] * max(rank.served for rank in ranks))
    parts = {"attention": layers * attention + scalars["dense_layers"] * bare, "outside": outside}
    total = balanced = outside + scalars["dense_layers"] * bare
    busy = np.zeros(width)
    for layer in range(layers):
        mean, variance = np.zeros(width), np.zeros(width)
        for q, count in tokens:
            mean += count * model.mean[q, layer].astype(float)
            variance += count * model.spread[q, layer].astype(float)
        own = _layer(model, scalars, layer, rows_of(mean, variance, z[layer]), z[layer], most, busy)
        even = _even_layer(model, scalars, layer, float(mean.sum()) / width, most)
        total += attention + sum(own.values()) - _hidden(own, attention, scalars["hidden"])
        balanced += attention + sum(even.values()) - _hidden(even, attention, scalars["hidden"])
        for name, seconds in own.items():
            parts[name] = parts.get(name, 0.0) + seconds
            parts[f"lost_{name}"] = parts.get(f"lost_{name}", 0.0) + seconds - even[name]
        parts["hidden"] = parts.get("hidden", 0.0) + _hidden(own, attention, scalars["hidden"])
    return StepSeconds(total=total, parts=parts | {"balanced": balanced}, busy=busy)


def rows_of(mean: Floats, variance: Floats, z: Floats) -> Floats:
    """float64[R] rows of a layer: normal numbers given their sum, none below 0, and if that added any, less of all."""
    noise = np.sqrt(variance) * z
    if variance.sum() > 0:
        noise -= variance * (noise.sum() / variance.sum())
    rows = np.maximum(0.0, mean + noise)
    if rows.sum() > mean.sum():
        rows *= mean.sum() / rows.sum()
    return rows


def at_rows(curve: Any, rows: float, knot: float) -> float:
    """A curve given at (g · knot)² rows, linear between, its last slope going on."""
    g = min(math.isqrt(int(rows / knot**2)), len(curve) - 2)
    low, high = (g * knot) ** 2, ((g + 1) * knot) ** 2
    return float(curve[g] + (rows - low) / (high - low) * (curve[g + 1] - curve[g]))


def _layer(
    model: Model, scalars: dict[str, float], layer: int, rows: Floats, z: Floats, most: int, busy: Floats
) -> dict[str, float]:
    """Seconds of a layer's dispatch, experts and combine; adds each rank's experts to `busy`."""
    knot, slowest = scalars["knot"], 0.0
    for r, own in enumerate(rows.tolist()):
        felt = max(0.0, own + z[r] * at_rows(model.chance_rows[layer], own, knot))
        seconds = at_rows(model.expert_s[layer, r], felt, knot)
        busy[r] += seconds
        slowest = max(slowest, seconds)
    first, second = (max(0.0, float((rows * model.arrive_s[way, layer]).max())) for way in (0, 1))
    return {
        "dispatch": scalars["dispatch_fixed"] + max(first, most * float(model.leave_s[0, layer])),
        "expert": slowest,
        "combine": scalars["combine_fixed"] + max(second, most * float(model.leave_s[1, layer])),
    }


def _even_layer(model: Model, scalars: dict[str, float], layer: int, rows: float, most: int) -> dict[str, float]:
    """The same with `rows` on every rank."""
    first, second = (rows * float(model.even_arrive_s[way, layer]) for way in (0, 1))
    return {
        "dispatch": scalars["dispatch_fixed"] + max(first, most * float(model.leave_s[0, layer])),
        "expert": at_rows(model.even_expert_s[layer], rows, scalars["knot"]),
        "combine": scalars["combine_fixed"] + max(second, most * float(model.leave_s[1, layer])),
    }


def _attention(rank: RankStep, scalars: dict[str, float]) -> float:
    weights = max(scalars["attention_weights"], scalars["attention_token"] * rank.tokens)
    return weights + scalars["attention_kv"] * rank.reads + scalars["attention_pair"] * rank.pairs


def _shared(rank: RankStep, scalars: dict[str, float]) -> float:
    """What a MoE layer has more."""
    return max(scalars["shared_weights"], scalars["shared_token"] * rank.tokens)


def _hidden(parts: dict[str, float], attention: float, share: float) -> float:
    """Seconds of communication behind compute, or of compute behind communication."""
    return share * min(parts["dispatch"] + parts["combine"], attention + parts["expert"])
