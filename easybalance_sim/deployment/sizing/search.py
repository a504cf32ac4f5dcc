"""The answers of `ebsim capacity`: rates, GPUs, replicas and splits of the same GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import Ground
from easybalance_sim.deployment.prepare import AFTER, BEFORE, Prepared, prepare
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.sizing.attainment import Attainment, attained
from easybalance_sim.deployment.sizing.highest_rate import HighestRate, highest_rate
from easybalance_sim.deployment.sizing.variants import Layout, layout_of, splits, with_layout
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.planning.session import Listener

MOST_GROWTH = 4
"""Times the scenario's GPUs that are tried for a rate."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What all searches share. seeds: of every run · tolerance: of a rate, relative · ground: the routing."""

    seeds: tuple[int, ...]
    tolerance: float
    ground: Ground
    tell: Listener

    def rate(self, prepared: Prepared, key: str, overlap: str = "") -> HighestRate:
        """The highest rate of one of `prepare.KEYS`, from the scenario's own rate on."""
        return highest_rate(
            lambda rate: attained(prepared, key, rate, seeds=self.seeds, overlap=overlap),
            prepared.scenario.slo.share,
            prepared.workload.rate_per_s,
            self.tolerance,
        )

    def prepared(self, scenario: Scenario) -> Prepared:
        """Plans and step models of a scenario on the same routing."""
        return prepare(scenario, self.tell, self.ground)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One layout of one pool. role: of the pool · layout · refused: why it cannot be, empty when it can · before,
    after: highest rates · kv_tokens: cache of all its ranks under the plan after · policies: of the plans."""

    role: str
    layout: Layout
    refused: str = ""
    before: HighestRate | None = None
    after: HighestRate | None = None
    kv_tokens: int = 0
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
        policies=(before.plan.policy, after.plan.policy),
    )


def replica_layouts(pool: Pool, experts: int, spares: Sequence[int]) -> list[Layout]:
    """The pool with other numbers of spare slots; those of more slots than experts are left out."""
    own = layout_of(pool, experts)
    most = experts - -(-experts // own.ranks)
    return [replace(own, spare=spare) for spare in sorted(set(spares)) if spare <= most]


def split_layouts(pool: Pool, experts: int, width: int) -> list[Layout]:
    """The same GPUs as one expert-parallel group, as one tensor-parallel one, and as what lies between."""
    own = layout_of(pool, experts)
    return [
        replace(own, expert_tensor=number, spare=min(own.spare, experts - -(-experts // (own.gpus // number))))
        for number in splits(pool, width * own.expert_tensor)
    ]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The fewest GPUs of a pool that hold a rate. gpus: 0 when none tried did · at: with them · tried: GPUs → whether
    they hold it, None where such a cluster cannot be."""

    role: str
    key: str
    rate_per_s: float
    gpus: int
    at: Attainment | None
    tried: dict[int, bool | None]


def fewest_gpus(
    search: Search, scenario: Scenario, role: str, key: str, rate_per_s: float, advance: Callable[[int], None]
) -> Fleet:
    """Bisection over numbers of GPUs, any number, up to `MOST_GROWTH` times the scenario's; that more GPUs never hold
    less is taken for granted. Raises `UsageError` for clusters that cannot be made larger or smaller."""
    pool = next(one for one in scenario.pools if one.role == role)
    own = layout_of(pool, scenario.shape.experts)
    unit = max(own.expert_tensor, pool.gpus // pool.data_ranks)
    tried: dict[int, bool | None] = {}
    found: dict[int, Attainment] = {}

    def holds(units: int) -> bool:
        gpus = units * unit
        try:
            prepared = search.prepared(with_layout(scenario, role, replace(own, gpus=gpus)))
        except UsageError:
            tried[gpus] = None
        else:
            found[gpus] = attained(prepared, key, rate_per_s, seeds=search.seeds)
            tried[gpus] = found[gpus].inside >= scenario.slo.share
        advance(1)
        return bool(tried[gpus])

    low, high = 0, max(1, pool.gpus // unit)
    most = high * MOST_GROWTH
    while not holds(high):
        low, high = high, high * 2
        if high > most:
            return Fleet(role=role, key=key, rate_per_s=rate_per_s, gpus=0, at=None, tried=tried)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    gpus = high * unit
    return Fleet(role=role, key=key, rate_per_s=rate_per_s, gpus=gpus, at=found[gpus], tried=tried)
