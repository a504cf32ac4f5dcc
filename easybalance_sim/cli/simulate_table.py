"""The tables of `ebsim simulate`: what requests get before and after, with even ranks, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from easybalance_sim.cli.layout import aligned, filled, inner
from easybalance_sim.report.words import many, moved, rate, rounded, share, trusted, value_at

Section = Mapping[str, Any]
Form = Callable[[float | None], str]


_REQUESTS: tuple[tuple[str, str, Form], ...] = (
    ("inside the SLO", "inside_slo", share),
    ("goodput, requests/s", "goodput_per_s", rate),
    ("time to first token P50, ms", "ttft_ms.p50", rounded),
    ("  P95", "ttft_ms.p95", rounded),
    ("  P99", "ttft_ms.p99", rounded),
    ("time per output token P50, ms", "tpot_ms.p50", rounded),
    ("  P95", "tpot_ms.p95", rounded),
    ("  P99", "tpot_ms.p99", rounded),
    ("end to end P50, ms", "end_to_end_ms.p50", rounded),
    ("  P95", "end_to_end_ms.p95", rounded),
    ("  P99", "end_to_end_ms.p99", rounded),
    ("input tokens/s", "input_tokens_per_s", rate),
    ("output tokens/s", "output_tokens_per_s", rate),
    ("refused", "requests.refused", rate),
)
_POOL: tuple[tuple[str, str, Form], ...] = (
    ("step, ms", "step_ms", rounded),
    ("tokens of a step, all ranks", "step_tokens", rate),
    ("  experts", "share.expert", share),
    ("  attention", "share.attention", share),
    ("  dispatch", "share.dispatch", share),
    ("  combine", "share.combine", share),
    ("  outside the layers", "share.outside", share),
    ("  hidden behind others", "share.hidden", share),
    ("  lost to imbalance", "lost_share", share),
    ("  of it experts", "lost_share_by_part.expert", share),
    ("experts of a rank busy, mean", "busy.mean", share),
    ("  busiest rank", "busy.max", share),
    ("  idlest rank", "busy.min", share),
    ("KV cache of all ranks, tokens", "kv_tokens", rate),
    ("  in use, mean", "kv_in_use.mean", share),
    ("  peak", "kv_in_use.max", share),
    ("requests waiting, mean", "waiting.mean", rate),
    ("  peak", "waiting.max", rate),
    ("preemptions", "preemptions", rate),
)


_LEGEND = (
    "Words: goodput = requests inside the SLO per second · ranks alike = the plan after, every rank loaded with the "
    "mean by decree: what perfect balance would give · outside the layers = host, dense layers and output head · "
    "experts of a rank busy = share of the run in which they compute · lost to imbalance = seconds above those of even "
    "ranks"
)


def of(report: Section) -> str:
    """Everything."""
    blocks = [_head(report), _verdict(report), aligned(_rows(_REQUESTS, report))]
    for place, pool in enumerate(report["pools"]):
        blocks.append("\n".join(_pool(report, place, pool)))
    blocks += [_bracket(report), "\n".join(_trust(report)), filled(_LEGEND)]
    return "\n\n".join(blocks)


def _head(report: Section) -> str:
    model, load = report["model"], report["workload"]
    cached = f", {share(load['cached_share'])} of the prompts cached" if load["cached_share"] else ""
    return "\n".join(
        [
            filled(report["scenario"]["title"]),
            filled(report["scenario"]["why"], first="  "),
            filled(
                f"{model['name']}, {model['moe_layers']} MoE layers × {model['experts']} experts, "
                f"top-{model['top_k']}, on"
            ),
            *(filled(_cluster(pool), first="  ", then="    ") for pool in report["pools"]),
            filled(
                f"{load['requests']:,} requests in {rate(load['arrivals_s'])} s ({rate(load['rate_per_s'])}/s), "
                f"{load['scored']:,} scored; prompts of {load['prompt_tokens']['mean']:,.0f} tokens, answers of "
                f"{load['output_tokens']['mean']:,.0f}{cached}"
            ),
        ]
    )


def _cluster(pool: Section) -> str:
    role = "" if pool["role"] == "mixed" else f"{pool['role']}: "
    return f"{role}{pool['gpus']} × {pool['profile'].upper()} in {many(pool['nodes'], 'node')}"


def _verdict(report: Section) -> str:
    """What an engineer asks first."""
    before, after, even, slo = report["before"], report["after"], report["even"], report["slo"]
    per = f"TTFT {rounded(slo['ttft_ms'])} ms, TPOT {rounded(slo['tpot_ms'])} ms"
    alike = {name: rounded(value_at(even, f"{name}_ms.p99")) for name in ("tpot", "ttft")}
    lines = [
        f"inside the SLO ({per}): {_to(before, after, 'inside_slo', share)} of the requests; goodput "
        f"{_to(before, after, 'goodput_per_s', rate)} requests/s",
        f"TPOT P99 {_to(before, after, 'tpot_ms.p99', rounded)} ms (ranks loaded alike: {alike['tpot']}); TTFT P99 "
        f"{_to(before, after, 'ttft_ms.p99', rounded)} ms ({alike['ttft']})",
        f"before: {report['plans']['before']} · after: {report['plans']['after']}",
        *_draws(report),
    ]
    lines = [*report["verdict"], *lines] if report["nothing_served"] else [*lines, *report["verdict"]]
    return "\n".join(filled(line) for line in lines)


def _draws(report: Section) -> Iterator[str]:
    """How firm the ratios are."""
    parts = []
    for name, label in (("goodput_per_s", "goodput"), ("tpot_ms.p99", "TPOT P99"), ("ttft_ms.p99", "TTFT P99")):
        changes = [100 * (one[name] - 1) for one in report["draws"] if one[name] is not None]
        if changes:
            parts.append(f"{label} {min(changes):+.0f} to {max(changes):+.0f} %")
    same = all(value in (None, 1.0) for one in report["draws"] for value in one.values())
    if parts and not same:
        yield f"over {len(report['draws'])} draws of routing and chance: {', '.join(parts)}"


def _to(before: Section, after: Section, path: str, form: Form) -> str:
    return f"{form(value_at(before, path))} → {form(value_at(after, path))}"


def _rows(rows: tuple[tuple[str, str, Form], ...], sections: Section) -> list[tuple[str, str, str, str, str]]:
    """A header, and before, after, change and even of every row."""
    before, after, even = (sections[key] for key in ("before", "after", "even"))
    found = [("", "before", "after", "change", "ranks alike")]
    for label, path, form in rows:
        old, new, best = (value_at(section, path) for section in (before, after, even))
        if any(value != 0 for value in (old, new, best)):
            found.append((label, form(old), form(new), moved(old, new, form), form(best)))
    return found


def _pool(report: Section, place: int, pool: Section) -> Iterator[str]:
    """Where the seconds of a pool go, and what its plans cost in memory."""
    sections = {key: report[key]["pools"][place] for key in ("before", "after", "even")}
    role = {"mixed": "the pool", "prefill": "the prefill pool", "decode": "the decode pool"}[pool["role"]]
    yield filled(f"Steps of {role} ({_engine(pool)}):")
    yield aligned(_rows(_POOL, sections))
    yield filled(_memory(pool))
    if pool["candidates"]:
        yield filled(f"mean time in the pool of requests set aside for choosing: {_candidates(pool)}")


def _engine(pool: Section) -> str:
    ranks = f"{pool['data_ranks']} data-parallel of {pool['gpus'] // pool['data_ranks']} GPU"
    ranks += "s" if pool["gpus"] != pool["data_ranks"] else ""
    return f"{ranks}, {pool['limits']['batch_tokens']:,} tokens a step each, all-to-all {pool['all_to_all']}"


def _memory(pool: Section) -> str:
    before, after = pool["before"], pool["after"]
    slots = f"{before['slots_per_rank']} → {after['slots_per_rank']} slots per rank"
    if pool["kv_given"]:
        return f"{slots}; the scenario says how much KV cache there is, so replicas take none of it"
    lost = pool["kv_lost"]
    if lost["tokens"] <= 0:
        return f"{slots}: no KV cache is lost to replicas"
    return f"{slots}: replicas and their buffers take {lost['tokens']:,} tokens of KV cache ({share(lost['share'])})"


def _candidates(pool: Section) -> str:
    """Each with what it reached, the best first, → the one that was taken."""
    ranked = sorted(pool["candidates"], key=lambda one: (float(one["refused"]), float(one["mean_time_ms"])))
    return ", ".join(
        f"{'→ ' if one['taken'] else ''}{one['policy']} {rounded(one['mean_time_ms'])} ms"
        + (f" ({share(one['refused'])} refused)" if one["refused"] else "")
        for one in ranked
    )


def _bracket(report: Section) -> str:
    """Both ends of what overlap can do."""
    rows = [("", "none hidden", "change", "all hidden", "change")]
    ends = report["bracket"]
    for label, path, form in _ENDS:
        cells = []
        for end in ("serial", "overlapped"):
            old, new = ends["before"][end], ends["after"][end]
            cells += [_to(old, new, path, form), moved(value_at(old, path), value_at(new, path), form)]
        rows.append((label, cells[0], cells[1], cells[2], cells[3]))
    return f"Communication behind compute, from one end to the other, before → after:\n{aligned(rows)}"


_ENDS: tuple[tuple[str, str, Form], ...] = (
    ("  inside the SLO", "inside_slo", share),
    ("  goodput, requests/s", "goodput_per_s", rate),
    ("  TTFT P99, ms", "ttft_ms.p99", rounded),
    ("  TPOT P50, ms", "tpot_ms.p50", rounded),
    ("  TPOT P99, ms", "tpot_ms.p99", rounded),
    ("  output tokens/s of a GPU", "output_tokens_per_s_gpu", rate),
)


def _trust(report: Section) -> Iterator[str]:
    """On what the seconds rest."""
    for pool in report["pools"]:
        role = "" if pool["role"] == "mixed" else f"{pool['role']}: "
        yield filled(f"{role}{trusted(pool['cost'])}")
        for key in ("before", "after"):
            if pool[key]["check"]:
                yield from inner(f"{key}: {pool[key]['check']['line']}")
    for reason in report["reasons"]:
        yield from inner(f"not calibrated: {reason}")
    yield from inner(report["routing"]["line"])
