"""What `ebsim capacity` is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.deployment.request import SimulateRequest
from easybalance_sim.errors import UsageError

MOST_SEEDS = 64


@dataclass(frozen=True, kw_only=True)
class CapacityRequest:
    """scenario: the file and what is to be different, its rate the one that the fewest GPUs are asked for · gpus:
    whether to ask that · replicas: spare slots per rank to compare · parallel: whether to compare expert with tensor
    parallelism · seeds: runs of every rate, from the scenario's seed on · tolerance: relative, of a rate."""

    scenario: SimulateRequest
    gpus: bool = False
    replicas: tuple[int, ...] = ()
    parallel: bool = False
    seeds: int = 1
    tolerance: float = 0.02

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise UsageError(f"is {self.seeds}", where="--seeds", fix=f"give 1 to {MOST_SEEDS}")
        if not 0.001 <= self.tolerance <= 0.5:
            raise UsageError(f"is {self.tolerance:g}", where="--tolerance", fix="give 0.001 to 0.5")
        if any(spare < 0 for spare in self.replicas):
            raise UsageError("spare slots are 0 or more", where="--replicas", fix="write it as 0,1,2")
        if self.scenario.rate_per_s is not None and not self.gpus:
            raise UsageError("is what --fewest-gpus asks for", where="--rate", fix="add --fewest-gpus")
