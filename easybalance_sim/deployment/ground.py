"""What no cluster has a say in: the routing trace, its requests in two halves, and those of one half that serve."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import AnyArray, frozen, stream
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.cost.profiles import load_profile
from easybalance_sim.errors import UsageError
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.split import FIT, HELD_OUT, NEITHER, Split
from easybalance_sim.planning.session import Listener, Session, Settings, open_session
from easybalance_sim.replay.traffic import TokenTraffic, Traffic
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, PREFILL_ONLY
from easybalance_sim.simulate.serving.routed import Routed, routed_requests
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import DECODE, PREFILL

_SWAPPED = np.array([HELD_OUT, FIT, NEITHER], np.int8)
"""By side, of which `NEITHER` is the last, -1."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Ground:
    """session: the trace, on a cluster that stands in until there is one · shape: the whole model · routed: requests of
    the serving share, which is `serve` of all · split: says which those are, None = a line that `serve` draws."""

    session: Session
    shape: ModelShape
    routed: Routed
    serve: float
    split: Split | None = None

    def on(
        self,
        topology: Topology,
        role: str,
        *,
        rule: str = "even",
        mode: str = "auto",
        window_steps: int = 16,
        expert_ranks: int = 1,
    ) -> Session:
        """The session on a cluster as a pool of that role runs it: a prefill pool with prompts alone where the trace
        has any, a decode pool with answers alone.

        mode: all-to-all, "auto" = low latency in a decode pool, normal elsewhere · expert_ranks: GPUs that share every
        expert of a rank, each with a part of its width. Raises `UsageError` for widths that do not divide, experts that
        do not fit.
        """
        session = self.session
        phase = "decode" if role == DECODE_ONLY else "prefill"
        mode = {"auto": "low_latency" if role == DECODE_ONLY else "normal"}.get(mode, mode)
        hardware, shape = load_profile(topology.profile), self.shape
        if shape.intermediate % expert_ranks:
            raise UsageError(f"experts of width {shape.intermediate} do not divide", where=f"{expert_ranks} GPUs each")
        shape = replace(shape, intermediate=shape.intermediate // expert_ranks)
        topology.require_room_for(shape.experts)
        bench = replace(
            session.bench,
            topology=topology,
            rule=rule,
            mode=mode,
            windowing=Windowing(steps=window_steps),
            cost=lambda plan: layer_cost(hardware, shape, topology, plan.slots_per_rank, mode, phase),
        )
        settings = replace(
            session.settings, phase=self._phase(role), dispatch=rule, all_to_all=mode, window_steps=window_steps
        )
        return replace(
            session, settings=settings, topology=topology, shape=shape, hardware=hardware, phase=phase, bench=bench
        )

    @cached_property
    def rehearsals(self) -> tuple[Ground, Ground]:
        """The requests that plans are made from as grounds of their own: plans are made from one half of them and the
        other serves, and the other way round. Raises `UsageError` when there are too few."""
        trace, split = _divided(self.session, self.serve, self.session.settings.seed)
        halves = halved(split, trace.scan().request_workload, self.session.settings.seed)
        first, second = (replace(halves, side=frozen(side)) for side in (halves.side, _SWAPPED[halves.side]))
        return self._divided_by(trace, first), self._divided_by(trace, second)

    def _divided_by(self, trace: TokenTrace, split: Split) -> Ground:
        return replace(self, routed=_of_side(self.session, trace, split, HELD_OUT), split=split)

    def traffic(self, session: Session) -> Traffic:
        """The trace with its serving share held out."""
        found = session.traffic("request", self.serve, self.session.settings.seed)
        # Only a token trace has come so far.
        return replace(found, split=self.split) if self.split and isinstance(found, TokenTraffic) else found

    def _phase(self, role: str) -> str | None:
        """The phase whose tokens a pool of the role sees, None for all or where the trace has none of it."""
        wanted = {PREFILL_ONLY: ("prefill", PREFILL), DECODE_ONLY: ("decode", DECODE)}.get(role)
        if wanted is None or not isinstance(self.session.trace, TokenTrace):
            return None
        return wanted[0] if self.session.trace.scan().phase_tokens[wanted[1]] else None


def ground_of(
    paths: Sequence[Path],
    shape: ModelShape | None,
    tell: Listener,
    *,
    serve: float = 0.5,
    seed: int = 0,
    folder: Path | None = None,
) -> Ground:
    """Open the trace and draw the line between its requests.

    shape: the model, of whose E and K the trace is; None = what the trace says · serve: share of the requests that
    serve · folder: goes when the ground does. Raises `EbsimError` subclasses for a trace that cannot be used, a count
    trace included: counts do not know requests.
    """
    try:
        session = open_session(Settings(traces=tuple(paths), seed=seed), _Progress(tell))
        ground = Ground(
            session=session,
            shape=_of_layers(shape or session.shape, session),
            routed=_of_side(session, *_divided(session, serve, seed), HELD_OUT),
            serve=serve,
        )
    except BaseException:
        _remove(folder)
        raise
    # The trace is read again whenever a plan is made: it goes with the last one who holds it.
    weakref.finalize(ground, _remove, folder)
    for line in _facts(ground):
        tell.note(line)
    return ground


def _of_layers(shape: ModelShape, session: Session) -> ModelShape:
    meta = session.meta
    wanted, got = (len(shape.layers), shape.experts, shape.top_k), (len(meta.layers), meta.experts, meta.top_k)
    if wanted != got:
        raise UsageError(
            f"{shape.name} has (MoE layers, experts, top-k) = {wanted}, the routing trace {got}",
            where=str(session.settings.traces[0]),
            fix="give a trace of that model",
        )
    return replace(shape, layers=meta.layers)


def halved(split: Split, workload: AnyArray, seed: int) -> Split:
    """The fit side of a split as a split of its own, half of every workload's requests on either side, the others on
    none. workload: int[Q] of each request. Raises `UsageError` when no workload has two requests."""
    fit = split.side == FIT
    side = np.where(fit, FIT, NEITHER)
    rng = stream(seed, "requests set aside for choosing")
    for code in np.unique(workload[fit]):
        mine = rng.permutation(np.flatnonzero(fit & (workload == code)))
        side[mine[: len(mine) // 2]] = HELD_OUT
    if not (side == HELD_OUT).any():
        raise UsageError(
            f"{int(fit.sum())} routed requests to make plans from are too few to choose one by",
            where="placement.after",
            fix="name a policy, or give a longer routing trace",
        )
    return replace(split, side=frozen(side, np.int8))


def _divided(session: Session, serve: float, seed: int) -> tuple[TokenTrace, Split]:
    """The trace and its line between the requests that plans are made from and those that serve."""
    trace = session.trace
    traffic = session.traffic("request", serve, seed) if isinstance(trace, TokenTrace) else None
    if not isinstance(trace, TokenTrace) or not isinstance(traffic, TokenTraffic) or traffic.split is None:
        raise UsageError("counts do not know requests", where=str(session.settings.traces[0]), fix="give a token trace")
    return trace, traffic.split


def _of_side(session: Session, trace: TokenTrace, split: Split, side: int) -> Routed:
    """Requests of one side of a split."""
    chosen = session.selection().of_side(split, side)
    return routed_requests(chosen.batches(trace), trace.workloads, session.meta.experts, seed=session.settings.seed)


def _facts(ground: Ground) -> list[str]:
    """What the trace stands for badly."""
    found, trace = list(ground.routed.notes), ground.session.trace
    if isinstance(trace, TokenTrace):
        found += trace.scan().notes
        if not trace.scan().phase_tokens[PREFILL]:
            found.append("the routing trace has no prompt tokens: prompts are routed like answers")
    if ground.shape.assumed:
        found.append(f"model {ground.session.meta.model!r} is not known: widths and so seconds are assumed")
    return found


def _remove(folder: Path | None) -> None:
    if folder is not None:
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
