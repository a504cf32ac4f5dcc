"""What a run knows before it plans or judges: trace, cluster, model, hardware, and how replay is to be done."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import BoolArray, FloatArray
from easybalance_sim.cluster.hardware import MODES, HardwareProfile
from easybalance_sim.cluster.model_shape import ModelShape, weight_dtype
from easybalance_sim.cluster.shapes import assumed_shape, find_shape, load_shape
from easybalance_sim.cluster.topology import Topology, load_cluster, uniform
from easybalance_sim.cost.layer import OVERLAPS, layer_cost
from easybalance_sim.cost.profiles import BASE_PROFILE, base_and_table, load_profile
from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.selection import Selection, phase_filter, workload_filter
from easybalance_sim.load.split import make_split
from easybalance_sim.replay.dispatch import RULES
from easybalance_sim.replay.traffic import Bench, CountTraffic, TokenTraffic, Traffic, split_counts
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.files import file_fingerprints, fingerprint
from easybalance_sim.trace.schema import DECODE, PHASES, PREFILL, CountTrace, TraceMeta
from easybalance_sim.workers import Workers
from easybalance_sim.workers.threads import StoppedError, Threads

STEP_TOKENS_PER_RANK = {"prefill": 4096, "decode": 128}
"""Tokens per rank in the steps that are drawn from counts (DeepEP's own test sizes for the two phases)."""


class Listener(Protocol):
    """Who hears of notes and progress."""

    def note(self, text: str) -> None:
        """Something the user should know about how the run was set up."""

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        """A stage of `total` units begins; call the result with the units done."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user said, shared by `plan` and `replay`. Empty or None means: not said."""

    traces: tuple[Path, ...]
    cluster: Path | None = None
    ranks: int | None = None
    ranks_per_node: int | None = None
    slots_per_rank: int | None = None
    model: str = ""
    profile: str = ""
    phase: str | None = None
    workloads: tuple[str, ...] = ()
    window_steps: int = 16
    window_seconds: float = 0.0
    dispatch: str = "even"
    all_to_all: str = "auto"
    step_tokens: int = 0
    seed: int = 0
    device: str = "auto"
    dask: str = ""
    overlap: str = "none"

    def workers(self) -> Workers:
        """Who passes over the trace: a Dask cluster where one was named, else threads of this process."""
        if not self.dask:
            return Threads()
        from easybalance_sim.workers.dask_cluster import connect

        return connect(self.dask)


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """One trace on one cluster. phase: `prefill` or `decode`, what the cost model takes the traffic for · held: bool[L,
    R, E] experts that the ranks hold, None = those of the plan in force."""

    settings: Settings
    trace: TokenTrace | CountTrace
    topology: Topology
    shape: ModelShape
    hardware: HardwareProfile
    phase: str
    bench: Bench
    file_fingerprints: tuple[str, ...]
    held: BoolArray | None = None

    @property
    def meta(self) -> TraceMeta:
        """The trace's metadata."""
        return self.trace.meta

    @property
    def trace_fingerprint(self) -> str:
        """sha256 of the trace."""
        return fingerprint(self.file_fingerprints)

    @property
    def hbm_bytes(self) -> int:
        """Memory of one GPU."""
        return self.topology.hbm_bytes or self.hardware.hbm_bytes

    @property
    def mixes_phases(self) -> bool:
        """Whether prefill and decode are both looked at, of which the cost model takes one for the other."""
        tokens = _phase_tokens(self.trace)
        return self.settings.phase is None and bool(tokens[PREFILL] and tokens[DECODE])

    def selection(self) -> Selection:
        """The phase and workloads that were asked for."""
        return Selection(
            phase=phase_filter(self.settings.phase),
            workloads=workload_filter(self.settings.workloads, self.trace.workloads),
        )

    def traffic(self, by: str, held_out: float, seed: int) -> Traffic:
        """The selected traffic, divided into a fit and a held-out side."""
        chosen = self.selection()
        settings = {
            "by": by,
            "held_out": held_out,
            "seed": seed,
            "window_steps": self.settings.window_steps,
            "window_seconds": self.settings.window_seconds,
            "phase": self.settings.phase,
            "workloads": list(self.settings.workloads),
        }
        if isinstance(self.trace, CountTrace):
            fit, held = split_counts(self.trace, selected_windows(self.trace, chosen), by, held_out, seed)
            return CountTraffic(trace=self.trace, fit=fit, held=held, settings=settings)
        split = make_split(
            self.trace.scan(), self.trace.workloads, by, held_out, seed, self.settings.window_steps, chosen.workloads
        )
        return TokenTraffic(
            trace=self.trace, selection=chosen, split=split, windowing=self.bench.windowing, settings=settings
        )


def open_session(settings: Settings, tell: Listener, default_cluster: Topology | None = None) -> Session:
    """Open the trace and settle cluster, model and hardware; `default_cluster` stands in when none was said.

    Raises `EbsimError` subclasses for anything that does not fit together.
    """
    _require_sound(settings)
    notes: list[str] = []
    _settle_device(settings.device, notes)
    trace = open_trace(settings.traces, workers=settings.workers())
    shape = _shape(settings, trace.meta, notes)
    topology = _topology(settings, trace.meta, default_cluster, notes)
    hardware = _hardware(topology.profile, notes)
    fingerprints = _fingerprints(trace, tell)
    windowing = Windowing(steps=settings.window_steps, seconds=settings.window_seconds)
    if isinstance(trace, TokenTrace):
        windowing.require_forward(trace.scan())
    phase = _phase(trace, settings.phase, notes)
    mode = {"auto": "normal" if phase == "prefill" else "low_latency"}.get(settings.all_to_all, settings.all_to_all)
    layer_cost(hardware, shape, topology, topology.slots_per_rank, mode, phase)
    recorded = _recorded_ranks(trace, topology, notes)
    if isinstance(trace, TokenTrace):
        notes += trace.scan().notes
    bench = Bench(
        topology=topology,
        cost=lambda plan: layer_cost(
            hardware, shape, topology, plan.slots_per_rank, mode, phase, overlap=settings.overlap
        ),
        rule=settings.dispatch,
        mode=mode,
        windowing=windowing,
        seed=settings.seed,
        recorded_ranks=recorded,
        step_tokens=settings.step_tokens or STEP_TOKENS_PER_RANK[phase] * topology.ranks,
        progress=tell.progress,
    )
    session = Session(
        settings=settings,
        trace=trace,
        topology=topology,
        shape=shape,
        hardware=hardware,
        phase=phase,
        bench=bench,
        file_fingerprints=fingerprints,
    )
    session.selection()
    for line in notes:
        tell.note(line)
    return session


def _fingerprints(trace: TokenTrace | CountTrace, tell: Listener) -> tuple[str, ...]:
    """Of the files, taken while a token trace is scanned: both read all of it."""
    paths = [Path(path) for path in trace.paths]
    if not isinstance(trace, TokenTrace):
        return file_fingerprints(paths)
    hashed = tell.progress("fingerprinting the trace", Amount(sum(path.stat().st_size for path in paths), "bytes"))
    failed = threading.Event()

    def advance(done: int) -> None:
        if failed.is_set():
            raise StoppedError
        hashed(done)

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(file_fingerprints, paths, advance)
        try:
            trace.scan(tell.progress("scanning the trace", Amount(trace.tokens, "tokens")))
            return coming.result()
        except BaseException:
            failed.set()
            raise


def require_choice(flag: str, value: str, known: Sequence[str]) -> None:
    """Raise `UsageError` for a name that is none of `known`."""
    if value not in known:
        raise UsageError(
            f"{value!r} is not known", where=flag, fix=f"{did_you_mean(value, known)}choose {', '.join(known)}"
        )


def _require_sound(settings: Settings) -> None:
    """Names that the trace has no say in."""
    require_choice("--device", settings.device, kernels.DEVICES)
    require_choice("--dispatch", settings.dispatch, tuple(RULES))
    require_choice("--overlap", settings.overlap, OVERLAPS)
    require_choice("--all-to-all", settings.all_to_all, ("auto", *MODES))
    if settings.phase is not None:
        require_choice("--phase", settings.phase, PHASES)
    if not math.isfinite(settings.window_seconds):
        raise UsageError(f"{settings.window_seconds} is no length of time", where="--window-seconds")


def _settle_device(asked: str, notes: list[str]) -> None:
    """Where kernels run. A missing cupy is no surprise and so no note; one that is there and does not work is."""
    kernels.use(asked)
    device = kernels.device_in_use()
    require_choice(kernels.DEVICE_VARIABLE, device, kernels.DEVICES)
    if device == "cpu":
        return
    fault = kernels.gpu_fault()
    if not fault:
        notes.append(f"counting, replay and searches run on the GPU: {kernels.load('cuda').device_name()}")
    elif device == "gpu":
        raise UsageError(
            f"no GPU can be used: {fault}",
            where="--device" if asked == device else kernels.DEVICE_VARIABLE,
            fix="in a clone of ebsim pip install '.[cuda12]' or '.[cuda13]' to match the driver, or choose cpu",
        )
    elif fault != kernels.NO_CUPY:
        notes.append(f"kernels run on the CPU, cupy cannot use a GPU: {fault}")


def selected_windows(trace: CountTrace, chosen: Selection) -> np.typing.NDArray[np.bool_]:
    """bool[W] windows of a count trace that a selection keeps."""
    keep = np.ones(len(trace.tokens), np.bool_)
    if chosen.phase is not None:
        keep &= trace.phase == chosen.phase
    if chosen.workloads is not None:
        keep &= np.isin(trace.workload, chosen.workloads)
    return keep


def _topology(settings: Settings, meta: TraceMeta, default: Topology | None, notes: list[str]) -> Topology:
    flags = (settings.ranks, settings.ranks_per_node, settings.slots_per_rank)
    said = any(flag is not None for flag in flags)
    if settings.cluster is not None and said:
        raise UsageError("--cluster and --ranks/--ranks-per-node/--slots-per-rank exclude each other", where="cluster")
    if settings.cluster is not None:
        topology = load_cluster(settings.cluster)
    elif default is not None and not said:
        topology = default
    else:
        ranks = settings.ranks or 8
        spare = -(-meta.experts // ranks) + 1
        slots = settings.slots_per_rank or min(spare, meta.experts)
        topology = uniform(ranks, settings.ranks_per_node or min(ranks, 8), slots)
        if not said:
            notes.append(f"no cluster given: one node of {ranks} ranks × {slots} slots, profile {topology.profile}")
    if settings.profile:
        topology = _with_profile(topology, settings.profile)
    topology.require_room_for(meta.experts)
    notes += [topology.uneven] if topology.uneven else []
    return topology


def _hardware(profile: str, notes: list[str]) -> HardwareProfile:
    """Notes whose links are taken when only a table is given."""
    base, table = base_and_table(profile)
    if table and not base:
        notes.append(
            f"{profile} is put on the {BASE_PROFILE.upper()}: links, memory and the effect of skew are its own "
            f"(h100+{Path(profile).name} takes those of another profile)"
        )
    return load_profile(profile)


def _with_profile(topology: Topology, profile: str) -> Topology:
    return Topology(
        node_of_rank=topology.node_of_rank,
        slots_per_rank=topology.slots_per_rank,
        speed=topology.speed,
        profile=profile,
        hbm_bytes=topology.hbm_bytes,
    )


def _shape(settings: Settings, meta: TraceMeta, notes: list[str]) -> ModelShape:
    if settings.model:
        shape = load_shape(settings.model)
        for name in ("experts", "top_k"):
            if getattr(shape, name) != getattr(meta, name):
                raise UsageError(
                    f"model {shape.name} has {name} {getattr(shape, name)}, the trace {getattr(meta, name)}",
                    where="--model",
                    fix="name the model that was recorded",
                )
        return _for_layers(shape, meta, notes)
    if meta.hidden and meta.intermediate:
        return ModelShape(
            name=meta.model,
            layers=meta.layers,
            experts=meta.experts,
            top_k=meta.top_k,
            hidden=meta.hidden,
            intermediate=meta.intermediate,
            groups=meta.groups,
            topk_groups=meta.topk_group,
            matrices=meta.matrices,
            dtype=weight_dtype(meta.weight_dtype) or "bf16",
        )
    known = find_shape(meta.model)
    if known is not None and (known.experts, known.top_k) == (meta.experts, meta.top_k):
        return _for_layers(known, meta, notes)
    notes.append(f"model {meta.model!r} is not known: expert widths and so seconds are assumed (say --model)")
    return assumed_shape(meta.layers, meta.experts, meta.top_k, meta.groups, meta.topk_group)


def _for_layers(shape: ModelShape, meta: TraceMeta, notes: list[str]) -> ModelShape:
    """The shape restricted to the layers that the trace holds; notes when memory is not that of the whole model."""
    if len(meta.layers) < len(shape.layers):
        notes.append(
            f"the trace has {len(meta.layers)} of the {len(shape.layers)} MoE layers of {shape.name}: "
            "memory, step time and migration are those of these layers alone"
        )
    return shape if shape.layers == meta.layers else replace(shape, layers=meta.layers)


def _phase_tokens(trace: TokenTrace | CountTrace) -> FloatArray:
    """float64[3] tokens of prefill, decode and of no known phase."""
    if isinstance(trace, CountTrace):
        return np.bincount(trace.phase, weights=trace.batch_tokens, minlength=3).astype(np.float64)
    return trace.scan().phase_tokens.astype(np.float64)


def _phase(trace: TokenTrace | CountTrace, asked: str | None, notes: list[str]) -> str:
    """What most tokens are; unknown phases count as decode. Notes when the seconds take one phase for the other."""
    if asked in ("prefill", "decode"):
        return asked
    tokens = _phase_tokens(trace)
    phase = "prefill" if tokens[PREFILL] > tokens[DECODE] else "decode"
    if tokens[PREFILL] and tokens[DECODE]:
        share = 100 * tokens[PREFILL] / (tokens[PREFILL] + tokens[DECODE])
        notes.append(
            f"prefill ({share:.0f} % of the tokens) and decode are mixed: seconds take every step for {phase}; "
            "--phase plans for one of them"
        )
    return phase


def _recorded_ranks(trace: TokenTrace | CountTrace, topology: Topology, notes: list[str]) -> int:
    """R of the recording; notes when source ranks have to be dealt anew."""
    if isinstance(trace, CountTrace):
        notes.append("count trace: rank loads are expected values under an even split, seconds come from drawn steps")
        return 0
    ranks = trace.meta.ranks or trace.scan().max_source + 1
    if ranks != topology.ranks:
        notes.append(
            f"source ranks of the trace ({ranks or 'none'}) do not fit {topology.ranks} ranks: request mod R instead"
        )
    return ranks
