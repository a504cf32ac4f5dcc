"""A synthetic day: a count trace whose traffic drifts, changes tenants and bursts at times that are known.

Every topic belongs to one tenant and has a weight per layer and expert. Half of the tenants are active; at every switch
one of them leaves and another enters. Topics drift against each other over hours; for some minutes one active topic has
several times its traffic. Tokens follow the time of day. What a window holds is drawn around that schedule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import BoolArray, FloatArray, Int16Array, IntArray, frozen, stream
from easybalance_sim.errors import UsageError
from easybalance_sim.files import write_text
from easybalance_sim.trace.conversion import Progress, silent
from easybalance_sim.trace.inclusion import inclusion
from easybalance_sim.trace.schema import DECODE, CountTrace, TraceMeta, id_dtype
from easybalance_sim.trace.synthesis import (
    LEAST_CONCENTRATION,
    MOST_SKEW,
    require_experts,
    require_positive,
    require_range,
    rounded,
    topic_weights,
)
from easybalance_sim.trace.writer import ROW_GROUP_WINDOWS, count_trace_writer

SWING, BUSIEST_HOUR = 0.6, 15.0
"""Tokens of a window are 1 ± SWING times their mean over the day, most at that hour."""
DRIFT, DRIFT_HOURS = 1.0, (12.0, 24.0)
"""The log of a topic's traffic is a sine of that height with a period between those bounds."""
BURST_FACTOR, BURST_SECONDS = 6.0, 600.0
HOURS_PER_SWITCH, WINDOWS_PER_SWITCH = 6.0, 8
LEAST_WITHIN, MOST_WITHIN = 1.0, 1e9
_MOST_COUNT = 2.0**50


@dataclass(frozen=True, kw_only=True)
class DayRecipe:
    """What day to synthesise. Construction raises `UsageError` naming the flag that does not fit.

    tokens_per_step: mean over 24 hours · step_ms: milliseconds of an engine step, hence the steps of a window · skew:
    the i-th tenant has i^-skew of the traffic · topics: dealt to the tenants in turn · concentration: small =
    specialised topics · within: a window's topic shares are Dirichlet(within · scheduled shares), as if so many
    independent requests made a window · stationary: tokens and shares stay those of the first window, without the swing
    of the day.
    """

    layers: int = 8
    experts: int = 64
    top_k: int = 6
    tokens_per_step: int = 64
    window_seconds: float = 60.0
    hours: float = 24.0
    step_ms: float = 25.0
    tenants: int = 4
    topics: int = 8
    concentration: float = 0.3
    skew: float = 1.0
    groups: int = 1
    within: float = 100.0
    stationary: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_positive(self, "layers", "experts", "top_k", "tokens_per_step", "groups")
        require_experts(self.experts, self.top_k, self.groups)
        require_range(self, "skew", 0, MOST_SKEW)
        require_range(self, "concentration", LEAST_CONCENTRATION, 1 / LEAST_CONCENTRATION)
        require_range(self, "within", LEAST_WITHIN, MOST_WITHIN)
        require_range(self, "window_seconds", 1, 3600)
        require_range(self, "hours", 0.001, 1000)
        require_range(self, "step_ms", 0.01, 1000)
        if not 2 <= self.tenants <= self.topics:
            text = f"{self.tenants} tenants with {self.topics} topics"
            raise UsageError(text, where="--tenants", fix="give at least 2, and a topic for each")
        if self.windows < WINDOWS_PER_SWITCH * self.switches:
            text = f"{self.windows} windows in {self.hours:g} hours"
            fix = f"give {WINDOWS_PER_SWITCH * self.switches} or more: longer --hours or shorter windows"
            raise UsageError(text, where="--window-seconds", fix=fix)
        if self.tokens_per_step * self.steps_per_window * BURST_FACTOR * self.top_k > _MOST_COUNT:
            raise UsageError(f"is {self.tokens_per_step}", where="--tokens-per-step", fix="give fewer")

    @property
    def windows(self) -> int:
        """W: whole windows."""
        return int(self.hours * 3600 / self.window_seconds + 1e-9)

    @property
    def switches(self) -> int:
        """How often tenants change in a day that is not stationary."""
        return max(2, round(self.hours / HOURS_PER_SWITCH))

    @property
    def steps_per_window(self) -> float:
        """Engine steps of a window."""
        return self.window_seconds * 1000 / self.step_ms


@dataclass(frozen=True, kw_only=True)
class Switch:
    """From `window` on the tenant `entered` is served and `left` is not; both are numbers of tenants."""

    window: int
    left: int
    entered: int


