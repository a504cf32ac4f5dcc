"""What a report comes to, in lines that an engineer reads first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.deployment.choosing import WORTH
from easybalance_sim.deployment.sizing.attainment import FEW_REQUESTS, MOST_GROWTH

NOTHING = 0.01
"""Changes below this share of a time are none."""
LOST = ("lost_dispatch", "lost_expert", "lost_combine")
KEYS = ("before", "after")
Section = Mapping[str, Any]


def verdict(report: Section) -> list[str]:
    """The lines."""
    return [*_none_served(report), *_who_wins(report), *_overload(report), *_scored(report)]


def none_answered(report: Section) -> bool:
    """Whether no scored request got an answer under one of the plans: then this is what there is to say."""
    return any(not report[key]["requests"]["answered"] for key in KEYS)


def _none_served(report: Section) -> Iterator[str]:
    """Plans under which nobody is answered, or nobody in time."""
    for key in KEYS:
        requests, pools = report[key]["requests"], report[key]["pools"]
        if requests["refused"] == requests["scored"]:
            never = any(pool["never_fit"] == pool["refused"] > 0 for pool in pools)
            why = "no rank's KV cache ever holds their tokens" if never else "the queue was full or they never fit"
            yield f"{key}: every scored request was refused, {why}"
        elif not requests["answered"]:
            yield f"{key}: no scored request was answered"
    late = [key for key in KEYS if report[key]["requests"]["answered"] and not report[key]["inside_slo"]]
    if late:
        yield f"no request keeps the SLO: {', '.join(late)}"


def _who_wins(report: Section) -> Iterator[str]:
    """Whether the order of the plans holds over the bracket, and what communication does to it."""
    ends, name = report["bracket"], "end_to_end_ms"
    signs = [_sign(*(ends[key][end][name]["mean"] for key in ("after", "before"))) for end in ("serial", "overlapped")]
    if signs[0] * signs[1] < 0:
        yield "which plan is better depends on how much communication hides behind compute: see both ends below"
    for pool in report["pools"]:
        if pool["candidates"] and not any(one["taken"] for one in pool["candidates"][1:]):
            yield (
                f"{_named(pool)}: the plan before stays, no candidate took {100 * WORTH:.0f} % off the mean time "
                "of requests set aside for choosing"
            )
    before, after = (report[key]["pools"] for key in ("before", "after"))
    for pool, old, new in zip(report["pools"], before, after, strict=True):
        yield from _moved(pool, old, new)


def _moved(pool: Section, old: Section, new: Section) -> Iterator[str]:
    """What a plan costs beside what its balance saves, where that is half of it or more."""
    saved = _per_token(old, LOST) - _per_token(new, LOST)
    slots = pool["after"]["slots"] > pool["before"]["slots"]
    growing = {
        "communication (a token goes to more ranks)": ("dispatch", "combine"),
        "experts (more slots)" if slots else "experts (smaller steps)": ("expert",),
    }
    grown = {name: _even(new, parts) - _even(old, parts) for name, parts in growing.items()}
    price = sum(max(0.0, seconds) for seconds in grown.values())
    step = _per_token(old, ("steps",))
    if price > NOTHING * step and price > saved / 2:
        told = [f"{name} +{1e6 * seconds:.2f} s" for name, seconds in grown.items() if seconds > NOTHING * step / 2]
        yield (
            f"{_named(pool)}, seconds per million tokens: imbalance {1e6 * _per_token(old, LOST):.2f} → "
            f"{1e6 * _per_token(new, LOST):.2f}, but {' and '.join(told)}"
        )


def _named(pool: Section) -> str:
    return "the pool" if pool["role"] == "mixed" else f"{pool['role']} pool"


def _even(section: Section, parts: tuple[str, ...]) -> float:
    """Seconds per token of parts, without what they lose to imbalance."""
    return _per_token(section, parts) - _per_token(section, tuple(f"lost_{part}" for part in parts))


def _per_token(section: Section, parts: tuple[str, ...]) -> float:
    tokens = float(section["prompt_tokens"] + section["decode_tokens"])
    return sum(float(section["seconds"][part]) for part in parts) / max(tokens, 1.0)


def _sign(after: float | None, before: float | None) -> int:
    if after is None or not before:
        return 0
    change = after / before - 1
    return 0 if abs(change) < NOTHING else 1 if change > 0 else -1


def _overload(report: Section) -> Iterator[str]:
    """Queues that grew as long as requests came."""
    one = len(report["pools"]) == 1
    over = [
        key if one else f"{key} ({pool['role']} pool)"
        for key in KEYS
        for pool in report[key]["pools"]
        if pool["queue_grew"] or (one and report[key]["queue_growth"] >= MOST_GROWTH)
    ]
    if over:
        yield (
            f"more requests come than are served: {', '.join(over)}. Times are those of a queue that grows, tokens/s "
            "the most there is"
        )


def _scored(report: Section) -> Iterator[str]:
    """Requests that are few, or end before the run does."""
    (from_s, to_s), run = report["workload"]["scored_s"], report["scenario"]
    if report["workload"]["scored"] < FEW_REQUESTS:
        yield (
            f"few requests are scored ({report['workload']['scored']}): single ones decide the percentiles, a longer "
            "--duration says more"
        )
    if from_s < run["warm_up_s"]:
        yield f"no request comes after the warm-up of {run['warm_up_s']:g} s: all are scored"
    elif to_s != run["duration_s"]:
        yield (
            f"requests end before the {run['duration_s']:g} s of the run are over: the last of them see a deployment "
            "that runs empty, rates are until the last answer"
        )
