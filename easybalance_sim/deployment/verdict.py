"""What a report comes to, in lines that an engineer reads first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NOTHING = 0.01
"""Changes of a time below this share are none."""
Section = Mapping[str, Any]


def verdict(report: Section) -> list[str]:
    """The lines."""
    return [*_who_wins(report), *_overload(report)]


def _who_wins(report: Section) -> Iterator[str]:
    """Whether the order of the plans holds over the bracket, and what communication does to it."""
    ends, name = report["bracket"], "end_to_end_ms"
    signs = [_sign(*(ends[key][end][name]["mean"] for key in ("after", "before"))) for end in ("serial", "overlapped")]
    if signs[0] * signs[1] < 0:
        yield "which plan is better depends on how much communication hides behind compute: see both ends below"
    for pool in report["pools"]:
        if pool["candidates"] and not any(one["taken"] for one in pool["candidates"][1:]):
            yield (
                f"{pool['role']} pool: the plan before stays, no candidate served better with the routing that plans "
                "are made from"
            )
    before, after = (report[key]["pools"] for key in ("before", "after"))
    for pool, old, new in zip(report["pools"], before, after, strict=True):
        yield from _moved(pool, old, new)


def _moved(pool: Section, old: Section, new: Section) -> Iterator[str]:
    """Communication per token that grew more than imbalance fell."""
    link, lost = (_per_token(section, names) for section, names in ((new, LINKS), (new, LOST)))
    link_before, lost_before = (_per_token(section, names) for section, names in ((old, LINKS), (old, LOST)))
    grown, saved = link - link_before, lost_before - lost
    if grown > NOTHING * _per_token(old, ("steps",)) and grown > saved:
        yield (
            f"{pool['role']} pool: the plan sends tokens to more ranks; communication grows by {grown * 1e6:.2f} s per "
            f"million tokens, imbalance falls by {saved * 1e6:.2f} s"
        )


LINKS, LOST = ("dispatch", "combine"), ("lost_dispatch", "lost_expert", "lost_combine")


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
    over = [
        f"{key} ({pool['role']})" for key in ("before", "after") for pool in report[key]["pools"] if pool["queue_grew"]
    ]
    if over:
        yield (
            f"more requests come than are served: {', '.join(over)}. Times are those of a queue that grows, tokens/s "
            "the most there is"
        )
