"""The first lines: how much has to be on the GPU, and where LRU hits as often as it is said to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.simulate.offloading.prefetch import NONE

Section = Mapping[str, Any]


def answers(report: Section) -> list[str]:
    """For every batch size what the asked memory gives, a recommendation, and what LRU does."""
    found = []
    for batch in report["batches"]:
        if report["gpu_gb"] is not None:
            found.append(_with_memory(batch, report))
        found += [_recommended(batch, report), *_claim(batch, report)]
    return found


def _with_memory(batch: Section, report: Section) -> str:
    """The shortest steps in the memory that was asked for."""
    usable = [curve for curve in batch["curves"] if not curve["bound"]]
    best = min(usable or batch["curves"], key=lambda curve: float(curve["points"][0]["slowdown"]))
    (point,) = best["points"]
    return (
        f"{batch_in_words(batch)}: {report['gpu_gb']:g} GB hold {point['share']:.0%} of the experts; with "
        f"{name_of(best)} {point['hit_rate']:.0%} of those needed are there and steps take {point['slowdown']:.3g} "
        f"times as long (P99 waits {point['added_us']['p99'] / 1e3:.3g} ms)"
    )


def _recommended(batch: Section, report: Section) -> str:
    """The least memory within the limit that something which does not know the future reaches."""
    usable = [curve for curve in batch["curves"] if not curve["bound"] and curve["within_from"] is not None]
    whole = report["model"]["all_bytes"]
    best = min(usable, key=lambda curve: int(curve["within_from"]["experts"]), default=None)
    limit = f"{report['within']:.0%}"
    if best is None or best["within_from"]["gpu_bytes"] >= whole:
        return (
            f"{batch_in_words(batch)}: keep all experts on the GPU ({gigabytes(whole)}): with any fewer, steps are "
            f"more than {limit} longer; a layer needs {batch['experts_per_layer']:.3g} experts, each takes "
            f"{report['host']['expert_us']:.3g} µs on the link, and the layer "
            f"{batch['all_resident']['layer_us']:.3g} µs"
        )
    reach = best["within_from"]
    return (
        f"{batch_in_words(batch)}: {reach['share']:.0%} of the experts on the GPU ({gigabytes(reach['gpu_bytes'])} of "
        f"{gigabytes(whole)}) keep the mean step within {limit}, with {name_of(best)}"
    )


def _claim(batch: Section, report: Section) -> list[str]:
    what = f"{batch_in_words(batch)}: LRU {{}} {report['claimed_hit_rate']:.0%} of the experts that a layer needs"
    for curve in batch["curves"]:
        if (curve["policy"], curve["prefetch"]) == ("lru", NONE):
            reach = curve["claimed_hit_rate_from"]
            if reach is None:
                return [what.format("does not hit")]
            size = f"from {reach['share']:.0%} of all experts in the cache on"
            return [f"{what.format('hits')} {size}; steps are then {reach['slowdown']:.2g} times as long"]
    return []


def batch_in_words(batch: Section) -> str:
    """ "64 requests at once" or "as recorded, 94 tokens a step"."""
    if batch["batch"] is None:
        return f"as recorded, {batch['tokens_per_step']:.3g} tokens a step"
    return f"{batch['batch']} request{'' if batch['batch'] == 1 else 's'} at once"


def name_of(curve: Section) -> str:
    """ "lru + previous-layer"."""
    return str(curve["policy"]) if curve["prefetch"] == NONE else f"{curve['policy']} + {curve['prefetch']}"


def gigabytes(size: float) -> str:
    """ "12.3 GB", small sizes in MB."""
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
