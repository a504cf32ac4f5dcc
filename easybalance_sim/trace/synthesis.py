"""Synthetic token traces whose true expert probabilities are known and written beside them.

A trace is made of topics (for one kind: tenants). Each has a weight per layer and expert; a token's top-k is drawn
without replacement by its topic's weights. Requests keep their topic, last 32 steps on average unless the recipe says
otherwise, and are dealt to the source ranks in turn. What changes over time is the mix of topics among new requests and
the tokens per step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.files import write_text
from easybalance_sim.trace.conversion import Progress, silent
from easybalance_sim.trace.inclusion import inclusion
from easybalance_sim.trace.schema import DECODE, TokenBatch, TraceMeta, as_ids, id_dtype
from easybalance_sim.trace.writer import token_trace_writer

MEAN_STEPS = 32
MOST_SKEW, LEAST_CONCENTRATION = 6.0, 0.01
"""Beyond them weights leave the range of the float32 clocks that tokens are drawn with."""
_FLOOR = 1e-4
_CLOCKS_AT_ONCE = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to synthesise. Construction raises `UsageError` naming the flag that does not fit.

    skew: exponent of power-law, sigma of lognormal and of the tenants' and burst's weights · topics, concentration:
    of topic-mixture (small concentration = specialised topics) · groups: expert groups that topics prefer as a whole ·
    request_steps: that a request lasts on average, a token each.
    """

    kind: str
    layers: int = 8
    experts: int = 64
    top_k: int = 6
    steps: int = 512
    tokens_per_step: int = 64
    ranks: int = 8
    seed: int = 0
    skew: float = 1.0
    topics: int = 4
    concentration: float = 0.3
    groups: int = 1
    request_steps: int = MEAN_STEPS

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"no kind {self.kind!r}", fix=f"use one of {', '.join(KINDS)}")
        require_positive(
            self, "layers", "experts", "top_k", "steps", "tokens_per_step", "ranks", "topics", "groups", "request_steps"
        )
        require_experts(self.experts, self.top_k, self.groups)
        require_range(self, "skew", 0, MOST_SKEW)
        require_range(self, "concentration", LEAST_CONCENTRATION, 1 / LEAST_CONCENTRATION)


def require_positive(recipe: object, *names: str) -> None:
    """Raise `UsageError` naming the flag of the first of these fields that is below 1."""
    for name in names:
        if not getattr(recipe, name) >= 1:
            raise UsageError(f"is {getattr(recipe, name)}", where=_flag(name), fix="give at least 1")


def require_experts(experts: int, top_k: int, groups: int) -> None:
    """Raise `UsageError` unless K of E experts in so many groups can be drawn and stored."""
    if top_k > experts or experts > 65536:
        raise UsageError(f"top-{top_k} of {experts} experts", where="--top-k", fix="give K ≤ E ≤ 65536")
    if experts % groups:
        raise UsageError(f"{experts} experts in {groups} groups", where="--groups", fix="use a divisor of E")


def require_range(recipe: object, name: str, least: float, most: float) -> None:
    """Raise `UsageError` naming the flag of a field that is not from `least` to `most`."""
    value = getattr(recipe, name)
    if not least <= value <= most:
        raise UsageError(f"is {value:g}", where=_flag(name), fix=f"give {least:g} to {most:g}")


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """The truth behind a trace.

    names: of the Z topics · weights: float64[Z, L, E], each layer sums to 1 · knots: int64[n] steps ·
    mix: float64[n, Z] share of each topic among requests that start at a knot, linear between knots ·
    tokens: int64[n] tokens per step from a knot until the next.
    """

    names: tuple[str, ...]
    weights: FloatArray
    knots: IntArray
    mix: FloatArray
    tokens: IntArray

    def mix_at(self, step: int) -> FloatArray:
        """float64[Z] topic shares of requests that start in `step`."""
        return np.array([np.interp(step, self.knots, column) for column in self.mix.T])

    def tokens_at(self, step: int) -> int:
        """Tokens of `step`."""
        return int(self.tokens[np.searchsorted(self.knots, step, side="right") - 1])


def world(recipe: Recipe) -> World:
    """The truth of a recipe; the same for the same recipe."""
    return KINDS[recipe.kind](recipe, np.random.default_rng([recipe.seed, 1]))


