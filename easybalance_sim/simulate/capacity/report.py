"""The result of a capacity scenario, and what it says in plain lines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from easybalance_sim.simulate.capacity.speed import Capacity


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One mechanism. alone, stacked: what it sustains by itself, and on top of those before it that helped · kept:
    whether it helps there · alone_gain, total_gain: over the baseline · added: over what was there · lossless ·
    alone_changed, changed: share of assignments that go elsewhere for it, alone and with all before it; 0 for lossless
    ones."""

    mechanism: str
    alone: Capacity
    stacked: Capacity
    alone_gain: float
    total_gain: float
    added: float
    kept: bool
    lossless: bool
    alone_changed: float
    changed: float


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """The scenario with one thing taken differently. gap, layer_peak: heat of the hot card over the cold one, and
    max/mean rank load of a layer · lossless, everything, perfect: gain over the baseline of the mechanisms that help ·
    holds_lossless, holds: whether the claimed gain is reached without and with lossy mechanisms · possible: whether any
    balancing could."""

    name: str
    gap: float
    layer_peak: float
    baseline: Capacity
    lossless: float
    everything: float
    perfect: float
    holds_lossless: bool
    holds: bool
    possible: bool


@dataclass(frozen=True, kw_only=True)
class Plausibility:
    """Whether the claimed baseline can be at all. needed_tokens_per_s, needed_peak_share: at the claimed QPS with the
    scenario's requests · request_tokens: of the scenario · fitting_request_tokens: with which the modelled baseline is
    the claimed one · most_qps: if every FLOP of the cluster were used."""

    request_tokens: float
    needed_tokens_per_s: float
    needed_peak_share: float
    fitting_request_tokens: float
    most_qps: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """title · claimed_gain · parameters, active_parameters: of the model · gap, layer_peak, heat: of the placement in
    force · baseline, perfect: capacities as placed and with all ranks alike · rungs: mechanisms one after another ·
    assumptions · plausibility · literal_gap: the largest gap that the described number of hot layers can make ·
    reasons: why seconds are not calibrated · band_p90: of the cost model."""

    title: str
    claimed_gain: float
    parameters: float
    active_parameters: float
    gap: float
    layer_peak: float
    heat: tuple[float, ...]
    baseline: Capacity
    perfect: Capacity
    rungs: tuple[Rung, ...]
    assumptions: tuple[Assumption, ...]
    plausibility: Plausibility
    literal_layers: int
    literal_gap: float | None
    reasons: tuple[str, ...]
    band_p90: float

    @property
    def lossless_gain(self) -> float:
        """Of all lossless mechanisms together."""
        return max(1.0, *(rung.total_gain for rung in self.rungs if rung.lossless))

    @property
    def total_gain(self) -> float:
        """Of the best stack of mechanisms."""
        return max(1.0, *(rung.total_gain for rung in self.rungs))

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return asdict(self) | {"lossless_gain": self.lossless_gain, "total_gain": self.total_gain}

    def explained(self) -> list[str]:
        """The answer first, then what it hangs on."""
        return [*self._answer(), *self._where_from(), *self._baseline_lines(), *self._assumption_lines()]

    def _answer(self) -> list[str]:
        base, said = self.baseline, self.claimed_gain
        verdict = "holds" if self.lossless_gain >= said else "does not hold"
        return [
            f"the claim of x{said:.2f} {verdict} in this set-up with lossless mechanisms (x{self.lossless_gain:.2f}); "
            f"with lossy ones x{self.total_gain:.2f}; ranks loaded alike by decree would give "
            f"x{self.perfect.qps / base.qps:.2f}",
            f"baseline {base.qps:.0f} requests/s: {base.tokens_per_s:.0f} tokens/s in steps of {base.step_tokens:.0f} "
            f"tokens, {100 * base.peak_share:.0f} % of the nominal FLOP/s, limited by {base.limit}",
        ]

    def _where_from(self) -> list[str]:
        lines = [
            f"{rung.mechanism}: alone x{rung.alone_gain:.2f}, on top of those before x{rung.added:.3f}"
            + ("" if rung.kept else " (left out again)")
            + (
                ""
                if rung.lossless
                else f", lossy: changes {100 * rung.alone_changed:.1f} % of assignments alone, "
                f"{100 * rung.changed:.1f} % there"
            )
            for rung in self.rungs
        ]
        return [
            f"the gap of {self.gap:.1f}x between two cards is {self.layer_peak:.2f}x max/mean in a layer; only the "
            "busiest card's share sets the pace, so the same gap may cost little (one cold card) or much (one hot one)",
            *lines,
        ]

    def _baseline_lines(self) -> list[str]:
        seen = self.plausibility
        return [
            f"the claimed baseline asks for {seen.needed_tokens_per_s:.0f} tokens/s of {seen.request_tokens:.0f}-token "
            f"requests, {100 * seen.needed_peak_share:.0f} % of the nominal FLOP/s; all of them would serve "
            f"{seen.most_qps:.0f} requests/s. It is what this cluster does with requests of "
            f"{seen.fitting_request_tokens:.0f} tokens, prompt and answer together",
            f"hot experts in all {self.literal_layers} layers can make any gap"
            if self.literal_gap is None
            else f"hot experts in {self.literal_layers} layers alone make a gap of at most {self.literal_gap:.2f}x "
            "even if one card got all tokens of these layers: heat is a sum, its ratio a mean of the layers' ratios",
        ]

    def _assumption_lines(self) -> list[str]:
        words = {True: "holds", False: "does not hold"}
        return [
            f"{row.name}: baseline {row.baseline.qps:.0f} requests/s, lossless x{row.lossless:.2f}, with lossy "
            f"x{row.everything:.2f}, perfect x{row.perfect:.2f}: {words[row.holds_lossless]} lossless, "
            f"{words[row.holds]} with everything"
            for row in self.assumptions
        ]
