"""What the trace commands have in common: facts of a trace as a line or as JSON values, layer ids as text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from easybalance_sim.errors import UsageError
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    from easybalance_sim.trace.dataset import TokenTrace
    from easybalance_sim.trace.scan import TraceScan
    from easybalance_sim.trace.schema import CountTrace


def facts(trace: TokenTrace | CountTrace, scan: TraceScan | None) -> dict[str, Any]:
    """What a trace holds; `scan` is None for a count trace."""
    meta = trace.meta
    known: dict[str, Any] = {
        "kind": meta.kind,
        "model": meta.model,
        "tokens": scan.tokens if scan else _count_tokens(trace),
        "steps": scan.steps if scan else _count_windows(trace),
        "layers": len(meta.layers),
        "experts": meta.experts,
        "top_k": meta.top_k,
    }
    return known | {"requests": scan.requests} if scan else known


def facts_line(known: dict[str, Any]) -> str:
    """`facts` for people."""
    span = many(known["steps"], "step" if known["kind"] == "tokens" else "window")
    requests = f", {many(known['requests'], 'request')}" if "requests" in known else ""
    return (
        f"{many(known['tokens'], 'token')}, {span}{requests}, {many(known['layers'], 'layer')} × "
        f"{known['experts']} experts, top-{known['top_k']}, model {known['model']}"
    )


def by_phase(trace: TokenTrace | CountTrace, scan: TraceScan | None) -> dict[str, int]:
    """Tokens per phase that occurs."""
    from easybalance_sim.trace.schema import PHASES

    return _named(PHASES, scan.phase_tokens if scan else _sums(trace, "phase"))


def by_workload(trace: TokenTrace | CountTrace, scan: TraceScan | None) -> dict[str, int]:
    """Tokens per workload that occurs."""
    return _named(trace.workloads, scan.workload_tokens if scan else _sums(trace, "workload"))


def without_nan(value: Any) -> Any:
    """Plain values for JSON: NaN becomes null, floats are cut to six significant digits."""
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(inner) for inner in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")
    return value


def parse_layers(text: str | None) -> tuple[int, ...] | None:
    """Layer ids from "3-60" or "0,2,4-7". Raises `UsageError` when it is neither."""
    if text is None:
        return None
    ids: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part.strip())
        if found is None:
            raise UsageError(f"{text!r} is not a list of layer ids", where="--layers", fix="write 3-60 or 0,1,2")
        ids += range(int(found[1]), int(found[2] or found[1]) + 1)
    if not ids or len(set(ids)) != len(ids):
        raise UsageError(f"{text!r} has no layer, or one twice", where="--layers", fix="write 3-60 or 0,1,2")
    return tuple(ids)


def _named(names: Sequence[str], tokens: Any) -> dict[str, int]:
    return {name: int(count) for name, count in zip(names, tokens, strict=False) if count}


def _sums(trace: Any, column: str) -> Any:
    import numpy as np

    return np.bincount(getattr(trace, column), weights=trace.batch_tokens)


def _count_tokens(trace: Any) -> int:
    return int(trace.batch_tokens.sum())


def _count_windows(trace: Any) -> int:
    return len(trace.window)