def synthesise(recipe: Recipe, output: Path, progress: Progress = silent) -> Path:
    """Write the trace to `output` and its truth beside it; returns the truth's path (`*.truth.json`).

    Both appear only when the whole trace could be written. `progress` is told of steps.
    """
    truth, beside = world(recipe), output.with_suffix(".truth.json")
    meta = TraceMeta(
        kind="tokens",
        layers=tuple(range(recipe.layers)),
        experts=recipe.experts,
        top_k=recipe.top_k,
        dtype=id_dtype(recipe.experts),
        model=f"synthetic-{recipe.kind}",
        groups=recipe.groups,
        topk_group=recipe.groups,
        ranks=recipe.ranks,
        recorder="ebsim trace synthesise",
        origin=asdict(recipe),
    )
    with token_trace_writer(output, meta, truth.names) as writer:
        advance = progress("synthesise", Amount(recipe.steps, "steps"))
        for batch in token_batches(recipe, truth):
            writer.append(batch)
            advance(int(batch.step[-1] - batch.step[0]) + 1)
        write_text(beside, json.dumps(describe(recipe, truth), sort_keys=True) + "\n")
    return beside


def describe(recipe: Recipe, truth: World) -> dict[str, Any]:
    """The truth as plain values: `inclusion` [Z, L, E] is the share of a topic's tokens that reach each expert."""
    return {
        "version": 1,
        "recipe": asdict(recipe),
        "topics": list(truth.names),
        "weights": rounded(truth.weights),
        "inclusion": rounded(inclusion(truth.weights, recipe.top_k)),
        "schedule": [
            {"step": int(step), "new_request_mix": rounded(mix), "tokens_per_step": int(tokens)}
            for step, mix, tokens in zip(truth.knots, truth.mix, truth.tokens, strict=True)
        ],
        "note": "new_request_mix is linear between the steps listed; tokens_per_step holds until the next one",
    }


