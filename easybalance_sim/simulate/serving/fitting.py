"""A step model scaled so that layers take as long, in the mean and the tail, as when tokens are replayed one by one.

Replayed are steps of requests that were set aside: no request in service stands for them. Two things are scaled: by
number of rows, `chance_rows`, for the slowest rank's experts; by phase, the seconds per arriving row and per leaving
token, for a rank's copies do not quite follow either (several experts of a token on a node are one copy, which another
rank may take in).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, stream
from easybalance_sim.cost.layer import LayerSeconds
from easybalance_sim.errors import ProfileError
from easybalance_sim.simulate.serving.evaluation import StepLoads, expert_seconds, link_parts, step_loads
from easybalance_sim.simulate.serving.mixing import Pieces, answers, one_prompt, prompts
from easybalance_sim.simulate.serving.replayed import Replayed, sent
from easybalance_sim.simulate.serving.routed import Routed
from easybalance_sim.simulate.serving.step_model import StepModel

FITTED_TOKENS, FITTED_STEPS = (1, 4, 16, 64, 256), 6
"""Answer tokens per rank, and number, of the steps that the experts are fitted to."""
LINK_TOKENS = (64, 256)
"""Of these, those that the links are fitted to, beside prompts."""
SHORTEST_RUN, LONGEST_RUN, RUN_STEPS = 16, 1024, 3
"""Tokens of the prompts at least, at most per rank of a data-parallel one, and steps of them."""
ONE_TOKENS, ONE_STEPS = 16, 12
"""Answer tokens per rank beside a prompt on one data-parallel rank, and number of such steps."""
CHANCE_SCALES, INERTIA = np.arange(0.0, 4.01, 0.125), 0.002
"""Scales of chance that are tried; any scale that is 1 farther from 1 must be better by so much."""
TAIL, TAIL_WEIGHT = 0.95, 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class _Case:
    """Steps by the model's loads, and what replaying them took."""

    steps: StepLoads
    seconds: LayerSeconds


def fitted(model: StepModel, routed: Routed, replay: Replayed, run_tokens: int, seed: int) -> StepModel:
    """The model scaled; as it is where no request was set aside. run_tokens: of a prompt in a step, 0 = all of it.

    Steps that lie beyond the user's measured tables are left out.
    """
    aside = np.flatnonzero(routed.aside)
    if not len(aside):
        return model
    cases = _answer_cases(model, routed, aside, replay, seed)
    model = _with_chance(model, list(cases.values()))
    links = [cases[tokens] for tokens in LINK_TOKENS if tokens in cases]
    return _with_links(model, [*links, *_prompt_cases(model, routed, aside, replay, run_tokens, seed)])


def _prompt_cases(
    model: StepModel, routed: Routed, aside: IntArray, replay: Replayed, run_tokens: int, seed: int
) -> list[_Case]:
    """Prompts on all ranks, and on one of them while the others answer."""
    typical = run_tokens or int(np.median(routed.tokens[2 * aside]))
    run, ranks = int(np.clip(typical, SHORTEST_RUN, LONGEST_RUN * replay.own)), replay.data_ranks
    rng = stream(seed, "prompts to fit")
    both = (
        prompts(routed, aside, RUN_STEPS, run, ranks, rng),
        one_prompt(routed, aside, ONE_STEPS, run, ONE_TOKENS * replay.own, ranks, rng),
    )
    cases = [_case(model, pieces, routed, replay, seed) for pieces in both]
    return [case for case in cases if case is not None]


def _answer_cases(model: StepModel, routed: Routed, aside: IntArray, replay: Replayed, seed: int) -> dict[int, _Case]:
    cases: dict[int, _Case] = {}
    for tokens in FITTED_TOKENS:
        rng = stream(seed, f"steps to fit, {tokens} tokens")
        pieces = answers(routed, aside, FITTED_STEPS, tokens * replay.own, replay.data_ranks, rng)
        case = _case(model, pieces, routed, replay, seed + tokens)
        if case is None:
            break
        cases[tokens] = case
    return cases


