"""`Replayed`: steps made of routed requests, replayed token by token under a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.cost.link_tables import TableLink
from easybalance_sim.cost.network import LinkCost
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.engine import Dispatched, Links, Subject, dispatched, links, subject
from easybalance_sim.simulate.serving.mixing import Pieces, tokens_of
from easybalance_sim.simulate.serving.routed import Routed


@dataclass(frozen=True, kw_only=True, eq=False)
class Replayed:
    """A plan ready for replay on the links of its cluster."""

    subject: Subject
    route: Links
    data_ranks: int

    @property
    def ranks(self) -> int:
        """R."""
        return self.subject.plan.ranks

    @property
    def own(self) -> int:
        """R / D, ranks of a data-parallel one."""
        return self.ranks // self.data_ranks


def replayed(
    plan: Plan, topology: Topology, cost: LayerCost, *, data_ranks: int, rule: str, seed: int = 0,
    layer_ids: Sequence[int] | None = None,
) -> Replayed:  # fmt: skip
    """Make a plan ready. Raises `UsageError` for another number of ranks, or one that the data ranks do not divide."""
    if data_ranks < 1 or plan.ranks % data_ranks:
        raise UsageError(
            f"{plan.ranks} ranks do not form {data_ranks} data-parallel ones",
            where="data_ranks",
            fix="give a divisor of the ranks",
        )
    item = subject(plan, topology, rule, cost, seed, layer_ids)
    return Replayed(subject=item, route=links(topology, _mode(cost)), data_ranks=data_ranks)


def sent(replay: Replayed, routed: Routed, pieces: Pieces) -> Iterator[Dispatched]:
    """Where every token of the pieces' steps goes, a few whole steps at a time."""
    batch = tokens_of(routed, pieces, replay.ranks, replay.data_ranks)
    item = replay.subject
    for _, part in dispatched([batch], item.plan, item.dispatch, replay.route, replay.ranks):
        yield part


def _mode(cost: LayerCost) -> str:
    """The all-to-all mode that a layer cost stands for."""
    if isinstance(cost.dispatch, LinkCost):
        return cost.dispatch.link.mode
    if isinstance(cost.dispatch, TableLink):
        return cost.dispatch.table.mode
    raise TypeError(f"no all-to-all mode of {type(cost.dispatch).__name__}")
