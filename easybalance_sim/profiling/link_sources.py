"""From a measured table of communication to a profile: fits, one factor for a benchmark's output, look-up tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from easybalance_sim.cluster.hardware import CommLink, HardwareProfile
from easybalance_sim.profiling.collectives import LookUp, nccl_tables, nvlink_tables
from easybalance_sim.profiling.imported import Fit, Imported, require_rows, spread
from easybalance_sim.profiling.link_fit import LinkNumbers, cross_link_us, fit_link, link_us
from easybalance_sim.profiling.rows import LinkRow, Table
from easybalance_sim.profiling.tables import deepep, deepep_bench
from easybalance_sim.profiling.tables.deepep_bench import Bench

LINKS: dict[str, Callable[[Path], Table[LinkRow]]] = {
    "deepep-low-latency": deepep.read_low_latency,
    "deepep-normal": deepep.read_normal,
}
LOOK_UPS: dict[str, Callable[[Path, str], tuple[LookUp, ...]]] = {
    "nccl": lambda path, _: nccl_tables(path),
    "trtllm-alltoall": nvlink_tables,
}
BENCH = "deepep-bench"
USUAL_BENCH = Bench(nodes=1, tokens=128, hidden=7168, top_k=8, experts=288)
"""How DeepEP's `test_low_latency.py` runs when nothing is said."""
_NORMAL_NODES = 4


def fitted(kind: str, path: Path, base: HardwareProfile) -> Imported:
    """Rows of a kind of `LINKS`, fitted into a copy of `base`."""
    table = LINKS[kind](path)
    require_rows(table)
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


def scaled_to_bench(path: Path, base: HardwareProfile, bench: Bench) -> Imported:
    """The base's rows of the phases that DeepEP's benchmark printed, their times scaled by one factor each.

    One output has one or two times of a phase, too few to fit five numbers. bench: how it ran.
    """
    table = deepep_bench.read(path, bench)
    require_rows(table)
    kinds = dict.fromkeys((row.mode, row.phase) for row in table.rows)
    fits, links = [], list(base.links)
    for mode, phase in kinds:
        rows = [row for row in table.rows if (row.mode, row.phase) == (mode, phase)]
        known = _known_row(base, mode, phase, bench.nodes)
        fit, link = _scaled(known, rows, table.source, base)
        fits.append(fit)
        links[links.index(known)] = link
    profile = msgspec.structs.replace(base, links=tuple(links))
    return Imported(profile=profile, fits=tuple(fits), dropped=table.dropped)


def looked_up(kind: str, path: Path, base: HardwareProfile, kernel: str) -> Imported:
    """Tables of a kind of `LOOK_UPS` in a copy of `base`, in the place of those of their mode."""
    found = LOOK_UPS[kind](path, kernel)
    others = tuple(old for old in base.link_tables if old.mode != found[0].table.mode)
    profile = msgspec.structs.replace(base, link_tables=(*(one.table for one in found), *others))
    return Imported(profile=profile, look_ups=found)


def _known_row(base: HardwareProfile, mode: str, phase: str, nodes: int) -> CommLink:
    """The row that `cost.network.link_cost` would take."""
    rows = [row for row in base.links if (row.mode, row.phase) == (mode, phase)]
    inside = [row for row in rows if row.nodes[0] <= nodes <= row.nodes[1]]
    return inside[0] if inside else max(rows, key=lambda row: row.nodes[1])


def _scaled(known: CommLink, rows: list[LinkRow], source: str, base: HardwareProfile) -> tuple[Fit, CommLink]:
    measured = np.array([row.us for row in rows])
    factor = float(np.exp(np.log(measured / link_us(_numbers(known), rows)).mean()))
    nodes = rows[0].nodes
    link = msgspec.structs.replace(
        known,
        nodes=(min(known.nodes[0], nodes), max(known.nodes[1], nodes)),
        base_us=round(known.base_us * factor, 2),
        per_doubling_us=round(known.per_doubling_us * factor, 2),
        rdma_bytes_per_s=float(round(min(known.rdma_bytes_per_s / factor, base.inter_node_bytes_per_s))),
        nvlink_bytes_per_s=float(round(min(known.nvlink_bytes_per_s / factor, base.nvlink_bytes_per_s))),
        notify_us=_notify(rows) or known.notify_us,
        calibrated=True,
        why="",
        source=f"{source}, times of: {known.source}, scaled by {factor:.3f}",
    )
    fit = Fit(
        name=f"{known.mode} {known.phase}",
        numbers={"factor": factor, **_shown(_numbers(link))},
        rows=len(rows),
        group="",
        errors=spread(link_us(_numbers(link), rows), measured),
        held_out=None,
    )
    return fit, link


def _numbers(row: CommLink) -> LinkNumbers:
    return LinkNumbers(**{name: getattr(row, name) for name in LinkNumbers.__dataclass_fields__})


def _shown(numbers: LinkNumbers) -> dict[str, float]:
    return {name: getattr(numbers, name) for name in LinkNumbers.__dataclass_fields__}


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
    held_out = spread(cross_link_us(rows, [parity[row.size] for row in rows], *nominal), measured)
    fit = Fit(
        name=f"{rows[0].mode} {rows[0].phase}",
        numbers=named,
        rows=len(rows),
        group="every second token count",
        errors=spread(link_us(numbers, rows), measured),
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
