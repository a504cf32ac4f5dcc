"""What control loops come to in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from easybalance_sim.report.words import many, size

Run = Mapping[str, Any]
HOUR_S = 3600.0
LITTLE = 0.001
"""Of an hour; a loop that saves less is not worth its trouble."""
TIE = 0.05
"""Of the MoE layers' time: differences below it are ties, as between the candidates of a plan."""
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
    """Of the loops that save as much as the best, but for the model's tie, the one that moves least."""
    return least_moved(run["loops"], tie_of(run, run["loops"][0]["seconds"]))


def least_moved(rows: Iterable[Run], tie: float) -> Run:
    """Of the rows that save as much as the best but for the tie the one with the fewest bytes, of equals the one that
    saves most. tie: seconds per hour."""
    found = list(rows)
    most = max(row["saved_s_per_hour"] for row in found)
    tied = [row for row in found if most - row["saved_s_per_hour"] < tie or row["saved_s_per_hour"] == most]
    best: Run = min(tied, key=lambda row: (row["bytes"], -row["saved_s_per_hour"]))
    return best


def tie_of(run: Run, seconds: float) -> float:
    """Seconds per hour that the model cannot tell apart: of MoE layers, what else a step takes is stated. seconds: of
    all steps of the trace without a re-plan."""
    other: float = 1e-6 * run["cost"]["other_us"] * run["trace"]["steps"]
    return TIE * HOUR_S * max(0.0, 1 - other / max(seconds, 1e-12))


def worth_it(loop: Run) -> bool:
    """Whether it saves enough to be worth its trouble."""
    return bool(loop["saved_s_per_hour"] >= LITTLE * HOUR_S)


def saved_words(loop: Run) -> str:
    """`+1.2 s per hour`."""
    return f"{loop['saved_s_per_hour']:+,.1f} s per hour"


def answer(run: Run) -> tuple[str, str]:
    """`KEEP`, `ONCE` or `AGAIN`, and why, against never re-planning."""
    best, never, advised = best_of(run), run["loops"][0], advised_of(run)
    if best is never or not worth_it(best):
        others = "" if best is never else f" The best of them, {best['policy']}, saves {saved_words(best)}."
        return KEEP, f"No loop saves a thousandth of the time: keep the plan in force.{others}"
    tie = tie_of(run, never["seconds"])
    inside = f"within the model's tie of {tie:,.1f} s per hour ({100 * TIE:g} % of the MoE layers' time)"
    if not worth_it(advised):
        return KEEP, f"{best['policy']} saves most, {saved_words(best)}, {_how(best)}: {inside}."
    if advised is best:
        return (
            (AGAIN, _alone(run, best)) if best["replans"] else (ONCE, _still(best, " re-planning adds nothing here."))
        )
    more = best["saved_s_per_hour"] - advised["saved_s_per_hour"]
    against = f" {best['policy']}, {_how(best)}, saves {more:,.1f} s per hour more, {inside}."
    against += (
        f" So is what {advised['policy']} saves against never re-planning." if advised["saved_s_per_hour"] < tie else ""
    )
    if not advised["replans"]:
        return ONCE, _still(advised, against)
    return AGAIN, f"{advised['policy']} saves {saved_words(advised)} {_how(advised)};{against}"


def _still(loop: Run, against: str) -> str:
    return f"{loop['policy']} saves {saved_words(loop)} without a single re-plan;{against}"


def _alone(run: Run, best: Run) -> str:
    """Why what saves most is advised."""
    still = still_of(run)
    more = best["saved_s_per_hour"] - still["saved_s_per_hour"]
    beyond = "" if still is run["loops"][0] else f": {more:,.1f} s more than {still['policy']}, which moves nothing"
    return f"{best['policy']} saves {saved_words(best)} {_how(best)}{beyond}."


def _how(loop: Run) -> str:
    return f"with {many(loop['replans'], 're-plan')} that move {size(loop['bytes'])} and {_stops(loop)}"


def _stops(loop: Run) -> str:
    return f"stop serving for {loop['pause_s']:,.2f} s" if loop["pause_s"] else "stop nothing"


def alone_or(other_us: float) -> str:
    """What of a step lies beside its MoE layers, and what of the hours that means. other_us: of a step."""
    return f"and {other_us / 1e3:g} ms" if other_us else "alone, so what is saved is of their hours"
