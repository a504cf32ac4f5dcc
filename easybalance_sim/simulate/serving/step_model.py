"""`StepModel`: the seconds of an engine step, from the requests that are in it.

A request's tokens are spread over the ranks like those of the routed request it stands for: in layer l a token sends
`mean[q, l, r]` assignments to rank r, with variance `spread[q, l, r]` from token to token. Both add up over the tokens
of a step, so that the loads of a step cost one addition per request that comes or goes; what single tokens add by
chance is drawn from a normal distribution of the summed variance. (`spread` is larger than the variance of a token by
what keeping the sum of a layer takes away.)

    rows[l, r]   = max(0, M + e - V·Σe/ΣV), e = sqrt(V)·z: normal numbers given that their sum is 0
    expert[l]    = max over r of (expert_s[l, r] + summing) at max(0, rows[l, r] + z·(chance_rows[l] at rows[l, r]))
    summing      = sum_fixed_s + sum_row_s[l, r] · rows, 0 without rows
    dispatch[l]  = fixed + max over r of max(rows[l, r] · arrive_s[0, l, r], tokens[d(r)] · leave_s[0, l])
    combine[l]   = the same with index 1
    attention[l] = fixed + max over d of max(weights, token · tokens[d]) + kv · context[d] + pair · pairs[d]
                   + shared_fixed and max(shared_weights, shared_token · tokens[d]) in a MoE layer
    step         = host + dense · attention + max over d of max(dense_weights, dense_token · tokens[d])
                   + max over d of max(head_weights, head_token · requests[d])
                   + sum over MoE layers of serial − hidden · (serial − overlapped)
    serial       = attention + dispatch + expert + combine
    overlapped   = max(dispatch + combine, attention + expert)

At given rows a rank's seconds still vary with the slots that happen to be active and with padding. This is taken in as
`chance_rows`: so many more rows, times the rank's own z. Seconds added at random would exceed those of a rank whose
slots are all active; rows do not.

What else the ranks of a data-parallel group do per layer stands in `attention`, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, frozen


@dataclass(frozen=True, kw_only=True)
class AttentionSeconds:
    """Seconds of one layer's attention and its reduction on one data-parallel rank: `fixed + max(weights, token ·
    tokens) + kv · context + pair · pairs`; in a MoE layer `shared_fixed + max(shared_weights, shared_token · tokens)`
    more. context: cached tokens that decoding requests read · pairs: for
    prompt tokens, tokens attended to, summed over tokens (chunk · (before + chunk / 2))."""

    fixed: float = 0.0
    weights: float = 0.0
    token: float = 0.0
    kv: float = 0.0
    pair: float = 0.0
    shared_fixed: float = 0.0
    shared_weights: float = 0.0
    shared_token: float = 0.0


@dataclass(frozen=True, kw_only=True)
class OutsideSeconds:
    """Seconds of a step outside the MoE layers. host: per step (scheduling, sampling, launches) · dense_layers: layers
    with attention but no experts · weights, token: their feed-forward parts, all of them together, as `max(weights,
    token · tokens)` of the fullest data-parallel rank · head_weights, head_token: the head, as `max(head_weights,
    head_token · requests)` of the rank with the most requests in the step, one position of each."""

    host: float = 0.0
    dense_layers: int = 0
    weights: float = 0.0
    token: float = 0.0
    head_weights: float = 0.0
    head_token: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class StepModel:
    """Q routed requests on R ranks that form D data-parallel ranks (R / D tensor-parallel ranks each for attention).

    mean, spread: float32[Q, L, R] · expert_s: float64[L, R, G] seconds of the routed experts of a rank with (g · knot)²
    rows, g = 0..G-1, linear between; the last slope goes on beyond · chance_rows: float64[L, G] at the same knots, left
    out = 0 · sum_fixed_s, sum_row_s: float64[L, R] seconds of adding up what GPUs that share their experts computed,
    per layer and per row, left out = 0 · even_expert_s: float64[L, G] seconds of a rank with as much as every other ·
    arrive_s: float64[2, L, R] seconds per row that arrives, dispatch and combine · even_arrive_s: float64[2, L] ·
    leave_s: float64[2, L] seconds per token that leaves its rank · link_fixed_s: float64[2], 0 on one rank · hidden:
    share of the communication that could hide behind compute and does, 0 to 1 · run_tokens: prompt tokens of a
    request in a step that `spread` is meant for, 0 = all · reasons, band_p90: of the cost model.
    """

    mean: AnyArray
    spread: AnyArray
    knot: float
    expert_s: FloatArray
    even_expert_s: FloatArray
    arrive_s: FloatArray
    even_arrive_s: FloatArray
    leave_s: FloatArray
    link_fixed_s: FloatArray
    attention: AttentionSeconds
    outside: OutsideSeconds
    data_ranks: int
    hidden: float = 0.0
    reasons: tuple[str, ...] = ()
    band_p90: float = 0.0
    chance_rows: FloatArray = field(default_factory=lambda: np.zeros(0))
    run_tokens: int = 0
    sum_fixed_s: float = 0.0
    sum_row_s: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not self.sum_row_s.size:
            object.__setattr__(self, "sum_row_s", np.zeros(self.mean.shape[1:]))
        if not self.chance_rows.size:
            object.__setattr__(self, "chance_rows", np.zeros_like(self.even_expert_s))
        for name in ("mean", "spread"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float32))
        for name in ("expert_s", "chance_rows", "even_expert_s", "sum_row_s"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        for name in ("arrive_s", "even_arrive_s", "leave_s", "link_fixed_s"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    @property
    def layers(self) -> int:
        """L, MoE layers."""
        return int(self.mean.shape[1])

    @property
    def ranks(self) -> int:
        """R."""
        return int(self.mean.shape[2])

    @property
    def summing_s(self) -> FloatArray:
        """float64[L, R, G] at the knots of the experts."""
        rows = (np.arange(self.expert_s.shape[-1]) * self.knot) ** 2
        return np.asarray(np.where(rows > 0, self.sum_fixed_s, 0.0) + self.sum_row_s[..., None] * rows)
