"""What `ebsim sweep` is asked for, and the runs that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from easybalance_sim.errors import UsageError
from easybalance_sim.files import require_place
from easybalance_sim.load.counting import Windowing
from easybalance_sim.planning.memory import KV_DTYPES
from easybalance_sim.planning.request import PlanRequest, require_sound
from easybalance_sim.planning.session import Listener, Session, open_session, require_choice
from easybalance_sim.sweep.grid import Wanted
from easybalance_sim.trace.schema import CountTrace

DEFAULT_POLICIES = ("eplb", "window_search")
DEFAULT_RANKS = 8


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """plan: settings, policies, split and objective as of `ebsim plan`; its output is the report ·
    slots_per_rank, redundancy: the points, see `Wanted` · ranks, window_steps: one curve for each pair, ranks empty =
    the cluster's · per_layer: also slots by layer ·
    kv_dtype: a key of `KV_DTYPES` · figure: where an SVG goes."""

    plan: PlanRequest
    slots_per_rank: tuple[int, ...] = ()
    redundancy: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    window_steps: tuple[int, ...] = (16,)
    per_layer: bool = False
    kv_dtype: str = "bf16"
    figure: Path | None = None

    @property
    def wanted(self) -> Wanted:
        """The points."""
        return Wanted(slots_per_rank=self.slots_per_rank, redundancy=self.redundancy)

    @property
    def names(self) -> tuple[str, ...]:
        """The policies that compete at every point."""
        return tuple(dict.fromkeys(self.plan.policies)) or DEFAULT_POLICIES


def require_possible(request: SweepRequest) -> None:
    """Refuse at once what could not end well: unknown names, lists that contradict, files that cannot be written."""
    require_sound(request.plan)
    if request.slots_per_rank and request.redundancy:
        raise UsageError("--slots-per-rank and --redundancy exclude each other", where="sweep")
    require_choice("--kv-cache-dtype", request.kv_dtype, tuple(KV_DTYPES))
    if request.plan.settings.cluster is not None and request.ranks:
        raise UsageError("--cluster and --ranks exclude each other", where="sweep")
    if request.plan.settings.window_seconds and len(request.window_steps) > 1:
        raise UsageError("--window-seconds and several --window-steps exclude each other", where="sweep")
    if request.figure is not None:
        if request.figure.suffix != ".svg":
            raise UsageError(f"{request.figure} is not an .svg file", where="--figure")
        require_place(request.figure, keep=request.plan.inputs(), flag="--figure")


def sessions(request: SweepRequest, tell: Listener) -> Iterator[Session]:
    """One session for every number of ranks and length of windows; the trace is opened once per number of ranks."""
    settings = request.plan.settings
    if settings.cluster is None and not request.ranks and settings.ranks_per_node is None:
        tell.note(f"no cluster given: one node of {DEFAULT_RANKS} ranks, profile {settings.profile or 'h200'}")
    ranks: tuple[int | None, ...] = request.ranks or (DEFAULT_RANKS,)
    for count in ranks if settings.cluster is None else (None,):
        session = open_session(replace(settings, ranks=count, window_steps=request.window_steps[0]), tell)
        if isinstance(session.trace, CountTrace) and len(request.window_steps) > 1:
            raise UsageError("a count trace has the windows that were recorded", where="--window-steps", fix="give one")
        for steps in request.window_steps:
            yield _with_windows(session, steps)


def _with_windows(session: Session, steps: int) -> Session:
    settings = replace(session.settings, window_steps=steps)
    windowing = Windowing(steps=steps, seconds=settings.window_seconds)
    return replace(session, settings=settings, bench=replace(session.bench, windowing=windowing))


def plan_request(request: SweepRequest, session: Session, points: int) -> PlanRequest:
    """The request of `ebsim plan` that one point stands for; a budget is shared by all points."""
    share = request.plan.effort.budget_s / max(points, 1)
    return replace(
        request.plan,
        settings=session.settings,
        policies=request.names,
        effort=replace(request.plan.effort, budget_s=share),
    )
