"""The tables of `ebsim capacity`: the highest rates first, then what else was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.cli.console import aligned

Section = Mapping[str, Any]
_NAMES = {"before": "plan before", "after": "plan after", "even": "ranks loaded alike"}


def of(report: Section) -> str:
    """Everything."""
    blocks = ["\n".join(_head(report)), _rates(report), "\n".join(_bracket(report))]
    blocks += [_fleet(found) for found in report.get("fewest_gpus", ())]
    blocks += [_replicas(found) for found in report.get("replicas", ())]
    blocks += [_splits(found) for found in report.get("parallelism", ())]
    return "\n\n".join(blocks)


def _head(report: Section) -> Iterator[str]:
    slo, stated = report["slo"], report["highest_rate"]["stated"]
    yield report["scenario"]["title"]
    yield from (f"  {line}" for line in report["scenario"]["why"].strip().splitlines())
    before, after = stated["before"]["rate_per_s"], stated["after"]["rate_per_s"]
    gain = "" if stated["gain"] is None else f" ({100 * (stated['gain'] - 1):+.1f} %)"
    yield ""
    yield (
        f"{report['gpus']} GPUs hold {_rate(before)} → {_rate(after)} requests/s{gain} with {100 * slo['share']:g} % of "
        f"them inside"
    )
    yield f"TTFT {slo['ttft_ms']:,.0f} ms and TPOT {slo['tpot_ms']:,.1f} ms; ranks loaded alike would hold {_rate(stated['even']['rate_per_s'])}"


def _rates(report: Section) -> str:
    stated, plans = report["highest_rate"]["stated"], report["plans"]
    rows = [("", "requests/s", "inside", "TTFT P99, ms", "TPOT P99, ms", "output tokens/s", "KV peak", "ends by")]
    for key, name in _NAMES.items():
        made = f": {', '.join(dict.fromkeys(plans[key]))}" if key in plans else ""
        rows.append((name + made, *_cells(stated[key])))
    return aligned(rows)


def _cells(found: Section) -> tuple[str, ...]:
    at = found["at"]
    if at is None:
        return "none", "–", "–", "–", "–", "–", found["ends_by"] or "–"
    return (
        _rate(found["rate_per_s"]),
        f"{100 * at['inside_slo']:.1f} %",
        _ms(at["ttft_p99_ms"]),
        _ms(at["tpot_p99_ms"]),
        f"{at['output_tokens_per_s']:,.0f}",
        f"{100 * at['kv_in_use']:.0f} %",
        found["ends_by"] or "nothing found",
    )


def _bracket(report: Section) -> Iterator[str]:
    yield "Communication behind compute, from one end to the other:"
    for name, words in (("serial", "none hidden"), ("overlapped", "all hidden")):
        found = report["highest_rate"]["bracket"][name]
        gain = "" if found["gain"] is None else f", {100 * (found['gain'] - 1):+.1f} %"
        yield f"  {words}: {_rate(found['before']['rate_per_s'])} → {_rate(found['after']['rate_per_s'])}{gain}"
    yield f"  seconds by {'; '.join(report['cost'])}: trust ratios, not figures"


def _fleet(found: Section) -> str:
    """The fewest GPUs of one pool."""
    words = [
        f"{key}: {found[key]['gpus'] or 'none tried'}" + ("" if found[key]["gpus"] else " hold it")
        for key in ("before", "after")
    ]
    tried = ", ".join(
        f"{one['gpus']} {'holds' if one['holds'] else 'cannot be' if one['holds'] is None else 'does not'}"
        for one in found["after"]["tried"]
    )
    return (
        f"Fewest GPUs of the {found['role']} pool for {_rate(found['rate_per_s'])} requests/s: {'; '.join(words)}\n"
        f"  tried with the plan after: {tried}"
    )


def _replicas(found: Section) -> str:
    rows = [("spare slots per rank", "before", "after", "TPOT P99, ms", "KV tokens", "ends by", "plan")]
    rows += [(str(row["spare_slots"]), *_layout(row)) for row in found["rows"]]
    worth = found["worth_buying"]
    words = "no layout holds any rate" if worth is None else f"{worth} of them are worth buying"
    more = "" if worth is None else f": more add less than {100 * found['worth_frac']:g} % to the rate"
    return f"Replicas in the {found['role']} pool: {words}{more}\n{aligned(rows)}"


def _splits(found: Section) -> str:
    rows = [("layout", "before", "after", "TPOT P99, ms", "KV tokens", "ends by", "plan")]
    rows += [(row["layout"], *_layout(row)) for row in found["rows"]]
    return (
        f"The same GPUs of the {found['role']} pool, experts apart or shared: best is {found['best']}\n{aligned(rows)}"
    )


def _layout(row: Section) -> tuple[str, ...]:
    if row["refused"] is not None:
        return "–", "–", "–", "–", "–", row["refused"]
    at = row["after"]["at"]
    return (
        _rate(row["before"]["rate_per_s"]),
        _rate(row["after"]["rate_per_s"]),
        "–" if at is None else _ms(at["tpot_p99_ms"]),
        f"{row['kv_tokens']:,}",
        row["after"]["ends_by"] or "nothing found",
        row["after"]["policy"],
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
