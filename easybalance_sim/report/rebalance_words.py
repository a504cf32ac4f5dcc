"""What control loops come to in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.words import many, size

Run = Mapping[str, Any]
HOUR_S = 3600.0
LITTLE = 0.001
"""Of an hour; a loop that saves less is not worth its trouble."""
KEEP, ONCE, AGAIN = "KEEP THE PLAN", "PLAN ONCE", "RE-PLAN"


def best_of(run: Run) -> Run:
    """The loop that saves most; of equals the one that moves least, then the first."""
    best: Run = min(run["loops"], key=lambda loop: (-loop["saved_s_per_hour"], loop["bytes"]))
    return best


def still_of(run: Run) -> Run:
    """The best of the loops that changed no plan; the first one never does."""
    best: Run = max((loop for loop in run["loops"] if not loop["replans"]), key=lambda loop: loop["saved_s_per_hour"])
    return best


def advised_of(run: Run) -> Run:
    """The loop that saves most, or the best one that changes no plan where that saves hardly less."""
    best, still = best_of(run), still_of(run)
    close = best["saved_s_per_hour"] - still["saved_s_per_hour"] < LITTLE * HOUR_S
    return still if close and still is not run["loops"][0] else best


def worth_it(loop: Run) -> bool:
    """Whether it saves enough to be worth its trouble."""
    return bool(loop["saved_s_per_hour"] >= LITTLE * HOUR_S)


def saved_words(loop: Run) -> str:
    """`+1.2 s per hour`."""
    return f"{loop['saved_s_per_hour']:+,.1f} s per hour"


def answer(run: Run) -> tuple[str, str]:
    """`KEEP`, `ONCE` or `AGAIN`, and why, against never re-planning."""
    best, never = best_of(run), run["loops"][0]
    if best is never or not worth_it(best):
        others = "" if best is never else f" The best of them, {best['policy']}, saves {saved_words(best)}."
        return KEEP, f"No loop saves a thousandth of the time: keep the plan in force.{others}"
    still, advised = still_of(run), advised_of(run)
    if not best["replans"]:
        text = f"{best['policy']} saves {saved_words(best)} without a single re-plan; re-planning adds nothing here."
        return ONCE, text
    more = best["saved_s_per_hour"] - still["saved_s_per_hour"]
    how = f"with {many(best['replans'], 're-plan')} that move {size(best['bytes'])} and {_stops(best)}"
    if advised is still:
        text = (
            f"{still['policy']} saves {saved_words(still)} without a single re-plan; {best['policy']}, {how}, saves "
            f"only {more:,.1f} s per hour more."
        )
        return ONCE, text
    beyond = "" if still is never else f": {more:,.1f} s more than {still['policy']}, which moves nothing"
    return AGAIN, f"{best['policy']} saves {saved_words(best)} {how}{beyond}."


def _stops(loop: Run) -> str:
    return f"stop serving for {loop['pause_s']:,.2f} s" if loop["pause_s"] else "stop nothing"


def alone_or(other_us: float) -> str:
    """What of a step lies beside its MoE layers, and what of the hours that means. other_us: of a step."""
    return f"and {other_us / 1e3:g} ms" if other_us else "alone, so what is saved is of their hours"
