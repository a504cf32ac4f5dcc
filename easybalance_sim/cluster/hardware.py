"""Hardware profiles: what a GPU, its links and its expert kernels measured, as data with sources.

A profile is a TOML file of the package (`profiles/*.toml`) or the user's own. Efficiencies and bandwidths are fits to
measured tables; every row says its source, the 90th percentile of its error (`band_p90`) and whether it was measured
on this GPU (`calibrated`) or transferred from another (`why` says how). The band of expert kernels and of multi-node
links comes from rows that the fit did not see; that of one-node and H800 links from the fitted rows themselves, so it
is a little narrow. Transferred rows add 12 points inside an architecture and 20 across; the H200's multi-node links,
which are the H100's unchanged, add nothing.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim.cluster.model_shape import WEIGHT_BYTES
from easybalance_sim.errors import ProfileError, did_you_mean

PHASES = ("prefill", "decode")
FITTED_MODES, TABLE_MODES = ("normal", "low_latency"), ("nccl", "nvlink")
MODES = (*FITTED_MODES, *TABLE_MODES)
DIRECTIONS = ("dispatch", "combine")
SENT_DTYPES = ("bf16", "fp8", "nvfp4")


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    source: str
    band_p90: float = 0.0
    calibrated: bool
    why: str = ""


class ExpertKernel(_Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fitted parameters of one grouped-GEMM kernel at one weight dtype (formula in `cost.expert`).

    phases: the phases for which it is the default · c0_us: fixed time · host_launch_us: part of the measured fixed time
    that was eager host launches and is left out of `c0_us` · eff_bw, eff_flop: share of the nominal HBM bandwidth and
    peak, 0 < eff ≤ 1 (1.0 = at the bound, not identified) · q ≥ 1: sharpness of the weights/compute maximum · block:
    tile height in tokens, a power of two · tok: passes over the distinct tokens' rows · hidden, intermediate: range of
    model widths in the fitted table, empty = any.
    """

    kernel: str
    dtype: str
    phases: tuple[str, ...] = ()
    c0_us: float
    host_launch_us: float = 0.0
    eff_bw: float
    eff_flop: float
    q: float
    block: int
    tok: float
    hidden: tuple[int, ...] = ()
    intermediate: tuple[int, ...] = ()


