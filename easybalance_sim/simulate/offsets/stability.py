"""How high a gain may be: the linear limit of a delayed loop, the gain of the router itself, and signs of oscillation.

Linear model: the relative load error follows z(t) = z0(t) - S · offset(t), where S is what the router gives per unit of
offset, and the offset is made from the mean of z over W steps, the newest of which ran d steps ago.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, FloatArray, frozen, sealed
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.controllers import EXPERT, Controller, I, P
from easybalance_sim.simulate.offsets.loop import Loop, rank_shares
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.steps.balance import WINDOW_STEPS, relative, window_sums

SAFE_SHARE = 0.25
"""Of the limit: gives the best windowed balance; 0.25 to 0.45 do about as well (135 replays on a 14 M model)."""

SLOW_SHARE = 0.1
"""Of the limit of an integral: gives the best balance of single steps, up to 0.15 of the limit (same replays)."""

WARN_SHARE, REFUSE_SHARE = 0.4, 0.7
"""Of the limit: from 0.7 on a loop was worse than none in the same replays."""

LEAST_DELAY = 2
"""With a delay of 1 the limit hangs on the exact zero of the moving average, which a real sensor does not have."""

PROBE_GAPS = 0.25
"""Offset with which the router is probed, in median gaps."""

OSCILLATES_BELOW = -0.35
"""First minimum of the autocorrelation of 4-step heat (same replays)."""

JUDGED_STEPS = 600
"""Steps of these replays. In fewer chance reaches lower: in pieces of 80, 150 and 300 of them a loop at a quarter of
its limit was at -0.40, -0.34 and -0.29 at times, at -0.17 in all."""

SHORT_STEPS = 4
"""Steps that are summed before the autocorrelation is taken, and the least lag that is looked at."""

_SAME = 0.005
_PROBED = 1_500_000
_LEAST_TOKENS = 500
_RUN = 100
_UNITS = 64


@cache
def limit(window: int, delay: int, gain: float, integral: float, leak: float) -> float:
    """How many times the gains (products with S) may be raised before the largest root leaves the unit circle.

    gain, integral: what is multiplied, thus `limit(W, d, 1, 0, 1)` is the largest stable K of a P law and
    `limit(W, d, 0, 1, 1)` that of an integral. Raises `UsageError` when both are 0.
    """
    if not gain and not integral:
        raise UsageError("a controller without gain has no limit", where="gain")
    low, high = 0.0, 1.0 / (gain + integral)
    while _radius(window, delay, gain * high, integral * high, leak) <= 1 + 1e-9:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        stable = _radius(window, delay, gain * middle, integral * middle, leak) <= 1 + 1e-9
        low, high = (middle, high) if stable else (low, middle)
    return low


def _radius(window: int, delay: int, gain: float, integral: float, leak: float) -> float:
    """Largest root of (1 - leak/z) · (1 + gain · M) + integral · M, M = mean of z^-(delay … delay + window - 1)."""
    degree = delay + window - 1
    mean = np.zeros(degree + 1)
    mean[delay:] = 1.0 / window
    if not integral:
        return _largest(_unit(degree + 1) + gain * mean)
    direct = np.convolve([1.0, -leak], _unit(degree + 1) + gain * mean)
    direct[: degree + 1] += integral * mean
    return _largest(direct)


def _unit(n: int) -> FloatArray:
    one = np.zeros(n)
    one[0] = 1.0
    return one


def _largest(coefficients: FloatArray) -> float:
    return float(np.abs(np.roots(coefficients)).max(initial=0.0))


@dataclass(frozen=True, kw_only=True)
class PlantGain:
    """What a router gives per unit of offset: S = -d ln(load) / d offset. rank: of all layers and ranks
    together, rank_low and rank_high the extremes of ranks · expert: the same of single experts · probe: the offset
    used."""

    rank: float
    rank_low: float
    rank_high: float
    expert: float
    expert_low: float
    expert_high: float
    probe: float

    def of(self, signal: str) -> float:
        """S of what a controller acts on."""
        return self.expert if signal == EXPERT else self.rank

    def to_dict(self) -> dict[str, float]:
        """For reports."""
        return asdict(self)


def plant_gain(scores: Scores, plan: Plan) -> PlantGain:
    """S from recorded scores: ranks, and experts, are probed one by one with a small offset on a sample of tokens.

    An expert with replicas gets the share of the offset that it has of the rank. Raises `UsageError` when scores show
    no gap, so that no small offset can be told.
    """
    probe = PROBE_GAPS * scores.gap
    if probe <= 0:
        raise UsageError("no gap between chosen and next scores, so the loop gain cannot be measured", where="scores")
    shares = rank_shares(plan)
    ranks, experts = _spaced(plan.ranks), _spaced(plan.experts)
    sample = _Probe.of(scores, len(ranks))
    of_ranks = [sample.response(shares[:, :, rank] * probe) for rank in ranks]
    sample, one = _Probe.of(scores, len(experts)), np.eye(plan.experts) * probe
    of_experts = [sample.response(np.tile(one[expert], (plan.layers, 1))) for expert in experts]
    return PlantGain(probe=probe, **_spread("rank", of_ranks, probe), **_spread("expert", of_experts, probe))


def _spaced(units: int) -> list[int]:
    """All, or so many of them that probing stays affordable."""
    return sorted({int(unit) for unit in np.linspace(0, units - 1, min(units, _UNITS))})


@dataclass(frozen=True, kw_only=True, eq=False)
class _Probe:
    """Tokens spread over all of them, so many that probing every rank and expert stays affordable."""

    scores: Scores
    values: AnyArray
    recorded: AnyArray
    head_start: AnyArray

    @staticmethod
    def of(scores: Scores, probes: int) -> _Probe:
        tokens = len(scores.recorded)
        wanted = min(tokens, max(_LEAST_TOKENS, _PROBED // (probes * scores.layers)))
        starts = np.unique(np.linspace(0, max(0, tokens - _RUN), max(1, wanted // _RUN)).astype(int))
        runs = [(int(first), min(tokens, int(first) + _RUN)) for first in starts]
        place = np.concatenate([np.arange(*run) for run in runs])
        return _Probe(
            scores=scores,
            values=sealed(np.concatenate([scores.values(*run) for run in runs])),
            recorded=frozen(scores.recorded[place]),
            head_start=frozen(scores.head_start[place]),
        )

    def loads(self, offset: FloatArray) -> FloatArray:
        """float64[L, E] assignments under an offset."""
        shape = self.values.shape[1:]
        ones, out = frozen(np.ones(shape), np.float32), np.empty(self.recorded.shape, np.int32)
        kernels.load().route(
            self.values, self.recorded, self.head_start, frozen(offset, np.float32), ones, frozen(ones > 0),
            self.scores.groups, self.scores.topk_group, out,
        )  # fmt: skip
        flat = out + (np.arange(shape[0]) * shape[1])[:, None]
        return np.bincount(flat.ravel(), minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)

    @cached_property
    def before(self) -> FloatArray:
        """float64[L, E] assignments without offset."""
        return self.loads(np.zeros(self.values.shape[1:]))

    def response(self, offset: FloatArray) -> FloatArray:
        """float64[2] load of all layers that an offset acts on, weighted as it acts: without it and with it."""
        return np.array([(self.before * offset).sum(), (self.loads(offset) * offset).sum()])


def _spread(name: str, loads: list[FloatArray], probe: float) -> dict[str, float]:
    """loads: of every unit, as `_Probe.response` tells them."""
    of_unit = [_fall(*load) / probe for load in loads if load.min() > 0]
    if not of_unit:
        return {name: 0.0, f"{name}_low": 0.0, f"{name}_high": 0.0}
    return {
        name: _fall(*np.sum(loads, axis=0)) / probe,
        f"{name}_low": min(of_unit),
        f"{name}_high": max(of_unit),
    }


def _fall(before: float, after: float) -> float:
    return math.log(before / after)


@dataclass(frozen=True, kw_only=True)
class Margin:
    """How near a controller is to its limit. limit: factor that the gains could be raised by, None = no linear limit ·
    share: of the limit in use, 1/limit."""

    limit: float | None
    share: float | None

    @property
    def warns(self) -> bool:
        """Above 0.4 of the limit."""
        return self.share is not None and self.share > WARN_SHARE

    @property
    def refuses(self) -> bool:
        """Above 0.7 of the limit."""
        return self.share is not None and self.share > REFUSE_SHARE


def margin(controller: Controller, gain: PlantGain, loop: Loop) -> Margin:
    """Of a controller in a loop, with the delay taken as 2 or more."""
    if not controller.has_limit or not (controller.gain or controller.integral):
        return Margin(limit=None, share=None)
    s = gain.of(controller.signal)
    delay = max(loop.delay, LEAST_DELAY)
    most = limit(loop.window, delay, controller.gain * s, controller.integral * s, controller.leak)
    return Margin(limit=most, share=1.0 / most)


def safe(controller: Controller, gain: PlantGain, loop: Loop, share: float | None = None) -> Controller:
    """The controller with gains at a share of its limit (a quarter; a tenth for pure integrals). Its own gains only
    say their proportion. Raises `UsageError` for a law without a limit."""
    if not controller.has_limit:
        raise UsageError(f"{controller.law} has no linear limit, so no safe gain", where=controller.name)
    if share is None:
        share = SLOW_SHARE if controller.law == I else SAFE_SHARE
    start = controller if controller.gain or controller.integral else _unit_gains(controller)
    most = margin(start, gain, loop).limit
    return start.scaled(share * (most or 0.0))


def _unit_gains(controller: Controller) -> Controller:
    """One of each that the law uses; a PI law integrates a tenth of what it adds at once."""
    proportional = 0.0 if controller.law == I else 1.0
    integral = {P: 0.0, I: 1.0}.get(controller.law, 0.1)
    return replace(controller, gain=proportional, integral=integral)


@dataclass(frozen=True, kw_only=True)
class Oscillation:
    """autocorrelation: least of 4-step heat over the lags looked at · lag: steps, where it is least, half a period ·
    below: where it says that loads swing: -0.35, less by what chance adds in a short run · heat_ratio, layer_ratio:
    standard deviation of the windowed error relative to the run without offset, over layers and of one layer ·
    oscillates: autocorrelation below `below` · grows: one of the ratios is above 1 · unstable: either of both."""

    autocorrelation: float
    lag: int
    below: float
    heat_ratio: float
    layer_ratio: float
    oscillates: bool
    grows: bool

    @property
    def unstable(self) -> bool:
        """The loop swings, or has made worse what it senses."""
        return self.oscillates or self.grows

    def to_dict(self) -> dict[str, float | int | bool]:
        """For reports."""
        return {**asdict(self), "unstable": self.unstable}


def oscillation(loads: FloatArray, without: FloatArray, loop: Loop) -> Oscillation:
    """Of the judged loads float64[S, L, R] of a run beside those of the run without offset."""
    lowest, lag = _autocorrelation(loads, loop)
    below = OSCILLATES_BELOW - max(0.0, 1 / math.sqrt(max(1, len(loads))) - 1 / math.sqrt(JUDGED_STEPS))
    heat, layer = _std_ratio(loads.sum(axis=1), without.sum(axis=1)), _std_ratio(loads, without)
    return Oscillation(
        autocorrelation=lowest,
        lag=lag,
        below=below,
        heat_ratio=heat,
        layer_ratio=layer,
        oscillates=lowest < below,
        grows=max(heat, layer) > 1 + _SAME,
    )


def _std_ratio(loads: FloatArray, without: FloatArray) -> float:
    window = min(WINDOW_STEPS, len(loads))
    now, before = (float(relative(window_sums(one, window)).std()) for one in (loads, without))
    return now / before if before else 1.0


def _autocorrelation(loads: FloatArray, loop: Loop) -> tuple[float, int]:
    """Least autocorrelation of short heat and its lag: half a period of a loop is delay + (window - 1) / 2 steps."""
    z = relative(window_sums(loads.sum(axis=1), min(SHORT_STEPS, len(loads))))
    z = z - z.mean(axis=0)
    power = float((z * z).mean())
    lags = range(SHORT_STEPS, min(max(loop.window, WINDOW_STEPS) + loop.delay, len(z) - 1) + 1)
    if not power or not lags:
        return 0.0, 0
    found = [float((z[lag:] * z[:-lag]).mean()) / power for lag in lags]
    lowest = int(np.argmin(found))
    return found[lowest], lags[lowest]
