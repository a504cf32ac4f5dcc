"""The report on capacity says what its searches found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.capacity import CASES, PUBLIC, section


def rate(per_s: float, policy: str = "") -> dict[str, Any]:
    return {
        "rate_per_s": per_s,
        "ends_by": "queue grows",
        "at": {"inside_slo_of_seeds": [0.951, 0.99]},
        "policy": policy,
    }


def row(experts: str, attention: str, tensor: int, spare: int, before: float, after: float) -> dict[str, Any]:
    return {
        "experts": experts, "attention": attention, "expert_tensor": tensor, "spare_slots": spare, "refused": None,
        "kv_tokens": 12345, "before": rate(before), "after": rate(after, "made"),
    }  # fmt: skip


FOUND: dict[str, Any] = {
    "scenario": {"why": "One.\nTwo."},
    "slo": {"share": 0.95, "ttft_ms": 1000.0, "tpot_ms": 50.0},
    "gpus": 8,
    "cost": ["some GPU"],
    "plans": {"before": ["contiguous"], "after": ["made"]},
    "highest_rate": {
        "stated": {"before": rate(10.0), "after": rate(11.5), "even": rate(14.0)},
        "bracket": {
            "serial": {"before": rate(10.0), "after": rate(11.5)},
            "overlapped": {"before": rate(20.0), "after": rate(21.0)},
        },
    },
    "fewest_gpus": [{"rate_per_s": 11.0, "before": {"gpus": None}, "after": {"gpus": 7}}],
    "replicas": [
        {"rows": [
            row("EP8", "DP8", 1, 0, 10.0, 11.0), row("EP8", "DP8", 1, 8, 10.0, 12.0),
            {"spare_slots": 9, "refused": "too many"},
        ]}
    ],
    "parallelism": [
        {"rows": [
            row("EP8", "DP8", 1, 0, 10.0, 11.5), row("TP8", "TP8", 8, 0, 13.0, 13.0),
            row("EP8", "TP8", 1, 0, 9.0, 9.5),
        ]}
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_case_teaches_by_its_numbers(name: str) -> None:
    text = section(CASES[name], FOUND)
    for part in (
        "| before: contiguous | 10 | +0 % | 95.1–99.0 % |",
        "| after: made | 11.5 | +15 % |",
        "20 → 21 (+5 %)",
    ):
        assert part in text
    assert "| TP8 | TP8 | 13 | 13 | 12,345 | made |" in text and "| 9 | – | – | – | too many |" in text
    assert "11 requests/s: none tried before, 7 after." in text
    assert text.endswith("\n") and "+40 %" in text.splitlines()[-1] and "+30 %" in text.splitlines()[-1]
    assert "{" not in text


def test_without_whole_tensor_parallelism_attention_alone_is_named() -> None:
    rows = [one for one in FOUND["parallelism"][0]["rows"] if one["experts"] == "EP8"]
    text = section(CASES["nodes"], {**FOUND, "parallelism": [{"rows": rows}]})
    assert "buy is -10 %" in text


def test_the_public_set_up_is_a_scenario_of_the_case_s_routing() -> None:
    assert "concentration = 0.3" in PUBLIC.format(concentration=CASES["public"].concentration)
