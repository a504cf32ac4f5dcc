"""Rules of replica choice side by side: how even ranks get, what crosses nodes, whether a layer is faster for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import Dispatched, links
from easybalance_sim.simulate.replica_choice.budget import Budget, budget
from easybalance_sim.simulate.replica_choice.choose import DEFAULTS, Choice, Chooser, Settings
from easybalance_sim.simulate.replica_choice.rules import BASELINE, DEFAULT, SENSORS, Rule, rule_named
from easybalance_sim.simulate.replica_choice.sending import Part, Route, parts
from easybalance_sim.simulate.replica_choice.sensor import gather_s, sensor_s
from easybalance_sim.simulate.steps.balance import Balance, balance
from easybalance_sim.simulate.steps.recorded import RecordedSteps

WORSE = 0.001
"""Of the mean imbalance of a step: less says nothing."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to compare. rules: names of `rules.RULES`; `even`, the baseline, always takes part · mode: all-to-all mode ·
    warm_up: first steps that only sensors see · gather_us: stated latency of the all-gather of counters, None = from
    the cost's links · choice_us: stated times of choosing by rule, in place of those of `budget` · settings: of the
    rules."""

    rules: tuple[str, ...] = DEFAULT
    mode: str = "low_latency"
    warm_up: int = 0
    gather_us: float | None = None
    choice_us: Mapping[str, float] = field(default_factory=dict)
    settings: Settings = DEFAULTS


@dataclass(frozen=True, kw_only=True)
class Row:
    """One rule.

    balance: max/mean of rank loads · layer_us, expert_us: mean microseconds of a layer of a step, None without a cost
    model · saved_us: of a layer against `even` · sensor_us: by which the sensor holds up a layer · budget_us: what
    choosing is charged, budget_source: where that is from, see `budget` · net_us: saved_us - sensor_us - budget_us:
    below 0 the rule does not pay, whatever it evens out · choice_us: what choosing took in this run on one core of one
    rank, charged nowhere; None for what engines do · copies_per_layer: copies (low latency: assignments) of a layer of
    a step that cross nodes · cross_share: of all copies to nodes · own_share: of copies to ranks, those that stay on
    the source's rank · cross_bytes_saved: of a layer of a step against `even`, there and back.
    """

    rule: str
    sensor: str
    balance: Balance
    layer_us: float | None
    expert_us: float | None
    saved_us: float | None
    sensor_us: float | None
    budget_us: float
    budget_source: str
    net_us: float | None
    choice_us: float | None
    copies_per_layer: float
    cross_share: float
    own_share: float
    cross_bytes_saved: float | None

    def to_dict(self) -> dict[str, object]:
        """For reports."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """rows: the baseline first · steps, layers: that were scored · floor_mean, floor_p99: lowest possible busiest rank
    over the mean if assignments could be cut in pieces; None without the optimum · sensors: in words · notes."""

    rows: tuple[Row, ...]
    steps: int
    layers: int
    floor_mean: float | None
    floor_p99: float | None
    sensors: dict[str, str] = field(default_factory=lambda: dict(SENSORS))
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """For reports."""
        return asdict(self)

    def row(self, rule: str) -> Row:
        """The row of a rule that took part."""
        return next(one for one in self.rows if one.rule == rule)


@dataclass(kw_only=True, eq=False)
class _Tally:
    """What one rule did on the scored steps. pairs: float64[R, R], across: float64[N, N] copies between ranks, nodes ·
    loads: float64[s, L, R] · layer, expert: float64[s, L] seconds · bounds: float64[s, L] of the optimum, over the
    mean · choosing: seconds of all steps."""

    rule: Rule
    pairs: FloatArray
    across: FloatArray
    loads: list[FloatArray] = field(default_factory=list)
    layer: list[FloatArray] = field(default_factory=list)
    expert: list[FloatArray] = field(default_factory=list)
    bounds: list[FloatArray] = field(default_factory=list)
    choosing: float = 0.0

    def add(self, sent: Dispatched, choice: Choice | None, cost: LayerCost | None) -> None:
        """Steps that follow the last ones."""
        self.pairs = self.pairs + sent.rank_pairs
        self.across = self.across + sent.node_pairs
        self.loads.append(sent.rank_rows.astype(np.float64))
        if choice is not None:
            self.choosing += choice.seconds
            if choice.bound is not None:
                total = choice.loads.sum(axis=2)
                best = np.full(total.shape, np.nan)
                np.divide(choice.bound * sent.rank_rows.shape[2], total, out=best, where=total > 0)
                self.bounds.append(best)
        if cost is not None:
            seconds = cost.seconds(sent.slot_tokens, sent.distinct, sent.rdma, sent.nvlink)
            self.layer.append(seconds.ranked)
            self.expert.append(seconds.expert)

    @property
    def floor(self) -> FloatArray | None:
        """float64[S, L] of the optimum, else None."""
        return np.concatenate(self.bounds) if self.bounds else None

    @property
    def layer_us(self) -> float | None:
        """Mean over steps and layers."""
        return _mean_us(self.layer)

    @property
    def crossing(self) -> float:
        """Copies that leave their node."""
        return float(self.across.sum() - np.trace(self.across))

    def row(self, base: _Tally, gather: float | None, charged: Budget, cost: LayerCost | None) -> Row:
        """As reported, against the baseline's tally."""
        loads = np.concatenate(self.loads)
        cells = loads.shape[0] * loads.shape[1]
        saved, sensor = None, None if gather is None else sensor_s(self.rule.sensor, gather) * 1e6
        if self.layer_us is not None and base.layer_us is not None:
            saved = base.layer_us - self.layer_us
        return Row(
            rule=self.rule.name,
            sensor=self.rule.sensor,
            balance=balance(loads),
            layer_us=self.layer_us,
            expert_us=_mean_us(self.expert),
            saved_us=saved,
            sensor_us=sensor,
            budget_us=charged.us,
            budget_source=charged.source,
            net_us=None if saved is None or sensor is None else saved - sensor - charged.us,
            choice_us=None if self.rule.by_engines else self.choosing / cells * 1e6,
            copies_per_layer=self.crossing / cells,
            cross_share=self.crossing / max(float(self.across.sum()), 1.0),
            own_share=float(np.trace(self.pairs)) / max(float(self.pairs.sum()), 1.0),
            cross_bytes_saved=None if cost is None else (base.crossing - self.crossing) / cells * cost.copy_bytes,
        )


