"""TensorRT-LLM wide-EP tables: held-out shapes, and the measured speed-up of EPLB cell by cell.

A cell is one GPU, shape, EP size, token count and exponent, timed without EPLB, with it, and with 288 slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.profiling.fit import cross_predicted
from easybalance_sim.profiling.rows import ExpertRow
from easybalance_sim.profiling.tables import trtllm_wideep
from easybalance_sim.profiling.work import Workload
from tests.bench.accuracy_rows import SYSTEMS, TABLES, Line, error_lines, errors, peaks, spearman

DTYPES = {"h100": "fp8_block", "h200": "fp8_block", "gb200": "nvfp4"}
CHOICES = ("none", "same", "more")
COMPARISONS = {
    "no EPLB to EPLB, same slots": ("none", "same"),
    "no EPLB to EPLB on 288 slots": ("none", "more"),
    "EPLB, own slots to 288": ("same", "more"),
}
Cell = dict[str, tuple[float, float, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedUp:
    """One comparison: the formula's measures and those of the busiest rank's tokens."""

    name: str
    cells: int
    median_speed_up: float
    spearman: tuple[float, float]
    median_error: tuple[float, float]


def trtllm_lines(workload: Workload) -> tuple[list[Line], list[SpeedUp], tuple[float, float]]:
    """The lines, the comparisons, and the mean regrets of the three-way choice (formula, tokens) in %."""
    lines: list[Line] = []
    cells: list[Cell] = []
    for gpu, system in SYSTEMS.items():
        rows = trtllm_wideep.read(TABLES / system / "moe/trtllm/1.3.0rc10/wideep_moe_perf.parquet").rows
        work = workload.of(rows, 1)
        held_out = cross_predicted(work, peaks(gpu, DTYPES[gpu]), [row.shape for row in rows])
        lines += error_lines(f"{gpu} TensorRT-LLM cutlass, held-out shapes", held_out, work.us, 10.0, 7.5, 23.0)
        cells += _cells(rows, held_out, work.pairs.mean(axis=1))
    speed_ups = [_speed_up(name, cells, *pair) for name, pair in COMPARISONS.items()]
    regrets = _regret(cells, 1), _regret(cells, 2)
    for found in speed_ups:
        lines += _speed_up_lines(found)
    choices = sum(len(cell) == len(CHOICES) for cell in cells)
    lines.append(
        Line(item="choice of none / EPLB / 288 slots, mean regret", measured=regrets[0], target=0.7, rows=choices)
    )
    return lines, speed_ups, regrets


def _cells(rows: tuple[ExpertRow, ...], us: FloatArray, tokens: FloatArray) -> list[Cell]:
    """(measured µs, predicted µs, busiest rank's assignments) of each choice of every cell."""
    cells: dict[object, Cell] = {}
    for row, predicted, load in zip(rows, us, tokens, strict=True):
        choice = "none" if not row.eplb else "more" if row.slots > row.experts else "same"
        key = row.shape, row.ep, row.tokens, row.alpha
        cells.setdefault(key, {})[choice] = row.us, float(predicted), float(load)
    return list(cells.values())


def _speed_up(name: str, cells: list[Cell], before: str, after: str) -> SpeedUp:
    pairs = [(cell[before], cell[after]) for cell in cells if before in cell and after in cell]
    ratios = np.array([[old / new for old, new in zip(*pair, strict=True)] for pair in pairs])
    measured, formula, tokens = ratios.T
    return SpeedUp(
        name=name,
        cells=len(pairs),
        median_speed_up=float(np.median(measured)),
        spearman=(spearman(formula, measured), spearman(tokens, measured)),
        median_error=(
            float(np.median(errors(formula, measured))),
            float(np.median(errors(tokens, measured))),
        ),
    )


def _speed_up_lines(found: SpeedUp) -> list[Line]:
    item = f"speed-up, {found.name}"
    return [
        Line(
            item=f"{item}, Spearman", measured=found.spearman[0], target=0.8, rows=found.cells, at_most=False,
            percent=False,
        ),
        Line(item=f"{item}, median error", measured=found.median_error[0], target=6.0, rows=found.cells),
    ]  # fmt: skip


def _regret(cells: list[Cell], by: int) -> float:
    """Mean of how much slower, in %, the choice with the smallest value `by` is than the fastest."""
    full = np.array([[cell[choice] for choice in CHOICES] for cell in cells if len(cell) == len(CHOICES)])
    chosen = full[:, :, by].argmin(axis=1)
    measured = full[:, :, 0]
    return float((measured[np.arange(len(full)), chosen] / measured.min(axis=1) - 1).mean() * 100)
