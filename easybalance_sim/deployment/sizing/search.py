"""The answers of `ebsim capacity`: rates, GPUs, replicas and splits of the same GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from easybalance_sim.deployment.choosing import NODES, SLOTS
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import Ground
from easybalance_sim.deployment.prepare import AFTER, AUTO, BEFORE, EVEN, Prepared, prepare
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.sizing.attainment import Attainment, attained
from easybalance_sim.deployment.sizing.highest_rate import HighestRate, highest_rate
from easybalance_sim.deployment.sizing.variants import Layout, layout_of, splits, with_layout, with_plan
from easybalance_sim.deployment.stations import Station
from easybalance_sim.errors import EbsimError

MOST_GROWTH = 4
"""Times the scenario's GPUs that are tried for a rate."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What all searches share. seeds: of every run · tolerance: of a rate, relative · ground: the routing · known: what
    was found, by what served."""

    seeds: tuple[int, ...]
    tolerance: float
    ground: Ground
    known: dict[Any, HighestRate] = field(default_factory=dict)

    def rate(self, prepared: Prepared, key: str, overlap: str = "") -> HighestRate:
        """The highest rate of one of `prepare.KEYS`. The same plans on the same GPUs are searched once; a search starts
        where the last one ended."""
        overlap = overlap or prepared.scenario.run.overlap
        serves = (overlap, key == EVEN, tuple(_identity(one) for one in prepared.stations(key)))
        if serves not in self.known:
            held = [found.rate_per_s for found in self.known.values() if found.holds is not None]
            self.known[serves] = highest_rate(
                lambda rate: attained(prepared, key, rate, seeds=self.seeds, overlap=overlap),
                prepared.scenario.slo.share,
                held[-1] if held else prepared.workload.rate_per_s,
                self.tolerance,
            )
        return self.known[serves]

    def prepared(self, scenario: Scenario) -> Prepared:
        """Plans and step models of a scenario on the same routing; what they tell, the first ones told."""
        return prepare(scenario, _Quiet(), self.ground)


class _Quiet:
    """Hears one layout after the other."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        """Say nothing."""
        return lambda units: None


def _identity(station: Station) -> tuple[Any, ...]:
    """What makes two stations serve alike, within one scenario."""
    plan, pool = station.plan, station.pool
    # Slots of the cluster are those of the plan after, and data ranks may be said or follow: what serves has its own.
    cluster = [getattr(pool.cluster, name) for name in pool.cluster.__struct_fields__ if name != "slots_per_rank"]
    engine = [getattr(pool.engine, name) for name in pool.engine.__struct_fields__ if name != "data_ranks"]
    return (
        repr((cluster, engine)), pool.data_ranks, station.limits, station.schedule, plan.slots_per_rank.tobytes(),
        plan.expert_of_slot.tobytes(),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """One layout of one pool. role: of the pool · layout · refused: why it cannot be, empty when it can · before,
    after: highest rates · kv_tokens: cache of all its ranks under the plan after · replicas: slots of a layer that it
    fills with experts once more · policies: of the plans."""

    role: str
    layout: Layout
    refused: str = ""
    before: HighestRate | None = None
    after: HighestRate | None = None
    kv_tokens: int = 0
    replicas: int = 0
    policies: tuple[str, str] = ("", "")


def rates_over(
    search: Search, scenario: Scenario, role: str, layouts: Sequence[Layout], advance: Callable[[int], None]
) -> list[Row]:
    """The highest rates of every layout, the plans made anew for each."""
    rows = []
    for layout in layouts:
        rows.append(_row(search, scenario, role, layout))
        advance(1)
    return rows


def _row(search: Search, scenario: Scenario, role: str, layout: Layout) -> Row:
    try:
        prepared = search.prepared(with_layout(scenario, role, layout))
    except EbsimError as error:
        return Row(role=role, layout=layout, refused=error.what)
    place = [pool.role for pool in scenario.pools].index(role)
    before, after = prepared.before[place], prepared.after[place]
    return Row(
        role=role,
        layout=layout,
        before=search.rate(prepared, BEFORE),
        after=search.rate(prepared, AFTER),
        kv_tokens=after.kv_tokens,
        replicas=after.plan.redundant_slots,
        policies=(before.plan.policy, after.plan.policy),
    )


def rates_with_replicas(
    search: Search, scenario: Scenario, role: str, layouts: Sequence[Layout], advance: Callable[[int], None]
) -> list[Row]:
    """As `rates_over`; where the scenario leaves the plan open, spare slots are judged by the best plan that fills
    them: one without replicas, however good, says nothing of what they are worth."""
    pool = next(one for one in scenario.pools if one.role == role)
    left_open = pool.placement.after == AUTO and scenario.rebalance is None
    fillers = (*SLOTS, *(NODES if pool.cluster.ranks > pool.cluster.ranks_per_node else ()))
    rows = []
    for layout in layouts:
        names = fillers if left_open and layout.spare else (pool.placement.after,)
        named = [_row(search, with_plan(scenario, role, name), role, layout) for name in names]
        rows.append(max(named, key=lambda row: row.after.rate_per_s if row.after and row.replicas else -1.0))
        advance(1)
    return rows


def replica_layouts(pool: Pool, experts: int, spares: Sequence[int]) -> list[Layout]:
    """The pool without spare slots, and with each of these numbers. Raises `UsageError` where ranks differ."""
    own = layout_of(pool, experts)
    return [replace(own, spare=spare) for spare in sorted({0, *spares})]


def split_layouts(scenario: Scenario, pool: Pool) -> list[Layout]:
    """The same GPUs with every expert on one, on all of a node, and between; attention likewise, and once more all of a
    node sharing it while experts stay apart."""
    shape = scenario.shape
    own = layout_of(pool, shape.experts)
    found = [own]
    numbers = splits(pool, shape)
    for experts, attention in [*((number, number) for number in numbers), (1, numbers[-1])]:
        ranks = pool.gpus // experts
        spare = min(own.spare, shape.experts - -(-shape.experts // ranks))
        found.append(replace(own, expert_tensor=experts, attention_tensor=attention, spare=spare))
    return list(dict.fromkeys(found))


Tried = dict[int, dict[str, Attainment] | str]
"""GPUs → what they attain under the plan before and after, or why such a cluster cannot be."""


@dataclass(frozen=True, kw_only=True)
class Fleets:
    """The fewest GPUs of a pool that hold a rate, other pools as they are. gpus: key → number, 0 when none tried did ·
    tried."""

    role: str
    rate_per_s: float
    gpus: dict[str, int]
    tried: Tried


def fewest_gpus(
    search: Search, scenario: Scenario, role: str, rate_per_s: float, advance: Callable[[int], None]
) -> Fleets:
    """Bisection over numbers of GPUs, any number, up to `MOST_GROWTH` times the scenario's; that more GPUs never hold
    less is taken for granted. Raises `UsageError` for clusters that cannot be made larger or smaller."""
    pool = next(one for one in scenario.pools if one.role == role)
    own = layout_of(pool, scenario.shape.experts)
    tried: Tried = {}

    def holds(key: str, groups: int) -> bool:
        gpus = groups * own.attention_tensor
        if gpus not in tried:
            tried[gpus] = _attained(search, scenario, role, _of_size(own, gpus, scenario.shape.experts), rate_per_s)
            advance(1)
        found = tried[gpus]
        return isinstance(found, dict) and found[key].holds(scenario.slo.share)

    least = {key: own.attention_tensor * least_of(partial(holds, key), own.data_ranks) for key in (BEFORE, AFTER)}
    return Fleets(role=role, rate_per_s=rate_per_s, gpus=least, tried=dict(sorted(tried.items())))


def _of_size(own: Layout, gpus: int, experts: int) -> Layout:
    """So many GPUs, with as many spare slots as there is use for."""
    ranks = gpus // own.expert_tensor
    return replace(own, gpus=gpus, spare=min(own.spare, experts - -(-experts // ranks)))


def _attained(
    search: Search, scenario: Scenario, role: str, layout: Layout, rate_per_s: float
) -> dict[str, Attainment] | str:
    try:
        prepared = search.prepared(with_layout(scenario, role, layout))
    except EbsimError as error:
        return error.what
    return {key: attained(prepared, key, rate_per_s, seeds=search.seeds) for key in (BEFORE, AFTER)}


def least_of(holds: Callable[[int], bool], start: int) -> int:
    """The least number that holds, 0 when none up to `MOST_GROWTH` times the first one does."""
    low, high = 0, start
    while not holds(high):
        low, high = high, high * 2
        if high > start * MOST_GROWTH:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
