"""The price of choosing other experts than the router: proxies from a replay, and a band in nats that they span.

No proxy that a trace shows tells the loss better than a factor of 2 to 3 across mechanisms; within one family of them
it does. So a band is that of the family and spans what all its proxies say. All of it was measured on one recording of
a model of 14 M parameters (8 MoE layers, 64 experts, top 6, sigmoid router in 8 groups; 63,794 tokens served again
under 61 mechanisms, next-token loss 4.375 nats): the order of mechanisms and the shape of the curves carry over, the
nats of another model may be lower or higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.offsets.controllers import Controller
from easybalance_sim.simulate.offsets.loop import Mechanism, Outcome
from easybalance_sim.simulate.offsets.quality import Quality

CALIBRATED_ON = "calibrated on a 14 M model"
MEASURED_NATS = 0.002
"""Differences that the measurement could not tell from 0 (its standard errors are 0.0005 to 0.0015 nats)."""
MOST_CALIBRATED_NATS = 0.13
"""The laws were fitted to losses below this."""
OFFSET, REROUTE, MULTIPLICATIVE, DIVERSION, DROP = "offset", "re-route", "multiplicative", "diversion", "drop"
FREE_GATE_REPLACED, FREE_CHANGED, FREE_SCORE_LOST = 0.04, 0.05, 0.001
"""Additive offsets below all three: each of 17 such runs lost within ± 1.2 mnat."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """mnat = rate · x^power of the proxy in percent; low, high: factors of the scatter around it."""

    proxy: str
    rate: float
    power: float
    low: float
    high: float


def _around(proxy: str, rate: float, power: float, scatter: float) -> Law:
    return Law(proxy=proxy, rate=rate, power=power, low=1 / scatter, high=scatter)


def _between(proxy: str, low: float, high: float) -> Law:
    """mnat per percent, from the cheapest to the dearest run of the family."""
    return Law(proxy=proxy, rate=high, power=1.0, low=low / high, high=1.0)


LAWS: dict[str, tuple[Law, ...]] = {
    OFFSET: (
        _around("gate_mass_replaced", 0.04, 2.25, 1.32),
        _around("top1_lost", 0.52, 1.85, 1.36),
        _around("score_lost", 10.9, 0.86, 1.56),
    ),
    REROUTE: (_between("changed", 0.15, 1.32), _between("gate_mass_replaced", 0.2, 1.85)),
    MULTIPLICATIVE: (_around("gate_mass_replaced", 1.9, 1.13, 1.43), _between("changed", 1.4, 5.0)),
    DIVERSION: (_around("score_lost", 41.0, 1.04, 1.12), _between("changed", 5.8, 13.4)),
    DROP: (_between("dropped", 0.4, 1.1),),
}
"""Of each family: fits and ranges over its runs. Diversion of tokens and rotation of expert groups are one family."""


def families_of(mechanism: Mechanism) -> tuple[str, ...]:
    """The families of a mechanism: as it says itself, that of offsets for a controller, none where experts stay."""
    if isinstance(mechanism, Controller):
        return (OFFSET,)
    named: tuple[str, ...] = getattr(mechanism, "families", ())
    return named


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one proxy says. value: the proxy, a fraction · low_nats, high_nats: with the scatter of its family."""

    family: str
    proxy: str
    value: float
    low_nats: float
    high_nats: float


@dataclass(frozen=True, kw_only=True)
class Band:
    """Loss in nats that all proxies of the families span, ± what cannot be measured; exactly 0 for what is lossless.

    beyond: parts of it lie beyond what was calibrated.
    """

    low_nats: float
    high_nats: float
    estimates: tuple[Estimate, ...] = ()
    beyond: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {**asdict(self), "estimates": [asdict(one) for one in self.estimates], "calibrated": CALIBRATED_ON}


LOSSLESS = Band(low_nats=0.0, high_nats=0.0)


@dataclass(frozen=True, kw_only=True)
class Price:
    """families: of `LAWS`, none = the router's choice was left alone · total, by_layer, by_workload: what became of its
    choice · free: in the zone in which no additive offset cost anything."""

    families: tuple[str, ...]
    total: Quality
    by_layer: tuple[Quality, ...]
    by_workload: dict[str, Quality]
    band: Band
    free: bool

    def to_dict(self) -> dict[str, Any]:
        """For reports: fractions, nats. Workloads without tokens are left out."""
        return {
            "families": list(self.families),
            **self.total.to_dict(),
            "loss_nats": self.band.to_dict(),
            "free": self.free,
            "by_layer": [one.to_dict() for one in self.by_layer],
            "by_workload": {name: one.to_dict() for name, one in self.by_workload.items() if one.assignments},
        }


def price(outcome: Outcome, families: Sequence[str]) -> Price:
    """The price of what a mechanism of these families has done; empty = one that chooses no experts.

    Raises `UsageError` for a family without laws.
    """
    strange = sorted(set(families) - set(LAWS))
    if strange:
        raise UsageError(f"no law for {strange[0]!r}", where="families", fix=f"one of {', '.join(LAWS)}")
    return Price(
        families=tuple(families),
        total=outcome.quality,
        by_layer=outcome.by_layer,
        by_workload=outcome.by_workload,
        band=band(outcome.quality, families),
        free=is_free(outcome.quality, families),
    )


def band(total: Quality, families: Sequence[str]) -> Band:
    """The loss that the families' proxies span. A proxy below 0 says nothing and counts as 0: no logarithms of it."""
    found = tuple(
        _estimate(family, law, float(getattr(total, law.proxy))) for family in families for law in LAWS[family]
    )
    if not found or not _touched(total):
        return LOSSLESS
    low, high = min(one.low_nats for one in found), max(one.high_nats for one in found)
    return Band(
        low_nats=low - MEASURED_NATS,
        high_nats=high + MEASURED_NATS,
        estimates=found,
        beyond=high > MOST_CALIBRATED_NATS,
    )


def _estimate(family: str, law: Law, value: float) -> Estimate:
    nats = law.rate * (100.0 * max(value, 0.0)) ** law.power / 1000.0
    return Estimate(
        family=family, proxy=law.proxy, value=value, low_nats=nats * law.low, high_nats=nats * law.high
    )  # fmt: skip


def is_free(total: Quality, families: Sequence[str]) -> bool:
    """Whether nothing was changed, or additive offsets alone, and so little that no run of that kind cost anything."""
    if not _touched(total):
        return True
    small = (
        total.gate_mass_replaced < FREE_GATE_REPLACED
        and total.changed < FREE_CHANGED
        and total.score_lost < FREE_SCORE_LOST
    )
    return small and set(families) == {OFFSET}


def _touched(total: Quality) -> bool:
    return total.changed > 0 or total.dropped > 0
