"""From a measured table to a profile: which kernel or link each kind of table times, its fit, its held-out error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.hardware import CommLink, ExpertKernel, HardwareProfile
from easybalance_sim.cluster.model_shape import WEIGHT_BYTES
from easybalance_sim.cost.profiles import load_table
from easybalance_sim.errors import ProfileError, UsageError
from easybalance_sim.profiling.fit import ExpertNumbers, Peaks, cross_predicted, fit_expert, predicted_us
from easybalance_sim.profiling.link_fit import LinkNumbers, cross_link_us, fit_link, link_us
from easybalance_sim.profiling.rows import Dropped, ExpertRow, LinkRow, Table
from easybalance_sim.profiling.tables import deepep, infersim, measured, moe_perf, sglang_wideep, trtllm_wideep
from easybalance_sim.profiling.work import Workload

EAGER_C0_US = 16.0
_NORMAL_NODES = 4


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
LINKS: dict[str, Callable[[Path], Table[LinkRow]]] = {
    "deepep-low-latency": deepep.read_low_latency,
    "deepep-normal": deepep.read_normal,
}
FUSED = "moe-perf"
FUSED_BLOCK = 64
TOKENS = "tokens-us"
MEASURED = "ebsim-measured"
_CUBLAS_BLOCKS = (16, 32, 64, 128, 256)
_OVER_NOMINAL = 1.03
_AICONFIGURATOR_DTYPES = {"bf16": "bfloat16"}


def kinds() -> tuple[str, ...]:
    """The kinds of tables that can be imported."""
    return (*EXPERTS, FUSED, *LINKS, TOKENS, MEASURED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """One fitted row. name: kernel or phase · numbers: what was fitted · rows: how many rows taught it · group: what
    was held out · errors: mean, median and p90 in % of the rows fitted · held_out: of rows whose group the fit did not
    see."""

    name: str
    numbers: dict[str, float]
    rows: int
    group: str
    errors: tuple[float, float, float]
    held_out: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The base profile with the table's rows in it, the fits behind them, notes on dropped rows, and other notes."""

    profile: HardwareProfile
    fits: tuple[Fit, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...] = ()


def import_table(kind: str, path: Path, base: HardwareProfile, dtype: str = "fp8_block", kernel: str = "") -> Imported:
    """Read `path` and put what it measured into a copy of `base`.

    dtype: of the expert weights, where the table does not say it (`ebsim-measured` does) · kernel: `kernel_source` of a
    table that holds several. Raises `UsageError` for an unknown kind or dtype, `ProfileError` for a file that is not of
    the kind or has too few rows.
    """
    if kind not in kinds():
        raise UsageError(f"unknown kind of table; there are {', '.join(kinds())}", where=kind)
    if dtype not in WEIGHT_BYTES:
        raise UsageError(f"unknown dtype; there are {', '.join(WEIGHT_BYTES)}", where=dtype)
    base = msgspec.structs.replace(base, name=f"{base.name} with {path.name}")
    if kind == TOKENS:
        profile = msgspec.structs.replace(base, expert_table=load_table(path))
        return Imported(profile=profile, fits=(), dropped=())
    if kind in LINKS:
        return _links(kind, path, base)
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
    return replace(imported, profile=profile, notes=tuple(notes))


def _experts(source: ExpertSource, path: Path, base: HardwareProfile, dtype: str) -> Imported:
    table = source.read(path)
    _require_rows(table)
    rows = table.rows
    top = Peaks(bytes_per_s=base.hbm_bytes_per_s, flops=base.peak_flops[dtype], weight_bytes=WEIGHT_BYTES[dtype])
    chosen, source = bool(source.blocks), _with_block(source, rows, top)
    work = Workload().of(rows, source.block, scattered=source.scattered)
    group, groups = _groups(rows)
    numbers = fit_expert(work, top, free_tok=source.moves_rows)
    held_out = _spread(cross_predicted(work, top, groups, free_tok=source.moves_rows), work.us)
    fit = Fit(
        name=f"{dtype} {source.kernel}",
        numbers={name: getattr(numbers, name) for name in ("c0_us", "eff_bw", "eff_flop", "q", "tok")}
        | ({"block": source.block} if chosen else {}),
        rows=len(rows),
        group=group,
        errors=_spread(predicted_us(numbers, work, top), work.us),
        held_out=held_out,
    )
    row = _kernel_row(source, numbers, table, dtype, held_out[2] / 100)
    others = tuple(old for old in base.experts if (old.kernel, old.dtype) != (row.kernel, row.dtype))
    profile = msgspec.structs.replace(base, experts=(row, *others))
    return Imported(profile=profile, fits=(fit,), dropped=table.dropped)


