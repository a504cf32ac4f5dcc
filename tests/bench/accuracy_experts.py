"""Expert times against the measured tables: held-out shapes, EP sizes and skews."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.profiling.fit import cross_predicted, fit_expert, predicted_us
from easybalance_sim.profiling.rows import ExpertRow
from easybalance_sim.profiling.tables import infersim, sglang_wideep
from easybalance_sim.profiling.work import Work, Workload
from tests.bench.accuracy_rows import DATA, SYSTEMS, TABLES, Line, error_lines, errors, peaks, spearman

MASKED_TARGET = {"h100": 5.0, "h200": 9.0, "gb200": 9.0}
CONTIGUOUS_TARGET = {"h100": 7.0, "h200": 7.0, "gb200": 10.0}
ORDER_TARGET = {"h100": 0.98, "h200": 0.92, "gb200": 0.95}
# Two names for practically one distribution: which of them was measured slower is the luck of five draws.
TWINS = frozenset({"power_law_1.01", "power_law_1.02"})


def masked_lines(workload: Workload) -> list[Line]:
    """DeepGEMM masked: held-out EP, a fit on uniform rows only, order and slow-down of skews, the H800's numbers."""
    lines: list[Line] = []
    for gpu, system in SYSTEMS.items():
        path = TABLES / system / "moe/sglang/0.5.10/wideep_generation_moe_perf.parquet"
        rows = sglang_wideep.read_generation(path).rows
        work, top = workload.of(rows, 64), peaks(gpu, "fp8_block")
        held_out = cross_predicted(work, top, [row.ep for row in rows], free_tok=False)
        skewed = np.array([row.distribution != "uniform" for row in rows])
        name = f"{gpu} DeepGEMM masked"
        lines += error_lines(f"{name}, skewed, held-out EP", held_out[skewed], work.us[skewed], MASKED_TARGET[gpu])
        uniform = fit_expert(work.take(~skewed), top, free_tok=False)
        lines += error_lines(
            f"{name}, fitted on uniform rows, skewed rows",
            predicted_us(uniform, work.take(skewed), top),
            work.us[skewed],
            10.0,
        )
        lines.append(_order_line(name, rows, held_out, ORDER_TARGET[gpu]))
        lines.append(_order_line(f"{name}, without 1.01 against 1.02", rows, held_out, ORDER_TARGET[gpu], TWINS))
        lines += _slow_down_lines(name, rows, held_out, 0.95)
        if gpu == "h100":
            lines += _transfer_lines(workload, work)
    return lines


def contiguous_lines(workload: Workload) -> list[Line]:
    """DeepGEMM contiguous: held-out EP and slow-down of skews."""
    lines: list[Line] = []
    for gpu, system in SYSTEMS.items():
        path = TABLES / system / "moe/sglang/0.5.10/wideep_context_moe_perf.parquet"
        rows = sglang_wideep.read_context(path).rows
        work = workload.of(rows, sglang_wideep.CONTIGUOUS_BLOCK, scattered=True)
        held_out = cross_predicted(work, peaks(gpu, "fp8_block"), [row.ep for row in rows])
        name = f"{gpu} DeepGEMM contiguous"
        lines += error_lines(f"{name}, held-out EP", held_out, work.us, CONTIGUOUS_TARGET[gpu])
        lines += _slow_down_lines(name, rows, held_out, 0.92)
    return lines


def _transfer_lines(workload: Workload, h100: Work) -> list[Line]:
    """Numbers fitted to InferSim's H800, another project with another harness, on the H100's masked rows."""
    table = infersim.read(DATA / "infersim_gemm/grouped_gemm/decode/h800/data.csv")
    numbers = fit_expert(workload.of(table.rows, 64), peaks("h800", "fp8_block"), free_tok=False)
    found = predicted_us(numbers, h100, peaks("h100", "fp8_block"))
    return error_lines("InferSim H800 numbers on h100 DeepGEMM masked", found, h100.us, 8.0)


def _cells(rows: Sequence[ExpertRow]) -> list[list[int]]:
    """Rows that differ in nothing but the distribution."""
    cells: dict[tuple[int, int], list[int]] = {}
    for at, row in enumerate(rows):
        cells.setdefault((row.ep, row.tokens), []).append(at)
    return list(cells.values())


def _order_line(
    name: str, rows: Sequence[ExpertRow], us: FloatArray, target: float, skip: frozenset[str] = frozenset()
) -> Line:
    """How often two distributions are put in the measured order, where they lie more than 5 % apart."""
    pairs = [pair for cell in _cells(rows) for pair in combinations(cell, 2)]
    pairs = [pair for pair in pairs if {rows[at].distribution for at in pair} != skip]
    measured = np.array([[rows[one].us, rows[other].us] for one, other in pairs])
    apart = measured.max(axis=1) / measured.min(axis=1) > 1.05
    right = [(us[a] > us[b]) == (rows[a].us > rows[b].us) for (a, b), far in zip(pairs, apart, strict=True) if far]
    return Line(
        item=f"{name}, order of two distributions over 5 % apart",
        measured=float(np.mean(right)),
        target=target,
        rows=len(right),
        at_most=False,
        percent=False,
    )


def _slow_down_lines(name: str, rows: Sequence[ExpertRow], us: FloatArray, target: float) -> list[Line]:
    """Time of a skewed row over the uniform row of its cell, measured and predicted."""
    measured: list[float] = []
    predicted: list[float] = []
    for cell in _cells(rows):
        uniform = next((at for at in cell if rows[at].distribution == "uniform"), None)
        if uniform is not None:
            skewed = [at for at in cell if at != uniform]
            measured += [rows[at].us / rows[uniform].us for at in skewed]
            predicted += [float(us[at] / us[uniform]) for at in skewed]
    one, other = np.array(predicted), np.array(measured)
    item = f"{name}, slow-down of skew against uniform"
    return [
        Line(
            item=f"{item}, Spearman", measured=spearman(one, other), target=target, rows=len(one), at_most=False,
            percent=False,
        ),
        Line(item=f"{item}, median error", measured=float(np.median(errors(one, other))), target=8.0, rows=len(one)),
    ]  # fmt: skip
