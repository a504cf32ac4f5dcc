"""Annealing of placements on the GPU; specification in `reference_search`, kernel in `search.cu`.

As many chains walk at once, each its own way, as the device has room for; a layer gets the placement of its best. The
first chain of a layer is the CPU's walk but for rounding. The same seed on a device with as many chains gives the same
placements, also where memory is too short for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast

import cupy
import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels import numba_cpu
from easybalance_sim.kernels.cupy_tiles import SHARED_BYTES, Lane, in_tiles, ints, kernel
from easybalance_sim.kernels.reference_search import COLD_SHARE, FEWEST_COLD

AnyArray = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

MOST_CHAINS = 512
"""Of a layer."""

WARPS = 4
"""Of a chain: about half of the 32 proposals that are looked at together are left to be weighed, four by a warp."""

BLOCKS_PER_PROCESSOR = 4
"""A chain waits for memory most of the time: so few hardly slow each other."""

BLOCK_RESERVE_BYTES = 1 << 10
"""Shared memory that a device takes for itself, per block."""

SCRATCH_BYTES = 4 << 30
"""Device memory that chains use at once at the most."""

MOST = (1 << 31) - 1
"""Moves, in the kernel's integers."""


def search(
    start: Ints,
    rank_of_slot: Ints,
    tokens: Floats,
    pace: Floats,
    slope: float,
    active: float,
    per_step: Floats,
    held: npt.NDArray[np.bool_],
    price: float,
    most_moves: int,
    proposals: int,
    seed: int,
    out: Ints,
    lowest: npt.NDArray[np.float64],
) -> None:
    """See `reference_search.search`; proposals are those of a chain."""
    given = _Given(
        start, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, seed
    )  # fmt: skip
    shape, on_one = Shape.of(given), cast(Any, numba_cpu.search)
    if shape.shared_bytes() > SHARED_BYTES or len(start) == 0:
        on_one(*given, out, lowest)
        return
    chains = chains_of(len(start), shape)
    blocks = len(start) * chains
    seeds = np.array([_state(seed + block // chains, block % chains) for block in range(blocks)], np.uint64)
    found, value = np.empty((blocks, start.shape[1]), np.int32), np.empty(blocks)

    def launch(lane: Lane, first: int, last: int) -> Callable[[], None]:
        best, least = _start_search(given, shape, chains, seeds[first:last], first)

        def fetch() -> None:
            lane.stream.synchronize()
            best.get(stream=lane.stream, out=found[first:last])
            least.get(stream=lane.stream, out=value[first:last])

        return fetch

    def on_cpu(first: int, last: int) -> None:
        layer, chain = divmod(first, chains)
        value[first:last] = np.inf
        if chain == 0:
            on_one(*given.of_layers(slice(layer, layer + 1)), found[first:last], value[first:last])

    in_tiles(np.arange(blocks + 1), max(1, SCRATCH_BYTES // (4 * shape.scratch_floats())), launch, on_cpu)
    by_layer = value.reshape(-1, chains)
    best_chain = np.arange(len(start)) * chains + by_layer.argmin(axis=1)
    out[:], lowest[:] = found[best_chain], value[best_chain]


def chains_of(layers: int, shape: Shape) -> int:
    """Chains that each of the layers gets when they are searched together."""
    processors, bytes_of_each = _processors()
    blocks = min(BLOCKS_PER_PROCESSOR, bytes_of_each // (shape.shared_bytes() + BLOCK_RESERVE_BYTES))
    return min(MOST_CHAINS, max(1, processors * blocks // layers))


@cache
def _processors() -> tuple[int, int]:
    """How many the device has, and the shared memory of each."""
    about = cupy.cuda.runtime.getDeviceProperties(0)
    return about["multiProcessorCount"], about["sharedMemPerMultiprocessor"]


def _state(seed: int, chain: int) -> int:
    """The random numbers of a chain start here: chain 0 as `reference_search.Walk`, the others far from it (the mix of
    splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014)."""
    word = (1 << 64) - 1
    state = (seed * 2654435769 + 88172645463325252) & word
    if chain == 0:
        return state
    mixed = (state + chain * 0x9E3779B97F4A7C15) & word
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & word
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & word
    return mixed ^ (mixed >> 31)


class _Given(NamedTuple):
    """Arguments of `reference_search.search` up to `seed`."""

    start: Ints
    rank_of_slot: Ints
    tokens: Floats
    pace: Floats
    slope: float
    active: float
    per_step: Floats
    held: npt.NDArray[np.bool_]
    price: float
    most_moves: int
    proposals: int
    seed: int

    def of_layers(self, layers: slice) -> _Given:
        return self._replace(
            start=self.start[layers],
            tokens=self.tokens[layers],
            held=self.held[layers],
            seed=self.seed + layers.start,
        )


class Shape(NamedTuple):
    """Lengths of the axes of a layer."""

    slots: int
    ranks: int
    experts: int
    windows: int

    @classmethod
    def of(cls, given: _Given) -> Shape:
        """That of these arguments."""
        return cls(given.start.shape[1], len(given.pace), *given.tokens.shape[1:])

    def near(self) -> bool:
        """Whether shared memory holds the loads of a block too."""
        return self._small_bytes() + self._window_bytes() <= SHARED_BYTES

    def shared_bytes(self) -> int:
        """Of a block."""
        return self._small_bytes() + self._window_bytes() * self.near()

    def scratch_floats(self) -> int:
        """Of a block: costs, their distances, and the loads unless shared memory holds them."""
        return self.experts * (self.windows + self.experts) + self._window_bytes() // 4 * (not self.near())

    def _small_bytes(self) -> int:
        return 2048 + 16 * self.ranks + 4 * (self.slots + self.experts * (1 + -(-self.ranks // 32)) + WARPS)

    def _window_bytes(self) -> int:
        return 4 * self.ranks * self.windows


def _start_search(given: _Given, shape: Shape, chains: int, seeds: AnyArray, first: int) -> tuple[Any, Any]:
    """Chains from number `first` on, in the current stream: (int32[blocks, P], float64[blocks]) once that is done."""
    layers = slice(first // chains, -(-(first + len(seeds)) // chains))
    part = given.of_layers(layers)
    arrays = (part.start, part.rank_of_slot, part.tokens, part.pace, part.per_step, part.held.view(np.uint8), seeds)
    scratch = cupy.empty((len(seeds), shape.scratch_floats()), np.float32)
    best, lowest = cupy.empty((len(seeds), shape.slots), np.int32), cupy.empty(len(seeds), np.float64)
    few = max(FEWEST_COLD, given.proposals // COLD_SHARE)
    kernel("search", "search")(
        (len(seeds),), (32 * WARPS,),
        (
            *(cupy.asarray(each) for each in arrays), np.float32(given.slope), np.float32(given.active),
            np.float64(given.price), *ints(min(given.most_moves, MOST)), np.int64(few), np.int64(given.proposals),
            *ints(chains, first - layers.start * chains, *shape, shape.near()), scratch, best, lowest,
        ),
        shared_mem=shape.shared_bytes(),
    )  # fmt: skip
    return best, lowest
