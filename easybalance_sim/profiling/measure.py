"""What is measured on a GPU, and in which order: weight reads, copies, and a grid of expert GEMMs.

The grid has every number of tokens per expert with every number of active experts. Its points are taken so that a run
that is out of time has them spread over the whole grid.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from easybalance_sim.amounts import Amount
from easybalance_sim.errors import ProfileError, UsageError
from easybalance_sim.kernels.measurable import COPY_DEVICE, COPY_HOST, COPY_PEER, DTYPES
from easybalance_sim.profiling.tables.measured import EXPERTS, READ, Measurement

TOKENS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)
MOST_TOKENS, MOST_WIDTH, MOST_SLOTS, MOST_REPEATS = 1 << 20, 1 << 17, 1 << 12, 10_000
UNSTEADY = 0.2
_READS, _COPIED_CACHES = (4, 8, 16), 16

Progress = Callable[[str, int], Callable[[int], None]]


class About(Protocol):
    """What a GPU says of itself; as `kernels.cupy_timing.About`."""

    @property
    def name(self) -> str:
        """As the driver calls it."""

    @property
    def l2_bytes(self) -> int:
        """Its L2 cache."""

    @property
    def gpus(self) -> int:
        """How many there are."""


class Experts(Protocol):
    """Expert weights on the GPU."""

    def times(self, active: int, tokens: int, repeats: int) -> ArrayLike:
        """[repeats, 2] µs of the first and the second GEMM. Raises MemoryError."""


class Gpu(Protocol):
    """What is measured; `kernels.cupy_timing.Gpu`."""

    @property
    def about(self) -> About:
        """What it is."""

    def experts(self, hidden: int, intermediate: int, matrices: int, slots: int, dtype: str) -> Experts:
        """Weights of `slots` experts. Raises MemoryError."""

    def read(self, size: int, repeats: int) -> ArrayLike:
        """µs of every run. Raises MemoryError."""

    def copy(self, what: str, size: int, repeats: int, peer: int = 0) -> ArrayLike:
        """µs of every run. Raises MemoryError."""

    def reaches(self, peer: int) -> bool:
        """Whether copies to that GPU go straight there."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which experts to measure. tokens: per active expert · active: numbers of active experts · slots: experts in
    memory · repeats: timed runs of each point. Raises `UsageError` for what cannot be measured."""

    hidden: int
    intermediate: int
    matrices: int
    slots: int
    dtype: str
    tokens: tuple[int, ...]
    active: tuple[int, ...]
    repeats: int
    budget_s: float

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(
                f"cannot be measured: cuBLAS through cupy multiplies {' and '.join(DTYPES)} only",
                where=f"dtype {self.dtype}",
                fix="measure bf16, or import a table of your engine's own kernel",
            )
        if not self.tokens or not self.active or max(self.active) > self.slots:
            raise UsageError(f"active experts are 1 to {self.slots}, as many as there are slots", where="--active")

    @property
    def expert_bytes(self) -> int:
        """Of one expert's weights."""
        return 2 * self.matrices * self.hidden * self.intermediate


class Outcome(NamedTuple):
    """The rows in the order of the plan, and what to know of them."""

    rows: tuple[Measurement, ...]
    notes: tuple[str, ...]


class Point(NamedTuple):
    """One thing to measure, as the columns of `tables.measured`."""

    what: str
    bytes: int
    active: int = -1
    tokens: int = -1
    peer: int = -1


