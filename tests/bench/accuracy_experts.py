"""Expert times against the measured tables: held-out shapes, EP sizes and skews."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.profiling.fit import ExpertNumbers, Peaks, cross_predicted, fit_expert, predicted_us
from easybalance_sim.profiling.rows import ExpertRow
from easybalance_sim.profiling.tables import infersim, sglang_wideep
from easybalance_sim.profiling.work import Work, Workload
from tests.bench.accuracy_order import Luck, cells, luck, order_lines
from tests.bench.accuracy_rows import DATA, SYSTEMS, TABLES, Line, error_lines, errors, peaks, spearman

MASKED_TARGET = {"h100": 5.0, "h200": 9.0, "gb200": 9.0}
CONTIGUOUS_TARGET = {"h100": 7.0, "h200": 7.0, "gb200": 10.0}
ORDER_TARGET = {"h100": 0.98, "h200": 0.92, "gb200": 0.95}


def masked_lines(workload: Workload) -> tuple[list[Line], list[Luck]]:
    """DeepGEMM masked: held-out EP, a fit on uniform rows only, order and slow-down of skews, the H800's numbers; what
    luck allows of the order."""
    lines: list[Line] = []
    lucks: list[Luck] = []
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
        order = order_lines(name, rows, held_out, ORDER_TARGET[gpu])
        lines += order
        lucks.append(luck(gpu, rows, draws_us(fit_expert(work, top, free_tok=False), work, top), order[0]))
        lines += _slow_down_lines(name, rows, held_out, 0.95)
        if gpu == "h100":
            lines += _transfer_lines(workload, work)
    return lines, lucks


def draws_us(numbers: ExpertNumbers, work: Work, top: Peaks) -> FloatArray:
    """float64[N, D] predicted µs of every draw of every row."""
    draws = work.active.shape[1]
    apart = work.take(np.repeat(np.arange(len(work.us)), draws))
    single = {name: frozen(getattr(work, name).reshape(-1, 1)) for name in ("active", "tiles", "pairs", "distinct")}
    return predicted_us(numbers, replace(apart, **single), top).reshape(-1, draws)


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


def _slow_down_lines(name: str, rows: Sequence[ExpertRow], us: FloatArray, target: float) -> list[Line]:
    """Time of a skewed row over the uniform row of its cell, measured and predicted."""
    measured: list[float] = []
    predicted: list[float] = []
    for cell in cells(rows):
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
