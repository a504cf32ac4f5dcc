"""Skewed rows from the balanced rows of the same table, looked up as they are and anchored (`cost.anchored`).

The formula has the shipped numbers of the table's own kernel, which were fitted on these rows as they stand in the
table, and of another kernel, which never saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.cluster.hardware import ExpertTable, load_profile
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cost.anchored import AnchoredCost
from easybalance_sim.cost.expert import ExpertCost, ExpertModel
from easybalance_sim.cost.look_up import FARTHEST_EXTRAPOLATION
from easybalance_sim.cost.profiles import table_us
from easybalance_sim.profiling.rows import ExpertRow
from easybalance_sim.profiling.tables import moe_perf, sglang_wideep
from easybalance_sim.profiling.work import Workload
from tests.bench.accuracy_rows import TABLES, Line, errors

BALANCED = ("balanced", "uniform")
VLLM = TABLES / "h200_sxm/moe/vllm/0.24.0/moe_perf.parquet"
SGLANG = TABLES / "h200_sxm/moe/sglang/0.5.14/moe_perf.parquet"
GENERATION = "moe/sglang/0.5.10/wideep_generation_moe_perf.parquet"
VLLM_BF16 = "vllm_unquantizedfusedmoe_triton_tritonexperts"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One kernel's rows. kernels: whose formula anchors, the own one first · earlier: the mean error in % that an
    analysis of the same rows found before, 0 = none · target: of the mean error anchored by the first kernel, 0 = none.
    """

    name: str
    dtype: str
    rows: Sequence[ExpertRow]
    kernels: tuple[tuple[str, str], ...]
    earlier: float = 0.0
    target: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchored:
    """Mean, median and p90 error in %: the balanced table as it is, the formula alone, the table anchored by each
    kernel."""

    case: Case
    rows: int
    as_is: tuple[float, float, float]
    formula: tuple[float, float, float]
    anchored: tuple[tuple[float, float, float], ...]


def anchored_lines(workload: Workload) -> tuple[list[Line], list[Anchored]]:
    """The lines of the cases that have a target, and all cases."""
    found = [_anchored(case, workload) for case in _cases()]
    lines = [
        Line(
            item=f"{one.case.name}, balanced table anchored, skewed rows, MAPE", measured=one.anchored[0][0],
            target=one.case.target, rows=one.rows,
        )
        for one in found
        if one.case.target
    ]  # fmt: skip
    return lines, found


def _cases() -> list[Case]:
    fp8 = (("h200", "vllm_triton"), ("h200", "deepgemm_masked"))
    sglang = (("h200", "sglang_triton"), ("h200", "deepgemm_masked"))
    bf16 = (("h200", "vllm_triton"),)
    cases = [
        _fused("vLLM Triton FP8", VLLM, "vllm_fp8moe_triton_tritonexperts", "fp8_block", 1, fp8, 3.2),
        _fused("SGLang Triton FP8", SGLANG, "sglang_fused_moe_triton", "fp8_block", 1, sglang, 3.9),
        _fused("SGLang Triton BF16", SGLANG, "sglang_fused_moe_triton", "bf16", 1, bf16, 4.8),
        _fused("vLLM Triton BF16", VLLM, VLLM_BF16, "bf16", 1, bf16, 4.6),
        _fused("SGLang Triton FP8", SGLANG, "sglang_fused_moe_triton", "fp8_block", 8, sglang),
        _fused("vLLM Triton BF16", VLLM, VLLM_BF16, "bf16", 8, bf16),
    ]
    for gpu, system in {"h100": "h100_sxm", "h200": "h200_sxm", "gb200": "gb200"}.items():
        rows = sglang_wideep.read_generation(TABLES / system / GENERATION).rows
        kernels = ((gpu, "deepgemm_masked"), ("h200", "trtllm_cutlass"))
        cases.append(Case(name=f"{gpu} DeepGEMM masked", dtype="fp8_block", rows=rows, kernels=kernels))
    return cases


