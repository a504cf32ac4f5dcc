"""Folds of the fit side: what a plan made from one part of it does on the other, before anything held out is seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import IntArray, frozen
from easybalance_sim.load.headroom import spread
from easybalance_sim.load.rebatch import Queue

FEWEST_WINDOWS = 8
"""On either side of a fold, for a search to apply and a tail to be worth a look."""
MOST_WINDOWS = 128
"""Per run of a fold's requests."""
BLOCKS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """Windows to plan on and windows to judge on.

    fit, held: int64[W, L, E] · finer: int64[W", L, E] shorter windows of the fit part for searches, and rebatched:
    int64[W', L, E] its requests queued again, may be empty · new_topics: the held part is of topics that the fit part
    has little of, else both have all.
    """

    fit: IntArray
    finer: IntArray
    rebatched: IntArray
    held: IntArray
    new_topics: bool

    def __post_init__(self) -> None:
        for name in ("fit", "finer", "rebatched", "held"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64))


def folds_of_requests(queue: Queue, steps: int, finer_steps: int) -> tuple[Fold, ...]:
    """Four folds that share no request: random halves judged on one another, then the two halves of the topic order.

    Each half runs again in its recorded order, so that topics drift as they did, and at the recorded concurrency, in
    windows of `steps` and, for searches, `finer_steps`; these are judged on too where a half is too short for
    `FEWEST_WINDOWS` of `steps`. None when it is too short for those.
    """
    random = np.array_split(queue.at_random(np.arange(len(queue.request)), 2), 2)
    topics = np.array_split(queue.topics, 2)
    wanted = []
    for half in (*random, *topics):
        order, topic, other = queue.as_recorded(half), queue.by_topic(half), queue.at_random(half, 4)
        wanted += [(order, steps), (order, finer_steps), (topic, finer_steps), (other, finer_steps)]
    runs = queue.windows(wanted, MOST_WINDOWS)
    halves = [runs[first : first + 4] for first in range(0, 16, 4)]
    if min(len(half[0]) for half in halves) < FEWEST_WINDOWS:
        halves = [[half[1], *half[1:]] for half in halves]
    if min(len(run) for half in halves for run in half) < FEWEST_WINDOWS:
        return ()
    found = []
    for fit, held, new_topics in ((0, 1, False), (1, 0, False), (2, 3, True), (3, 2, True)):
        windows, finer, *again = halves[fit]
        found.append(
            Fold(fit=windows, finer=finer, rebatched=np.concatenate(again), held=halves[held][0], new_topics=new_topics)
        )
    return tuple(found)


def folds_of_windows(tokens: IntArray) -> tuple[Fold, ...]:
    """Four folds of windows in time order: alternate blocks judged on one another, then first and second half.

    For traffic whose requests are unknown or too few. tokens: int64[W, L, E]; none when fewer than twice
    `FEWEST_WINDOWS` have traffic.
    """
    tokens = tokens[tokens.any(axis=(1, 2))]
    if len(tokens) < 2 * FEWEST_WINDOWS:
        return ()
    at = np.arange(len(tokens))
    sides = (at * BLOCKS // len(at) % 2 == 0, at * 2 < len(at))
    found = []
    for new_topics, side in enumerate(sides):
        parts = [spread(tokens[mine], MOST_WINDOWS) for mine in (side, ~side)]
        for fit, held in (parts, parts[::-1]):
            found.append(Fold(fit=fit, finer=tokens[:0], rebatched=tokens[:0], held=held, new_topics=bool(new_topics)))
    return tuple(found)