def compare(
    steps: RecordedSteps,
    plan: Plan,
    topology: Topology,
    cost: LayerCost | None = None,
    request: Request | None = None,
    advance: Callable[[int], None] = lambda steps: None,
) -> Comparison:
    """Every rule on the same steps and plan; `advance` is told of steps, `len(steps)` for every rule.

    Tokens without a source rank get that of `replay.engine.with_sources`. Raises `UsageError` for an unknown rule, a
    plan that does not fit, and when no step is left to score.
    """
    ask = request or Request()
    _require_fit(steps, plan, topology, ask)
    route = Route.of(plan, topology, links(topology, ask.mode), steps.meta.ranks)
    names = dict.fromkeys((BASELINE, *ask.rules))
    tallies = [_tally(steps, route, rule_named(name), cost, ask, advance) for name in names]
    gather = _gather(cost, topology, plan.experts, ask)
    bounds = [one.floor for one in tallies if one.floor is not None]
    sent = float(steps.counts[ask.warm_up :].sum(axis=2).mean()) / plan.ranks
    charged = [budget(one.rule, plan, sent, ask.choice_us) for one in tallies]
    rows = tuple(one.row(tallies[0], gather, us, cost) for one, us in zip(tallies, charged, strict=True))
    return Comparison(
        rows=rows,
        steps=len(steps) - ask.warm_up,
        layers=steps.layers,
        floor_mean=float(np.nanmean(bounds[0])) if bounds else None,
        floor_p99=float(np.nanpercentile(bounds[0], 99)) if bounds else None,
        notes=_notes(steps, plan, cost, rows),
    )


