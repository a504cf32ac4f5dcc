"""From a measured table to a profile: which kernel or link each kind of table times, its fit, its held-out error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from easybalance_sim.cluster.hardware import ExpertKernel, HardwareProfile
from easybalance_sim.cluster.model_shape import WEIGHT_BYTES
from easybalance_sim.cost.profiles import load_table
from easybalance_sim.errors import ProfileError, UsageError, did_you_mean
from easybalance_sim.profiling import link_sources
from easybalance_sim.profiling.fit import ExpertNumbers, Peaks, cross_predicted, fit_expert, predicted_us
from easybalance_sim.profiling.imported import Fit, Imported, require_rows, spread
from easybalance_sim.profiling.link_sources import BENCH, USUAL_BENCH
from easybalance_sim.profiling.rows import ExpertRow, Table
from easybalance_sim.profiling.tables import infersim, measured, moe_perf, sglang_wideep, trtllm_wideep
from easybalance_sim.profiling.tables.deepep_bench import Bench
from easybalance_sim.profiling.work import Workload

EAGER_C0_US = 16.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertSource:
    """A table of one expert kernel. eager: its fixed time is mostly host launches, of which `EAGER_C0_US` (InferSim's
    GEMM-only value) are kept · scattered: see `work.Workload.of` · moves_rows: whether `tok` is fitted · blocks: tile
    heights of which the one that fits best takes the place of `block`."""

    read: Callable[[Path], Table[ExpertRow]]
    kernel: str
    block: int
    phases: tuple[str, ...]
    scattered: bool = False
    moves_rows: bool = True
    eager: bool = False
    blocks: tuple[int, ...] = ()


EXPERTS = {
    "trtllm-wideep": ExpertSource(
        read=trtllm_wideep.read, kernel="trtllm_cutlass", block=1, phases=("prefill", "decode")
    ),
    "sglang-generation": ExpertSource(
        read=sglang_wideep.read_generation, kernel="deepgemm_masked", block=64, phases=("decode",), moves_rows=False
    ),
    "sglang-context": ExpertSource(
        read=sglang_wideep.read_context, kernel="deepgemm_contig", block=128, phases=("prefill",), scattered=True,
        eager=True,
    ),
    "infersim-decode": ExpertSource(
        read=infersim.read, kernel="deepgemm_masked", block=64, phases=("decode",), moves_rows=False
    ),
    "infersim-prefill": ExpertSource(
        read=infersim.read, kernel="deepgemm_contig", block=128, phases=("prefill",), moves_rows=False
    ),
}  # fmt: skip
FUSED = "moe-perf"
FUSED_BLOCK = 64
TOKENS = "tokens-us"
MEASURED = "ebsim-measured"
_CUBLAS_BLOCKS = (16, 32, 64, 128, 256)
_OVER_NOMINAL = 1.03
_AICONFIGURATOR_DTYPES = {"bf16": "bfloat16"}


def kinds() -> tuple[str, ...]:
    """The kinds of tables that can be imported."""
    return (*EXPERTS, FUSED, *link_sources.LINKS, BENCH, *link_sources.LOOK_UPS, TOKENS, MEASURED)


def import_table(
    kind: str,
    path: Path,
    base: HardwareProfile,
    dtype: str = "fp8_block",
    kernel: str = "",
    bench: Bench = USUAL_BENCH,
) -> Imported:
    """Read `path` and put what it measured into a copy of `base`.

    dtype: of the expert weights, where the table does not say it (`ebsim-measured` does) · kernel: `kernel_source` of a
    table that holds several · bench: how a `deepep-bench` ran, where its output does not say it. Raises `UsageError`
    for an unknown kind or dtype, `ProfileError` for a file that is not of the kind or has too few rows.
    """
    if kind not in kinds():
        what = f"unknown kind of table; there are {', '.join(kinds())}"
        raise UsageError(what, where=kind, fix=did_you_mean(kind, kinds()).rstrip())
    if dtype not in WEIGHT_BYTES:
        what = f"unknown dtype; there are {', '.join(WEIGHT_BYTES)}"
        raise UsageError(what, where=dtype, fix=did_you_mean(dtype, WEIGHT_BYTES).rstrip())
    base = msgspec.structs.replace(base, name=f"{base.name} with {path.name}")
    if kind == TOKENS:
        profile = msgspec.structs.replace(base, expert_table=load_table(path))
        return Imported(profile=profile)
    if kind in link_sources.LINKS:
        return link_sources.fitted(kind, path, base)
    if kind == BENCH:
        return link_sources.scaled_to_bench(path, base, bench)
    if kind in link_sources.LOOK_UPS:
        return link_sources.looked_up(kind, path, base, kernel)
    if kind == MEASURED:
        return _measured(path, base)
    return _experts(_fused(kernel, dtype) if kind == FUSED else EXPERTS[kind], path, base, dtype)


def _fused(kernel: str, dtype: str) -> ExpertSource:
    if not kernel:
        raise UsageError("holds several kernels", where=FUSED, fix="choose its kernel_source with --kernel")
    read = partial(moe_perf.read, kernel=kernel, dtype=_AICONFIGURATOR_DTYPES.get(dtype, dtype))
    return ExpertSource(read=read, kernel=kernel, block=FUSED_BLOCK, phases=("prefill", "decode"))


def _measured(path: Path, base: HardwareProfile) -> Imported:
    """The experts' fit; the link of a migration where copies between GPUs were measured."""
    found = measured.read(path)
    if found.read_bytes_per_s > _OVER_NOMINAL * base.hbm_bytes_per_s:
        raise ProfileError(
            f"{found.device} read {found.read_bytes_per_s / 1e12:.2f} TB/s, more than the nominal "
            f"{base.hbm_bytes_per_s / 1e12:.2f} TB/s of {base.title}",
            where=str(path),
            fix="give the --profile of the GPU that was measured",
        )
    source = ExpertSource(
        read=lambda _: found.experts, kernel=measured.KERNEL, block=64, phases=("prefill", "decode"), moves_rows=False,
        blocks=_CUBLAS_BLOCKS,
    )  # fmt: skip
    imported = _experts(source, path, base, found.dtype)
    notes = [f"measured on {found.device}, put into the profile of {base.title}"]
    if found.read_bytes_per_s:
        share = found.read_bytes_per_s / base.hbm_bytes_per_s
        notes.append(f"memory is read at {found.read_bytes_per_s / 1e12:.2f} TB/s, {share:.0%} of the nominal")
    profile = imported.profile
    if found.peer_bytes_per_s:
        notes.append(f"copies between GPUs go at {found.peer_bytes_per_s / 1e9:,.0f} GB/s, as migration will be costed")
        link = msgspec.structs.replace(
            base.migration,
            nvlink_bytes_per_s=float(round(found.peer_bytes_per_s)),
            source=f"within a node {found.experts.source}; between nodes {base.migration.source}",
        )
        profile = msgspec.structs.replace(profile, migration=link)
    return replace(imported, profile=profile, notes=(*imported.notes, *notes))


