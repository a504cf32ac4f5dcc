"""Re-routing, its price and the front against runs of the real small model with its true loss: 62 runs of 600 steps.

Replay must agree in the step mean within 0.01 and in its P99 within 0.1, and the band of the loss must hold what was
measured. The window plan is not the measured one but the search's own, from the same 600 steps before.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.mechanisms.request import OffsetRequest
from easybalance_sim.mechanisms.run import offset
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Settings
from easybalance_sim.simulate.offsets.controllers import HEAT, LAYER, MAX, PI, SIGN, Controller, I, P
from easybalance_sim.simulate.offsets.loop import Loop, Mechanism, Outcome, Untouched, run
from easybalance_sim.simulate.offsets.quality import Quality
from easybalance_sim.simulate.offsets.scores import Scores, scores_of
from easybalance_sim.simulate.offsets.stability import Oscillation, oscillation
from easybalance_sim.simulate.quality.price import (
    DIVERSION,
    DROP,
    MULTIPLICATIVE,
    OFFSET,
    REROUTE,
    Band,
    band,
    families_of,
    is_free,
    price,
)
from easybalance_sim.simulate.rerouting.diversion import Diversion
from easybalance_sim.simulate.rerouting.overflow import Overflow
from easybalance_sim.simulate.rerouting.rotation import BY_RANK, STRIPED, Rotation
from easybalance_sim.simulate.rerouting.tiers import Tiers, graded
from easybalance_sim.simulate.steps.placements import contiguous, planned, stacked
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads, read_steps
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from tests.listeners import Heard

DATA = Path(__file__).parents[2] / "../shared/data/tinymoe_routing"
RUNS = DATA / "offsets_real_model.csv"
pytestmark = pytest.mark.skipif(not RUNS.exists(), reason=f"no {RUNS.name} of the small model beside the repository")

RANKS, WARM_UP = 8, 40
CYCLE = "STK seed max a=.1"
"""Flagged, since its heat swings, though it does not grow: the only one of those whose replay is further off."""
BASE_UNKNOWN = "eplb8x10"
"""Measured on a placement that no longer is: its base had 1.286/1.78, and no EPLB from these steps has."""


@cache
def measured() -> Mapping[str, Mapping[str, str]]:
    with RUNS.open(encoding="utf-8") as lines:
        return {row["mechanism"]: row for row in csv.DictReader(lines)}


def names() -> list[str]:
    return list(measured()) if RUNS.exists() else []


@cache
def recorded() -> tuple[RecordedSteps, Scores]:
    past, judged = (open_trace([DATA / name]) for name in ("tokens.parquet", "steps_660_1300_all_scores.parquet"))
    assert isinstance(past, TokenTrace) and isinstance(judged, TokenTrace)
    before, _ = read_steps(past, first=100, end=700, gates=False)
    return before, scores_of(read_steps(judged, first=660, end=1300)[0])


@cache
def placement(name: str) -> Plan:
    past, scores = recorded()
    if name == "stacked":
        return stacked(scores.steps.counts[WARM_UP:], RANKS)
    if name == "window8x8":
        return planned("window_search", past, RANKS, 8)
    if name == BASE_UNKNOWN:
        return planned("eplb", past, RANKS, 10)
    return contiguous(scores.layers, scores.experts, RANKS)


def mechanism(name: str) -> Mechanism:
    """What a row of the measured runs is called here."""
    text = re.sub(r"^(STK|R80|W88) ", "", name)
    if text.startswith("reroute") and " + layer P" in text:
        return Overflow(cap=1.1, inner=Controller(law=P, signal=LAYER, gain=0.1, clipped=False))
    if found := re.fullmatch(r"(reroute (next|least)|drop) cap(.+)", text):
        return Overflow(cap=float(found[3]), rule=found[2] or "drop")
    if found := re.fullmatch(r"x(0\.\d) hot (rank heat|layer)>1.05", text):
        return Tiers(tiers=((1.05, float(found[1])),), signal=found[2].removeprefix("rank "))
    if found := re.fullmatch(r"tiers (heat|layer) (.+)/(.+)/(.+)", text):
        return graded(found[1], 0.025, [1 + float(one) for one in found.groups()[1:]])
    if found := re.fullmatch(r"divert (\d+)% (heat|layer)>1.05", text):
        return Diversion(share=int(found[1]) / 100, signal=found[2])
    if found := re.fullmatch(r"rot (rank|stripe) (\d)/8", text):
        kind = {"rank": BY_RANK, "stripe": STRIPED}[found[1]]
        return Rotation(active=int(found[2]), kind=kind, load=recorded()[1].steps.counts.sum(axis=0))
    return Untouched() if text == "none" else controller(text)


def controller(text: str) -> Controller:
    """A row of the feedback controllers."""
    signal = next(iter(re.findall(r"heat|layer|expert", text)), HEAT)
    value = [float(n) for n in re.findall(r"=(\d*\.?\d+)", text)]
    clip = 0.03 if "clip" in text else None
    if " I " in text:
        return Controller(law=I, signal=signal, integral=value[0], leak=value[1], clipped=False)
    if " PI " in text:
        return Controller(law=PI, signal=signal, gain=value[0], integral=value[1], clipped=False)
    law = MAX if "max" in text else SIGN if "sign" in text else P
    return Controller(law=law, signal=signal, gain=value[0], clip=clip, clipped=clip is not None)


@cache
def replayed(name: str) -> tuple[dict[str, float], Quality, Band]:
    outcome, acting = outcome_of(name), mechanism(name)
    return outcome.balance.to_dict(), outcome.quality, price(outcome, families_of(acting)).band


@cache
def outcome_of(name: str) -> Outcome:
    loop = Loop(delay=4 if "d=4" in name else 1)
    return run(mechanism(name), recorded()[1], placement(measured()[name]["placement"]), loop)


@cache
def swing(name: str) -> Oscillation:
    """What tells whether a run settles; caps and rotation do not act on what was sensed."""
    found = outcome_of(name)
    without = rank_loads(recorded()[1].steps.counts[WARM_UP:], placement(measured()[name]["placement"]))
    return oscillation(found.judged, without, found.loop)


def is_flagged(name: str) -> bool:
    return not re.search(r"reroute|drop|rot ", name) and swing(name).unstable


def is_rerouting(name: str) -> bool:
    return bool(re.search(r"reroute|drop|x0|tiers|divert|rot ", name)) or name.startswith("W88")


@pytest.mark.parametrize("name", [name for name in names() if is_rerouting(name)])
def test_balance_of_rerouting(name: str) -> None:
    row, (found, quality, loss) = measured()[name], replayed(name)
    assert found["step_mean"] == pytest.approx(float(row["step_mean"]), abs=0.01)
    assert found["step_p99"] == pytest.approx(float(row["step_p99"]), abs=0.1)
    assert found["window_mean"] == pytest.approx(float(row["win300_mean"]), abs=0.01)
    # The real run is what counts; its own replay was off by up to 24 % where overflow is moved.
    changed = float(row["changed_local"])
    assert quality.changed == pytest.approx(changed, rel=0.1, abs=0.001)
    assert quality.score_lost == pytest.approx(float(row["score_lost"]), rel=0.1, abs=0.0005)
    assert quality.dropped == pytest.approx(float(row["dropped"]), rel=0.02)
    assert loss.low_nats * 1e3 <= float(row["loss_increase_mnat"]) <= loss.high_nats * 1e3


def test_factors_that_make_heat_swing_are_flagged() -> None:
    assert [name for name in names() if is_rerouting(name) and is_flagged(name)] == ["x0.8 hot layer>1.05"]
    for name in ("x0.8 hot layer>1.05", "STK tiers heat .05/.15/.3"):
        # The second is at -0.356 in the model itself, on the edge.
        assert not swing(name).grows and float(measured()[name]["autocorr_min"]) < -0.35
        assert swing(name).autocorrelation == pytest.approx(float(measured()[name]["autocorr_min"]), abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if not is_rerouting(name)])
def test_every_other_run(name: str) -> None:
    row, (found, _, loss) = measured()[name], replayed(name)
    assert loss.low_nats * 1e3 <= float(row["loss_increase_mnat"]) <= loss.high_nats * 1e3
    # Also those that are flagged for swinging, as long as they do not grow; `test_evidence_offsets` lists them.
    if name != CYCLE and not swing(name).grows and row["placement"] != BASE_UNKNOWN:
        assert found["step_mean"] == pytest.approx(float(row["step_mean"]), abs=0.01)
        assert found["step_p99"] == pytest.approx(float(row["step_p99"]), abs=0.1)


FAMILIES = {"drop": DROP, "x0": MULTIPLICATIVE, "tiers": MULTIPLICATIVE, "divert": DIVERSION, "rot": DIVERSION}


def families(name: str) -> list[str]:
    text = re.sub(r"^(STK|R80|W88) ", "", name)
    if text == "none":
        return []
    if text.startswith("reroute"):
        return [REROUTE, OFFSET] if "layer" in text else [REROUTE]
    return [next((family for start, family in FAMILIES.items() if text.startswith(start)), OFFSET)]


def quality_of(row: Mapping[str, str]) -> Quality:
    return Quality(
        changed=float(row["changed_local"]), score_lost=float(row["score_lost"]),
        gate_mass_replaced=float(row["gate_mass_replaced"]), top1_lost=float(row["top1_lost"]),
        dropped=float(row["dropped"]), assignments=1,
    )  # fmt: skip


def test_bands_hold_all_measured_losses() -> None:
    """All 62, from the proxies of the real runs; the laws were fitted on the same runs, so this is no forecast."""
    out = []
    for name, row in measured().items():
        loss = band(quality_of(row), families(name))
        if not loss.low_nats * 1e3 <= float(row["loss_increase_mnat"]) <= loss.high_nats * 1e3:
            out.append(name)
    assert len(measured()) == 62
    assert out == []


def test_free_offsets_cost_nothing() -> None:
    free = {
        name: float(row["loss_increase_mnat"])
        for name, row in measured().items()
        if families(name) == [OFFSET] and is_free(quality_of(row), [OFFSET])
    }
    assert len(free) >= 15
    assert max(abs(loss) for loss in free.values()) <= 1.2


# loss and its standard error in mnat (None = no mechanism), step mean, step P99, 300 ms mean, heat mean
TABLE: dict[str, tuple[float | None, float, float, float, float, float]] = {
    "chance alone": (None, 0, 1.207, 1.55, 1.047, 1.016),
    "plan": (None, 0, 1.389, 2.14, 1.189, 1.077),
    "EPLB, 8 × 8": (None, 0, 1.302, 1.77, 1.134, 1.042),
    "EPLB, 8 × 8, every 1 s": (None, 0, 1.295, 1.80, 1.124, 1.046),
    "EPLB, 8 × 8, every 3 s": (None, 0, 1.298, 1.86, 1.127, 1.044),
    "window plan, 8 × 8": (None, 0, 1.235, 1.54, 1.089, 1.030),
    "floor: window plan in hindsight": (None, 0, 1.229, 1.53, 1.064, 1.023),
    "EPLB, 8 × 10": (None, 0, 1.308, 2.00, 1.167, 1.078),
    "EPLB, 8 × 10, every 1 s": (None, 0, 1.274, 1.76, 1.117, 1.042),
    "EPLB, 8 × 10, every 3 s": (None, 0, 1.278, 1.73, 1.121, 1.048),
    "window plan, 8 × 10": (None, 0, 1.220, 1.51, 1.083, 1.029),
    "EPLB, 8 × 10 + least-loaded replica": (None, 0, 1.160, 1.93, 1.108, 1.054),
    "window plan, 8 × 10 + least-loaded replica": (None, 0, 1.080, 1.31, 1.035, 1.015),
    "plan + layer P": (-0.5, 1.0, 1.389, 2.11, 1.124, 1.049),
    "plan + layer I": (0.6, 0.8, 1.368, 2.13, 1.149, 1.058),
    "plan + re-route next cap 1.5": (0.1, 0.6, 1.352, 1.53, 1.164, 1.066),
    "plan + re-route next cap 1.2": (3.2, 0.9, 1.205, 1.24, 1.111, 1.046),
    "plan + re-route next cap 1.1": (6.4, 1.7, 1.111, 1.14, 1.073, 1.032),
    "plan + re-route next cap 1.1 + layer P": (6.2, 1.4, 1.111, 1.14, 1.061, 1.025),
    "window plan, 8 × 8 + layer P": (-0.4, 0.7, 1.239, 1.55, 1.064, 1.023),
    "window plan, 8 × 8 + re-route next cap 1.2": (0.2, 0.8, 1.186, 1.24, 1.076, 1.026),
    "window plan, 8 × 8 + re-route next cap 1.1": (1.5, 1.0, 1.110, 1.14, 1.057, 1.020),
    "window plan, 8 × 8 + re-route next cap 1.05": (4.1, 1.0, 1.061, 1.10, 1.038, 1.015),
}
NEVER = ("rotation", "×0.8", "heat max", "divert", "drop", "sign", "layer P", "layer I", "every", "EPLB")


@cache
def front() -> dict[str, Any]:
    """What the command says; offsets have safe gains, which are the measured ones within a tenth (0.11 and 0.1)."""
    settings = Settings(traces=(DATA / "steps_660_1300_all_scores.parquet",))
    request = OffsetRequest(
        settings=settings, past=(DATA / "tokens.parquet",), past_steps=(100, 700), parts=("feedback", "rerouting")
    )
    return dict(offset(request, Heard())["front"])


def nameless(name: str) -> str:
    """Without a controller's gain."""
    return re.sub(r" (g|ki|eta|alpha)=.*", "", name)