class CommLink(_Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fitted parameters of one all-to-all phase (formula in `cost.network`).

    mode: `normal` or `low_latency` · phase: `dispatch` or `combine` · nodes: [fewest, most] NVLink domains of the
    fitted table · per_doubling_us: per doubling of the domains (normal: once when there are several) · q: sharpness of
    the RDMA/NVLink maximum, 0 = plain maximum · notify_us: [[domains, µs], …] layout exchange before the transfer.
    """

    mode: str
    phase: str
    nodes: tuple[int, int]
    base_us: float
    per_doubling_us: float = 0.0
    rdma_bytes_per_s: float
    nvlink_bytes_per_s: float
    q: float = 0.0
    notify_us: tuple[tuple[int, float], ...] = ()


class LinkTable(_Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Measured µs of an all-to-all inside one NVLink domain with every rank sending as much (`cost.link_tables`).

    mode: `nccl` or `nvlink` · phases: `dispatch`, `combine` or both · dtype: of the rows sent, one of `SENT_DTYPES` ·
    ranks: GPUs · sent_bytes: that leave a rank, strictly increasing.
    """

    mode: str
    phases: tuple[str, ...]
    dtype: str
    ranks: int
    sent_bytes: tuple[float, ...]
    us: tuple[float, ...]


class MigrationLink(_Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Point-to-point bandwidth for moving expert weights between GPUs."""

    cross_node_bytes_per_s: float
    nvlink_bytes_per_s: float


class ExpertTable(_Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The user's own measurement: µs of the expert part of one layer at `tokens` arriving at a rank under a balanced
    load, strictly increasing.

    slots: of the rank that was measured, 0 = as many as there are without redundant ones.
    """

    tokens: tuple[float, ...]
    us: tuple[float, ...]
    slots: int = 0


class HardwareProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One GPU with its links and kernels.

    peak_flops: dense FLOP/s at which experts of each weight dtype compute · nvlink_bytes_per_s,
    inter_node_bytes_per_s: nominal, one direction, per GPU · nvlink_domain: GPUs that share NVLink · link_tables: modes
    that are looked up, not fitted ·
    expert_table: the user's, on which the kernels' formula is anchored (`cost.anchored`).
    """

    name: str
    title: str
    source: str
    hbm_bytes: int
    hbm_bytes_per_s: float
    peak_flops: dict[str, float]
    nvlink_bytes_per_s: float
    inter_node_bytes_per_s: float
    nvlink_domain: int
    experts: tuple[ExpertKernel, ...]
    links: tuple[CommLink, ...]
    migration: MigrationLink
    link_tables: tuple[LinkTable, ...] = ()
    expert_table: ExpertTable | None = None


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that come with the package."""
    files = resources.files("easybalance_sim.cluster").joinpath("profiles").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def load_profile(name_or_path: str) -> HardwareProfile:
    """The profile of a known GPU (any case) or of the user's own TOML file.

    Raises `ProfileError`: unknown name (the names are listed), unreadable file, unknown field, impossible value.
    """
    if name_or_path.endswith(".toml"):
        return _parse(_read(Path(name_or_path)), name_or_path)
    name = name_or_path.lower()
    if name not in profile_names():
        raise ProfileError(
            f"unknown hardware profile; there are {', '.join(profile_names())}",
            where=name_or_path,
            fix=f"{did_you_mean(name, profile_names())}or give your own .toml profile or "
            ".csv/.parquet table (h100+table.csv: with the rest of the H100)",
        )
    packaged = resources.files("easybalance_sim.cluster").joinpath("profiles", f"{name}.toml")
    return _parse(packaged.read_text(encoding="utf-8"), f"{name}.toml")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check --profile") from error


def _parse(text: str, where: str) -> HardwareProfile:
    try:
        profile = msgspec.convert(tomllib.loads(text), HardwareProfile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ProfileError(
            f"not a hardware profile: {error}", where=where, fix="see cluster/profiles/ for one"
        ) from error
    problem = _not_finite(msgspec.to_builtins(profile)) or _profile_problem(profile)
    if problem:
        raise ProfileError(problem, where=where, fix="correct the value")
    return profile


def _not_finite(value: Any, name: str = "") -> str:
    """The first number that is none: TOML knows nan and inf, and no comparison refuses nan."""
    if isinstance(value, float) and not isfinite(value):
        return f"{name} is {value}"
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    found = (_not_finite(part, f"{name}.{key}".strip(".")) for key, part in pairs)
    return next((problem for problem in found if problem), "")


def _profile_problem(profile: HardwareProfile) -> str:
    positive = ("hbm_bytes", "hbm_bytes_per_s", "nvlink_bytes_per_s", "inter_node_bytes_per_s", "nvlink_domain")
    bad = next((name for name in positive if getattr(profile, name) <= 0), None)
    if bad:
        return f"{bad} must be > 0"
    if set(profile.peak_flops) != set(WEIGHT_BYTES) or min(profile.peak_flops.values()) <= 0:
        return f"peak_flops needs one value > 0 for each of {', '.join(WEIGHT_BYTES)}"
    if not any(kernel.phases for kernel in profile.experts):
        return "experts need at least one kernel that is the default of a phase"
    problems = [_kernel_problem(kernel) for kernel in profile.experts]
    problems += [_link_problem(link, profile) for link in profile.links]
    problems += [_link_table_problem(table) for table in profile.link_tables]
    problems += [_missing_link(profile), _migration_problem(profile.migration), _table_problem(profile.expert_table)]
    return next((problem for problem in problems if problem), "")


def _kernel_problem(row: ExpertKernel) -> str:
    name = f"experts {row.dtype} {row.kernel}"
    if row.dtype not in WEIGHT_BYTES:
        return f"{name}: dtype is not one of {', '.join(WEIGHT_BYTES)}"
    if not (0 < row.eff_bw <= 1 and 0 < row.eff_flop <= 1):
        return f"{name}: eff_bw and eff_flop must be > 0 and ≤ 1"
    if row.q < 1 or row.c0_us < 0 or row.host_launch_us < 0 or row.tok < 0:
        return f"{name}: q must be ≥ 1, times and tok ≥ 0"
    if row.block < 1 or row.block & (row.block - 1):
        return f"{name}: block must be a power of two"
    if not set(row.phases) <= set(PHASES):
        return f"{name}: phases are {', '.join(PHASES)}"
    if any(len(span) not in (0, 2) for span in (row.hidden, row.intermediate)):
        return f"{name}: hidden and intermediate are [smallest, largest]"
    return _row_problem(name, row)


def _link_problem(row: CommLink, profile: HardwareProfile) -> str:
    name = f"links {row.mode} {row.phase}"
    if row.mode not in FITTED_MODES or row.phase not in DIRECTIONS:
        return f"{name}: mode is one of {', '.join(FITTED_MODES)}, phase one of {', '.join(DIRECTIONS)}"
    if not 0 < row.rdma_bytes_per_s <= profile.inter_node_bytes_per_s:
        return f"{name}: rdma_bytes_per_s must be > 0 and at most the nominal {profile.inter_node_bytes_per_s:g}"
    if not 0 < row.nvlink_bytes_per_s <= profile.nvlink_bytes_per_s:
        return f"{name}: nvlink_bytes_per_s must be > 0 and at most the nominal {profile.nvlink_bytes_per_s:g}"
    if row.base_us < 0 or row.per_doubling_us < 0 or (row.q != 0 and row.q < 1):
        return f"{name}: times must be ≥ 0 and q 0 or ≥ 1"
    if not 1 <= row.nodes[0] <= row.nodes[1]:
        return f"{name}: nodes is [fewest, most], at least 1"
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in zip(row.notify_us, row.notify_us[1:], strict=False)):
        return f"{name}: notify_us must rise with the number of nodes"
    return _row_problem(name, row)


def _missing_link(profile: HardwareProfile) -> str:
    have = {(link.mode, link.phase) for link in profile.links}
    missing = [f"{mode} {phase}" for mode in FITTED_MODES for phase in DIRECTIONS if (mode, phase) not in have]
    return f"links lack {missing[0]}" if missing else ""


def _table_problem(table: ExpertTable | None) -> str:
    if table is None:
        return ""
    if table.slots < 0:
        return "expert_table: slots must be ≥ 0"
    return _curve_problem("expert_table", "tokens", table.tokens, table.us) or _row_problem("expert_table", table)


def _link_table_problem(table: LinkTable) -> str:
    name = f"link_tables {table.mode} of {table.ranks} ranks"
    if table.mode not in TABLE_MODES or not table.phases or not set(table.phases) <= set(DIRECTIONS):
        return f"{name}: mode is one of {', '.join(TABLE_MODES)}, phases are {', '.join(DIRECTIONS)}"
    if table.dtype not in SENT_DTYPES or table.ranks < 2:
        return f"{name}: dtype is one of {', '.join(SENT_DTYPES)}, ranks at least 2"
    return _curve_problem(name, "sent_bytes", table.sent_bytes, table.us) or _row_problem(name, table)


def _curve_problem(name: str, axis: str, known: tuple[float, ...], us: tuple[float, ...]) -> str:
    if len(known) != len(us) or len(us) < 2:
        return f"{name}: {axis} and us need the same number of values, at least two"
    rising = all(a < b for a, b in zip((0.0, *known), known, strict=False))
    return "" if rising and min(us) > 0 else f"{name}: {axis} must be > 0 and rise strictly, us be > 0"


def _migration_problem(row: MigrationLink) -> str:
    if row.cross_node_bytes_per_s <= 0 or row.nvlink_bytes_per_s <= 0:
        return "migration: bandwidths must be > 0"
    return _row_problem("migration", row)


def _row_problem(name: str, row: _Struct) -> str:
    if row.band_p90 < 0:
        return f"{name}: band_p90 must be ≥ 0"
    if not row.calibrated and not row.why:
        return f"{name}: a row that is not calibrated needs the reason in why"
    return ""
