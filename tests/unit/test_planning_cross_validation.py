"""What plans promise of windows that they were not made from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.load.folds import Fold, folds_of_windows
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.cross_validation import NEW, SAME, Balance, validate
from easybalance_sim.policies import Effort, Problem
from tests.window_problems import balance, chance_windows, problem_of, rank_loads, topic_windows

QUICK = Effort(proposals=20_000)


def plans_of(problem: Problem, *names: str) -> list[Plan]:
    return [plan for name in names for plan in policies.make_all(name, problem)]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of(topic_windows(0, 64), effort=QUICK)


def test_a_placement_that_needs_no_load_has_no_optimism(problem: Problem) -> None:
    """Both halves are planned on and judged on, and nothing was learned from either."""
    found = validate(plans_of(problem, "round_robin"), problem, folds_of_windows(problem.windows))
    assert found["round_robin"].optimism.mean == pytest.approx(0, abs=1e-12)
    assert found["round_robin"].optimism.p99 == pytest.approx(0, abs=1e-12)


def test_a_search_is_more_optimistic_than_the_average(problem: Problem) -> None:
    found = validate(plans_of(problem, "eplb", "window_search"), problem, folds_of_windows(problem.windows))
    searched, greedy = found["window_search"], found["eplb"]
    assert searched.optimism.mean > greedy.optimism.mean + 0.01
    assert searched.held[SAME].p99 < greedy.held[SAME].p99


def test_the_expected_tail_is_nearer_to_unseen_windows_than_the_fitted_one() -> None:
    """Over several draws: what the search shows on its own windows flatters it, the corrected figure does not."""
    corrected, flattered = [], []
    for seed in range(4):
        windows, unseen = (topic_windows(at + seed, count, tokens=768) for at, count in ((10, 24), (50, 400)))
        given = problem_of(windows, effort=QUICK, seed=seed)
        (plan,) = plans_of(given, "window_search")
        own, truth = balance(plan, windows)[0], balance(plan, unseen)[0]
        found = validate([plan], given, folds_of_windows(given.windows))["window_search"]
        flattered.append(truth - own)
        corrected.append(truth - found.expected.mean)
    assert np.mean(flattered) > 0.01
    assert abs(np.mean(corrected)) < 0.6 * np.mean(flattered)


def test_held_figures_are_those_of_plans_made_on_the_other_part(problem: Problem) -> None:
    none = problem.windows[:0]
    fold = Fold(fit=problem.windows[:40], finer=none, rebatched=none, held=problem.windows[40:], new_topics=False)
    other = replace(fold, fit=problem.windows[40:], held=problem.windows[:40], new_topics=True)
    found = validate(plans_of(problem, "eplb"), problem, (fold, other))["eplb"]
    for kind, one in ((SAME, fold), (NEW, other)):
        loads = rank_loads(policies.make("eplb", problem_of(one.fit)), one.held)
        ratio = loads.max(axis=2) / loads.mean(axis=2)
        assert found.held[kind].mean == pytest.approx(ratio.mean())
        assert found.held[kind].p99 == pytest.approx(np.quantile(ratio, 0.99))


def test_eplb_stands_in_where_a_search_does_not_apply(problem: Problem) -> None:
    """Folds that differ by chance only: the planner would keep the average's placement there."""
    calm = chance_windows(0, 64)
    found = validate(plans_of(problem, "eplb", "window_search"), problem, folds_of_windows(calm))
    assert found["window_search"] == found["eplb"]


def test_nothing_is_promised_without_folds(problem: Problem) -> None:
    assert validate(plans_of(problem, "eplb"), problem, ()) == {}


def test_policies_that_take_too_long_are_skipped(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, real = plans_of(problem, "eplb", "round_robin"), policies.make_all
    asked: list[str] = []

    def noting(name: str, part: Problem) -> list[Plan]:
        asked.append(name)
        return real(name, part)

    monkeypatch.setattr(policies, "make_all", noting)
    found = validate(plans, problem, folds_of_windows(problem.windows), skip=("eplb",))
    assert set(found) == set(asked) == {"round_robin", "window_search"}


def test_a_plan_that_no_fold_makes_is_left_out(problem: Problem) -> None:
    (plan,) = plans_of(problem, "eplb")
    folds = folds_of_windows(problem.windows)
    assert list(validate([plan, replace(plan, policy="eplb@other")], problem, folds)) == ["eplb", "eplb@other"]


def test_figures_add_up() -> None:
    one, two = Balance(mean=1.25, p99=1.5, tail=1.75), Balance(mean=0.25, p99=-0.5, tail=0.0)
    assert one + two == Balance(mean=1.5, p99=1.0, tail=1.75) and (one + two) - two == one
    assert two.at_least(0.0) == Balance(mean=0.25, p99=0.0, tail=0.0)
    assert one.to_dict() == {"mean": 1.25, "p99": 1.5}


def test_the_tail_is_the_mean_of_the_worst_twentieth() -> None:
    ratios = np.append(np.arange(1.0, 41.0), [np.nan, np.nan]).reshape(6, 7)
    found = Balance.of(ratios)
    assert (found.mean, found.p99, found.tail) == pytest.approx((20.5, 39.61, 39.5))
    assert np.isnan(Balance.of(np.full((2, 2), np.nan)).p99)


def test_folds_without_traffic_promise_nothing(problem: Problem) -> None:
    quiet, none = np.zeros_like(problem.windows[:8]), problem.windows[:0]
    folds = [Fold(fit=problem.windows, finer=none, rebatched=none, held=quiet, new_topics=new) for new in (False, True)]
    assert validate(plans_of(problem, "eplb"), problem, folds) == {}
