"""Synthetic traffic of a scenario: how often each topic's tokens choose each expert, and the counts of steps.

Weights of experts are lognormal (`trace.synthesis`), one part common to all topics and one of each topic's own. A
token's K experts are drawn without replacement; the share of tokens that choose expert e is taken as 1 - exp(-w·t),
with t such that the shares of a layer sum to K. Prompts come whole, so a step's prefill is of few topics; requests that
decode stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen, sealed, stream
from easybalance_sim.simulate.capacity.scenario import Model, Traffic
from easybalance_sim.trace.synthesis import Recipe, world

_HALVINGS = 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
    """The truth of the traffic. weights: float64[Z, L, E] of each topic · mix: float64[Z] its share of requests ·
    top_k: K."""

    weights: FloatArray
    mix: FloatArray
    top_k: int

    @property
    def chosen(self) -> FloatArray:
        """float64[Z, L, E] share of a topic's tokens that choose each expert."""
        return chosen(self.weights, self.top_k)

    @property
    def mean(self) -> FloatArray:
        """float64[L, E] share of all tokens that choose each expert."""
        return np.asarray(np.einsum("z,zle->le", self.mix, self.chosen))


def log_weights(model: Model, traffic: Traffic, seed: int) -> FloatArray:
    """float64[Z, L, E] standard normal: the weights' logarithms at a skew of 1."""

    def draw(number: int) -> FloatArray:
        recipe = Recipe(
            kind="lognormal", layers=model.layers, experts=model.experts, top_k=model.top_k, seed=seed * 1000 + number
        )
        logs = np.log(world(recipe).weights[0])
        return np.asarray(logs - logs.mean())

    common, spread = draw(0), traffic.topic_spread
    own = np.stack([draw(1 + topic) for topic in range(len(traffic.topics))])
    return sealed(np.sqrt(1 - spread) * common + np.sqrt(spread) * own)


def demand(model: Model, traffic: Traffic, logs: FloatArray, skew: float) -> Demand:
    """The traffic at a skew; logs: see `log_weights`."""
    mix = frozen([topic.share for topic in traffic.topics], np.float64)
    return Demand(weights=sealed(np.exp(skew * logs)), mix=mix, top_k=model.top_k)


def chosen(weights: FloatArray, top_k: int) -> FloatArray:
    """float64[…, E] 1 - exp(-w·t) with the t for which a layer's shares sum to K; weights: float64[…, E] > 0."""
    experts = weights.shape[-1]
    if top_k >= experts:
        return np.ones_like(weights)
    scaled = weights / weights.mean(axis=-1, keepdims=True)
    low = np.full((*weights.shape[:-1], 1), np.log(1e-3 * top_k / experts))
    # The hottest K alone reach K only for t without end; every expert near 1 is the most that can be asked.
    high = np.log(40.0 / scaled.min(axis=-1, keepdims=True))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = -np.expm1(-scaled * np.exp(middle)).sum(axis=-1, keepdims=True) > top_k
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    shares: FloatArray = -np.expm1(-scaled * np.exp((low + high) / 2))
    return np.asarray(shares * (top_k / shares.sum(axis=-1, keepdims=True)))


def step_topics(mix: FloatArray, traffic: Traffic, tokens: int, steps: int, seed: int) -> IntArray:
    """int64[S, Z] tokens of each topic in each step: whole prompts one after another, and running requests."""
    rng = stream(seed, f"topics of {tokens}")
    prefill = round(tokens * (1.0 - traffic.decode_share))
    out = np.zeros((steps, len(mix)), np.int64)
    prompt = max(1, round(traffic.prompt_tokens))
    topic = rng.choice(len(mix), -(-prefill * steps // prompt) + 1, p=mix)
    of_prefill = np.repeat(topic, prompt)[: prefill * steps].reshape(steps, prefill)
    running = rng.choice(len(mix), tokens - prefill, p=mix)
    for step in range(steps):
        fresh = rng.random(len(running)) < 1 / max(1.0, traffic.output_tokens)
        running[fresh] = rng.choice(len(mix), int(fresh.sum()), p=mix)
        out[step] = np.bincount(np.append(of_prefill[step], running), minlength=len(mix))
    return sealed(out)


def draw_counts(truth: Demand, topics: IntArray, seed: int) -> Int32Array:
    """int32[S, L, E] assignments of steps; topics: int64[S, Z] tokens of each. A step has exactly K per token."""
    share = truth.chosen / truth.top_k
    share /= share.sum(axis=-1, keepdims=True)
    rng = stream(seed, f"choices of {int(topics.sum())}")
    layers = share.shape[1]
    drawn = rng.multinomial(np.repeat((topics * truth.top_k)[:, :, None], layers, axis=2), share)
    return frozen(drawn.sum(axis=1), np.int32)