def test_the_table_of_balance_and_loss() -> None:
    rows = {nameless(row["name"]): row for row in front()["rows"]}
    assert set(TABLE) <= set(rows)
    for name, (loss, error, step, p99, window, heat) in TABLE.items():
        row, balance = rows[name], rows[name]["balance"]
        assert balance["step_mean"] == pytest.approx(step, abs=0.01), name
        assert balance["step_p99"] == pytest.approx(p99, abs=0.1), name
        assert balance["window_mean"] == pytest.approx(window, abs=0.01), name
        assert balance["heat_mean"] == pytest.approx(heat, abs=0.01), name
        if loss is None:
            assert row["lossless"]
        else:
            band = row["price"]["loss_nats"]
            assert band["low_nats"] * 1e3 - error <= loss <= band["high_nats"] * 1e3 + error, name


def test_the_order_of_the_front() -> None:
    for found, knee in zip(front()["fronts"], (1.1, 1.2), strict=True):
        on_it = [point["name"] for point in found["points"]]
        wanted = [f"window plan, 8 × 8{more}" for more in ("", *(f" + re-route next cap {cap}" for cap in (1.1, 1.05)))]
        assert [name for name in on_it if name in wanted] == wanted
        assert "window plan, 8 × 10 + least-loaded replica" in on_it
        assert not [name for name in on_it if any(word in name for word in NEVER) or name.startswith("plan")]
        assert found["knee"] == f"window plan, 8 × 8 + re-route next cap {knee}"
