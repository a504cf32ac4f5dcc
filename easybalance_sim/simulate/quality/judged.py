"""A mechanism on a placement: what it gains beside what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.loop import Mechanism, Outcome
from easybalance_sim.simulate.quality.front import Point
from easybalance_sim.simulate.quality.price import Price, families_of, price
from easybalance_sim.simulate.steps.balance import Balance

NO_SENSOR = "none"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """name: of placement and mechanism · sensor: what it has to know · balance, price: of the judged steps · slots: of
    a layer, on all ranks · stable: whether its loop settles, None where that was not judged · floor: nothing that could
    be deployed, only a bound · remark: why it is shown though it is not offered, "" = it is offered."""

    name: str
    sensor: str
    balance: Balance
    price: Price
    slots: int
    stable: bool | None = True
    floor: bool = False
    remark: str = ""

    @property
    def offered(self) -> bool:
        """Whether it may be deployed: neither a bound nor a comparison."""
        return not self.floor and not self.remark

    @property
    def point(self) -> Point:
        """For `front`."""
        return Point(
            name=self.name,
            step_mean=self.balance.step_mean,
            step_p99=self.balance.step_p99,
            loss_low=self.price.band.low_nats,
            loss_high=self.price.band.high_nats,
            slots=self.slots,
            stable=self.stable is not False,
        )

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "name": self.name,
            "sensor": self.sensor,
            "lossless": self.point.lossless,
            "floor": self.floor,
            "stable": self.stable,
            "remark": self.remark,
            "slots": self.slots,
            "balance": self.balance.to_dict(),
            "price": self.price.to_dict(),
        }


def judged(
    mechanism: Mechanism, outcome: Outcome, plan: Plan, *, on: str = "", stable: bool | None = True, remark: str = ""
) -> Judged:
    """What came of a run. on: name of the placement, put before the mechanism's."""
    return Judged(
        name=f"{on} + {mechanism.name}" if on else mechanism.name,
        sensor=getattr(mechanism, "sensor", NO_SENSOR),
        balance=outcome.balance,
        price=price(outcome, families_of(mechanism)),
        slots=plan.slots,
        stable=stable,
        remark=remark,
    )
