"""The EP group: ranks, NVLink domains, slots, speeds; from flags or from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.errors import UsageError


@dataclass(frozen=True, kw_only=True, eq=False)
class Topology:
    """One expert-parallel group.

    node_of_rank: [R] NVLink domain of each rank, 0-based · slots_per_rank: [R] expert slots a rank may hold per layer ·
    speed: [R] relative speed (1.0 = nominal; expert time is divided by it) · profile: hardware profile name or path ·
    hbm_bytes: memory per GPU, 0 = the profile's.
    """

    node_of_rank: IntArray
    slots_per_rank: IntArray
    speed: FloatArray
    profile: str = "h200"
    hbm_bytes: int = 0

    def __post_init__(self) -> None:
        for name, dtype in (("node_of_rank", np.int64), ("slots_per_rank", np.int64), ("speed", np.float64)):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        if not self.ranks or len(self.slots_per_rank) != self.ranks or len(self.speed) != self.ranks:
            raise UsageError(
                "ranks, slots per rank and speeds must have one entry per rank, at least one", where="cluster"
            )
        if self.slots_per_rank.min() < 1 or not (np.isfinite(self.speed) & (self.speed > 0)).all():
            raise UsageError("slots per rank must be ≥ 1 and speeds > 0", where="cluster")

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.node_of_rank)

    @cached_property
    def nodes(self) -> int:
        """N, the number of NVLink domains."""
        return int(self.node_of_rank.max()) + 1

    @property
    def uneven(self) -> str | None:
        """A sentence on nodes of unequal size, None where all have the same number of ranks."""
        sizes = np.bincount(self.node_of_rank)
        if sizes.min() == sizes.max():
            return None
        return f"nodes of unequal size: {sizes.min()} to {sizes.max()} of {self.ranks} ranks in one (ranks_per_node)"

    @cached_property
    def rank_kind(self) -> IntArray:
        """int64[R] ranks of one kind may swap their experts for free: same slots, speed and node."""
        kinds = np.stack([self.slots_per_rank, self.speed, self.node_of_rank])
        return frozen(np.unique(kinds, axis=1, return_inverse=True)[1].reshape(-1), np.int64)

    @property
    def slots(self) -> int:
        """P, the slots of one layer over all ranks."""
        return int(self.slots_per_rank.sum())

    def require_room_for(self, experts: int) -> None:
        """Raise `UsageError` unless every expert finds a slot and no rank has more slots than there are experts."""
        if self.slots < experts:
            raise UsageError(
                f"{self.slots} slots cannot hold {experts} experts",
                where="cluster",
                fix=f"give at least {-(-experts // self.ranks)} slots per rank",
            )
        if int(self.slots_per_rank.max()) > experts:
            raise UsageError(
                f"a rank with {int(self.slots_per_rank.max())} slots would hold an expert twice ({experts} experts)",
                where="cluster",
                fix=f"give at most {experts} slots per rank",
            )


def uniform(ranks: int, ranks_per_node: int, slots_per_rank: int, profile: str = "h200") -> Topology:
    """R equal ranks, consecutive ranks share an NVLink domain; the last domain may be smaller."""
    if ranks < 1 or ranks_per_node < 1 or slots_per_rank < 1:
        raise UsageError("ranks, ranks per node and slots per rank must be ≥ 1", where="cluster")
    return Topology(
        node_of_rank=np.arange(ranks) // ranks_per_node,
        slots_per_rank=np.full(ranks, slots_per_rank),
        speed=np.ones(ranks),
        profile=profile,
    )


MOST_RANKS = 1024
"""Every pair of ranks has its counters."""

_Size = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a cluster TOML. slots_per_rank, speed: one number, or one per rank · hbm_gib: memory of a GPU, 0 =
    the profile's · node_of_rank: NVLink domain of each rank, None = consecutive ranks share one."""

    ranks: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    ranks_per_node: _Size
    slots_per_rank: _Size | list[_Size]
    profile: str = "h200"
    speed: float | list[float] = 1.0
    hbm_gib: Annotated[float, msgspec.Meta(ge=0, le=2**20)] = 0.0
    node_of_rank: list[Annotated[int, msgspec.Meta(ge=0, le=2**16)]] | None = None


def load_cluster(path: Path) -> Topology:
    """Read a cluster TOML: `ranks`, `ranks_per_node`, `slots_per_rank` (number or one per rank), and optionally
    `profile`, `speed`, `hbm_gib`, `node_of_rank`.

    Raises `UsageError` with the file and the field.
    """
    try:
        spec = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), ClusterFile)
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=str(path), fix="check --cluster") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"not a cluster file: {error}", where=str(path), fix="see scenarios/ for one") from error
    try:
        return topology_of(spec)
    except UsageError as error:
        raise UsageError(error.what, where=str(path)) from error


def topology_of(spec: ClusterFile) -> Topology:
    """The cluster that the fields describe. Raises `UsageError` naming the field that does not fit the others."""
    nodes = np.arange(spec.ranks) // spec.ranks_per_node if spec.node_of_rank is None else np.array(spec.node_of_rank)
    if len(nodes) == 0 or len(np.unique(nodes)) != nodes.max() + 1:
        raise UsageError("node_of_rank must use 0..N-1 without gaps")
    if len(nodes) != spec.ranks:
        raise UsageError(f"node_of_rank has {len(nodes)} entries for {spec.ranks} ranks")
    return Topology(
        node_of_rank=nodes,
        slots_per_rank=_per_rank(spec.slots_per_rank, spec.ranks, "slots_per_rank"),
        speed=_per_rank(spec.speed, spec.ranks, "speed"),
        profile=spec.profile,
        hbm_bytes=int(spec.hbm_gib * 2**30),
    )


def _per_rank(value: float | list[int] | list[float], ranks: int, field: str) -> AnyArray:
    values = np.full(ranks, value) if not isinstance(value, list) else np.array(value)
    if len(values) != ranks:
        raise UsageError(f"{field} has {len(values)} entries for {ranks} ranks")
    return values
