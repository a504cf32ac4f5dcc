"""What scripts rely on in the JSON of `ebsim plan` and `ebsim replay`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

SECTION: dict[str, set[str]] = {
    "policy": set(),
    "rank_imbalance": {"mean", "p50", "p95", "p99", "max"},
    "layer_us": {"p50", "p95", "p99"},
    "step_us": {"p50", "p95", "p99"},
    "active_experts_per_rank": {"mean", "p99"},
    "cross_node_bytes_per_token": set(),
    "lower_bound_imbalance": set(),
    "lower_bound_per_window": {"mean", "p99"},
    "slots": set(),
    "redundant_slots": set(),
    "memory_bytes_per_rank": set(),
}
REPORT: dict[str, set[str]] = {
    "trace": {"kind", "tokens", "steps", "layers", "experts", "top_k"},
    "split": {"by", "fit_steps", "held_out_steps"},
    "baseline": set(SECTION),
    "plan": set(SECTION),
    "memory": {
        "kv_cache_loss_frac",
        "kv_tokens_lost",
        "bytes_per_redundant_slot",
        "staging_bytes",
        "expert_memory_frac",
        "dispatch_buffer",
        "activation_bytes",
        "warnings",
    },
    "migration": {"moves", "bytes", "seconds"},
    "verdict": {"status", "findings"},
    "plan_file": set(),
    "fingerprint": set(),
    "timing_s": {"total"},
}
BUFFER = {"sent_per_rank", "tokens_per_rank", "tokens_per_expert", "bytes"}
FINDING = {"criterion", "limit", "observed", "ok"}


def require_documented(report: dict[str, Any]) -> None:
    """Every documented key is there, and every number is finite."""
    for place, wanted in ((report, REPORT), (report["baseline"], SECTION), (report["plan"], SECTION)):
        for name, keys in wanted.items():
            assert name in place
            assert not keys or keys <= set(place[name]), name
    assert set(report["memory"]["dispatch_buffer"]) == BUFFER
    assert all(set(finding) >= FINDING for finding in report["verdict"]["findings"])
    assert all(math.isfinite(value) for value in _values(report) if isinstance(value, int | float))


def _values(content: Any) -> Iterator[Any]:
    if isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _values(inner)
    else:
        yield content