def _experts(source: ExpertSource, path: Path, base: HardwareProfile, dtype: str) -> Imported:
    table = source.read(path)
    require_rows(table)
    rows = table.rows
    top = Peaks(bytes_per_s=base.hbm_bytes_per_s, flops=base.peak_flops[dtype], weight_bytes=WEIGHT_BYTES[dtype])
    chosen, source = bool(source.blocks), _with_block(source, rows, top)
    work = Workload().of(rows, source.block, scattered=source.scattered)
    group, groups = _groups(rows)
    numbers = fit_expert(work, top, free_tok=source.moves_rows)
    held_out = spread(cross_predicted(work, top, groups, free_tok=source.moves_rows), work.us)
    fit = Fit(
        name=f"{dtype} {source.kernel}",
        numbers={name: getattr(numbers, name) for name in ("c0_us", "eff_bw", "eff_flop", "q", "tok")}
        | ({"block": source.block} if chosen else {}),
        rows=len(rows),
        group=group,
        errors=spread(predicted_us(numbers, work, top), work.us),
        held_out=held_out,
    )
    row = _kernel_row(source, numbers, table, dtype, held_out[2] / 100)
    others = tuple(old for old in base.experts if (old.kernel, old.dtype) != (row.kernel, row.dtype))
    profile = msgspec.structs.replace(base, experts=(row, *others))
    return Imported(profile=profile, fits=(fit,), dropped=table.dropped, notes=table.notes)


def _with_block(source: ExpertSource, rows: tuple[ExpertRow, ...], top: Peaks) -> ExpertSource:
    """The source with the tile height, of those that it leaves open, whose fit has the smallest mean error."""

    def error(block: int) -> float:
        work = Workload().of(rows, block, scattered=source.scattered)
        numbers = fit_expert(work, top, free_tok=source.moves_rows)
        return spread(predicted_us(numbers, work, top), work.us)[0]

    return replace(source, block=min(source.blocks, key=error), blocks=()) if source.blocks else source


def _groups(rows: tuple[ExpertRow, ...]) -> tuple[str, list[object]]:
    """What is held out in turn: the first of these that differs from row to row."""
    ways: dict[str, list[object]] = {
        "shapes": [row.shape for row in rows],
        "EP sizes": [row.ep for row in rows],
        "numbers of active experts": [sum(count > 0 for count in row.counts) for row in rows],
        "token counts": [row.tokens for row in rows],
    }
    return next(
        ((name, groups) for name, groups in ways.items() if len(set(groups)) > 1), ("EP sizes", ways["EP sizes"])
    )


def _kernel_row(
    source: ExpertSource, numbers: ExpertNumbers, table: Table[ExpertRow], dtype: str, band: float
) -> ExpertKernel:
    hidden, intermediate = ([getattr(row, name) for row in table.rows] for name in ("hidden", "intermediate"))
    host_us = max(0.0, numbers.c0_us - EAGER_C0_US) if source.eager else 0.0
    return ExpertKernel(
        kernel=source.kernel,
        dtype=dtype,
        phases=source.phases,
        c0_us=round(numbers.c0_us - host_us, 3),
        host_launch_us=round(host_us, 3),
        eff_bw=min(1.0, round(numbers.eff_bw, 4)),
        eff_flop=min(1.0, round(numbers.eff_flop, 4)),
        q=max(1.0, round(numbers.q, 3)),
        block=source.block,
        tok=round(numbers.tok, 2),
        hidden=(min(hidden), max(hidden)),
        intermediate=(min(intermediate), max(intermediate)),
        band_p90=round(band, 3),
        calibrated=True,
        source=f"{table.source}, {len(table.rows)} rows",
    )
