"""What one pool of GPUs does all the time: where its seconds go, its load over time, its memory, its plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.lines import Event, Line, Lines
from easybalance_sim.report.charts.panels import Panels
from easybalance_sim.report.charts.shares import Part as Slice
from easybalance_sim.report.charts.shares import Shares
from easybalance_sim.report.content import Block, Fact, Facts, Figure, Section, Table
from easybalance_sim.report.sections.served import KEYS
from easybalance_sim.report.words import change, many, milliseconds, moved, rate, share, size, value_at

Part = Mapping[str, Any]
PLANS = ("before", "after")
PANELS = (
    ("tokens_per_s", "tokens/s", 1.0),
    ("running", "requests running", 1.0),
    ("waiting", "requests waiting", 1.0),
    ("kv_in_use", "KV cache in use, %", 100.0),
    ("busy_max", "busiest rank computes experts, % of the time", 100.0),
)
MEMORY = ("experts", "attention", "shared", "dense", "embeddings", "buffers")


def pool_sections(report: Part, place: int) -> tuple[Section, ...]:
    """Of the pool at that place: its seconds and its load over time, then memory and plans."""
    pool = report["pools"][place]
    runs = {key: report[key]["pools"][place] for key in KEYS}
    role = "" if pool["role"] == "mixed" else f"{pool['role']}_"
    of = "" if pool["role"] == "mixed" else f" of the {pool['role']} pool"
    lost = [runs[key]["lost_share"] for key in PLANS]
    lead = f"Imbalance costs {share(lost[0])} of the seconds in steps before and {share(lost[1])} after. {_even(runs)}"
    work: tuple[Block, ...] = (
        _seconds(pool, runs, role), _timeline(report, runs, role), _steps(runs, role), _limits(pool, role),
    )  # fmt: skip
    plans: list[Block] = [*_memory(pool, role), *_candidates(pool, role), _checks(pool, role)]
    return (
        Section(name=f"{role}work", title=f"Where the time goes{of}", lead=lead, blocks=work),
        Section(name=f"{role}plans", title=f"Plans and memory{of}", lead=_room(pool), blocks=tuple(plans)),
    )


def _even(runs: Mapping[str, Part]) -> str:
    """What balanced ranks would bring: to the batches as they are, and in a run of their own."""
    after, even = runs["after"], runs["even"]
    same = f"The batches after would be done {after['balanced_speedup']:.3f} times as fast on balanced ranks"
    tokens = [rate(run["step_tokens"]) for run in (even, after)]
    if tokens[0] == tokens[1]:
        return f"{same}."
    times = " instead of ".join(milliseconds(run["step_ms"]) for run in (even, after))
    return (
        f"{same}; the run with ranks alike serves sooner and so has other batches, too: {' instead of '.join(tokens)} "
        f"tokens in a step, which takes {times}."
    )


def _seconds(pool: Part, runs: Mapping[str, Part], role: str) -> Figure:
    """GPU seconds of the whole run, parts that hide behind others counted once."""
    gpus = pool["gpus"]
    parts: dict[str, list[float]] = {}
    for run in runs.values():
        for name, seconds in _parts(run["seconds"]).items():
            parts.setdefault(name, []).append(gpus * seconds)
    lost = parts["lost to imbalance"]
    most = max(parts, key=lambda name: parts[name][1])
    return Figure(
        name=f"{role}seconds",
        title="GPU seconds of the run",
        alt="Three stacked bars, before, after, and with even ranks: attention, experts, communication, what is lost "
        "to imbalance, what lies outside the layers, and idle GPUs.",
        conclusion=f"{most.capitalize()} takes most. Waiting for the busiest rank costs {rate(lost[0])} GPU seconds "
        f"before and {rate(lost[1])} after, of {rate(gpus * runs['before']['seconds']['run'])} and "
        f"{rate(gpus * runs['after']['seconds']['run'])}.",
        chart=Shares(
            rows=tuple(KEYS[key] for key in runs), row="plan",
            parts=tuple(Slice(name=name, values=tuple(values)) for name, values in parts.items()),
            value="GPU seconds", form="{:,.3g}",
        ),
    )  # fmt: skip


def _parts(seconds: Part) -> dict[str, float]:
    lost = sum(seconds[name] for name in ("lost_dispatch", "lost_expert", "lost_combine"))
    links = seconds["dispatch"] + seconds["combine"] - seconds["lost_dispatch"] - seconds["lost_combine"]
    found = {
        "attention": seconds["attention"],
        "experts": seconds["expert"] - seconds["lost_expert"],
        # What hides behind other parts is theirs.
        "communication": links - seconds["hidden"],
        "lost to imbalance": lost,
        "outside the layers": seconds["outside"],
        "idle": seconds["idle"],
    }
    return {name: max(0.0, float(value)) for name, value in found.items()}


def _timeline(report: Part, runs: Mapping[str, Part], role: str) -> Figure:
    events = [Event(x=float(one["at_s"]), name=one["name"]) for one in report["scenario"].get("events", ())]
    from_s, to_s = report["workload"]["scored_s"]
    events += [Event(x=float(from_s), name="scored from here"), Event(x=float(to_s), name="to here")]
    panels = tuple(
        Lines(
            lines=tuple(
                Line(
                    name=KEYS[key],
                    x=tuple(float(row["from_s"]) for row in runs[key]["timeline"]),
                    y=tuple(unit * float(row[name]) for row in runs[key]["timeline"]),
                    steps=True,
                )
                for key in PLANS
            ),
            x="seconds", y=words, events=tuple(events), y_from=0.0,
        )
        for name, words, unit in PANELS
        if any(row[name] for key in PLANS for row in runs[key]["timeline"])
    )  # fmt: skip
    waits = [runs[key]["waiting"]["max"] for key in PLANS]
    grew = [KEYS[key] for key in PLANS if runs[key]["queue_grew"]]
    return Figure(
        name=f"{role}timeline",
        title="Load over time",
        alt="Panels over the seconds of the run, each with a line before and after: "
        f"{', '.join(panel.y for panel in panels)}.",
        conclusion=(
            f"At most {rate(waits[0])} requests wait before and {rate(waits[1])} after; "
            if any(waits)
            else "No request waits for a step; "
        )
        + (f"the queue grows to the end {' and '.join(grew)}." if grew else "no queue grows to the end.")
        + f" The cache is at most {share(runs['after']['kv_in_use']['max'])} full.",
        chart=Panels(panels=panels),
    )


_ROWS = (
    ("step, ms", "step_ms", milliseconds),
    ("tokens of a step, all ranks", "step_tokens", rate),
    ("experts", "share.expert", share),
    ("attention", "share.attention", share),
    ("dispatch", "share.dispatch", share),
    ("combine", "share.combine", share),
    ("outside the layers", "share.outside", share),
    ("hidden behind others", "share.hidden", share),
    ("lost to imbalance", "lost_share", share),
    ("experts of a rank busy, mean", "busy.mean", share),
    ("busiest rank", "busy.max", share),
    ("idlest rank", "busy.min", share),
    ("KV cache of all ranks, tokens", "kv_tokens", rate),
    ("in use, mean", "kv_in_use.mean", share),
    ("in use, peak", "kv_in_use.max", share),
    ("requests running, mean", "running.mean", rate),
    ("requests waiting, mean", "waiting.mean", rate),
    ("waiting, peak", "waiting.max", rate),
    ("preemptions", "preemptions", rate),
    ("refused", "refused", rate),
)


def _steps(runs: Mapping[str, Part], role: str) -> Table:
    rows = []
    for label, path, form in _ROWS:
        old, new, best = (value_at(runs[key], path) for key in KEYS)
        rows.append((label, form(old), form(new), moved(old, new, form), form(best)))
    return Table(
        name=f"{role}steps",
        title="Steps in numbers",
        columns=("", "before", "after", "change", "ranks alike"),
        rows=tuple(rows),
        note="shares of the seconds in steps; busy: of the whole run",
    )


def _limits(pool: Part, role: str) -> Facts:
    limits = pool["limits"]
    per = pool["gpus"] // pool["data_ranks"]
    return Facts(
        name=f"{role}engine",
        title="Engine",
        facts=(
            Fact(label="GPUs", value=f"{pool['gpus']} × {pool['profile'].upper()}", note=many(pool["nodes"], "node")),
            Fact(label="data-parallel ranks", value=str(pool["data_ranks"]), note=f"of {many(per, 'GPU')} each"),
            Fact(label="tokens of a step", value=f"{limits['batch_tokens']:,}", note="at most, of a data rank"),
            Fact(label="requests at once", value=f"{limits['running']:,}", note="at most, of a data rank"),
            Fact(label="schedule", value=limits["schedule"], note=f"router {limits['router']}"),
            Fact(label="all-to-all", value=pool["all_to_all"], note=f"replicas: {pool['dispatch']}"),
        ),
    )


def _room(pool: Part) -> str:
    slots = " → ".join(str(pool[key]["slots_per_rank"]) for key in PLANS)
    lost = pool["kv_lost"]
    if pool["kv_given"]:
        return f"{slots} slots per rank; the scenario says how much KV cache there is, so replicas take none of it."
    if lost["tokens"] <= 0:
        return f"{slots} slots per rank: no KV cache is lost to replicas."
    taken = f"{lost['tokens']:,} tokens of cache ({share(lost['share'])})"
    return f"{slots} slots per rank: replicas and buffers take {taken}."


def _memory(pool: Part, role: str) -> tuple[Figure, ...]:
    """Nothing where the model's widths are not known."""
    if any(pool[key]["memory_bytes"] is None for key in PLANS):
        return ()
    held = [pool[key]["memory_bytes"] for key in PLANS]
    left = [max(0.0, one["usable"] - sum(one[name] for name in MEMORY)) for one in held]
    parts = [Slice(name=name, values=tuple(one[name] / 1e9 for one in held)) for name in MEMORY]
    parts.append(Slice(name="left for KV cache", values=tuple(one / 1e9 for one in left)))
    figure = Figure(
        name=f"{role}memory",
        title="Memory of the fullest GPU",
        alt="Two stacked bars, before and after: weights of experts, attention, shared and dense layers, embeddings, "
        "buffers, and what is left for the KV cache.",
        conclusion=f"Experts take {size(held[1]['experts'])} after ({size(held[0]['experts'])} before); "
        f"{size(left[1])} of {size(held[1]['usable'])} are left for KV cache.",
        chart=Shares(rows=PLANS, row="plan", parts=tuple(parts), value="GB of the memory that the engine may take"),
    )
    return (figure,)