def active_counts(slots: int) -> tuple[int, ...]:
    """Powers of two up to half the slots, and all of them."""
    return (*(2**power for power in range(slots.bit_length()) if 2**power <= slots // 2), slots)


def points(request: Request, about: About) -> tuple[Point, ...]:
    """Everything to measure: reads, copies, then the grid in rows of equal tokens."""
    reads = [Point(READ, caches * about.l2_bytes) for caches in _READS]
    sizes = sorted({request.expert_bytes, 4 * request.expert_bytes, _COPIED_CACHES * about.l2_bytes})
    copies = [Point(what, size) for what in (COPY_DEVICE, COPY_HOST) for size in sizes]
    peers = [Point(COPY_PEER, size, peer=peer) for peer in range(1, about.gpus) for size in sizes]
    grid = [
        Point(EXPERTS, active * request.expert_bytes, active, tokens)
        for tokens in request.tokens
        for active in request.active
    ]
    return (*reads, *copies, *peers, *grid)


def spread(count: int) -> list[int]:
    """0..count-1 so that the first few are far apart: by their bits read backwards (van der Corput)."""
    width = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{width}b}"[::-1], 2))


def measure(request: Request, gpu: Gpu, progress: Progress, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """Measure until everything is or the budget is used up; points for which memory is short are left out, with a note.

    clock: seconds. Raises `ProfileError` when not even the weights find room, or the GPU fails.
    """
    began, wanted = clock(), points(request, gpu.about)
    links = [at for at, point in enumerate(wanted) if point.what != EXPERTS]
    order = [*links, *(len(links) + at for at in spread(len(wanted) - len(links)))]
    experts = _weights(request, gpu)
    advance = progress(f"measuring {request.dtype} experts on {gpu.about.name}", Amount(len(order), "points"))
    found: dict[int, Measurement] = {}
    lacking = 0
    for done, at in enumerate(order):
        if clock() - began > request.budget_s:
            late = f"the budget of {request.budget_s:g} s was used up after {done} of {len(order)} points"
            return _outcome(found, lacking, gpu, wanted, late)
        try:
            found[at] = _measured(wanted[at], request, gpu, experts)
        except MemoryError:
            lacking += 1
        except RuntimeError as error:
            raise _failed(wanted[at].what, gpu, error) from error
        advance(1)
    return _outcome(found, lacking, gpu, wanted, "")


def _failed(what: str, gpu: Gpu, error: RuntimeError) -> ProfileError:
    """CUDA and cuBLAS errors of cupy are RuntimeErrors: a product that the GPU cannot do, a fault of its own."""
    reason = " ".join(str(error).split())
    return ProfileError(f"{what} cannot be measured: {reason}", where=gpu.about.name, fix="try another --dtype or GPU")


def _weights(request: Request, gpu: Gpu) -> Experts:
    try:
        return gpu.experts(request.hidden, request.intermediate, request.matrices, request.slots, request.dtype)
    except MemoryError as error:
        size = request.slots * request.expert_bytes / 1e9
        raise ProfileError(
            f"no memory for the weights of {request.slots} experts ({size:,.1f} GB)",
            where=gpu.about.name,
            fix="give fewer --slots",
        ) from error


def _measured(point: Point, request: Request, gpu: Gpu, experts: Experts) -> Measurement:
    widths: dict[str, int | float | str] = {}
    if point.what == EXPERTS:
        runs = np.array(experts.times(point.active, point.tokens, request.repeats))
        times = runs.sum(axis=1)
        up_us, down_us = (float(value) for value in np.median(runs, axis=0))
        widths = {
            "dtype": request.dtype, "hidden": request.hidden, "intermediate": request.intermediate,
            "matrices": request.matrices, "slots": request.slots, "active": point.active,
            "tokens_per_expert": point.tokens, "up_us": up_us, "down_us": down_us,
        }  # fmt: skip
    elif point.what == READ:
        times = np.array(gpu.read(point.bytes, request.repeats))
    else:
        times = np.array(gpu.copy(point.what, point.bytes, request.repeats, max(0, point.peer)))
    low, middle, high = (float(value) for value in np.percentile(times, (10, 50, 90)))
    return Measurement(
        what=point.what, device=gpu.about.name, us=middle, us_low=low, us_high=high, runs=request.repeats,
        bytes=point.bytes, peer=point.peer, **widths,  # type: ignore[arg-type]
    )  # fmt: skip


def _outcome(found: dict[int, Measurement], lacking: int, gpu: Gpu, wanted: tuple[Point, ...], late: str) -> Outcome:
    rows = tuple(found[at] for at in sorted(found))
    unsteady = sum(row.us_high - row.us_low > UNSTEADY * row.us for row in rows)
    staged = sorted({point.peer for point in wanted if point.what == COPY_PEER and not gpu.reaches(point.peer)})
    notes = [late] if late else []
    if lacking:
        notes.append(f"{_points(lacking)} left out: the GPU has no memory for more")
    if unsteady:
        notes.append(
            f"{_points(unsteady)} more than {UNSTEADY:.0%} apart from run to run: is the GPU in use, or its clock low?"
        )
    if staged:
        notes.append(f"copies to GPU {', '.join(map(str, staged))} go through the host: no direct access")
    return Outcome(rows, tuple(notes))


def _points(count: int) -> str:
    return f"{count} point{'s' * (count != 1)}"