def _tally(
    steps: RecordedSteps,
    route: Route,
    rule: Rule,
    cost: LayerCost | None,
    ask: Request,
    advance: Callable[[int], None],
) -> _Tally:
    ranks, node = route.plan.ranks, route.topology.node_of_rank
    tally = _Tally(rule=rule, pairs=np.zeros((ranks, ranks)), across=np.zeros((route.links.nodes,) * 2))
    send = _engine(route, rule, steps, ask) if rule.by_engines else _chosen(steps, route, rule, node, ask)
    for part in parts(steps, ranks, route.plan.slots, ask.warm_up):
        sent, choice = send(part)
        if part.first >= ask.warm_up:
            tally.add(sent, choice, cost)
        advance(part.end - part.first)
    return tally


Sender = Callable[[Part], tuple[Dispatched, Choice | None]]


def _engine(route: Route, rule: Rule, steps: RecordedSteps, ask: Request) -> Sender:
    node = frozen(route.topology.node_of_rank, np.int32)
    dispatch = prepare(rule.name, route.plan, node, ask.settings.seed, steps.meta.layers)
    return lambda part: (route.by_engine(part, dispatch), None)


def _chosen(steps: RecordedSteps, route: Route, rule: Rule, node: AnyArray, ask: Request) -> Sender:
    plan = route.plan
    chooser = Chooser.of(plan, rule, steps.counts, steps.step, node, ask.settings)
    _compile(plan, rule, node, ask.settings)

    def send(part: Part) -> tuple[Dispatched, Choice | None]:
        choice = chooser.choose(part.first, part.end, part.counts(plan.experts, plan.ranks))
        return route.sent(part, choice), choice

    return send


def _compile(plan: Plan, rule: Rule, node: AnyArray, settings: Settings) -> None:
    """Choose for a step without tokens, so that the clock does not see the compiler."""
    nothing = np.zeros((1, plan.layers, plan.ranks, plan.experts), np.int32)
    Chooser.of(plan, rule, nothing[:, :, 0], np.zeros(1), node, settings).choose(0, 1, nothing)


def _gather(cost: LayerCost | None, topology: Topology, experts: int, ask: Request) -> float | None:
    if ask.gather_us is not None:
        return ask.gather_us * 1e-6
    return None if cost is None else gather_s(cost, topology, experts)


def _mean_us(parts_s: Sequence[FloatArray]) -> float | None:
    return float(np.concatenate(parts_s).mean()) * 1e6 if parts_s else None


def _require_fit(steps: RecordedSteps, plan: Plan, topology: Topology, ask: Request) -> None:
    got, wanted = (plan.layers, plan.experts, plan.ranks), (steps.layers, steps.meta.experts, topology.ranks)
    if got != wanted:
        raise UsageError(f"plan has (layers, experts, ranks) = {got}, wanted {wanted}", where=plan.policy)
    if not 0 <= ask.warm_up < len(steps):
        raise UsageError(f"{ask.warm_up} of {len(steps)} steps are warm-up: none is left", where="replica choice")


def _notes(steps: RecordedSteps, plan: Plan, cost: LayerCost | None, rows: Sequence[Row]) -> tuple[str, ...]:
    notes = []
    if plan.replicas.max() == 1:
        notes.append("no expert has a second replica: every rule does the same")
    if steps.meta.ranks != plan.ranks or steps.source_rank.min() < 0:
        notes.append("source ranks are not recorded for this number of ranks: request mod ranks")
    uneven = [row.rule for row in rows if row.balance.step_mean > rows[0].balance.step_mean + WORSE]
    if uneven:
        notes.append(f"less even than taking turns on this traffic: {', '.join(uneven)}")
    eaten = [row.rule for row in rows if row.saved_us and row.net_us is not None and row.net_us < 0 < row.saved_us]
    if eaten:
        notes.append(f"waiting for counts and choosing take more than they save: {', '.join(eaten)}")
    notes += [] if cost is None else [f"layer seconds not calibrated: {reason}" for reason in cost.reasons]
    return tuple(notes)
