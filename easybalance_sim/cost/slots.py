"""What one slot costs, as a straight line in its tokens: the form that a placement search can add up over slots."""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.cost.anchored import AnchoredCost
from easybalance_sim.cost.expert import ExpertCost
from easybalance_sim.cost.layer import LayerCost


@dataclass(frozen=True, kw_only=True)
class SlotCost:
    """token_s: seconds per token of a slot · active_s: seconds of a slot that has any token in a step."""

    token_s: float
    active_s: float


def slot_cost(cost: LayerCost, tokens: float) -> SlotCost:
    """The tangent at `tokens` > 0 tokens per active slot and step.

    Experts: with A equal slots the formula is A·(w^q + f(M)^q)^(1/q) plus activation traffic, w the weight read of a
    slot and f its tile-padded work; below one tile f is flat: a slot costs the same with 1 token and with a tile full.
    Where the user's table anchors the formula both are scaled to it.
    Communication: a token's copy there and back over NVLink.
    """
    copy_s = sum(part.copy_bytes / part.nvlink_bytes_per_s for part in (cost.dispatch, cost.combine))
    if isinstance(cost.expert, AnchoredCost):
        level = cost.expert.level(tokens * cost.expert.slots)
        return _of_kernel(cost.expert.formula, tokens, copy_s, level)
    if not isinstance(cost.expert, ExpertCost):
        raise TypeError(f"no slot cost for {type(cost.expert).__name__}")
    return _of_kernel(cost.expert, tokens, copy_s)


def _of_kernel(expert: ExpertCost, tokens: float, copy_s: float, level: float = 1.0) -> SlotCost:
    _, weights_s, tile_s, q, block, row_s, token_s = (float(value) for value in expert.params)
    tiles = max(1.0, tokens / block)
    both = (weights_s**q + (tiles * tile_s) ** q) ** (1 / q)
    slope = 0.0 if tokens <= block else (tiles * tile_s / both) ** (q - 1) * tile_s / block
    return SlotCost(
        token_s=level * (slope + row_s + token_s) + copy_s, active_s=level * max(0.0, both - slope * tokens)
    )
