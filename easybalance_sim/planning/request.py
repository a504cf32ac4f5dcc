"""What `ebsim plan` is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from easybalance_sim import policies
from easybalance_sim.errors import UsageError
from easybalance_sim.files import require_place
from easybalance_sim.load.forecast import METHODS
from easybalance_sim.load.split import MODES
from easybalance_sim.planning.session import Settings, require_choice
from easybalance_sim.policies import UNLIMITED, Effort

OBJECTIVES = ("auto", "tokens", "seconds")
"""What a search balances; auto: seconds where the expert part is calibrated for this model, else tokens."""

SLOW_POLICIES = ("traffic_search",)
FEW_SLOTS = 2000
"""The slow policies take a minute on models with more slots, over all layers; there they compete when they are named,
or when a budget limits them."""
NEED_NO_LOAD = ("contiguous", "round_robin", "keep", "repair")
"""Policies whose plans do not depend on the fit side."""


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """`settings` and what only planning needs; fields as the command's flags."""

    settings: Settings
    policies: tuple[str, ...] = ()
    split: str = "time"
    held_out: float = 0.5
    forecast: str = "mean"
    half_life: float = 0.0
    criteria: Path | None = None
    current: Path | None = None
    force: bool = False
    output: Path | None = None
    objective: str = "auto"
    effort: Effort = UNLIMITED
    max_migration_bytes: int | None = None
    lost_ranks: tuple[int, ...] = ()
    stress: bool = False

    def names(self, slots: int) -> tuple[str, ...]:
        """The policies that compete, each once; slots: of all layers together."""
        if self.policies:
            return tuple(dict.fromkeys(self.policies))
        slow = () if self.effort.budget_s or slots <= FEW_SLOTS else SLOW_POLICIES
        return tuple(name for name in policies.names() if name not in slow)

    def inputs(self) -> tuple[Path, ...]:
        """Files that the run reads and must not write over; the plan in force may be replaced by its successor."""
        settings = self.settings
        profile = Path(settings.profile) if settings.profile else None
        return (*settings.traces, *(path for path in (settings.cluster, self.criteria, profile) if path is not None))


def require_sound(request: PlanRequest) -> None:
    """Refuse what would only be noticed after a long run: unknown names, an -o that cannot be written."""
    require_choice("--split", request.split, MODES)
    require_choice("--forecast", request.forecast, METHODS)
    require_choice("--objective", request.objective, OBJECTIVES)
    for name in request.policies:
        require_choice("--policy", name, policies.names())
    _require_moves_to_limit(request)
    _require_ranks_to_lose(request)
    if not math.isfinite(request.effort.budget_s):
        raise UsageError(f"{request.effort.budget_s} is no length of time", where="--budget-s")
    if request.output is not None:
        require_place(request.output, keep=request.inputs())


def _require_ranks_to_lose(request: PlanRequest) -> None:
    if not request.lost_ranks:
        return
    if request.current is None:
        raise UsageError(
            "without a plan in force there is nothing to lose",
            where="--lost-ranks",
            fix="give that plan with --current",
        )
    said = request.settings
    if said.cluster is not None or said.ranks is not None or said.ranks_per_node is not None:
        raise UsageError(
            "the cluster is what is left of the plan's",
            where="--lost-ranks",
            fix="leave out --cluster, --ranks and --ranks-per-node",
        )


def _require_moves_to_limit(request: PlanRequest) -> None:
    limits = {"--max-moves": request.effort.max_moves, "--max-migration-bytes": request.max_migration_bytes}
    for flag, limit in limits.items():
        if limit is not None and request.current is None:
            raise UsageError(
                "there are no moves without a plan in force", where=flag, fix="give that plan with --current"
            )
