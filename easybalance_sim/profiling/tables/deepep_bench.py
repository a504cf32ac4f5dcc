"""What DeepEP's own benchmarks print (`tests/test_low_latency.py`, `test_intranode.py`, `test_internode.py`).

Low latency prints one line per rank; a phase ends with its slowest rank. Normal mode prints its best setting per dtype.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.rows import LinkRow, Table, sift
from easybalance_sim.profiling.tables.deepep import GPUS_PER_NODE, copy_bytes, low_latency_copies, normal_copies

NO_TIME = "the line gives a bandwidth but no time (print of an older DeepEP)"
_NUMBER = r"(\d+(?:\.\d+)?)"
_RANK = re.compile(
    rf"\[rank \d+\] Dispatch bandwidth: {_NUMBER} GB/s, avg_t={_NUMBER} us \| "
    rf"Combine bandwidth: {_NUMBER} GB/s, avg_t={_NUMBER} us"
)
_BEST = re.compile(r"\[tuning\] Best (dispatch|combine)(?: \((FP8|BF16)\))?: (.*)")
_TIMES = (
    re.compile(rf"transmit: (?P<us>{_NUMBER}) us, notify: (?P<notify>{_NUMBER}) us"),
    re.compile(rf"(?P<notify>{_NUMBER}) \+ (?P<us>{_NUMBER}) us"),
    re.compile(rf"t: (?P<us>{_NUMBER}) us"),
)
_CONFIG = {
    "tokens": re.compile(r"num_tokens=(\d+)"),
    "hidden": re.compile(r"hidden=(\d+)"),
    "top_k": re.compile(r"num_topk=(\d+)"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """How the benchmark ran; a `[config]` line in its output replaces tokens, hidden and top-k. nodes: of 8 GPUs."""

    nodes: int
    tokens: int
    hidden: int
    top_k: int
    experts: int


def read(path: Path, bench: Bench) -> Table[LinkRow]:
    """The rows of a saved output. Raises `ProfileError`: unreadable, or no line of a DeepEP benchmark in it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check the path") from error
    table = sift(str(path), _judged(lines, bench))
    if not table.rows and not table.dropped:
        raise ProfileError("no result of a DeepEP benchmark", where=str(path), fix="give the output of its tests/")
    return table


def _judged(lines: list[str], bench: Bench) -> Iterator[tuple[LinkRow, str]]:
    slowest = {"dispatch": 0.0, "combine": 0.0}
    for line in lines:
        if line.startswith("[config]"):
            bench = _configured(bench, line)
        if rank := _RANK.search(line):
            slowest = {phase: max(us, float(rank[at])) for at, (phase, us) in zip((2, 4), slowest.items(), strict=True)}
        if best := _BEST.search(line):
            times = next((found for time in _TIMES if (found := time.search(best[3]))), None)
            us, notify = (0.0, 0.0) if times is None else _pair(times)
            yield _row(bench, "normal", best[1], best[2] or "", us, notify), "" if times else NO_TIME
    for phase, us in slowest.items():
        if us:
            yield _row(bench, "low_latency", phase, "FP8", us, 0.0), ""


def _configured(bench: Bench, line: str) -> Bench:
    found = {name: pattern.search(line) for name, pattern in _CONFIG.items()}
    return replace(bench, **{name: int(match[1]) for name, match in found.items() if match})


def _pair(times: re.Match[str]) -> tuple[float, float]:
    named = times.groupdict()
    return float(named["us"]), float(named.get("notify") or 0.0)


def _row(bench: Bench, mode: str, phase: str, dtype: str, us: float, notify: float) -> LinkRow:
    copies = low_latency_copies(bench.nodes, bench.top_k)
    if mode == "normal":
        copies = normal_copies(bench.nodes, bench.experts, bench.top_k)
    # Dispatch in BF16 moves what combine moves.
    size = copy_bytes(bench.hidden, mode, "combine" if dtype == "BF16" else phase)
    return LinkRow(
        us=us,
        curve=f"{mode} {phase} {dtype} {bench.nodes} nodes hidden {bench.hidden} top-{bench.top_k}",
        size=bench.tokens,
        phase=phase,
        mode=mode,
        nodes=bench.nodes,
        ranks=bench.nodes * GPUS_PER_NODE,
        rdma_bytes=bench.tokens * copies[0] * size,
        nvlink_bytes=bench.tokens * copies[1] * size,
        notify_us=notify,
    )