def _fused(
    name: str, path: Path, source: str, dtype: str, ranks: int, kernels: tuple[tuple[str, str], ...],
    earlier: float = 0.0,
) -> Case:  # fmt: skip
    table = moe_perf.read(path, source, "bfloat16" if dtype == "bf16" else dtype)
    return Case(
        name=f"h200 {name}, {ranks} rank{'s' * (ranks > 1)}",
        dtype=dtype,
        rows=[row for row in table.rows if row.ep == ranks],
        kernels=kernels,
        earlier=earlier,
        target=5.0 if earlier else 0.0,
    )


def _anchored(case: Case, workload: Workload) -> Anchored:
    found = [_predicted(curve, case, workload) for curve in _curves(case.rows)]
    measured, as_is, formula, *anchored = (np.concatenate(column) for column in zip(*found, strict=True))
    return Anchored(
        case=case,
        rows=len(measured),
        as_is=_spread(as_is, measured),
        formula=_spread(formula, measured),
        anchored=tuple(_spread(one, measured) for one in anchored),
    )


def _predicted(rows: Sequence[ExpertRow], case: Case, workload: Workload) -> list[FloatArray]:
    """µs of the skewed rows of one curve: measured, looked up, by the formula, anchored by each kernel."""
    table = _balanced_table(rows, workload)
    formulas = [_formula(rows[0], case.dtype, *kernel) for kernel in case.kernels]
    slots = rows[0].slots // rows[0].ep
    models: list[ExpertModel] = [
        formulas[0],
        *(AnchoredCost(table=table, formula=one, slots=slots) for one in formulas),
    ]
    columns: list[list[float]] = [[] for _ in range(2 + len(models))]
    start, speed = frozen([0, slots], np.int32), frozen(np.ones(1))
    for row in rows:
        load = workload.loads(row)
        arriving = load.counts.sum(axis=1)
        if row.distribution in BALANCED or arriving.max() > FARTHEST_EXTRAPOLATION * table.tokens[-1]:
            continue
        counts = frozen(load.counts[:, None, :], np.int32), frozen(load.distinct[:, None, None], np.int32)
        columns[0].append(row.us)
        columns[1].append(float(table_us(table, arriving).mean()))
        for column, model in zip(columns[2:], models, strict=True):
            column.append(float(model.seconds(*counts, start, speed)[0].mean()) * 1e6)
    return [np.array(column) for column in columns]


def _balanced_table(rows: Sequence[ExpertRow], workload: Workload) -> ExpertTable:
    points: dict[int, list[float]] = {}
    for row in rows:
        if row.distribution in BALANCED:
            points.setdefault(int(workload.loads(row).counts.sum(axis=1)[0]), []).append(row.us)
    tokens = sorted(points)
    us = tuple(float(np.mean(points[at])) for at in tokens)
    return ExpertTable(tokens=tuple(map(float, tokens)), us=us, calibrated=True, source="balanced rows")


def _formula(row: ExpertRow, dtype: str, gpu: str, kernel: str) -> ExpertCost:
    profile = load_profile(gpu)
    shape = ModelShape(
        name="", layers=(0,), experts=row.experts, top_k=row.top_k, hidden=row.hidden, intermediate=row.intermediate,
        dtype=dtype,
    )  # fmt: skip
    fitted = next(one for one in profile.experts if (one.kernel, one.dtype) == (kernel, dtype))
    return ExpertCost(
        kernel=fitted, shape=shape, bytes_per_s=profile.hbm_bytes_per_s, peak_flops=profile.peak_flops[dtype]
    )


def _curves(rows: Sequence[ExpertRow]) -> list[list[ExpertRow]]:
    """Rows that differ in tokens and distribution only, where three of them are balanced."""
    curves: dict[object, list[ExpertRow]] = {}
    for row in rows:
        curves.setdefault((row.shape, row.top_k, row.ep), []).append(row)
    return [curve for curve in curves.values() if sum(row.distribution in BALANCED for row in curve) >= 3]


def _spread(predicted: FloatArray, measured: FloatArray) -> tuple[float, float, float]:
    found = errors(predicted, measured)
    return float(found.mean()), float(np.median(found)), float(np.percentile(found, 90))
