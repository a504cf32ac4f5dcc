"""A fair sample of the tokens of a trace: which experts a token chose together, and where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int16Array, IntArray, frozen, require_shape, stream
from easybalance_sim.errors import EbsimError
from easybalance_sim.trace.schema import TokenBatch


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenSample:
    """Sampled tokens.

    experts: uint8|uint16[T, L, K] ids · source_node: int16[T] NVLink domain where the token entered, -1 unknown.
    """

    experts: AnyArray
    source_node: Int16Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "experts", frozen(self.experts))
        object.__setattr__(self, "source_node", frozen(self.source_node, np.int16))
        require_shape("experts", self.experts, (len(self.source_node), None, None))
        if self.experts.dtype not in (np.uint8, np.uint16):
            raise EbsimError(f"ids are {self.experts.dtype}, expected uint8 or uint16", where="token sample")

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.source_node)


def sample_tokens(batches: Iterable[TokenBatch], limit: int, seed: int, node_of_rank: IntArray) -> TokenSample | None:
    """At most `limit` tokens, every token as likely as any other, in trace order; None without tokens.

    Streams: each token draws a number and the `limit` smallest stay, so memory does not grow with the trace and the
    sample does not depend on how the tokens fall into batches. node_of_rank: int64[R].
    """
    random = stream(seed, "token sample")
    keys: FloatArray = np.empty(0)
    experts: AnyArray | None = None
    ranks = np.empty(0, np.int16)
    for batch in batches:
        drawn = random.random(batch.tokens)
        if experts is None:
            experts = batch.experts[:0]
        fresh = np.flatnonzero(drawn < (np.inf if len(keys) < limit else keys.max(initial=0.0)))
        keys = np.concatenate([keys, drawn[fresh]])
        experts = np.concatenate([experts, batch.experts[fresh]])
        ranks = np.concatenate([ranks, batch.source_rank[fresh]])
        kept = np.sort(np.argsort(keys, kind="stable")[:limit])
        keys, experts, ranks = keys[kept], experts[kept], ranks[kept]
    if experts is None or not len(keys):
        return None
    known = (ranks >= 0) & (ranks < len(node_of_rank))
    node = np.where(known, node_of_rank[np.where(known, ranks, 0)], -1)
    return TokenSample(experts=experts, source_node=node.astype(np.int16))
