"""Ways to make a placement. One module here = one policy, found by its name; `make` runs one.

A policy module has a function `place(problem) -> Plan`. One that trades a cost against another may also have
`front(problem) -> list[Plan]`, plans named "<policy>@<label>" that all compete. Other packages add theirs through the
entry point group `easybalance_sim.policies`, whose entries name a `place`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray, frozen, require_shape
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.slots import SlotCost
from easybalance_sim.errors import PlanError, UsageError, did_you_mean
from easybalance_sim.load.sampling import TokenSample
from easybalance_sim.plan.plan import Plan

ENTRY_POINTS = "easybalance_sim.policies"


Progress = Callable[[str, int], Callable[[int], None]]
"""progress(label, units) returns what is called with the units done."""


def silent(label: str, units: int) -> Callable[[int], None]:
    """A `Progress` that shows nothing."""
    return lambda done: None


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How far a search may go. proposals: per layer, 0 = by size · budget_s: seconds for all layers, 0 = no limit ·
    max_moves: slots per plan that may be fetched when a plan is in force, None = no limit · move_price: per fetched
    slot, in units of a window's objective, 0 = the default."""

    proposals: int = 0
    budget_s: float = 0.0
    max_moves: int | None = None
    move_price: float = 0.0


UNLIMITED = Effort()


class NotApplicable(Exception):  # noqa: N818 — not a failure: the caller skips the policy and notes why
    """The policy has no plan for this problem; the message says why.

    plain: it follows from the cluster, the model or the command alone, so that nobody who did not ask needs to hear it.
    """

    def __init__(self, reason: str, *, plain: bool = False) -> None:
        super().__init__(reason)
        self.plain = plain


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """What a policy places.

    forecast: float64[L, E] expected assignments ≥ 0 · windows: int64[W, L, E] assignments of the sample windows that
    the forecast was made from · groups: expert groups of the router (1 = none) · current: the plan in force · held:
    bool[L, R, E] experts that cost no fetch when ranks of it were lost, None = those that it puts on each rank · seed:
    of every random choice · finer: int64[W", L, E] shorter windows of the same traffic, which searches look at instead
    (few windows teach little), None = `windows`; finer_steps: mean steps in one · rebatched: int64[W', L, E] windows of
    the fit side's requests queued again, as long as those that searches look at, may be empty ·
    window_steps: mean steps in a window · top_k: K, distinct experts of a token · slot_cost: seconds of a slot, None =
    balance tokens · sample: tokens of the fit side, for what leaves a node · per_assignment: a token pays for every
    assignment that leaves its node (low latency) instead of for every distinct node that it goes to (normal mode) ·
    effort, progress: for searches. Raises `UsageError` when the slots cannot hold the experts or a load is negative.
    """

    forecast: FloatArray
    windows: IntArray
    topology: Topology
    groups: int = 1
    current: Plan | None = None
    held: BoolArray | None = None
    seed: int = 0
    finer: IntArray | None = None
    finer_steps: float = 1.0
    rebatched: IntArray | None = None
    window_steps: float = 1.0
    top_k: int = 1
    slot_cost: SlotCost | None = None
    sample: TokenSample | None = None
    per_assignment: bool = False
    effort: Effort = UNLIMITED
    progress: Progress = silent

    def __post_init__(self) -> None:
        object.__setattr__(self, "forecast", frozen(self.forecast, np.float64))
        object.__setattr__(self, "windows", frozen(self.windows, np.int64))
        require_shape("forecast", self.forecast, (None, None))
        require_shape("windows", self.windows, (None, *self.forecast.shape))
        for name in ("finer", "rebatched"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, frozen(given, np.int64))
                require_shape(name, getattr(self, name), (None, *self.forecast.shape))
        if self.sample is not None:
            require_shape("sample", self.sample.experts, (None, self.layers, None))
        if not (np.isfinite(self.forecast).all() and (self.forecast >= 0).all()):
            raise UsageError("a load is negative or not a number", where="forecast")
        if self.groups < 1 or self.experts % self.groups:
            raise UsageError(f"{self.experts} experts do not form {self.groups} equal groups", where="groups")
        self.topology.require_room_for(self.experts)

    @property
    def layers(self) -> int:
        """L."""
        return len(self.forecast)

    @property
    def experts(self) -> int:
        """E."""
        return int(self.forecast.shape[1])


class Policy(Protocol):
    """Makes a plan for a problem, or raises `NotApplicable`."""

    def __call__(self, problem: Problem) -> Plan:
        """The plan of this policy."""


def names() -> tuple[str, ...]:
    """Every policy that can be made, sorted: the modules of this package and the installed entry points."""
    return tuple(sorted({*_modules(), *_installed()}))


def make(name: str, problem: Problem) -> Plan:
    """The plan of one policy, `Plan.policy` set to its name.

    Raises `UsageError` for an unknown name, `NotApplicable` when the policy has no plan for this problem and
    `PlanError` when the plan does not fit the problem (third-party policies).
    """
    return replace(_fitting(_policy(name)(problem), name, problem), policy=name)


def make_all(name: str, problem: Problem) -> list[Plan]:
    """Every plan of one policy: its front where it has one, else the plan of `make`. Raises as `make`."""
    module = importlib.import_module(f"{__name__}.{name}") if name in _modules() else None
    if module is None or not hasattr(module, "front"):
        return [make(name, problem)]
    return [_fitting(plan, plan.policy, problem) for plan in module.front(problem)]


def _fitting(plan: Plan, name: str, problem: Problem) -> Plan:
    """The plan, if it is one for the problem."""
    wanted = (problem.layers, problem.experts, problem.topology.ranks)
    got = (plan.layers, plan.experts, plan.ranks)
    if got != wanted:
        raise PlanError(f"plan has (layers, experts, ranks) = {got}, the problem {wanted}", where=f"policy {name}")
    if (plan.slots_per_rank > problem.topology.slots_per_rank).any():
        raise PlanError("a rank is given more slots than it has", where=f"policy {name}")
    return plan


def _policy(name: str) -> Policy:
    """A module of this package comes before an entry point of the same name."""
    if name in _modules():
        policy: Policy = importlib.import_module(f"{__name__}.{name}").place
        return policy
    if name not in _installed():
        fix = f"{did_you_mean(name, names())}choose {', '.join(names())}"
        raise UsageError(f"no policy {name!r}", where="--policy", fix=fix)
    entry = _installed()[name]
    try:
        policy = entry.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot load {entry.value}: {error}", where=f"policy {name}", fix="reinstall it") from error
    return policy


def _modules() -> tuple[str, ...]:
    return tuple(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
