"""The tables of `ebsim capacity`: the highest rates first, then what else was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.cli.layout import aligned, filled, inner, wrapped
from easybalance_sim.report.capacity_words import untold
from easybalance_sim.report.words import amount, milliseconds, rate

Section = Mapping[str, Any]
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
    return "\n\n".join([*blocks, filled(_LEGEND)])


def _head(report: Section) -> Iterator[str]:
    slo, stated = report["slo"], report["highest_rate"]["stated"]
    yield from wrapped(report["scenario"]["title"])
    yield from wrapped(report["scenario"]["why"], first="  ")
    yield ""
    yield from wrapped(
        f"{report['gpus']} GPUs hold {_change(stated, report)} requests/s with {100 * slo['share']:g} % of them inside "
        f"TTFT {slo['ttft_ms']:,.0f} ms and TPOT {slo['tpot_ms']:,.1f} ms; with the plan after and ranks loaded alike "
        f"by decree {rate(stated['even']['rate_per_s'])} (all to {100 * report['tolerance']:g} %)"
    )
    for key in ("before", "after"):
        yield from inner(f"plan {key}: {', '.join(dict.fromkeys(report['plans'][key]))}")


def _rates(report: Section) -> str:
    stated = report["highest_rate"]["stated"]
    rows = [("", "requests/s", "inside", "TTFT P99", "TPOT P99", "output tok/s", "KV peak", "ends by")]
    rows += [(name, *_cells(stated[key])) for key, name in _NAMES.items()]
    spreads = [f"{name} {spread}" for key, name in _NAMES.items() if (spread := _spread(stated[key]))]
    return "\n".join([aligned(rows), *(inner(f"inside by seed: {', '.join(spreads)}") if spreads else [])])


def _spread(found: Section) -> str:
    """The least and the most of the seeds, where there are several."""
    least, most = found["at"]["inside_slo_of_seeds"] if found["at"] else (0.0, 0.0)
    return "" if least == most else f"{100 * least:.1f}–{100 * most:.1f} %"


def _cells(found: Section) -> tuple[str, str, str, str, str, str, str]:
    at = found["at"]
    if at is None:
        return "none", "–", "–", "–", "–", "–", _ends(found)
    return (
        rate(found["rate_per_s"]),
        f"{100 * at['inside_slo']:.1f} %",
        milliseconds(at["ttft_p99_ms"]),
        milliseconds(at["tpot_p99_ms"]),
        amount(at["output_tokens_per_s"]),
        f"{100 * at['kv_in_use']:.0f} %",
        _ends(found),
    )


def _bracket(report: Section) -> Iterator[str]:
    yield from wrapped("Communication behind compute, from one end to the other, requests/s before → after:")
    for name, words in (("serial", "none hidden"), ("overlapped", "all hidden")):
        yield from inner(f"{words}: {_change(report['highest_rate']['bracket'][name], report)}")
    yield from inner(f"seconds by {'; '.join(report['cost'])}: trust ratios, not figures")


def _fleet(found: Section) -> Iterator[str]:
    """The fewest GPUs of one pool."""
    most = max(one["gpus"] for one in found["tried"])
    least = " → ".join(str(found[key]["gpus"] or f"none up to {most}") for key in ("before", "after"))
    asked = f"the {found['role']} pool for {rate(found['rate_per_s'])} requests/s"
    yield from wrapped(f"Fewest GPUs of {asked}, before → after: {least}")
    for role, gpus in found["others_stay"].items():
        yield from inner(f"the {role} pool stays at {gpus} GPUs")
    yield from inner("tried with the plan after: " + ", ".join(_one_tried(one) for one in found["tried"]))


def _one_tried(one: Section) -> str:
    if one["refused"] is not None:
        return f"{one['gpus']} cannot be ({one['refused']})"
    return f"{one['gpus']} " + ("holds" if one["after"]["holds"] else f"fails by {_ends(one['after'])}")


def _replicas(found: Section) -> str:
    rows = [("spare slots", "replicas", *_LAYOUT)]
    rows += [(str(row["spare_slots"]), str(row["replicas"]), *_layout(row, found["rows"][0])) for row in found["rows"]]
    worth = found["worth_buying"]
    words = (
        "no layout holds any rate"
        if worth is None
        else f"{worth} of each rank pay, more add less than {100 * found['worth_frac']:g} % to the rate"
    )
    title = filled(f"Replicas in the {found['role']} pool: {words}")
    return "\n".join([title, aligned(rows), *_plans(found, "spare_slots"), *_refusals(found, "spare_slots")])


def _splits(found: Section) -> str:
    rows = [("experts", "attention", *_LAYOUT)]
    rows += [(row["experts"], row["attention"], *_layout(row)) for row in found["rows"]]
    lines = [f"The same GPUs of the {found['role']} pool:"]
    for key in ("before", "after"):
        best = [f"experts {one['experts']} with attention {one['attention']}" for one in found["best"][key]]
        lines += inner(f"best with the plan {key}: {', '.join(best) or 'none holds any rate'}")
    return "\n".join([*lines, aligned(rows, left=2), *_plans(found, "experts"), *_refusals(found, "experts")])


_LAYOUT = ("before", "after", "TPOT P99", "KV tokens", "ends by")


def _layout(row: Section, without: Section | None = None) -> tuple[str, str, str, str, str]:
    """Cells of a row. without: the row whose KV cache this one's is held against."""
    if row["refused"] is not None:
        return "–", "–", "–", "–", "cannot be"
    at = row["after"]["at"]
    return (
        rate(row["before"]["rate_per_s"]),
        rate(row["after"]["rate_per_s"]),
        "–" if at is None else milliseconds(at["tpot_p99_ms"]),
        _cache(row["kv_tokens"], without["kv_tokens"] if without else 0),
        _ends(row["after"]),
    )


def _plans(found: Section, name: str) -> Iterator[str]:
    """The plan after of every layout that can be, those with the same plan together."""
    layouts: dict[str, list[str]] = {}
    for row in found["rows"]:
        if row["refused"] is None:
            layouts.setdefault(row["after"]["policy"], []).append(_layout_name(row, name))
    told = [policy + f" ({', '.join(names)})" * (len(layouts) > 1) for policy, names in layouts.items()]
    if told:
        yield from inner(f"plan after: {', '.join(told)}")


def _layout_name(row: Section, name: str) -> str:
    return f"{row[name]} with {row['attention']}" if name == "experts" else str(row[name])


def _cache(tokens: int, before: int) -> str:
    change = f" ({100 * (tokens / before - 1):+.0f} %)" if before and tokens != before else ""
    return f"{amount(tokens)}{change}"


def _refusals(found: Section, name: str) -> Iterator[str]:
    for row in found["rows"]:
        if row["refused"] is not None:
            yield from inner(f"{_layout_name(row, name)}: {row['refused']}")


def _ends(found: Section) -> str:
    words = str(found["ends_by"] or "nothing")
    return _SHORT.get(words, words)


def _change(ends: Section, report: Section) -> str:
    rates = f"{rate(ends['before']['rate_per_s'])} → {rate(ends['after']['rate_per_s'])}"
    if ends["gain"] is None:
        return rates
    if not ends["told_apart"]:
        return f"{rates} ({untold(report)})"
    return f"{rates} ({100 * (ends['gain'] - 1):+.1f} %)"
