"""The traffic that plans are made from and judged on: a token trace or a count trace behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import AnyArray, BoolArray, IntArray, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.load.counting import Windowing, count_windows, sampling, windows_of_counts
from easybalance_sim.load.folds import Fold, folds_of_requests, folds_of_windows
from easybalance_sim.load.headroom import most_windows, searched_steps
from easybalance_sim.load.rebatch import Queue, queue_of
from easybalance_sim.load.sampling import Draw, TokenSample, draw_tokens, sample_of
from easybalance_sim.load.selection import Selection
from easybalance_sim.load.split import FIT, HELD_OUT, MODES, Split
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.engine import links, outcomes, subject, tally, with_sources
from easybalance_sim.replay.expected import replay_counts
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.workloads import judged_requests, leading
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import CountTrace, TokenBatch

SCORING_ASSIGNMENTS = 4e9
"""Assignments × candidates that choosing among candidates may replay; longer fit sides are sampled by windows."""

Progress = Callable[[str, int], Callable[[int], None]]
"""progress(label, total tokens) returns what is called with the tokens done."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """What every replay of one run shares. cost: makes the cost model of a plan · rule: replica choice · mode: `normal`
    or `low_latency` · recorded_ranks: R of the recording · step_tokens: tokens of one drawn step (count traces)."""

    topology: Topology
    cost: Callable[[Plan], LayerCost]
    rule: str
    mode: str
    windowing: Windowing
    seed: int
    recorded_ranks: int
    step_tokens: int
    progress: Progress


class Traffic(Protocol):
    """One trace, divided into a fit side and a held-out side (which may be empty)."""

    def describe_split(self) -> Mapping[str, Any]:
        """Numbers of the split for the report, without those of the windows."""

    def fit_windows(self) -> LoadWindows:
        """Counts of the fit side."""

    def judged_windows(self) -> LoadWindows:
        """Counts of the held-out side, all of its windows; of the fit side when nothing is held out."""

    def counted_every(self) -> int:
        """One in how many windows `fit_windows` and `judged_windows` hold; of a very long trace not all."""

    def finer_windows(self, recorded: LoadWindows) -> LoadWindows | None:
        """Shorter windows of the fit side where few are recorded, None when the recorded ones will do."""

    def rebatched_windows(self, recorded: LoadWindows, seed: int) -> IntArray:
        """int64[W, L, E] the fit side's requests queued again, in windows as long as searches look at; none where
        requests are unknown."""

    def folds(self, recorded: LoadWindows, seed: int) -> tuple[Fold, ...]:
        """Parts of the fit side to judge plans of its other parts on, none when it is too short."""

    def token_sample(self, limit: int, bench: Bench) -> TokenSample | None:
        """A fair sample of the fit side's tokens, None where tokens are unknown."""

    def replay(self, plans: Sequence[Plan], side: int, bench: Bench) -> list[Outcome]:
        """Every plan on one side."""

    def has_held_out(self) -> bool:
        """Whether there is anything to judge on."""

    def leading(self, ids: IntArray) -> tuple[str, ...] | None:
        """The workload of most requests that run in each judged window, "" where none has more than half; None where
        that is not known or there is one workload only. ids: int64[w] of `WindowMarks`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenTraffic:
    """A token trace under a selection. split: None = the whole selection is held out (a plan from elsewhere)."""

    trace: TokenTrace
    selection: Selection
    split: Split | None
    windowing: Windowing
    settings: Mapping[str, Any]
    _queues: dict[int, Queue | None] = field(default_factory=dict, repr=False)

    def describe_split(self) -> Mapping[str, Any]:
        """The settings that drew the line."""
        return self.settings

    def fit_windows(self) -> LoadWindows:
        """Counts of the fit side; the last window is left out when it was cut short."""
        return self._windows(FIT, self.windowing).full_only()

    def judged_windows(self) -> LoadWindows:
        """Counts of the held-out side."""
        return self._windows(HELD_OUT, self.windowing)

    def counted_every(self) -> int:
        """As many as keep the memory that counts take within bounds."""
        return sampling(self.trace.scan(), self.trace.meta, self.windowing)

    def rebatched_windows(self, recorded: LoadWindows, seed: int) -> IntArray:
        """See `load.rebatch`."""
        queue, steps = self._queue(recorded, seed), _steps(recorded)
        if queue is None:
            return recorded.tokens[:0]
        finer = searched_steps(len(recorded.window), steps)
        found = len(recorded.window) * steps // finer
        return queue.rebatched(found, finer, most_windows(finer, self.trace.meta.experts))

    def finer_windows(self, recorded: LoadWindows) -> LoadWindows | None:
        """Windows of fewer steps; those of seconds stay."""
        steps = searched_steps(len(recorded.window), _steps(recorded))
        if not recorded.steps_per_window or steps == recorded.steps_per_window:
            return None
        return self._windows(FIT, Windowing(steps=steps)).full_only()

    def folds(self, recorded: LoadWindows, seed: int) -> tuple[Fold, ...]:
        """Folds without a request in common; of windows where requests are too few."""
        queue, steps = self._queue(recorded, seed), _steps(recorded)
        finer = searched_steps(len(recorded.window), steps)
        found = () if queue is None else folds_of_requests(queue, steps, finer)
        return found or folds_of_windows(recorded.tokens)

    def _queue(self, recorded: LoadWindows, seed: int) -> Queue | None:
        """The fit side's requests; made once, because sorting them by topic reads the trace."""
        if seed not in self._queues:
            scan = self.trace.scan()
            chosen = np.ones(scan.requests, np.bool_) if self.split is None else self.split.side == FIT
            if self.selection.workloads is not None:
                chosen = chosen & np.isin(scan.request_workload, self.selection.workloads)
            self._queues[seed] = queue_of(
                partial(self._over, FIT),
                self.trace.meta,
                scan,
                scan.request[chosen],
                _span(scan.request_first[chosen], scan.request_last[chosen], self.split),
                seed,
            )
        return self._queues[seed]

    def token_sample(self, limit: int, bench: Bench) -> TokenSample | None:
        """At most `limit` tokens with the nodes that they enter at, as in replay."""
        fit = self.selected(FIT)
        draw = partial(
            _draw,
            chosen=fit,
            ranks=bench.topology.ranks,
            recorded_ranks=bench.recorded_ranks,
            limit=limit,
            seed=bench.seed,
        )
        return sample_of(self.trace.map(draw, may_hold=fit.may_hold), limit, bench.topology.node_of_rank)

    def replay(self, plans: Sequence[Plan], side: int, bench: Bench) -> list[Outcome]:
        """Every token of one side under every plan; a long fit side is sampled by windows."""
        chosen = self.selected(side)
        if side == FIT:
            work = self.trace.scan().tokens * len(self.trace.meta.layers) * self.trace.meta.top_k * len(plans)
            chosen = chosen.sampled(max(1, round(work / SCORING_ASSIGNMENTS)), self.windowing)
        layers = self.trace.meta.layers
        subjects = [subject(plan, bench.topology, bench.rule, bench.cost(plan), bench.seed, layers) for plan in plans]
        label = "replaying the held-out side" if side == HELD_OUT else "scoring candidates on the fit side"
        done = bench.progress(label, Amount(self.trace.scan().tokens, "tokens"))
        work_on = partial(
            tally,
            subjects=subjects,
            route=links(bench.topology, bench.mode),
            windowing=bench.windowing,
            recorded_ranks=bench.recorded_ranks,
        )
        found = outcomes(self.trace.map(_Chosen(chosen, work_on), advance=done, may_hold=chosen.may_hold), subjects)
        if found[0].tokens == 0:
            raise UsageError(
                "no token is left to judge on", where="trace", fix="choose other --workload, --phase or --split"
            )
        return found

    def has_held_out(self) -> bool:
        """A token split never leaves the held-out side empty."""
        return True

    def leading(self, ids: IntArray) -> tuple[str, ...] | None:
        """By the first and last steps of requests; not known of windows of seconds."""
        if not self.windowing.length or len(self.trace.workloads) < 2:
            return None
        return leading(self.trace, judged_requests(self.trace, self.selection, self.split), ids, self.windowing.length)

    def _windows(self, side: int, windowing: Windowing) -> LoadWindows:
        """Counts of one side, of one in `counted_every` windows."""
        chosen = self.selected(side).sampled(sampling(self.trace.scan(), self.trace.meta, windowing), windowing)
        work = _Chosen(chosen, partial(count_windows, meta=self.trace.meta, windowing=windowing))
        nothing = count_windows([], self.trace.meta, windowing)
        return nothing.merged(list(self.trace.map(work, may_hold=chosen.may_hold)))

    def _over(self, side: int, work: Callable[[Iterable[TokenBatch]], Any], state_bytes: int) -> Iterator[Any]:
        """Work on every token of one side."""
        chosen = self.selected(side)
        return self.trace.map(_Chosen(chosen, work), state_bytes=state_bytes, may_hold=chosen.may_hold)

    def selected(self, side: int) -> Selection:
        """Which tokens of the trace are on a side."""
        return self.selection if self.split is None else self.selection.of_side(self.split, side)


