"""What no cluster has a say in: the routing trace, its requests in two halves, and those of one half that serve."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.cost.profiles import load_profile
from easybalance_sim.errors import UsageError
from easybalance_sim.load.split import HELD_OUT
from easybalance_sim.planning.session import Listener, Session, Settings, open_session
from easybalance_sim.replay.traffic import TokenTraffic, Traffic
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, PREFILL_ONLY
from easybalance_sim.simulate.serving.routed import Routed, routed_requests
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import DECODE, PREFILL
from easybalance_sim.trace.synthesis import Recipe, synthesise

SERVE_SHARE = 0.5
"""Of the trace's requests: those that requests in service stand for; plans are made from the others."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Where routing comes from. trace: files of a token trace, or recipe: one that is synthesised · model: name or
    config.json, "" = as the trace says · window_steps: of the windows that plans are made from."""

    trace: tuple[Path, ...] = ()
    recipe: Recipe | None = None
    model: str = ""
    window_steps: int = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class Ground:
    """session: the trace, on a cluster that stands in until there is one · routed: requests of the serving half."""

    session: Session
    routed: Routed
    kept: list[str] = field(default_factory=list)

    def on(self, topology: Topology, role: str, *, rule: str, mode: str, expert_ranks: int = 1) -> Session:
        """The session on a cluster as a pool of that role runs it: a prefill pool with prompts alone where the trace
        has any, a decode pool with answers alone. mode: all-to-all, "auto" = by role · expert_ranks: GPUs that share
        every expert of a rank, each with a part of its width. Raises `UsageError` for widths that do not divide."""
        session = self.session
        phase = "decode" if role == DECODE_ONLY else "prefill"
        mode = {"auto": "low_latency" if role == DECODE_ONLY else "normal"}.get(mode, mode)
        hardware, shape = load_profile(topology.profile), session.shape
        if shape.intermediate % expert_ranks:
            raise UsageError(f"experts of width {shape.intermediate} do not divide", where=f"{expert_ranks} GPUs each")
        shape = replace(shape, intermediate=shape.intermediate // expert_ranks)
        topology.require_room_for(shape.experts)
        bench = replace(
            session.bench,
            topology=topology,
            rule=rule,
            mode=mode,
            cost=lambda plan: layer_cost(hardware, shape, topology, plan.slots_per_rank, mode, phase),
        )
        settings = replace(session.settings, phase=self._phase(role), dispatch=rule, all_to_all=mode)
        return replace(
            session, settings=settings, topology=topology, shape=shape, hardware=hardware, phase=phase, bench=bench
        )

    def traffic(self, session: Session) -> Traffic:
        """The trace with its serving half held out."""
        return session.traffic("request", SERVE_SHARE, self.session.settings.seed)

    def _phase(self, role: str) -> str | None:
        """The phase whose tokens a pool of the role sees, None for all or where the trace has none of it."""
        wanted = {PREFILL_ONLY: ("prefill", PREFILL), DECODE_ONLY: ("decode", DECODE)}.get(role)
        if wanted is None or not isinstance(self.session.trace, TokenTrace):
            return None
        return wanted[0] if self.session.trace.scan().phase_tokens[wanted[1]] else None


def ground_of(routing: Routing, topology: Topology, seed: int, tell: Listener) -> Ground:
    """Open or synthesise the trace and draw the line between its requests.

    topology: any cluster with room for the experts. Raises `EbsimError` subclasses for a trace that cannot be used, a
    count trace included: counts do not know requests.
    """
    kept: list[str] = []
    paths = routing.trace
    if routing.recipe is not None:
        folder = tempfile.mkdtemp(prefix="ebsim-routing-")
        kept.append(folder)
        paths = (Path(folder) / "routing.parquet",)
        synthesise(routing.recipe, paths[0], tell.progress)
    settings = Settings(traces=paths, model=routing.model, window_steps=routing.window_steps, seed=seed)
    try:
        session = open_session(settings, _Progress(tell), topology)
        ground = Ground(session=session, routed=_serving(session, seed), kept=kept)
    except BaseException:
        _remove(kept)
        raise
    # A synthesised trace is read again whenever a plan is made: it goes with the last one who holds it.
    weakref.finalize(ground, _remove, kept)
    for line in _facts(session, ground.routed):
        tell.note(line)
    return ground


def _serving(session: Session, seed: int) -> Routed:
    trace = session.trace
    traffic = session.traffic("request", SERVE_SHARE, seed) if isinstance(trace, TokenTrace) else None
    if not isinstance(trace, TokenTrace) or not isinstance(traffic, TokenTraffic) or traffic.split is None:
        raise UsageError("counts do not know requests", where=str(session.settings.traces[0]), fix="give a token trace")
    held = session.selection().of_side(traffic.split, HELD_OUT)
    return routed_requests(held.batches(trace), trace.workloads, session.meta.experts, seed=seed)


def _facts(session: Session, routed: Routed) -> list[str]:
    """What the trace stands for badly."""
    found = list(routed.notes)
    if isinstance(session.trace, TokenTrace):
        found += session.trace.scan().notes
        if not session.trace.scan().phase_tokens[PREFILL]:
            found.append("the routing trace has no prompt tokens: prompts are routed like answers")
    if session.shape.assumed:
        found.append(f"model {session.meta.model!r} is not known: expert widths and so seconds are assumed")
    return found


def _remove(folders: list[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


class _Progress:
    """Passes progress on. What a session would note is of steps and source ranks as recorded, which do not serve."""

    def __init__(self, tell: Listener) -> None:
        self._tell = tell

    def note(self, text: str) -> None:
        """Say nothing."""

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        """As the listener does."""
        return self._tell.progress(label, total)
