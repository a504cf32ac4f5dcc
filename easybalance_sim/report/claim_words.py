"""What a capacity claim comes to in words, the same on the terminal and on a page. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from easybalance_sim.report.words import band_words, many, rate, sentence

Claim = Mapping[str, Any]
HOLDS, WITH_LOSS, NOT = "HOLDS", "HOLDS WITH LOSS", "DOES NOT HOLD"


def answer(claim: Claim) -> tuple[str, str]:
    """`HOLDS`, `WITH_LOSS` or `NOT`, of the ratio alone where the claimed baseline cannot be, and why."""
    said = claim["claimed_gain"]
    word = HOLDS if claim["lossless_gain"] >= said else WITH_LOSS if claim["total_gain"] >= said else NOT
    stands = baseline_stands(claim)
    text = [sentence(claim["explained"][0])] + ([] if stands else [_baseline(claim)])
    others = claim["assumptions"]
    if others:
        kept = sum(bool(one["holds_lossless"]) for one in others)
        text.append(f"Lossless it holds under {kept} of {many(len(others), 'other reading')} of the claim.")
    return word if stands or word == NOT else f"RATIO {word}, BASELINE DOES NOT", " ".join(text)


def baseline_stands(claim: Claim) -> bool:
    """Whether the cluster has the FLOP/s for the claimed baseline, and the model reaches it within its error band."""
    reached = claim["baseline"]["qps"] * (1 + claim["band_p90"]) >= _claimed_qps(claim)
    return bool(claim["plausibility"]["needed_peak_share"] <= 1 and reached)


def _claimed_qps(claim: Claim) -> float:
    seen = claim["plausibility"]
    return float(seen["needed_tokens_per_s"] / seen["request_tokens"])


def _baseline(claim: Claim) -> str:
    needed = 100 * claim["plausibility"]["needed_peak_share"]
    return (
        f"The claimed baseline of {rate(_claimed_qps(claim))} requests/s asks for {needed:.0f} % of the nominal "
        f"FLOP/s; the model reproduces {claim['baseline']['qps']:,.0f}."
    )


def untabled(lines: Iterable[str], claim: Claim) -> list[str]:
    """The lines that do not only say in words what a row of a table says."""
    rows = [rung["mechanism"] for rung in claim["rungs"]] + [one["name"] for one in claim["assumptions"]]
    return [line for line in lines if not any(line.startswith(f"{name}:") for name in rows)]


def holds(assumption: Claim) -> str:
    """Whether the claim does under an assumption, and with which mechanisms."""
    return "yes" if assumption["holds_lossless"] else "lossy only" if assumption["holds"] else "no"


def calibrated(claim: Claim) -> str:
    """Whether its seconds are, and how far they may err."""
    return f"not calibrated, error band {band_words(claim['band_p90'])}" if claim["reasons"] else "calibrated"