def _case(model: StepModel, pieces: Pieces, routed: Routed, replay: Replayed, seed: int) -> _Case | None:
    cost = replay.subject.cost
    try:
        parts = [
            cost.seconds(part.slot_tokens, part.distinct, part.rdma, part.nvlink)
            for part in sent(replay, routed, pieces)
        ]
    except ProfileError:
        return None
    names = ("dispatch", "expert", "combine", "active")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return _Case(steps=step_loads(model, pieces, seed), seconds=LayerSeconds(**joined))


def _with_chance(model: StepModel, cases: list[_Case]) -> StepModel:
    if not cases:
        return model
    rows = [float(np.log(case.steps.rows.mean())) for case in cases]
    scales = [_chance_scale(model, case) for case in cases]
    knots = (model.knot * np.arange(model.chance_rows.shape[1])) ** 2
    return replace(model, chance_rows=model.chance_rows * np.interp(np.log(np.maximum(knots, 1e-9)), rows, scales))


def _chance_scale(model: StepModel, case: _Case) -> float:
    wanted = _mean_and_tail(case.seconds.expert)

    def error(scale: float) -> float:
        found = expert_seconds(replace(model, chance_rows=model.chance_rows * scale), case.steps)
        return _error(found, wanted) + _inertia(scale)

    return min(map(float, CHANCE_SCALES), key=error)


def _error(found: FloatArray, wanted: tuple[float, float]) -> float:
    """Sum of the squared errors of mean and tail."""
    mean, tail = _mean_and_tail(found)
    return (mean / wanted[0] - 1) ** 2 + TAIL_WEIGHT * (tail / wanted[1] - 1) ** 2


def _mean_and_tail(seconds: FloatArray) -> tuple[float, float]:
    place = int(TAIL * (seconds.size - 1))
    return float(seconds.mean()), float(np.partition(seconds, place, axis=None)[place])


def _inertia(scale: float) -> float:
    return (INERTIA * (scale - 1)) ** 2


def _with_links(model: StepModel, cases: list[_Case]) -> StepModel:
    found = [_link_scales(model, cases, phase, part) for phase, part in enumerate(("dispatch", "combine"))]
    arriving, leaving = np.array(found).T
    return replace(
        model,
        arrive_s=model.arrive_s * arriving[:, None, None],
        even_arrive_s=model.even_arrive_s * arriving[:, None],
        leave_s=model.leave_s * leaving[:, None],
    )


def _link_scales(model: StepModel, cases: list[_Case], phase: int, part: str) -> tuple[float, float]:
    """Factors of what arrives and of what leaves with the least errors, all cases together."""
    wanted = [_mean_and_tail(getattr(case.seconds, part)) for case in cases]
    if not cases or not min(mean for mean, _ in wanted):
        return 1.0, 1.0
    pairs = [(link_parts(model, case.steps, phase), both) for case, both in zip(cases, wanted, strict=True)]

    def error(arriving: float, leaving: float) -> float:
        total = _inertia(arriving) + _inertia(leaving)
        for (arrive, leave), both in pairs:
            found = model.link_fixed_s[phase] + np.maximum(arriving * arrive, leaving * leave)
            total += _error(found, both)
        return total

    arriving, leaving = _least(error, np.arange(0, 1.6, 0.1), np.arange(0.8, 1.5, 0.1))
    near = np.arange(-0.1, 0.1, 0.01)
    return _least(error, np.maximum(arriving + near, 0.0), leaving + near)


def _least(error: Callable[[float, float], float], first: FloatArray, second: FloatArray) -> tuple[float, float]:
    """The pair of the two grids with the least error."""
    return min(itertools.product(first.tolist(), second.tolist()), key=lambda pair: error(*pair))
