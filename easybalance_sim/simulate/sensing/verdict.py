"""Which rule is best on a trace, and how sure one can be: steps in a row are alike, so blocks of them are redrawn."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, stream
from easybalance_sim.simulate.sensing.detectors import ARTICLE
from easybalance_sim.simulate.sensing.tally import Tally

FEWEST_BLOCKS = 5
LEVEL = 0.9
"""Of intervals."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """F1 of a rule: over all steps, and between which values redrawn traces lie."""

    f1: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The best rule on one kind of unit.

    best: rule with the highest F1, empty when nothing stays hot or nothing is told · tied: the others that redrawn
    traces do not tell from it · intervals: of every rule · halves: the best rule of the first and of the second half of
    the steps · always_f1: of calling everything hot · ahead_of_article: F1 of the best less that of the article's rule
    · blocks: that were redrawn · text: all of it in one line.
    """

    best: str
    tied: tuple[str, ...]
    intervals: dict[str, Interval]
    halves: tuple[str, str]
    always_f1: float
    ahead_of_article: Interval
    blocks: int
    text: str

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return asdict(self)


def judge(tally: Tally, block_steps: int, draws: int, seed: int) -> Verdict:
    """The verdict on all that a tally has seen. block_steps: a step says nothing of one so far away · draws: redrawn
    traces."""
    names = [rule.name for rule in tally.rules]
    steps = len(tally.truth)
    blocks = max(1, round(steps / block_steps))
    half = (np.arange(steps) >= steps // 2).astype(np.int64)
    both = tally.f1(half, np.array([[1, 1, 0], [1, 0, 1]]))
    whole, halves = both[:, 0], both[:, 1:]
    drawn = tally.f1(np.arange(steps) * blocks // steps, _redrawn(blocks, draws, seed))
    place = int(np.argmax(whole))
    behind = drawn[place] - drawn
    tied = [name for one, name in enumerate(names) if one != place and np.quantile(behind[one], (1 - LEVEL) / 2) <= 0]
    article = names.index(ARTICLE)
    rate = tally.truth_share
    found = Verdict(
        best=names[place],
        tied=tuple(tied),
        intervals={name: _interval(f1, row) for name, f1, row in zip(names, whole, drawn, strict=True)},
        halves=(names[int(np.argmax(halves[:, 0]))], names[int(np.argmax(halves[:, 1]))]),
        always_f1=2 * rate / (1 + rate),
        ahead_of_article=_interval(whole[place] - whole[article], behind[article]),
        blocks=blocks,
        text="",
    )
    return _worded(found, anything=rate > 0)


def _worded(found: Verdict, *, anything: bool) -> Verdict:
    """The verdict with its line; without a best rule where none can be told."""
    values = {name: value for name, value in vars(found).items() if name != "text"}
    if not anything:
        return Verdict(**(values | {"best": "", "tied": ()}), text="nothing stays hot, so there is nothing to find")
    if found.blocks < FEWEST_BLOCKS:
        text = (
            f"too short to tell: {found.blocks} stretches that say something of their own, {FEWEST_BLOCKS} are needed"
        )
        return Verdict(**(values | {"best": "", "tied": ()}), text=text)
    return Verdict(**values, text=_line(found))


def _line(found: Verdict) -> str:
    best = found.intervals[found.best]
    text = f"{found.best}: F1 {best.f1:.2f} ({best.low:.2f} to {best.high:.2f})"
    if found.tied:
        text += f", not told from {', '.join(found.tied)}"
    text += _on_halves(found)
    if best.low <= found.always_f1:
        text += "; calling everything hot does as well"
    if found.best == ARTICLE:
        return text
    ahead = found.ahead_of_article
    return text + f"; {ahead.f1:+.2f} on the article's rule ({ahead.low:+.2f} to {ahead.high:+.2f})"


def _on_halves(found: Verdict) -> str:
    first, second = found.halves
    if first == second == found.best:
        return ", best in both halves"
    return f", first half {first}, second half {second}"


def _interval(value: float, drawn: FloatArray) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return Interval(f1=float(value), low=float(low), high=float(high))


def _redrawn(blocks: int, draws: int, seed: int) -> IntArray:
    """int64[B, D] how often each block is in each redrawn trace, which has as many of them as the trace itself."""
    chosen = stream(seed, "blocks of steps").integers(0, blocks, (draws, blocks))
    return np.stack([np.bincount(row, minlength=blocks) for row in chosen], axis=1)
