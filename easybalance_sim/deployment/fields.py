"""The tables of a scenario file, each a struct whose fields are checked when the file is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from easybalance_sim.cluster.topology import ClusterFile
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.arrivals import Reading, generate, load_arrivals, load_tenants
from easybalance_sim.simulate.serving.arrivals.patterns import any_pattern
from easybalance_sim.simulate.serving.limits import MIXED, Limits
from easybalance_sim.simulate.serving.workload import Workload

# For mypy any pattern is a stream; msgspec needs the union of those that there are.
if TYPE_CHECKING:
    from easybalance_sim.simulate.serving.arrivals.streams import Stream as AnyStream
else:
    AnyStream = any_pattern()

Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]

SERVED_OVERLAPS = ("none", "full")
KV_DTYPES = ("bf16", "fp8")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that refuses fields which it does not know."""


class Engine(Part, frozen=True, kw_only=True):
    """What the engine's scheduler allows, per data-parallel rank: the fields of `Limits`, and memory.

    kv_blocks: 0 = what weights and activations leave of the memory · data_ranks: data-parallel ranks of the attention,
    each of ranks / data_ranks tensor-parallel GPUs, 0 = every rank is one · expert_tensor: GPUs that share every expert
    of a rank, each with a part of its width · memory_frac: of a GPU's memory that the engine may take (vLLM's
    gpu_memory_utilization) · kv_dtype: of the values in the KV cache.
    """

    batch_tokens: Count = 8192
    chunk_tokens: Count = 8192
    running: Count = 256
    kv_blocks: Whole = 0
    block_tokens: Count = 64
    waiting: Whole = 0
    router: str = "least-loaded"
    schedule: str = "decode-first"
    data_ranks: Whole = 0
    expert_tensor: Count = 1
    memory_frac: Share = 0.9
    kv_dtype: str = "bf16"

    def limits(self, kv_blocks: int) -> Limits:
        """For the engine, with the blocks that memory has room for unless the scenario says how many. Raises
        `UsageError` naming the field."""
        names = ("batch_tokens", "chunk_tokens", "running", "block_tokens", "waiting", "router", "schedule")
        return Limits(kv_blocks=self.kv_blocks or kv_blocks, **{name: getattr(self, name) for name in names})


class Placement(Part, frozen=True, kw_only=True):
    """before, after: a policy, "auto", or a plan file (*.json) · slots_before: slots per rank of the plan before, 0 =
    as many as every expert once needs; after has the cluster's · dispatch: how the engine picks a replica ·
    all_to_all: "auto" = by what the pool does, or a mode · window_steps: of the windows that plans are made from ·
    proposals: of a search, per layer, 0 = a scenario's default."""

    before: str = "contiguous"
    after: str = "auto"
    slots_before: Whole = 0
    dispatch: str = "even"
    all_to_all: str = "auto"
    window_steps: Count = 16
    proposals: Whole = 0


class Pool(Part, frozen=True, kw_only=True):
    """GPUs that serve one role with one plan. role: one of `simulate.serving.limits`, which the scenario sets."""

    cluster: ClusterFile
    engine: Engine = Engine()
    placement: Placement = Placement()
    role: str = MIXED

    @property
    def data_ranks(self) -> int:
        """D, data-parallel ranks of the attention."""
        return self.engine.data_ranks or self.cluster.ranks

    @property
    def gpus(self) -> int:
        """All that the pool occupies."""
        return self.cluster.ranks * self.engine.expert_tensor


class Transfer(Part, frozen=True, kw_only=True):
    """KV caches from the prefill to the decode pool. bytes_per_s: of one rank's link, 400 Gbit/s at nine tenths ·
    latency_s: before the first byte."""

    bytes_per_s: Positive = 45e9
    latency_s: NotNegative = 0.001


class Recipe(Part, frozen=True, kw_only=True):
    """Routing that is drawn; fields as of `ebsim trace synthesise`, whose E, K and groups are the model's. layers: that
    differ from each other, 0 = as many as the model has; fewer are repeated · request_steps: mean tokens of a request;
    a prompt of a thousand tokens is as lopsided as those of the short one that it stands for, so these are long."""

    kind: str
    layers: Whole = 8
    steps: Count = 1024
    tokens_per_step: Count = 64
    request_steps: Count = 512
    skew: NotNegative = 1.0
    topics: Count = 4
    concentration: Positive = 0.3
    seed: Whole = 0


class Routing(Part, frozen=True, kw_only=True):
    """Where requests go: trace: a token trace of the model's experts and top-k, or recipe. serve: share of the trace's
    requests that those in service stand for; plans are made from the others."""

    trace: str | Sequence[str] = ()
    recipe: Recipe | None = None
    serve: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5

    def __post_init__(self) -> None:
        if bool(self.trace) == (self.recipe is not None):
            raise ValueError("give either trace or recipe")

    @property
    def traces(self) -> tuple[Path, ...]:
        """The trace's files, none when there is a recipe."""
        return (Path(self.trace),) if isinstance(self.trace, str) else tuple(Path(one) for one in self.trace)


