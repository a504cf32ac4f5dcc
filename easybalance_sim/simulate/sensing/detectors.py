"""Rules that call a unit hot from what it has carried so far: those of the EasyBalance article, and plainer ones.

The article's text wants three windows in a row above the mean and the last at least 15 % above the one before; its code
compares the last window with the last but one (`v[-1] > 1.3 * v[-3]`) and nothing else. Growth of counts is mostly
growth of traffic, and growth of a share mostly noise that goes again; the last three windows together over a threshold
find more of what stays hot and call less of what does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray
from easybalance_sim.load.hotspots import HISTORY, above_mean, grown, held
from easybalance_sim.simulate.sensing.series import Series, share

CODE_FACTOR = 1.3
"""Of the article's pseudo code."""
ARTICLE = "growing counts"
"""The rule that the others are held against: the article's text, on token counts as it has them."""


class Detector(Protocol):
    """A rule. No step may look at a later one."""

    @property
    def name(self) -> str:
        """For tables, unique among the rules that are compared."""

    @property
    def says(self) -> str:
        """The rule in a few words."""

    def fires(self, series: Series) -> BoolArray:
        """bool[S, U] what is called hot once each step has been executed."""


@dataclass(frozen=True, kw_only=True)
class Growing:
    """The article's text: three windows above the mean and the last 15 % up. window: steps · of_share: each window
    divided by its mean first, so that traffic that grows everywhere is no growth."""

    window: int
    of_share: bool = False

    @property
    def name(self) -> str:
        """Of its two readings."""
        return "growing share" if self.of_share else ARTICLE

    @property
    def says(self) -> str:
        """In a few words."""
        return f"{HISTORY} windows above the mean, the last 15 % up in {'share' if self.of_share else 'tokens'}"

    def fires(self, series: Series) -> BoolArray:
        """As `Detector.fires`."""
        last, before = series.recent(self.window), series.recent(self.window, self.window)
        if self.of_share:
            last, before = share(last), share(before)
        return _lasting(series, self.window) & grown(last, before)


@dataclass(frozen=True, kw_only=True)
class Jump:
    """The article's code: the last window over 1.3 times the last but one, whatever the others carry."""

    window: int

    @property
    def name(self) -> str:
        """Of the rule."""
        return "jump"

    @property
    def says(self) -> str:
        """In a few words."""
        return f"last window over {CODE_FACTOR} times the last but one (the article's code)"

    def fires(self, series: Series) -> BoolArray:
        """As `Detector.fires`."""
        last, earlier = series.recent(self.window), series.recent(self.window, 2 * self.window)
        return _once_seen(last > CODE_FACTOR * earlier, HISTORY * self.window)


@dataclass(frozen=True, kw_only=True)
class Lasting:
    """Three windows in a row above the mean."""

    window: int

    @property
    def name(self) -> str:
        """Of the rule."""
        return "above mean"

    @property
    def says(self) -> str:
        """In a few words."""
        return f"{HISTORY} windows above the mean"

    def fires(self, series: Series) -> BoolArray:
        """As `Detector.fires`."""
        return _lasting(series, self.window)


@dataclass(frozen=True, kw_only=True)
class Over:
    """What the last `windows` windows carried together is over `threshold` times the mean."""

    window: int
    windows: int
    threshold: float

    @property
    def name(self) -> str:
        """With its number of windows."""
        return "last window" if self.windows == 1 else f"last {self.windows} windows"

    @property
    def says(self) -> str:
        """In a few words."""
        return f"{self.name} over {self.threshold:g} of the mean"

    def fires(self, series: Series) -> BoolArray:
        """As `Detector.fires`."""
        steps = self.windows * self.window
        return _once_seen(share(series.recent(steps)) > self.threshold, steps)


@dataclass(frozen=True, kw_only=True)
class Hysteresis:
    """As `Over`, and once on it stays on until the share falls below `off`, which is lower than `on`."""

    window: int
    windows: int
    on: float
    off: float

    @property
    def name(self) -> str:
        """Of the rule."""
        return "hysteresis"

    @property
    def says(self) -> str:
        """In a few words."""
        return f"last {self.windows} windows, on over {self.on:g}, off below {self.off:g}"

    def fires(self, series: Series) -> BoolArray:
        """As `Detector.fires`."""
        steps = self.windows * self.window
        seen = share(series.recent(steps))
        return held(_once_seen(seen > self.on, steps), seen < self.off)


@dataclass(frozen=True, kw_only=True)
class Average:
    """An exponentially weighted average over `threshold` times the mean; window: steps before it is asked."""

    window: int
    tau_steps: float
    threshold: float

    @property
    def name(self) -> str:
        """Of the rule."""
        return "moving average"

    @property
    def says(self) -> str:
        """In a few words."""
        return f"exponential average of {self.tau_steps:g} steps over {self.threshold:g} of the mean"

    def fires(self, series: Series) -> BoolArray:
        """As `Detector.fires`."""
        return _once_seen(share(series.averaged(self.tau_steps)) > self.threshold, self.window)


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A straight line through the shares of the last two windows, one window on, is over `threshold`."""

    window: int
    threshold: float

    @property
    def name(self) -> str:
        """Of the rule."""
        return "trend"

    @property
    def says(self) -> str:
        """In a few words."""
        return f"twice the last window less the one before over {self.threshold:g} of the mean"

    def fires(self, series: Series) -> BoolArray:
        """As `Detector.fires`."""
        return _once_seen(extrapolated(series, self.window) > self.threshold, 2 * self.window)


def extrapolated(series: Series, window: int) -> FloatArray:
    """float64[S, U] share of the coming window if it changed as much again as the last one did."""
    line: FloatArray = 2 * share(series.recent(window)) - share(series.recent(window, window))
    return line


def release(threshold: float) -> float:
    """Where a hot spot is over again: half way down to the mean (1.2 → 1.1)."""
    return 1 + (threshold - 1) / 2


def detectors(
    window: int, tau_steps: float, threshold: float, trend_threshold: float | None = None
) -> tuple[Detector, ...]:
    """All rules for one threshold; trend_threshold: another one for the extrapolated share."""
    return (
        Growing(window=window),
        Growing(window=window, of_share=True),
        Jump(window=window),
        Lasting(window=window),
        Over(window=window, windows=1, threshold=threshold),
        Over(window=window, windows=HISTORY, threshold=threshold),
        Hysteresis(window=window, windows=HISTORY, on=threshold, off=release(threshold)),
        Average(window=window, tau_steps=tau_steps, threshold=threshold),
        Trend(window=window, threshold=threshold if trend_threshold is None else trend_threshold),
    )


def _lasting(series: Series, window: int) -> BoolArray:
    """bool[S, U] units that were above the mean in each of the last windows."""
    above = np.ones(series.loads.shape, np.bool_)
    for back in range(HISTORY):
        above &= above_mean(series.recent(window, back * window))
    return _once_seen(above, HISTORY * window)


def _once_seen(fired: BoolArray, steps: int) -> BoolArray:
    """Nothing fires before so many steps have been executed."""
    fired[: steps - 1] = False
    return fired
