"""What a change of experts costs in what can be counted: proxies, of which none is a loss.

Measured on a 14 M model with its true loss, no proxy told the loss across mechanisms better than by a factor of 2 to 3;
within one family of mechanisms they do. So all of them are shown, side by side.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from easybalance_sim.arrays import FloatArray
from easybalance_sim.kernels.reference_routing import (
    ASSIGNMENTS,
    CHANGED,
    DROPPED,
    GATE,
    GATE_REPLACED,
    SCORE,
    SCORE_LOST,
    TOP_LOST,
)


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Shares, 0 to 1. changed: assignments that went to an expert that was not recorded · score_lost: of the
    sum of a token's chosen scores without the bias, mean over tokens and layers; below 0 where it rose, which routing
    by groups or with a bias can do · gate_mass_replaced: gates of recorded
    experts that are gone, of all gates · top1_lost: choices (token and layer) that lost the expert of the largest gate
    · dropped: assignments · assignments: how many were judged."""

    changed: float
    score_lost: float
    gate_mass_replaced: float
    top1_lost: float
    dropped: float
    assignments: int

    def to_dict(self) -> dict[str, float]:
        """For reports."""
        return asdict(self)

    @staticmethod
    def of(sums: FloatArray, top_k: int) -> Quality:
        """From the sums of `kernels.compare_routing`: float64[8]. top_k: K."""
        all_, choices = max(1.0, float(sums[ASSIGNMENTS])), max(1.0, float(sums[ASSIGNMENTS]) / top_k)
        return Quality(
            changed=float(sums[CHANGED]) / all_,
            score_lost=_share(sums[SCORE_LOST], sums[SCORE]),
            gate_mass_replaced=_share(sums[GATE_REPLACED], sums[GATE]),
            top1_lost=float(sums[TOP_LOST]) / choices,
            dropped=float(sums[DROPPED]) / all_,
            assignments=int(sums[ASSIGNMENTS]),
        )


def _share(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else 0.0
