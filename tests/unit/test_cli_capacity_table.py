"""The tables of `ebsim capacity`: eighty columns, whatever is found."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cli.capacity_table import of
from tests.one_text import unbroken

LONGEST = "window_search_no_redundancy"


def rate(per_s: float, ends_by: str | None = "queue grows") -> dict[str, Any]:
    at = {
        "inside_slo_of_seeds": [0.951, 0.989], "inside_slo": 0.96, "ttft_p99_ms": 12345.6, "tpot_p99_ms": None,
        "output_tokens_per_s": 123456.0, "kv_in_use": 1.0,
    }  # fmt: skip
    return {"rate_per_s": per_s, "ends_by": ends_by, "at": at if per_s else None, "policy": LONGEST}


def row(spare: int, refused: str | None = None, kv_tokens: int = 123456789) -> dict[str, Any]:
    return {
        "experts": "EP16 x TP2", "attention": "DP16 x TP2", "spare_slots": spare, "refused": refused,
        "replicas": 16 * spare, "kv_tokens": kv_tokens, "before": rate(999.0), "after": rate(1234.0),
    }  # fmt: skip


def found(**changes: Any) -> dict[str, Any]:
    ends = {"before": rate(100.0), "after": rate(115.0), "even": rate(150.0, None), "gain": 1.15, "told_apart": True}
    return {
        "scenario": {"title": "A title", "why": "words " * 40}, "gpus": 8, "tolerance": 0.02,
        "slo": {"ttft_ms": 1000.0, "tpot_ms": 50.0, "share": 0.95},
        "plans": {"before": ["contiguous"], "after": [LONGEST, "eplb"]}, "cost": ["a long label " * 8, "another"],
        "highest_rate": {"stated": ends, "bracket": {"serial": ends, "overlapped": {**ends, "gain": None}}},
        **changes,
    }  # fmt: skip


TRIED = [
    {"gpus": 4, "refused": "weights leave no room " * 3},
    {"gpus": 8, "refused": None, "after": {"holds": False, "ends_by": "time per output token"}},
    {"gpus": 16, "refused": None, "after": {"holds": True, "ends_by": None}},
]


def test_the_answer_leads() -> None:
    text = unbroken(of(found()))
    assert "8 GPUs hold 100 → 115 (+15.0 %) requests/s with 95 % of them inside TTFT 1,000 ms" in text
    assert "loaded alike by decree 150 (all to 2 %)" in text
    assert "inside by seed: before 95.1–98.9 %, after 95.1–98.9 %" in text and "12,346 ms" in text
    assert "nothing inside by seed" in text


def test_rates_inside_the_tolerance_are_no_gain() -> None:
    ends = {"before": rate(37.6), "after": rate(43.2), "even": rate(50.0), "gain": 43.2 / 37.6, "told_apart": False}
    text = of(found(highest_rate={"stated": ends, "bracket": {"serial": ends, "overlapped": ends}}, tolerance=0.2))
    assert text.count("37.6 → 43.2 (not told apart, tolerance 20 %)") == 3 and "+14.9 %" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_replicas_stand_beside_the_cache_that_they_take() -> None:
    rows = [row(0, kv_tokens=1000), row(2, kv_tokens=750)]
    text = of(found(replicas=[{"role": "mixed", "rows": rows, "worth_buying": 2, "worth_frac": 0.02}]))
    first, second = (line.split() for line in text.split("\n\n")[-2].splitlines()[-3:-1])
    assert text.split("\n\n")[-2].splitlines()[-1] == f"  plan after: {LONGEST}"
    assert (first[:2], second[:2]) == (["0", "0"], ["2", "32"])
    assert "1,000" in first and second[second.index("750") + 1 :][:2] == ["(-25", "%)"]


def test_eighty_columns() -> None:
    fleet = {"role": "decode", "rate_per_s": 50.0, "before": {"gpus": None}, "after": {"gpus": 16}, "tried": TRIED}
    rows = [row(0), row(2, "weights of 71 GB and buffers of 7.3 GB leave no room for KV cache in 77 GB " * 2)]
    names = [{"experts": "EP16 x TP2", "attention": "DP16 x TP2"}] * 4
    text = of(
        found(
            fewest_gpus=[{**fleet, "others_stay": {"prefill": 32}}],
            replicas=[{"role": "decode", "rows": rows, "worth_buying": 0, "worth_frac": 0.02}],
            parallelism=[{"role": "decode", "rows": rows, "best": {"before": names, "after": []}, "worth_frac": 0.02}],
        )
    )
    assert max(map(len, text.splitlines())) <= 80
    text = unbroken(text)
    assert "before → after: none up to 16 → 16" in text and "the prefill pool stays at 32 GPUs" in text
    assert "8 fails by TPOT, 16 holds" in text and "cannot be" in text
    assert "0 of each rank pay, more add less than 2 % to the rate" in text
    assert "best with the plan after: none holds any rate" in text


def test_its_words_are_explained() -> None:
    assert all(f"{word} = " in of(found()) for word in ("even ranks", "ends by", "mixed pool", "replicas"))


def test_when_nothing_holds() -> None:
    none = {"before": rate(0.0), "after": rate(0.0), "even": rate(0.0), "gain": None, "told_apart": False}
    text = of(
        found(
            highest_rate={"stated": none, "bracket": {"serial": none, "overlapped": none}},
            replicas=[{"role": "mixed", "rows": [row(1, "no room")], "worth_buying": None, "worth_frac": 0.01}],
        )
    )
    assert "8 GPUs hold 0 → 0 requests/s" in text and "no layout holds any rate" in text