def _with_block(source: ExpertSource, rows: tuple[ExpertRow, ...], top: Peaks) -> ExpertSource:
    """The source with the tile height, of those that it leaves open, whose fit has the smallest mean error."""

    def error(block: int) -> float:
        work = Workload().of(rows, block, scattered=source.scattered)
        numbers = fit_expert(work, top, free_tok=source.moves_rows)
        return _spread(predicted_us(numbers, work, top), work.us)[0]

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


def _links(kind: str, path: Path, base: HardwareProfile) -> Imported:
    table = LINKS[kind](path)
    _require_rows(table)
    fits, rows = [], []
    for phase in ("dispatch", "combine"):
        of_phase = [row for row in table.rows if row.phase == phase and row.nodes <= _most_nodes(kind)]
        fit, link = _link(of_phase, table.source, base)
        fits.append(fit)
        rows.append(link)
    replaced = {(row.mode, row.phase, row.nodes) for row in rows}
    others = tuple(old for old in base.links if (old.mode, old.phase, old.nodes) not in replaced)
    profile = msgspec.structs.replace(base, links=(*rows, *others))
    return Imported(profile=profile, fits=tuple(fits), dropped=table.dropped)


def _most_nodes(kind: str) -> int:
    """Normal mode on 8 nodes follows another law than on 1-4."""
    return _NORMAL_NODES if kind == "deepep-normal" else 1 << 30


def _link(rows: list[LinkRow], source: str, base: HardwareProfile) -> tuple[Fit, CommLink]:
    nominal = base.inter_node_bytes_per_s, base.nvlink_bytes_per_s
    measured = np.array([row.us for row in rows])
    parity = {size: at % 2 for at, size in enumerate(sorted({row.size for row in rows}))}
    numbers = fit_link(rows, *nominal)
    known = next(row for row in base.links if (row.mode, row.phase) == (rows[0].mode, rows[0].phase))
    named = _named(numbers)
    if max(row.nodes for row in rows) == 1:
        # Nothing crossed a node: what the base profile says of it stands.
        named |= {"per_doubling_us": known.per_doubling_us, "rdma_bytes_per_s": known.rdma_bytes_per_s}
    held_out = _spread(cross_link_us(rows, [parity[row.size] for row in rows], *nominal), measured)
    fit = Fit(
        name=f"{rows[0].mode} {rows[0].phase}",
        numbers=named,
        rows=len(rows),
        group="every second token count",
        errors=_spread(link_us(numbers, rows), measured),
        held_out=held_out,
    )
    nodes = [row.nodes for row in rows]
    link = CommLink(
        mode=rows[0].mode,
        phase=rows[0].phase,
        nodes=(min(nodes), max(nodes)),
        base_us=named["base_us"],
        per_doubling_us=named["per_doubling_us"],
        rdma_bytes_per_s=named["rdma_bytes_per_s"],
        nvlink_bytes_per_s=named["nvlink_bytes_per_s"],
        q=named["q"],
        notify_us=_notify(rows),
        band_p90=round(held_out[2] / 100, 3),
        calibrated=True,
        source=f"{source}, {len(rows)} rows",
    )
    return fit, link


def _named(numbers: LinkNumbers) -> dict[str, float]:
    """Rounded down where a bound lies above, so that the row stays inside it."""
    return {
        "base_us": round(numbers.base_us, 2),
        "per_doubling_us": round(numbers.per_doubling_us, 2),
        "rdma_bytes_per_s": float(int(numbers.rdma_bytes_per_s / 1e7) * 10**7),
        "nvlink_bytes_per_s": float(int(numbers.nvlink_bytes_per_s / 1e7) * 10**7),
        "q": round(numbers.q, 2),
    }


def _notify(rows: list[LinkRow]) -> tuple[tuple[int, float], ...]:
    """Median notify µs by number of nodes; nothing where none was timed."""
    if not any(row.notify_us for row in rows):
        return ()
    every = sorted({row.nodes for row in rows})
    medians = [float(np.median([row.notify_us for row in rows if row.nodes == nodes])) for nodes in every]
    rising = np.maximum.accumulate(medians)
    return tuple((nodes, round(float(us), 1)) for nodes, us in zip(every, rising, strict=True))


def _spread(predicted: FloatArray, measured: FloatArray) -> tuple[float, float, float]:
    error = np.abs(predicted / measured - 1) * 100
    return float(error.mean()), float(np.median(error)), float(np.percentile(error, 90))


def _require_rows(table: Table[ExpertRow] | Table[LinkRow]) -> None:
    if not table.rows:
        notes = "; ".join(map(str, table.dropped)) or "it is empty"
        raise ProfileError(f"no row can be fitted: {notes}", where=table.source, fix="give another table")
