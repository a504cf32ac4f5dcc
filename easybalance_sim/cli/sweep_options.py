"""Options that only `sweep` has, and its lists of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing
from easybalance_sim.cli.options import MOST_RANKS
from easybalance_sim.errors import UsageError

MOST_SLOTS, MOST_WINDOW_STEPS = 2**16, 2**31 - 1
DEFAULT_WINDOW_STEPS = "16"

SlotsPerRank = Annotated[
    str, typer.Option("--slots-per-rank", metavar="S,S,…", help="Slots per rank to try, or say --redundancy.")
]
Redundancy = Annotated[
    str,
    typer.Option(
        "--redundancy",
        metavar="N,N,…",
        help="Slots per rank to try beyond the fewest that hold the experts [0,1,2,3,4].",
    ),
]
Ranks = Annotated[str, typer.Option("--ranks", metavar="R,R,…", help="Ranks of the EP group to try [8].")]
WindowSteps = Annotated[str, typer.Option("--window-steps", metavar="N,N,…", help="Steps per window to try.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        autocompletion=completing.policies,
        metavar="NAME",
        help="Only this policy; may be repeated [eplb, window_search].",
    ),
]
BudgetS = Annotated[
    float,
    typer.Option(
        "--budget-s", show_default=False, metavar="SECONDS", min=0.0, help="Seconds for all searches [no limit]."
    ),
]
PerLayer = Annotated[
    bool, typer.Option("--per-layer", help="Also divide the slots of each point unevenly among layers (a what-if).")
]
KvCacheDtype = Annotated[
    str,
    typer.Option(
        "--kv-cache-dtype", autocompletion=completing.kv_dtypes, metavar="NAME", help="KV cache values: bf16 or fp8."
    ),
]
Figure = Annotated[Path | None, typer.Option("--figure", metavar="FILE.svg", help="Draw the curves.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.json", help="The report as JSON.")]


def numbers(flag: str, text: str, least: int, most: int) -> tuple[int, ...]:
    """Whole numbers from "8,16", each once, in the order given; none from "".

    Raises `UsageError` for anything else and for numbers outside `least`..`most`.
    """
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"{text!r} is not a list of whole numbers", where=flag, fix="write 4,5,6")
    found = tuple(dict.fromkeys(int(part) for part in parts))
    outside = next((number for number in found if not least <= number <= most), None)
    if outside is not None:
        raise UsageError(f"{outside} is not between {least} and {most}", where=flag)
    return found


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What the lists of `sweep` hold; empty = not said, but window lengths always are."""

    ranks: tuple[int, ...]
    slots_per_rank: tuple[int, ...]
    redundancy: tuple[int, ...]
    window_steps: tuple[int, ...]

    @classmethod
    def of(cls, ranks: str, slots_per_rank: str, redundancy: str, window_steps: str) -> Numbers:
        """Read the four lists. Raises `UsageError` as `numbers`."""
        return cls(
            ranks=numbers("--ranks", ranks, 1, MOST_RANKS),
            slots_per_rank=numbers("--slots-per-rank", slots_per_rank, 1, MOST_SLOTS),
            redundancy=numbers("--redundancy", redundancy, 0, MOST_SLOTS),
            window_steps=numbers("--window-steps", window_steps or DEFAULT_WINDOW_STEPS, 1, MOST_WINDOW_STEPS),
        )
