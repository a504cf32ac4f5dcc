"""Which plans a deployment may name, told before anything is loaded."""

from __future__ import annotations

from easybalance_sim import policies
from easybalance_sim.errors import UsageError, did_you_mean

AUTO = "auto"
_FROM_ANOTHER = ("keep", "repair", "warm_search")
"""They begin at a plan in force, which a deployment does not have."""


def plan_names() -> tuple[str, ...]:
    """ "auto" and the policies that make a plan from traffic alone."""
    return (AUTO, *(name for name in policies.names() if name not in _FROM_ANOTHER))


def require_plan_name(name: str, where: str) -> None:
    """Raise `UsageError` unless it is one of these or the path of a plan file; with the name that was likely meant."""
    known = plan_names()
    if name in known or name.endswith(".json"):
        return
    what = f"policy {name!r} needs a plan in force" if name in _FROM_ANOTHER else f"no policy {name!r}"
    raise UsageError(what, where=where, fix=f"{did_you_mean(name, known)}use one of {', '.join(known)}, or a plan file")