def _candidates(pool: Part, role: str) -> tuple[Figure, ...]:
    """Nothing where the scenario names the plan."""
    found = sorted(pool["candidates"], key=lambda one: (float(one["refused"]), float(one["mean_time_ms"])))
    if not found:
        return ()
    taken = next((one for one in found if one["taken"]), None)
    first = pool["candidates"][0]
    said = "None was taken." if taken is None else f"{taken['policy']} was taken"
    if taken is not None:
        same = taken["policy"] == first["policy"]
        said += (
            ": it is the plan before, and no other is enough better."
            if same
            else f", {change(first['mean_time_ms'], taken['mean_time_ms'])} against {first['policy']}, the plan before."
        )
    refused = [f"{one['policy']} ({share(one['refused'])})" for one in found if one["refused"]]
    if refused:
        said += f" Requests are refused under {', '.join(refused)}."
    figure = Figure(
        name=f"{role}candidates",
        title="Plans that were tried",
        alt=f"Bars of the mean time in the pool under {', '.join(one['policy'] for one in found)}, for requests set "
        "aside for choosing.",
        conclusion=said,
        chart=Bars(
            rows=tuple(f"{one['policy']}{' (taken)' if one['taken'] else ''}" for one in found), row="plan",
            series=(Series(name="mean time", values=tuple(one["mean_time_ms"] for one in found)),),
            value="mean time in the pool, ms", form="{:,.0f}",
        ),
    )  # fmt: skip
    return (figure,)


def _checks(pool: Part, role: str) -> Table:
    rows: list[tuple[str, ...]] = []
    for key in PLANS:
        check = pool[key]["check"]
        if not check:
            rows.append((key, pool[key]["policy"], "not checked", *[""] * 6))
            continue
        model, replayed = check["model"], check["replayed"]
        rows.append(
            (
                key,
                pool[key]["policy"],
                f"{check['steps']:,}",
                f"{1e3 * model['mean_s']:.3f}",
                f"{1e3 * replayed['mean_s']:.3f}",
                f"{100 * check['mean_error']:+.1f} %",
                f"{100 * check['p99_error']:+.1f} %",
                f"{model['mean_imbalance']:.3f}",
                f"{replayed['mean_imbalance']:.3f}",
            )
        )
    return Table(
        name=f"{role}check",
        title="The step model against token-by-token replay",
        columns=(
            "", "plan", "steps", "model, ms", "replay, ms", "mean error", "P99 error", "imbalance, model", "replay",
        ),
        rows=tuple(rows),
        note="of sampled steps: experts and communication of a layer",
    )  # fmt: skip
