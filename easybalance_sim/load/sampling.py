"""A fair sample of the tokens of a trace: which experts a token chose together, and where it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    Int16Array,
    IntArray,
    frozen,
    numbers_at,
    require_shape,
)
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """Tokens of a part of a trace that may be sampled. key: float64[n] random numbers, the smallest stay ·
    experts: uint8|uint16[n, L, K] · source_rank: int16[n]."""

    key: FloatArray
    experts: AnyArray
    source_rank: Int16Array


def draw_tokens(
    batches: Iterable[TokenBatch], keep: Callable[[TokenBatch], BoolArray | None], limit: int, seed: int
) -> Draw | None:
    """At most `limit` tokens of batches without gaps, in trace order; None without any.

    Streams: each token has a random number by its place in the trace and the `limit` smallest stay, so memory does not
    grow and the sample does not depend on how the tokens fall into batches. keep: mask of the tokens that count.
    """
    found: Draw | None = None
    for batch in batches:
        mask = keep(batch)
        key = numbers_at(seed, "token sample", batch.first_row, batch.tokens)
        mine = np.arange(batch.tokens) if mask is None else np.flatnonzero(mask)
        few = mine[np.sort(np.argsort(key[mine], kind="stable")[:limit])]
        fresh = Draw(key=key[few], experts=batch.experts[few], source_rank=batch.source_rank[few])
        found = fresh if found is None else _smallest([found, fresh], limit)
    return found


def sample_of(draws: Iterable[Draw | None], limit: int, node_of_rank: IntArray) -> TokenSample | None:
    """At most `limit` tokens, every token as likely as any other, in trace order; None without tokens.

    draws: of the parts of a trace, in order · node_of_rank: int64[R].
    """
    known = [draw for draw in draws if draw is not None and len(draw.key)]
    if not known:
        return None
    chosen = _smallest(known, limit)
    rank = chosen.source_rank
    placed = (rank >= 0) & (rank < len(node_of_rank))
    node = np.where(placed, node_of_rank[np.where(placed, rank, 0)], -1)
    return TokenSample(experts=chosen.experts, source_node=node.astype(np.int16))


def _smallest(draws: Sequence[Draw], limit: int) -> Draw:
    key = np.concatenate([draw.key for draw in draws])
    kept = np.sort(np.argsort(key, kind="stable")[:limit])
    return Draw(
        key=key[kept],
        experts=np.concatenate([draw.experts for draw in draws])[kept],
        source_rank=np.concatenate([draw.source_rank for draw in draws])[kept],
    )
