"""The tables of `ebsim capacity`: the highest rates first, then what else was asked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.cli.console import aligned

Section = Mapping[str, Any]
WIDTH = 100
_NAMES = {"before": "before", "after": "after", "even": "even ranks"}
_SHORT = {
    "time to first token": "TTFT",
    "time per output token": "TPOT",
    "refused requests": "refusals",
    "queue grows": "queue",
}


_LEGEND = (
    "Words: even ranks = the plan after, every rank loaded with the mean by decree · ends by = what more requests fail "
    "by · mixed pool = prompts and answers on the same GPUs · replicas = slots of a layer with experts that have "
    "another one · KV tokens = what the cache of all ranks holds"
)


def of(report: Section) -> str:
    """Everything."""
    blocks = ["\n".join(_head(report)), _rates(report), "\n".join(_bracket(report))]
    blocks += ["\n".join(_fleet(found)) for found in report.get("fewest_gpus", ())]
    blocks += [_replicas(found) for found in report.get("replicas", ())]
    blocks += [_splits(found) for found in report.get("parallelism", ())]
    return "\n\n".join([*blocks, "\n".join(textwrap.wrap(_LEGEND, WIDTH, subsequent_indent="  "))])


def _head(report: Section) -> Iterator[str]:
    slo, stated = report["slo"], report["highest_rate"]["stated"]
    yield from textwrap.wrap(report["scenario"]["title"], WIDTH)
    yield from _wrapped(report["scenario"]["why"])
    yield ""
    yield from textwrap.wrap(
        f"{report['gpus']} GPUs hold {_change(stated, report)} requests/s with {100 * slo['share']:g} % of them inside "
        f"TTFT {slo['ttft_ms']:,.0f} ms and TPOT {slo['tpot_ms']:,.1f} ms; with the plan after and ranks loaded alike "
        f"by decree {_rate(stated['even']['rate_per_s'])} (all to {100 * report['tolerance']:g} %)",
        WIDTH,
    )
    for key in ("before", "after"):
        yield f"  plan {key}: {', '.join(dict.fromkeys(report['plans'][key]))}"


def _rates(report: Section) -> str:
    stated = report["highest_rate"]["stated"]
    rows = [("", "requests/s", "inside", "TTFT P99", "TPOT P99", "output tok/s", "KV peak", "ends by")]
    return aligned([*rows, *((name, *_cells(stated[key])) for key, name in _NAMES.items())])


def _cells(found: Section) -> tuple[str, str, str, str, str, str, str]:
    at = found["at"]
    if at is None:
        return "none", "–", "–", "–", "–", "–", _ends(found)
    least, most = at["inside_slo_of_seeds"]
    spread = "" if least == most else f" ({100 * least:.1f}–{100 * most:.1f})"
    return (
        _rate(found["rate_per_s"]),
        f"{100 * at['inside_slo']:.1f} %{spread}",
        _ms(at["ttft_p99_ms"]),
        _ms(at["tpot_p99_ms"]),
        f"{at['output_tokens_per_s']:,.0f}",
        f"{100 * at['kv_in_use']:.0f} %",
        _ends(found),
    )


def _bracket(report: Section) -> Iterator[str]:
    yield "Communication behind compute, from one end to the other, requests/s before → after:"
    for name, words in (("serial", "none hidden"), ("overlapped", "all hidden")):
        yield f"  {words}: {_change(report['highest_rate']['bracket'][name], report)}"
    yield from _wrapped(f"seconds by {'; '.join(report['cost'])}: trust ratios, not figures")


def _fleet(found: Section) -> Iterator[str]:
    """The fewest GPUs of one pool."""
    most = max(one["gpus"] for one in found["tried"])
    least = " → ".join(str(found[key]["gpus"] or f"none up to {most}") for key in ("before", "after"))
    rate = _rate(found["rate_per_s"])
    yield f"Fewest GPUs of the {found['role']} pool for {rate} requests/s, before → after: {least}"
    for role, gpus in found["others_stay"].items():
        yield f"  the {role} pool stays at {gpus} GPUs"
    yield from _wrapped("tried with the plan after: " + ", ".join(_one_tried(one) for one in found["tried"]))


def _one_tried(one: Section) -> str:
    if one["refused"] is not None:
        return f"{one['gpus']} cannot be ({one['refused']})"
    return f"{one['gpus']} " + ("holds" if one["after"]["holds"] else f"fails by {_ends(one['after'])}")


def _replicas(found: Section) -> str:
    rows = [("spare slots", "replicas", "before", "after", "TPOT P99", "KV tokens", "ends by", "plan after")]
    rows += [(str(row["spare_slots"]), str(row["replicas"]), *_layout(row, found["rows"][0])) for row in found["rows"]]
    worth = found["worth_buying"]
    words = (
        "no layout holds any rate"
        if worth is None
        else f"{worth} of each rank pay, more add less than {100 * found['worth_frac']:g} % to the rate"
    )
    return "\n".join(
        [f"Replicas in the {found['role']} pool: {words}", aligned(rows), *_refusals(found, "spare_slots")]
    )


def _splits(found: Section) -> str:
    rows = [("experts", "attention", "before", "after", "TPOT P99", "KV tokens", "ends by", "plan after")]
    rows += [(row["experts"], row["attention"], *_layout(row)) for row in found["rows"]]
    lines = [f"The same GPUs of the {found['role']} pool:"]
    for key in ("before", "after"):
        best = [f"experts {one['experts']} with attention {one['attention']}" for one in found["best"][key]]
        lines += _wrapped(f"best with the plan {key}: {', '.join(best) or 'none holds any rate'}")
    return "\n".join([*lines, aligned(rows), *_refusals(found, "experts")])


def _layout(row: Section, without: Section | None = None) -> tuple[str, str, str, str, str, str]:
    """Cells of a row. without: the row whose KV cache this one's is held against."""
    if row["refused"] is not None:
        return "–", "–", "–", "–", "–", "cannot be"
    at = row["after"]["at"]
    return (
        _rate(row["before"]["rate_per_s"]),
        _rate(row["after"]["rate_per_s"]),
        "–" if at is None else _ms(at["tpot_p99_ms"]),
        _cache(row["kv_tokens"], without["kv_tokens"] if without else 0),
        _ends(row["after"]),
        row["after"]["policy"],
    )


def _cache(tokens: int, before: int) -> str:
    change = f" ({100 * (tokens / before - 1):+.0f} %)" if before and tokens != before else ""
    return f"{tokens:,}{change}"


def _refusals(found: Section, name: str) -> Iterator[str]:
    for row in found["rows"]:
        if row["refused"] is not None:
            yield from _wrapped(f"{row[name]}: {row['refused']}")


def _ends(found: Section) -> str:
    words = str(found["ends_by"] or "nothing")
    return _SHORT.get(words, words)


def _change(ends: Section, report: Section) -> str:
    rates = f"{_rate(ends['before']['rate_per_s'])} → {_rate(ends['after']['rate_per_s'])}"
    if ends["gain"] is None:
        return rates
    if not ends["told_apart"]:
        return f"{rates} (not told apart, tolerance {100 * report['tolerance']:g} %)"
    return f"{rates} ({100 * (ends['gain'] - 1):+.1f} %)"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} ms" if value >= 100 else f"{value:,.1f} ms"
