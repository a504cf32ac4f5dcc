"""Plans that a deployment may name."""

from __future__ import annotations

import pytest

from easybalance_sim.deployment.policy_names import plan_names, require_plan_name
from easybalance_sim.errors import UsageError


def test_what_is_offered_needs_no_plan_in_force() -> None:
    known = plan_names()
    assert known[0] == "auto" and {"contiguous", "eplb", "window_search"} < set(known)
    assert not {"keep", "repair", "warm_search"} & set(known)
    for name in (*known, "plans/mine.json"):
        require_plan_name(name, "here")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "window-search",
            "here: no policy 'window-search' — did you mean window_search\\? use one of auto, contiguous",
        ),
        ("epbl", "did you mean eplb\\?"),
        ("warm_search", "policy 'warm_search' needs a plan in force"),
        ("xyz", "no policy 'xyz' — use one of auto"),
    ],
)
def test_others_are_refused_with_what_was_likely_meant(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        require_plan_name(name, "here")