class Arrivals(Part, frozen=True, kw_only=True):
    """The requests: tenants: streams that are drawn, or file: a request trace, or files: {tenant: request trace}.

    limit, prefix_blocks, spread_ticks: see `Reading`, of files · skip_s: seconds left out at their beginning ·
    rate_per_s: as many requests from there on as so many per second are, their time stretched to the run's, 0 = as
    recorded.
    """

    tenants: tuple[AnyStream, ...] = ()
    file: str = ""
    files: dict[str, str] = {}
    limit: Whole = 0
    prefix_blocks: Whole = 0
    spread_ticks: bool = True
    rate_per_s: NotNegative = 0.0
    skip_s: NotNegative = 0.0

    def __post_init__(self) -> None:
        if bool(self.tenants) + bool(self.file) + bool(self.files) != 1:
            raise ValueError("give one of tenants, file and files")

    def workload(self, duration_s: float, seed: int) -> Workload:
        """Those that come in [0, duration_s); its source says where files end earlier. Raises `TraceError` for a file
        that cannot be read, `UsageError` when none comes."""
        if self.tenants:
            return generate(self.tenants, duration_s, seed)
        found = self._recorded()
        if found.span_s < self.skip_s:
            raise UsageError(f"no request after {self.skip_s:g} s", where="arrivals", fix="give another skip_s")
        found = found.take(found.arrival_s >= self.skip_s).earlier(self.skip_s)
        if self.rate_per_s:
            found = _stretched(found, self.rate_per_s, duration_s)
        kept = found.arrival_s < duration_s
        if not kept.any():
            raise UsageError(
                f"no request in {duration_s:g} s", where="arrivals", fix="give more time or another skip_s"
            )
        return _ended(found) if kept.all() and not self.rate_per_s else found.take(kept)

    def _recorded(self) -> Workload:
        """All that the files hold."""
        reading = Reading(limit=self.limit, prefix_blocks=self.prefix_blocks, spread_ticks=self.spread_ticks)
        paths = {name: Path(path) for name, path in self.files.items()}
        return load_tenants(paths, reading=reading) if paths else load_arrivals(Path(self.file), reading=reading)


def _stretched(load: Workload, rate_per_s: float, duration_s: float) -> Workload:
    """The first requests of a load, as many as are wanted, up to the moment at which the next one comes; all of them at
    that rate when there are fewer."""
    wanted = max(1, round(rate_per_s * duration_s))
    if load.requests <= wanted:
        return _ended(load.at_rate(rate_per_s))
    factor = duration_s / max(float(load.arrival_s[wanted]), 1e-9)
    load = load.take(np.arange(load.requests) < wanted)
    # Some may come at the same moment as the next one.
    return replace(load, arrival_s=np.minimum(load.arrival_s * factor, np.nextafter(duration_s, 0)))


def _ended(load: Workload) -> Workload:
    """The load, its source saying when the last of all requests comes."""
    return replace(load, source=f"{load.source}; there are none after {load.span_s:,.4g} s")


class Slo(Part, frozen=True, kw_only=True):
    """ttft_s: to the first token · tpot_s: mean seconds per further token · share: of the requests that has to keep
    both where a rate is to be found (`ebsim capacity`)."""

    ttft_s: Positive
    tpot_s: Positive
    share: Share = 0.95


class Run(Part, frozen=True, kw_only=True):
    """duration_s: requests that are scored come so long, others go on a little, the run ends when all are served ·
    warm_up_s: those that come earlier are served, not scored · overlap: "none" or "full", how communication hides
    behind compute in the numbers that are printed first; the other one is the other end of the bracket · bucket_s: of
    the timeline, 0 = by duration."""

    duration_s: Positive
    warm_up_s: NotNegative = 0.0
    seed: Whole = 0
    overlap: str = "none"
    bucket_s: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.warm_up_s >= self.duration_s:
            raise ValueError(f"warm_up_s = {self.warm_up_s:g} takes all of duration_s = {self.duration_s:g}")
        if self.overlap not in SERVED_OVERLAPS:
            raise ValueError(f"overlap = {self.overlap!r}, use one of {', '.join(SERVED_OVERLAPS)}")


class Rebalance(Part, frozen=True, kw_only=True):
    """A plan that is made anew while it serves. statistics_window_s: the past that it is made from · interval_s: how
    often · min_replicas, max_replicas: of an expert in a layer, at least 1 for every one and no more than that ·
    topology_aware: "auto" is hierarchical EPLB, which keeps replicas in the node of their expert group, where that
    applies."""

    statistics_window_s: Positive
    interval_s: Positive
    min_replicas: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    max_replicas: Count = 4
    topology_aware: bool = True
