"""What a step model says of given steps: its formulas on whole arrays, MoE layers only.

Adding up over GPUs that share experts is left out, as it is from steps that are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, stream
from easybalance_sim.simulate.serving.mixing import Pieces, loads, tokens_per_data_rank
from easybalance_sim.simulate.serving.step_model import StepModel


@dataclass(frozen=True, kw_only=True, eq=False)
class StepLoads:
    """Steps before they cost anything. rows: float64[W, L, R] with their chance · z: float64[W, L, R] the numbers it
    came from · tokens: int64[W, D] of each data-parallel rank."""

    rows: FloatArray
    z: FloatArray
    tokens: AnyArray


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerParts:
    """dispatch, expert, combine: float64[W, L] seconds."""

    dispatch: FloatArray
    expert: FloatArray
    combine: FloatArray

    @property
    def serial(self) -> FloatArray:
        """float64[W, L] one after the other."""
        return self.dispatch + self.expert + self.combine


def step_loads(model: StepModel, pieces: Pieces, seed: int) -> StepLoads:
    """Rows of every rank in the steps that the pieces make up, one draw of chance."""
    mean = loads(pieces, model.mean).astype(np.float64)
    variance = np.maximum(loads(pieces, model.spread).astype(np.float64), 0.0)
    z = stream(seed, "chance of a step").standard_normal(mean.shape)
    noise = np.sqrt(variance) * z
    share = variance / np.maximum(variance.sum(axis=2, keepdims=True), 1e-300)
    rows = np.maximum(0.0, mean + noise - share * noise.sum(axis=2, keepdims=True))
    over = rows.sum(axis=2, keepdims=True) / np.maximum(mean.sum(axis=2, keepdims=True), 1e-300)
    return StepLoads(rows=rows / np.maximum(over, 1.0), z=z, tokens=tokens_per_data_rank(pieces, model.data_ranks))


def layer_parts(model: StepModel, steps: StepLoads) -> LayerParts:
    """Seconds of every layer of the steps."""
    dispatch, combine = (link_seconds(model, steps, phase) for phase in (0, 1))
    return LayerParts(dispatch=dispatch, expert=expert_seconds(model, steps), combine=combine)


def expert_seconds(model: StepModel, steps: StepLoads) -> FloatArray:
    """float64[W, L] of the slowest rank."""
    chance = at_rows(model.chance_rows[:, None], steps.rows, model.knot)
    return np.asarray(at_rows(model.expert_s, np.maximum(0.0, steps.rows + steps.z * chance), model.knot).max(axis=2))


def link_seconds(model: StepModel, steps: StepLoads, phase: int) -> FloatArray:
    """float64[W, L] of the slowest rank in phase 0, dispatch, or 1, combine."""
    arriving, leaving = link_parts(model, steps, phase)
    return np.asarray(model.link_fixed_s[phase] + np.maximum(arriving, leaving))


def link_parts(model: StepModel, steps: StepLoads, phase: int) -> tuple[FloatArray, FloatArray]:
    """float64[W, L] beyond the fixed seconds: of the rank that most arrives at, and that most leaves."""
    arriving = (steps.rows * model.arrive_s[phase]).max(axis=2)
    return arriving, steps.tokens.max(axis=1)[:, None] * model.leave_s[phase]


def at_rows(table: FloatArray, rows: FloatArray, knot: float) -> FloatArray:
    """float64[W, L, R] values at rows [W, L, R] of a table [L, R or 1, G] with knots at (g · knot)² rows."""
    place = np.minimum((np.sqrt(rows) / knot).astype(np.int64), table.shape[2] - 2)
    layer, rank = np.arange(table.shape[0])[:, None], np.arange(table.shape[1])
    low, high = table[layer, rank, place], table[layer, rank, place + 1]
    part = (rows - (place * knot) ** 2) / ((2 * place + 1) * knot**2)
    return np.asarray(low + part * (high - low))