@dataclass(frozen=True, kw_only=True)
class Burst:
    """For `windows` windows from `window` on, `topic` has `factor` times its traffic."""

    window: int
    windows: int
    topic: int
    factor: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Drift:
    """traffic of topic z ∝ exp(height · sin(2π (hours / period_hours[z] + phase[z])))."""

    height: float
    period_hours: FloatArray
    phase: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Day:
    """The truth behind a day.

    weights, inclusion: float64[Z, L, E], of a topic's tokens and the share of them that reach each expert · owner:
    int64[Z] tenant of each topic · active: bool[W, A] · mix: float64[W, Z] scheduled topic shares · tokens: int64[W] of
    each window · a stationary day has no switches, burst or drift.
    """

    weights: FloatArray
    inclusion: FloatArray
    owner: IntArray
    active: BoolArray
    mix: FloatArray
    tokens: IntArray
    switches: tuple[Switch, ...]
    burst: Burst | None
    drift: Drift | None

    @property
    def dominant(self) -> Int16Array:
        """int16[W] the tenant with the largest scheduled share."""
        shares = np.stack([self.mix[:, self.owner == tenant].sum(axis=1) for tenant in range(self.active.shape[1])])
        return frozen(shares.argmax(axis=0), np.int16)


def day(recipe: DayRecipe) -> Day:
    """The truth of a recipe; the same for the same recipe. A stationary day has the topics of the other one."""
    shape = (recipe.topics, recipe.layers, recipe.experts)
    weights = topic_weights(shape, recipe.groups, recipe.concentration, stream(recipe.seed, "day topics"))
    weights = frozen(weights / weights.sum(axis=-1, keepdims=True), np.float64)
    rng = stream(recipe.seed, "day schedule")
    owner = np.arange(recipe.topics) % recipe.tenants
    first = np.zeros(recipe.tenants, bool)
    first[rng.permutation(recipe.tenants)[: (recipe.tenants + 1) // 2]] = True
    active = np.tile(first, (recipe.windows, 1))
    traffic = _traffic(recipe, owner)
    drift: Drift | None = None
    burst: Burst | None = None
    switches: tuple[Switch, ...] = ()
    if not recipe.stationary:
        drift = _drift(recipe, rng)
        traffic = traffic * np.exp(_heights(recipe, drift))
        switches = _switches(recipe, active, rng)
        burst = _burst(recipe, active, owner, rng)
    traffic = traffic * active[:, owner]
    traffic /= traffic.sum(axis=1, keepdims=True)
    if burst:
        traffic[burst.window : burst.window + burst.windows, burst.topic] *= burst.factor
    return Day(
        weights=weights,
        inclusion=inclusion(weights, recipe.top_k),
        owner=frozen(owner, np.int64),
        active=frozen(active),
        mix=frozen(traffic / traffic.sum(axis=1, keepdims=True), np.float64),
        tokens=_tokens(recipe, traffic.sum(axis=1)),
        switches=switches,
        burst=burst,
        drift=drift,
    )


def day_parts(recipe: DayRecipe, truth: Day) -> Iterator[CountTrace]:
    """The day as parts of `ROW_GROUP_WINDOWS` windows, so that the counts of the whole are never held."""
    mixes, draws = stream(recipe.seed, "day windows"), stream(recipe.seed, "day counts")
    meta = TraceMeta(
        kind="counts",
        layers=tuple(range(recipe.layers)),
        experts=recipe.experts,
        top_k=recipe.top_k,
        dtype=id_dtype(recipe.experts),
        model="synthetic-day",
        groups=recipe.groups,
        topk_group=recipe.groups,
        recorder="ebsim trace synthesise",
        origin=asdict(recipe),
    )
    of_topic = truth.inclusion / truth.inclusion.sum(axis=-1, keepdims=True)
    for first in range(0, recipe.windows, ROW_GROUP_WINDOWS):
        window = np.arange(first, min(first + ROW_GROUP_WINDOWS, recipe.windows))
        mix = mixes.standard_gamma(recipe.within * truth.mix[window])
        share = np.tensordot(mix / mix.sum(axis=1, keepdims=True), of_topic, axes=1)
        yield CountTrace(
            meta=meta,
            paths=(),
            tokens=_drawn(truth.tokens[window], share, recipe.top_k, draws),
            window=window,
            start_s=frozen(window * recipe.window_seconds, np.float64),
            span_s=np.full(len(window), recipe.window_seconds),
            phase=np.full(len(window), DECODE, np.uint8),
            workload=truth.dominant[window],
            batch_tokens=truth.tokens[window],
            workloads=tuple(f"tenant-{tenant}" for tenant in range(recipe.tenants)),
        )


def synthesise_day(recipe: DayRecipe, output: Path, progress: Progress = silent) -> Path:
    """Write the count trace to `output` and its truth beside it; returns the truth's path (`*.truth.json`).

    Both appear only when the whole trace could be written. `progress` is told of windows.
    """
    truth, beside = day(recipe), output.with_suffix(".truth.json")
    with count_trace_writer(output) as writer:
        advance = progress("synthesise", Amount(recipe.windows, "windows"))
        for part in day_parts(recipe, truth):
            writer.append(part)
            advance(len(part.window))
        write_text(beside, json.dumps(describe(recipe, truth), sort_keys=True) + "\n")
    return beside


def describe(recipe: DayRecipe, truth: Day) -> dict[str, Any]:
    """The truth as plain values: `inclusion` [Z, L, E] is the share of a topic's tokens that reach each expert."""
    drift, burst = truth.drift, truth.burst
    return {
        "version": 1,
        "recipe": asdict(recipe),
        "topics": [{"name": f"topic-{z}", "tenant": f"tenant-{owner}"} for z, owner in enumerate(truth.owner)],
        "weights": rounded(truth.weights),
        "inclusion": rounded(truth.inclusion),
        "schedule": [
            {
                "window": window,
                "start_s": window * recipe.window_seconds,
                "tokens": int(truth.tokens[window]),
                "topic_mix": rounded(truth.mix[window]),
                "active_tenants": [f"tenant-{tenant}" for tenant in np.flatnonzero(truth.active[window])],
            }
            for window in range(recipe.windows)
        ],
        "switches": [
            {"window": one.window, "left": f"tenant-{one.left}", "entered": f"tenant-{one.entered}"}
            for one in truth.switches
        ],
        "burst": asdict(burst) | {"topic": f"topic-{burst.topic}"} if burst else None,
        "drift": drift
        and {"height": drift.height, "period_hours": rounded(drift.period_hours), "phase": rounded(drift.phase)},
        "note": "a window's topic shares are Dirichlet(within * topic_mix); its counts are multinomial with the "
        "inclusion in these shares, no expert more than once per token",
    }


def _traffic(recipe: DayRecipe, owner: IntArray) -> FloatArray:
    """[1, Z] traffic of each topic before drift: its tenant's, in equal parts."""
    size = (1.0 + np.arange(recipe.tenants)) ** -recipe.skew
    return (size / np.bincount(owner, minlength=recipe.tenants))[owner][None]


def _drift(recipe: DayRecipe, rng: np.random.Generator) -> Drift:
    return Drift(
        height=DRIFT,
        period_hours=frozen(rng.uniform(*DRIFT_HOURS, recipe.topics), np.float64),
        phase=frozen(rng.random(recipe.topics), np.float64),
    )


def _heights(recipe: DayRecipe, drift: Drift) -> FloatArray:
    """[W, Z] log of the topics' traffic."""
    turns: FloatArray = _hours(recipe)[:, None] / drift.period_hours + drift.phase
    return drift.height * np.sin(2 * np.pi * turns)


def _hours(recipe: DayRecipe) -> FloatArray:
    """[W] hour in the middle of each window."""
    middle: FloatArray = (np.arange(recipe.windows) + 0.5) * recipe.window_seconds / 3600
    return middle


def _switches(recipe: DayRecipe, active: BoolArray, rng: np.random.Generator) -> tuple[Switch, ...]:
    """One switch in the middle half of each equal part of the day; `active` is changed from there on."""
    found = []
    for part in range(recipe.switches):
        window = int((part + rng.uniform(0.25, 0.75)) * recipe.windows / recipe.switches)
        left, entered = rng.choice(np.flatnonzero(active[window])), rng.choice(np.flatnonzero(~active[window]))
        active[window:, left], active[window:, entered] = False, True
        found.append(Switch(window=window, left=int(left), entered=int(entered)))
    return tuple(found)


def _burst(recipe: DayRecipe, active: BoolArray, owner: IntArray, rng: np.random.Generator) -> Burst:
    """A burst around the end of a part of the day, where no switch is."""
    part = recipe.windows / recipe.switches
    window = int((rng.integers(1, recipe.switches) - rng.uniform(0.0, 0.2)) * part)
    return Burst(
        window=window,
        windows=int(np.clip(round(BURST_SECONDS / recipe.window_seconds), 1, 0.2 * part)),
        topic=int(rng.choice(np.flatnonzero(active[window, owner]))),
        factor=BURST_FACTOR,
    )


def _tokens(recipe: DayRecipe, total: FloatArray) -> IntArray:
    """int64[W]; total: [W] traffic beside that of a calm window at the same hour."""
    swing = 0.0 if recipe.stationary else SWING
    pace = 1 + swing * np.cos(2 * np.pi * (_hours(recipe) - BUSIEST_HOUR) / 24)
    tokens = np.rint(recipe.tokens_per_step * recipe.steps_per_window * pace * total)
    return frozen(np.maximum(tokens, 1), np.int64)


def _drawn(tokens: IntArray, share: FloatArray, top_k: int, rng: np.random.Generator) -> IntArray:
    """int64[W, L, E] counts of top_k · tokens[W] assignments by share [W, L, E]; none above tokens[W]."""
    share = share / share.sum(axis=-1, keepdims=True)
    counts = rng.multinomial(tokens[:, None] * top_k, share)
    # A token takes an expert once: by chance an expert that nearly all tokens take would be drawn more often.
    while (over := np.maximum(counts - tokens[:, None, None], 0)).any():
        full = over.any(axis=2)
        room = np.where(counts < tokens[:, None, None], share, 0.0)[full]
        counts -= over
        counts[full] += rng.multinomial(over[full].sum(axis=1), room / room.sum(axis=1, keepdims=True))
    return counts