@dataclass(frozen=True, kw_only=True, eq=False)
class CountTraffic:
    """A count trace. fit, held: bool[W] windows of either side; replayed with expected values."""

    trace: CountTrace
    fit: BoolArray
    held: BoolArray
    settings: Mapping[str, Any]

    def describe_split(self) -> Mapping[str, Any]:
        """The settings that drew the line."""
        return self.settings

    def fit_windows(self) -> LoadWindows:
        """The fit windows."""
        return windows_of_counts(self.trace).pick(self.fit)

    def judged_windows(self) -> LoadWindows:
        """The held-out windows."""
        return windows_of_counts(self.trace).pick(self.held if self.has_held_out() else self.fit)

    def counted_every(self) -> int:
        """Every one: a count trace is small."""
        return 1

    def rebatched_windows(self, recorded: LoadWindows, seed: int) -> IntArray:
        """None: counts do not know requests."""
        return recorded.tokens[:0]

    def finer_windows(self, recorded: LoadWindows) -> LoadWindows | None:
        """None: counts are as they were recorded."""
        return None

    def folds(self, recorded: LoadWindows, seed: int) -> tuple[Fold, ...]:
        """Folds of windows."""
        return folds_of_windows(recorded.tokens)

    def token_sample(self, limit: int, bench: Bench) -> TokenSample | None:
        """None: counts do not know tokens."""
        return None

    def replay(self, plans: Sequence[Plan], side: int, bench: Bench) -> list[Outcome]:
        """Expected outcome of every plan on one side."""
        places = np.flatnonzero(self.held if side == HELD_OUT else self.fit)
        tokens: IntArray = self.trace.tokens[places]
        route = links(bench.topology, bench.mode)
        found = [
            replay_counts(
                tokens,
                self.trace.meta.top_k,
                plan,
                bench.cost(plan),
                bench.topology,
                route,
                bench.step_tokens,
                bench.seed,
            )
            for plan in plans
        ]
        return [replace(one, window_marks=replace(one.window_marks, ids=places)) for one in found]

    def has_held_out(self) -> bool:
        """Whether a window is held out."""
        return bool(self.held.any())

    def leading(self, ids: IntArray) -> tuple[str, ...] | None:
        """A window of a count trace is of one workload."""
        if len(self.trace.workloads) < 2:
            return None
        return tuple(self.trace.workloads[code] for code in self.trace.workload[ids].tolist())


