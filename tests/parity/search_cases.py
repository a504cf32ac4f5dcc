"""Cases of the placement search, for every rung: small enough for naive loops and for CUDA threads as fibers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, frozen
from easybalance_sim.kernels import numba_search, reference_search

COLD, PROPOSALS = 70, 150
"""Of a walk so short that no rounding decides: 32 proposals are looked at together on a device, 64 are as warm."""

CHAINS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One problem of L layers; see `reference_search.search`."""

    start: AnyArray
    rank_of_slot: AnyArray
    tokens: AnyArray
    pace: AnyArray
    slope: float = 1.0
    active: float = 0.0
    held: AnyArray
    price: float = 0.0
    most_moves: int = 10**9

    @property
    def per_step(self) -> AnyArray:
        """float32[T] of the tokens that stand for one step."""
        return frozen(np.linspace(0.5, 2.0, self.tokens.shape[2]), np.float32)

    def run(self, module: ModuleType, proposals: int, seed: int = 1) -> tuple[AnyArray, FloatArray]:
        """Best placements [L, P] and their values [L]."""
        out, lowest = np.zeros_like(self.start), np.zeros(len(self.start))
        module.search(
            self.start, self.rank_of_slot, self.tokens, self.pace, self.slope, self.active, self.per_step, self.held,
            self.price, self.most_moves, proposals, seed, out, lowest,
        )  # fmt: skip
        return out, lowest

    def moves(self, slots: AnyArray, layer: int) -> int:
        """Slots whose expert the rank does not hold."""
        return int(np.count_nonzero(~self.held[layer][self.rank_of_slot, slots]))

    def value(self, slots: AnyArray, layer: int) -> float:
        """The specification's value."""
        power = reference_search.objective(
            slots, self.rank_of_slot, self.tokens[layer], self.pace, self.slope, self.active, self.per_step
        )
        return power + self.price * self.moves(slots, layer)


def case(seed: int, layers: int, experts: int, per_rank: list[int], windows: int = 5, **more: Any) -> Case:
    """Random loads; experts dealt in turn so that none stands twice on a rank."""
    rng = np.random.default_rng(seed)
    rank_of_slot = np.repeat(np.arange(len(per_rank)), per_rank)
    start = np.tile(np.arange(sum(per_rank)) % experts, (layers, 1))
    tokens = rng.gamma(0.7, 1.0, (layers, experts, windows)) + 0.01
    tokens *= len(per_rank) / tokens.sum(axis=1, keepdims=True)
    held = np.zeros((layers, len(per_rank), experts), np.bool_)
    held[np.arange(layers)[:, None], rank_of_slot[None, :], start] = True
    given_values: dict[str, Any] = {"pace": np.ones(len(per_rank)), "held": held, **more}
    return Case(
        start=frozen(start, np.int32),
        rank_of_slot=frozen(rank_of_slot, np.int32),
        tokens=frozen(tokens, np.float32),
        pace=frozen(given_values.pop("pace"), np.float32),
        held=frozen(given_values.pop("held"), np.bool_),
        **given_values,
    )


def calm(problem: Case) -> Case:
    """The same with loads so even that the start temperature is under its ceiling."""
    even = problem.tokens.mean(axis=1, keepdims=True)
    return replace(problem, tokens=frozen(0.8 * even + 0.2 * problem.tokens, np.float32))


CASES = {
    "even ranks": case(0, 2, 8, [3, 3, 3, 3]),
    "no redundancy": case(1, 2, 9, [3, 3, 3]),
    "ragged": case(2, 2, 6, [1, 4, 3]),
    "one rank": case(3, 1, 4, [4]),
    "slow rank": case(4, 1, 8, [3, 3, 3, 3], pace=[1.0, 1.0, 2.0, 1.0]),
    "active experts": case(5, 2, 8, [3, 3, 3, 3], slope=0.2, active=0.5),
    "dear moves": case(6, 2, 8, [3, 3, 3, 3], price=0.4),
    "few moves": case(7, 2, 8, [3, 3, 3, 3], most_moves=2),
}

WALKS = {
    "windows beyond a warp": case(14, 1, 40, [8] * 8, windows=70, slope=0.5, active=0.3, price=0.2, most_moves=12),
    "ranks beyond a word of bits": case(15, 1, 44, [2] * 40, windows=4),
    "many experts": calm(case(19, 1, 72, [9] * 8, windows=6)),
    "more slots than are certain": case(13, 1, 40, [8] * 8, windows=16),
    "loads beyond shared memory": case(16, 1, 12, [3] * 8, windows=1500),
    "moves as dear as load": case(6, 2, 8, [3, 3, 3, 3], price=15.0),
    "one window": case(17, 1, 8, [3, 3, 3, 3], windows=1),
    **CASES,
}
"""What a device walks too."""


def rules_broken(problem: Case, out: AnyArray) -> list[str]:
    """What placements [L, P] do that none may."""
    broken = []
    for layer, slots in enumerate(out):
        if np.bincount(slots, minlength=problem.tokens.shape[1]).min() < 1:
            broken.append(f"layer {layer}: an expert is nowhere")
        if len(set(zip(problem.rank_of_slot.tolist(), slots.tolist(), strict=True))) < len(slots):
            broken.append(f"layer {layer}: an expert stands twice on a rank")
        if problem.moves(slots, layer) > problem.most_moves:
            broken.append(f"layer {layer}: {problem.moves(slots, layer)} moves")
    return broken


def misjudged(problem: Case, out: AnyArray, lowest: FloatArray) -> list[str]:
    """Values [L] that are not the specification's, or above that of the start."""
    values = np.array([problem.value(slots, layer) for layer, slots in enumerate(out)])
    begun = np.array([problem.value(slots, layer) for layer, slots in enumerate(problem.start)])
    wrong = [] if np.allclose(lowest, values, rtol=1e-4, atol=0) else [f"values {lowest} are {values}"]
    return wrong + ([] if (values <= begun * (1 + 1e-5)).all() else [f"values {values} are above {begun}"])


@contextmanager
def walking(chains: int, cold: int = COLD) -> Iterator[None]:
    """So many chains of a layer on a device, so many proposals of every cold descent."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(numba_search, "FEWEST_COLD", cold))
        if on_device := sys.modules.get("easybalance_sim.kernels.cupy_search"):
            patches.enter_context(mock.patch.object(on_device, "FEWEST_COLD", cold))
            patches.enter_context(mock.patch.object(on_device, "MOST_CHAINS", chains))
        yield


def search_differs(module: ModuleType, problem: Case) -> list[str]:
    """In what a kernel module's search goes wrong: one chain must reach what numba's walk does, several no less."""
    with walking(1, COLD):
        _, specified = problem.run(numba_search, PROPOSALS)
        one, value = problem.run(module, PROPOSALS)
    with walking(CHAINS, COLD):
        best, lowest = problem.run(module, PROPOSALS)
    found = [] if np.allclose(value, specified, rtol=1e-5, atol=0) else [f"one chain finds {value}, not {specified}"]
    found += [] if (lowest <= value).all() else [f"{CHAINS} chains find {lowest}, one {value}"]
    for placements, values in ((one, value), (best, lowest)):
        found += rules_broken(problem, placements) or misjudged(problem, placements, values)
    return found


def search_differences(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Every case by name, with what goes wrong in it."""
    for name, problem in WALKS.items():
        yield f"search: {name}", ", ".join(search_differs(module, problem))
