"""The parts of `ebsim offset` as sections: controllers, replica choice, staggering, queues, admission, sensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Block, Figure, Section, Table
from easybalance_sim.report.offset_words import LEAST_US
from easybalance_sim.report.words import listed, many, microseconds, sentence, share, slug

Part = Mapping[str, Any]


def part_sections(report: Part) -> tuple[Section, ...]:
    """Of the parts that were asked for and possible."""
    return tuple(make(report[name]) for name, make in _PARTS.items() if report[name] is not None)


def _feedback(part: Part) -> Section:
    seen, none = part["predictability"], part["none"]
    runs = part["runs"]
    rows = ("no offset", *(run["name"] for run in runs))
    balances = (none, *(run["balance"] for run in runs))
    best = min(zip(rows, balances, strict=True), key=lambda pair: float(pair[1]["step_mean"]))
    unstable = [run["name"] for run in runs if run["stable"] is False]
    said = f"Single steps are most even with {best[0]}: {best[1]['step_mean']:.3f}, {none['step_mean']:.3f} without."
    said += f" Not settling: {listed(unstable)}." if unstable else ""
    figure = Figure(
        name="offsets",
        title="Router offsets by controller",
        alt=f"Bars of busiest over mean rank in single steps and in windows for {listed(list(rows), 12)}.",
        conclusion=said,
        chart=Bars(
            rows=rows, row="controller",
            series=tuple(
                Series(name=words, values=tuple(float(one[key]) for one in balances))
                for key, words in (("step_mean", "steps"), ("window_mean", "windows"))
            ),
            value="busiest / mean rank (1 = even)", form="{:.3f}", start=1.0,
        ),
    )  # fmt: skip
    table = Table(
        name="offsets_table",
        title="Controllers in numbers",
        columns=("controller", "share of the largest stable gain", "step mean", "window mean", "settles", "advice"),
        rows=tuple(_controller(run) for run in runs),
        note=f"sensor: a window of {many(part['sensor']['window_steps'], 'step')}, "
        f"{many(part['sensor']['delay_steps'], 'step')} late",
    )
    return Section(
        name="feedback",
        title="Will a router offset help?",
        lead=sentence(seen["verdict"]),
        blocks=(figure, table),
    )


def _controller(run: Part) -> tuple[str, ...]:
    near, stability = run["share_of_limit"], run["stability"]
    settles = "not judged" if stability is None else "no" if stability["unstable"] else "yes"
    advice = "refused" if run["refused"] else "warned of" if run["warns"] else ""
    balance = run["balance"]
    return (
        run["name"],
        "no limit known" if near is None else f"{near:.2f}",
        f"{balance['step_mean']:.3f}",
        f"{balance['window_mean']:.3f}",
        settles,
        advice,
    )


def _replicas(part: Part) -> Section:
    rows = [row for row in part["rows"] if row["net_us"] is not None]
    blocks: list[Block] = []
    lead = f"Which replica of an expert a token takes, decided in every step, on {part['placement']}."
    if rows:
        best = max(rows, key=lambda row: float(row["net_us"]))
        names = tuple(row["rule"] for row in rows)
        worth = best["net_us"] >= LEAST_US
        said = (
            f"{best['rule']} saves most, {best['net_us']:+.1f} µs of a layer after its sensor and its choosing."
            if worth
            else f"No rule saves {LEAST_US:g} µs of a layer after its sensor and its choosing."
        )
        figure = Figure(
            name="replica_rules",
            title="Net microseconds saved by rule",
            alt=f"Bars of the microseconds of a layer that each rule saves, less its sensor and its choosing: "
            f"{listed(list(names), 20)}.",
            conclusion=said,
            chart=Bars(
                rows=names, row="rule",
                series=(
                    Series(name="saved", values=tuple(row["saved_us"] for row in rows)),
                    Series(name="net", values=tuple(row["net_us"] for row in rows)),
                ),
                value="µs of a layer (more is better)", form="{:+,.1f}",
            ),
        )  # fmt: skip
        blocks.append(figure)
    blocks.append(
        Table(
            name="replica_table",
            title="Rules in numbers",
            columns=("rule", "sees", "step mean", "P99", "saved", "sensor", "choosing", "which is", "net"),
            rows=tuple(
                (
                    row["rule"], row["sensor"], f"{row['balance']['step_mean']:.3f}",
                    f"{row['balance']['step_p99']:.2f}",
                    *(microseconds(row[key]) for key in ("saved_us", "sensor_us", "budget_us")),
                    row["budget_source"], microseconds(row["net_us"]),
                )
                for row in part["rows"]
            ),
            note=" · ".join(part["notes"]),
        )
    )  # fmt: skip
    return Section(name="replica_choice", title="Choosing replicas per step", lead=lead, blocks=tuple(blocks))


_WAITS = {
    "barrier": "barrier per layer", "micro_batches": "two micro-batches", "one_ahead": "one layer ahead",
    "unbound": "no barrier",
}  # fmt: skip


def _staggering(part: Part) -> Section:
    rows = part["rows"]
    names = tuple(f"{row['labels']}{' (has seen the judged steps)' if row['fitted_on_judged'] else ''}" for row in rows)
    fair = [row for row in rows if not row["fitted_on_judged"]] or rows
    best = min(fair, key=lambda row: float(row["one_ahead"]))
    figure = Figure(
        name="staggering",
        title="Ranks relabelled per layer",
        alt="Bars of the time of a step over its balanced time, by labels and by how long ranks wait for each other: "
        f"{', '.join(_WAITS.values())}.",
        conclusion=f"With a barrier per layer nothing changes ({part['barrier_gain']:+g}); one layer ahead "
        f"{best['labels']} is best, {best['one_ahead']:.3f} against {rows[0]['one_ahead']:.3f} {rows[0]['labels']}.",
        chart=Bars(
            rows=names, row="labels",
            series=tuple(
                Series(name=words, values=tuple(float(row[key]) for row in rows)) for key, words in _WAITS.items()
            ),
            value="time of a step over its balanced time", form="{:.3f}", start=1.0,
        ),
    )  # fmt: skip
    lead = "The same loads on other ranks in every layer: even sums, and only of use where ranks need not wait."
    table = Table(
        name="staggering_table",
        title="Labels in numbers",
        columns=("labels", "heat", "P99", *_WAITS.values(), "network bytes", "memory bytes"),
        rows=tuple(
            (
                name, f"{row['heat_mean']:.3f}", f"{row['heat_p99']:.2f}", *(f"{row[key]:.3f}" for key in _WAITS),
                *("–" if row[key] is None else f"{row[key]:.3f}" for key in ("network", "memory")),
            )
            for name, row in zip(names, rows, strict=True)
        ),
        note="heat: busiest over mean rank of all layers together",
    )  # fmt: skip
    return Section(name="staggering_part", title="Staggering", lead=lead, blocks=(figure, table))


def _queue(part: Part) -> Section:
    rows = part["rows"]
    names = tuple(f"{row['in_flight']} in flight, {row['rule']}" for row in rows)
    gains = tuple(float(part["lockstep_s"] / row["makespan_s"]) for row in rows)
    best = max(range(len(rows)), key=lambda place: gains[place])
    figure = Figure(
        name="queue",
        title="Micro-batches in flight",
        alt=f"Bars of the throughput over that of one micro-batch with a barrier per layer: {listed(list(names), 20)}.",
        conclusion=f"Best is {names[best]}: {gains[best]:.3f} times the throughput of one at a time.",
        chart=Bars(
            rows=names, row="order", series=(Series(name="throughput", values=gains),),
            value="throughput over one in lockstep", form="{:.3f}",
            bound=(1.0, "one in lockstep"),
        ),
    )  # fmt: skip
    table = Table(
        name="queue_table",
        title="Orders in numbers",
        columns=("order", "tokens/s", "against one", "request P50, ms", "P99, ms", "idle", "above the bound"),
        rows=tuple(
            (
                name, f"{row['tokens_per_s']:,.0f}", f"{gain:.3f} ×", f"{row['request_p50_s'] * 1e3:,.1f}",
                f"{row['request_p99_s'] * 1e3:,.1f}", share(row["idle"]), share(abs(row["gap"])),
            )
            for name, gain, row in zip(names, gains, rows, strict=True)
        ),
    )  # fmt: skip
    return Section(
        name="queue_part", title="Order of micro-batches", lead=" ".join(map(sentence, part["explained"][:2])),
        blocks=(figure, table),
    )  # fmt: skip


def _admission(part: Part) -> Section:
    mode, variants = part["mode"], part["variants"]
    names = tuple(one["name"] for one in variants)
    copies = tuple(float(one["judged"]["crossing"][mode]["copies_per_token"]) for one in variants)
    best = min(range(len(variants)), key=lambda place: copies[place])
    figure = Figure(
        name="admission",
        title="Copies of a token that travel",
        alt=f"Bars of copies per token for {listed(list(names), 20)}.",
        conclusion=f"Fewest with {names[best]}: {copies[best]:.3f} copies per token, {copies[0]:.3f} with {names[0]}.",
        chart=Bars(
            rows=names, row="placement, admission", series=(Series(name="copies", values=copies),),
            value=f"copies per token, {mode} (less is better)", form="{:.3f}",
        ),
    )  # fmt: skip
    table = Table(
        name="admission_table",
        title="What admission gains and costs",
        columns=(
            "placement, admission", "copies per token", "fewer", "rank load", "window P99", "KV tokens max/mean",
            "spilled", "started elsewhere",
        ),
        rows=tuple(_admitted(one, mode) for one in variants),
        note=" · ".join(part["notes"]),
    )  # fmt: skip
    lead = f"Judged on {part['requests']:,} requests that neither placement nor topics have seen."
    return Section(name="admission_part", title="Admission by topic", lead=lead, blocks=(figure, table))


def _admitted(one: Part, mode: str) -> tuple[str, ...]:
    crossing, balance, price = one["judged"]["crossing"][mode], one["judged"]["balance"], one["price"]
    return (
        one["name"],
        f"{crossing['copies_per_token']:.3f}",
        share(one["fewer_copies"][mode]),
        f"{balance['step_mean']:.3f}",
        f"{balance['window_p99']:.3f}",
        f"{price['kv_rank']['mean']:.2f}",
        share(price["spilled_share"]),
        share(price["cold"]["moved_share"]),
    )


def _sensing(part: Part) -> Section:
    kinds = part["detectors"]["kinds"]
    lead = (
        "How hot ranks look to a sensor, and which hot-spot rule says what stays hot in the next "
        f"{part['detectors']['ahead_steps']} steps."
    )
    blocks = tuple(_rules(name, kind) for name, kind in kinds.items() if kind["rules"])
    return Section(name="sensing", title="What sensors see", lead=lead, blocks=blocks)


def _rules(name: str, kind: Part) -> Figure:
    rules = kind["rules"]
    return Figure(
        name=f"rules_{slug(name)}",
        title=f"Hot-spot rules: {name}",
        alt=f"Bars of precision, recall and F1 of hot-spot rules: {listed([rule['rule'] for rule in rules], 20)}.",
        conclusion=f"{share(kind['hot_frac'])} stay over {kind['threshold']:g} times the mean. "
        f"{sentence(kind['verdict']['text'])}",
        chart=Bars(
            rows=tuple(rule["rule"] for rule in rules), row="rule",
            series=tuple(
                Series(name=words, values=tuple(float(rule[key]) for rule in rules))
                for key, words in (("precision", "precision"), ("recall", "recall"), ("f1", "F1"))
            ),
            value="share (more is better)",
        ),
    )  # fmt: skip


_PARTS: dict[str, Callable[[Part], Section]] = {
    "feedback": _feedback,
    "replicas": _replicas,
    "staggering": _staggering,
    "queue": _queue,
    "admission": _admission,
    "sensing": _sensing,
}
"""In the order of reading; what re-routing does is in the front."""