def token_batches(recipe: Recipe, truth: World) -> Iterator[TokenBatch]:
    """The trace as batches of whole steps, sized so that the clocks of a batch fit a few MB."""
    rng = np.random.default_rng([recipe.seed, 2])
    # A rate of 0 becomes an endless wait: such an expert is never among the first K.
    wait = np.divide(1.0, truth.weights, out=np.full(truth.weights.shape, np.inf), where=truth.weights > 0)
    slots = _Slots(recipe, truth, rng)
    at_once = max(1, _CLOCKS_AT_ONCE // (recipe.layers * recipe.experts * recipe.tokens_per_step))
    for first in range(0, recipe.steps, at_once):
        parts = [slots.run(step) for step in range(first, min(first + at_once, recipe.steps))]
        step, request, position, topic = np.concatenate(parts, axis=1)
        yield TokenBatch(
            step=step.astype(np.int32),
            request=request,
            position=position.astype(np.int32),
            phase=np.full(len(step), DECODE, np.uint8),
            source_rank=(request % recipe.ranks).astype(np.int16),
            workload=topic.astype(np.int16),
            experts=as_ids(_draw(wait, topic, recipe.top_k, rng), recipe.experts),
        )


class _Slots:
    """Requests that are running: one per slot, replaced by a new one with probability 1/`request_steps` per step."""

    def __init__(self, recipe: Recipe, truth: World, rng: np.random.Generator) -> None:
        most = int(truth.tokens.max())
        self._truth, self._rng, self._next, self._lasting = truth, rng, 0, recipe.request_steps
        self._request, self._position, self._topic = (np.zeros(most, np.int64) for _ in range(3))
        self._running = 0

    def run(self, step: int) -> IntArray:
        """int64[4, T]: step, request, position and topic of the tokens of one step."""
        tokens = self._truth.tokens_at(step)
        fresh = self._rng.random(tokens) < 1 / self._lasting
        fresh[self._running :] = True
        self._running = tokens
        self._position[:tokens] += 1
        place = np.flatnonzero(fresh)
        self._request[place] = self._next + np.arange(len(place))
        self._position[place] = 0
        self._topic[place] = self._rng.choice(len(self._truth.names), len(place), p=self._truth.mix_at(step))
        self._next += len(place)
        live = slice(0, tokens)
        return np.stack([np.full(tokens, step), self._request[live], self._position[live], self._topic[live]])


def _draw(wait: FloatArray, topic: IntArray, top_k: int, rng: np.random.Generator) -> AnyArray:
    """int64[T, L, K] experts whose exponential clocks ring first, in that order; wait: float64[Z, L, E] mean times."""
    clocks = rng.standard_exponential((len(topic), *wait.shape[1:]), np.float32)
    np.maximum(clocks, np.finfo(np.float32).tiny, out=clocks)
    clocks *= wait.astype(np.float32)[topic]
    first = np.argpartition(clocks, min(top_k, clocks.shape[2] - 1), axis=2)[:, :, :top_k]
    order = np.argsort(np.take_along_axis(clocks, first, axis=2), axis=2)
    return np.take_along_axis(first, order, axis=2)


def _uniform(recipe: Recipe, rng: np.random.Generator) -> World:
    return _steady(recipe, np.ones((recipe.layers, recipe.experts)))


def _power_law(recipe: Recipe, rng: np.random.Generator) -> World:
    """Weight of the i-th hottest expert ∝ i^-skew, experts in another order in every layer."""
    ordered = np.tile(np.arange(1, recipe.experts + 1) ** -recipe.skew, (recipe.layers, 1))
    return _steady(recipe, rng.permuted(ordered, axis=1))


def _lognormal(recipe: Recipe, rng: np.random.Generator) -> World:
    """Weight ∝ exp(skew·N(0, 1))."""
    return _steady(recipe, _lognormal_weights(recipe, rng))


def _topic_mixture(recipe: Recipe, rng: np.random.Generator) -> World:
    """Dirichlet topics (over groups, then inside them); the mix drifts from one random mix to another."""
    flat = topic_weights((recipe.topics, recipe.layers, recipe.experts), recipe.groups, recipe.concentration, rng)
    mix = rng.dirichlet(np.ones(recipe.topics), size=2)
    names = [f"topic-{i}" for i in range(recipe.topics)]
    return _world(recipe, names, flat, [0, max(recipe.steps - 1, 1)], mix, [1, 1])


def topic_weights(
    shape: tuple[int, int, int], groups: int, concentration: float, rng: np.random.Generator
) -> FloatArray:
    """float64[Z, L, E] (= shape) weights, not normalised: Dirichlet over groups, then inside; no expert quite cold."""
    topics, layers, experts = shape
    inside = rng.gamma(concentration, size=(topics, layers, groups, experts // groups))
    share = rng.gamma(concentration, size=(topics, layers, groups, 1)) if groups > 1 else 1.0
    weights = share * inside / np.maximum(inside.sum(axis=-1, keepdims=True), 1e-300)
    return _floored(weights.reshape(shape))


def _burst(recipe: Recipe, rng: np.random.Generator) -> World:
    """Steady traffic; from 45 % to 60 % of the steps twice the tokens, and 80 % of the new requests a hotter topic."""
    weights = np.stack([_lognormal_weights(recipe, rng, extra) for extra in (0.0, 1.0)])
    begin, end = max(1, recipe.steps * 45 // 100), max(2, recipe.steps * 60 // 100)
    calm, busy = [1.0, 0.0], [0.2, 0.8]
    knots = [0, begin - 1, begin, end - 1, end]
    return _world(recipe, ["steady", "burst"], weights, knots, [calm, calm, busy, busy, calm], [1, 1, 2, 2, 1])


def _tenant_shift(recipe: Recipe, rng: np.random.Generator) -> World:
    """Two tenants with their own experts; at half time the share of the first falls from 90 % to 10 %."""
    weights = np.stack([_lognormal_weights(recipe, rng) for _ in range(2)])
    half = max(1, recipe.steps // 2)
    mix = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]
    return _world(recipe, ["tenant-a", "tenant-b"], weights, [0, half - 1, half], mix, [1, 1, 1])


def _single_expert(recipe: Recipe, rng: np.random.Generator) -> World:
    """Every token takes the same expert first in each layer; the other K - 1 are the same ones for every token, too."""
    weights = np.zeros((recipe.layers, recipe.experts))
    weights[:, : recipe.top_k] = 1.0
    weights[:, 0] = 1e6
    return _steady(recipe, rng.permuted(weights, axis=1))


KINDS: dict[str, Callable[[Recipe, np.random.Generator], World]] = {
    "power-law": _power_law,
    "lognormal": _lognormal,
    "topic-mixture": _topic_mixture,
    "burst": _burst,
    "uniform": _uniform,
    "tenant-shift": _tenant_shift,
    "single-expert": _single_expert,
}


def _steady(recipe: Recipe, weights: FloatArray) -> World:
    return _world(recipe, [recipe.kind], weights[None], [0], [[1.0]], [1])


def _world(recipe: Recipe, names: list[str], weights: FloatArray, knots: list[int], mix: Any, pace: list[int]) -> World:
    return World(
        names=tuple(names),
        weights=frozen(weights / weights.sum(axis=-1, keepdims=True), np.float64),
        knots=frozen(knots, np.int64),
        mix=frozen(mix, np.float64),
        tokens=frozen(np.array(pace) * recipe.tokens_per_step, np.int64),
    )


def _lognormal_weights(recipe: Recipe, rng: np.random.Generator, extra: float = 0.0) -> FloatArray:
    return _floored(np.exp((recipe.skew + extra) * rng.standard_normal((recipe.layers, recipe.experts))))


def _floored(weights: FloatArray) -> FloatArray:
    """No expert quite cold: at least 1e-4 of the layer's mean, as measured routers leave no expert at zero."""
    floored: FloatArray = np.maximum(weights, _FLOOR * weights.mean(axis=-1, keepdims=True))
    return floored


def rounded(values: FloatArray) -> Any:
    """The values as nested lists with the seven decimals that a truth file holds."""
    return np.round(values, 7).tolist()


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