def split_counts(
    trace: CountTrace, keep: BoolArray, by: str, held_out: float, seed: int
) -> tuple[BoolArray, BoolArray]:
    """(fit, held) masks over the windows of a count trace; one window alone is fit.

    keep: bool[W] windows that take part · held_out: share of the windows (`time`) or workloads, at least one on either
    side. Raises `UsageError` for a split that counts cannot have, or when there is nothing to split.
    """
    if by == "request":
        raise UsageError("a count trace has no requests", where="--split request", fix="use --split time or workload")
    if by not in MODES:
        raise UsageError(f"no split {by!r}", where="--split", fix=f"{did_you_mean(by, MODES)}choose {', '.join(MODES)}")
    if not 0 < held_out < 1:
        raise UsageError(f"held-out share {held_out:g} is not between 0 and 1", where="--held-out")
    chosen = np.flatnonzero(keep)
    fit, held = np.zeros(len(keep), np.bool_), np.zeros(len(keep), np.bool_)
    if len(chosen) == 0:
        raise UsageError("no window is left", where="trace", fix="choose other --workload or --phase")
    if by == "workload":
        names = np.unique(trace.workload[chosen])
        order = stream(seed, "split").permutation(names)
        if len(order) < 2:
            raise UsageError("only one workload, nothing to split", where="--split workload", fix="use --split time")
        held[chosen] = np.isin(trace.workload[chosen], order[: _share(len(order), held_out)])
    elif len(chosen) > 1:
        held[chosen[-_share(len(chosen), held_out) :]] = True
    fit[chosen] = ~held[chosen]
    return fit, held


def _span(first: AnyArray, last: AnyArray, split: Split | None) -> int:
    """Steps from the first to the last of these requests: all numbers between, as in the lives of requests."""
    end = int(last.max(initial=0)) + 1 if split is None or split.boundary < 0 else split.boundary
    return max(1, end - int(first.min(initial=end)))


def _steps(windows: LoadWindows) -> int:
    """Steps of a window: as asked, or the mean of windows of seconds."""
    return windows.steps_per_window or max(1, round(float(windows.steps.mean())))


def _share(count: int, held_out: float) -> int:
    return int(np.clip(round(count * held_out), 1, count - 1))


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Work on the tokens that a selection keeps."""

    selection: Selection
    work: Callable[[Iterable[TokenBatch]], Any]

    def __call__(self, batches: Iterable[TokenBatch]) -> Any:
        return self.work(self.selection.of(batches))


def _draw(
    batches: Iterable[TokenBatch], *, chosen: Selection, ranks: int, recorded_ranks: int, limit: int, seed: int
) -> Draw | None:
    placed = (with_sources(batch, ranks, recorded_ranks) for batch in batches)
    return draw_tokens(placed, chosen.mask, limit, seed)
