"""The parts of `ebsim offset` as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from easybalance_sim.cli.layout import aligned, filled, inner, noted
from easybalance_sim.report.words import many, tenths

LEAST_DELAY = 2
"""Of the row that limits are taken from."""

Section = Mapping[str, Any]


def remarked(row: Section) -> str:
    """A mark behind the name of what is not offered."""
    return " †" if row["remark"] else ""


def remarks(rows: Sequence[Section]) -> Iterator[str]:
    """What the mark stands for."""
    for remark in dict.fromkeys(row["remark"] for row in rows if row["remark"]):
        yield from inner(f"† {remark}")


def _feedback(section: Section) -> Iterator[str]:
    gain, sensor = section["gain"], section["sensor"]
    yield filled(
        f"Router offsets: a rank's load falls by {gain['rank']:.3g} per unit of offset "
        f"({gain['rank_low']:.3g} to {gain['rank_high']:.3g}), an expert's by {gain['expert']:.3g}; "
        f"clip {section['clip']:.3g}"
    )
    if section["scores"]["note"]:
        yield from inner(section["scores"]["note"])
    rows = [("  largest stable gain", "delay", "P: K", "gain", "I: K", "gain")]
    for row in section["largest_stable"]:
        mark = "→" if row["taken"] else ""
        rows.append(
            (f"  {mark}", f"{row['delay_steps']:g}", f"{row['P']:.2f}", f"{row['P_gain']:.3g}", f"{row['I']:.2f}",
             f"{row['I_gain']:.3g}")
        )  # fmt: skip
    yield aligned(rows)
    at_two = "; a delay of 1 is taken as 2, as its own limit hangs on an exact zero that no real sensor has"
    yield from inner(
        "→ safe gains are a quarter of this row's, a tenth for I; one above 0.4 is warned of, above 0.7 refused"
        + (at_two if sensor["delay_steps"] < LEAST_DELAY else "")
    )
    none = section["none"]
    title = f"  window {many(sensor['window_steps'], 'step')}, delay {sensor['delay_steps']}"
    runs: list[tuple[str, ...]] = [(title, "of the limit", "step mean", "window", "settles")]
    runs += [("  none", "", f"{none['step_mean']:.3f}", f"{none['window_mean']:.3f}", "")]
    runs += [_controller(run) for run in section["runs"]]
    yield noted(runs, ["", "", *map(_unsettled, section["runs"])])
    yield from remarks(section["runs"])
    if not any(run["latency_gain"] for run in section["runs"]):
        yield from inner("only windows get more even: with a barrier per layer that is no gain in latency")


def _controller(run: Section) -> tuple[str, ...]:
    share, stability, balance = run["share_of_limit"], run["stability"], run["balance"]
    near = "not known" if share is None else f"{share:.2f}{' REFUSED' if run['refused'] else ''}"
    near += " warning" if run["warns"] and not run["refused"] else ""
    settles = "not judged" if stability is None else "NO" if stability["unstable"] else "yes"
    figures = f"{balance['step_mean']:.3f}", f"{balance['window_mean']:.3f}"
    return f"  {run['name']}{remarked(run)}", near, *figures, settles


def _unsettled(run: Section) -> str:
    """By which sign a loop does not settle."""
    stability = run["stability"]
    if stability is None or not stability["unstable"]:
        return ""
    period = f"period ~{2 * stability['lag']} steps" if stability["oscillates"] else ""
    grown = f"{max(stability['heat_ratio'], stability['layer_ratio']):.2f} × the error" if stability["grows"] else ""
    return "UNSTABLE: " + ", ".join(filter(None, (period, grown)))


def _sensing(section: Section) -> Iterator[str]:
    metrics, detectors = section["metrics"], section["detectors"]
    yield filled("What sensors see (hottest rank / mean over ranks; P99 over time of the highest / mean):")
    rows = [("  metric", "mean", "P99", "hottest rank", "over mean", "peak P99")]
    for name, seen in metrics["ranks"].items():
        if seen["highest"] > 0:
            rows.append(
                (f"  {name}", f"{seen['mean']:.4g}", f"{seen['p99']:.4g}", str(seen["hottest"]), f"{seen['ratio']:.3f}",
                 f"{seen['peak_ratio']:.3f}")
            )  # fmt: skip
    yield aligned(rows)
    yield "Hot-spot rules against the next second:"
    for name, kind in detectors["kinds"].items():
        yield from inner(
            f"{name}: {kind['hot_frac']:.1%} stay over {kind['threshold']:g} × the mean; {kind['verdict']['text']}"
        )
        rules: list[tuple[str, ...]] = [("    rule", "fires", "precision", "recall", "F1", "false ones suppressed")]
        rules += [_rule(rule) for rule in kind["rules"]]
        yield aligned(rules)


def _rule(rule: Section) -> tuple[str, ...]:
    shares = f"{rule['precision']:.2f}", f"{rule['recall']:.2f}", f"{rule['f1']:.2f}"
    return f"    {rule['rule']}", f"{rule['fires']:.1%}", *shares, f"{rule['suppressed_share']:.0%}"


def _replicas(section: Section) -> Iterator[str]:
    """What each rule gains, then what it costs."""
    yield filled(
        f"Replica chosen per step, on {section['placement']} (µs of a layer; net = saved - sensor - choosing):"
    )
    gains = [("  rule", "sees", "step mean", "P99", "saved", "net", "cross-node copies")]
    costs = [("  rule", "sensor", "choosing", "which is", "measured here")]
    for row in section["rows"]:
        balance = row["balance"]
        gains.append(
            (f"  {row['rule']}", row["sensor"], f"{balance['step_mean']:.3f}", f"{balance['step_p99']:.2f}",
             tenths(row["saved_us"]), tenths(row["net_us"]), f"{row['copies_per_layer']:,.0f}")
        )  # fmt: skip
        costs.append(
            (f"  {row['rule']}", tenths(row["sensor_us"]), tenths(row["budget_us"]), row["budget_source"],
             tenths(row["choice_us"]))
        )  # fmt: skip
    yield aligned(gains)
    yield aligned(costs)
    if section["floor_mean"] is not None:
        floor = f"{section['floor_mean']:.3f} / {section['floor_p99']:.2f}"
        yield from inner(f"no choice of replicas gets below {floor}")
    for note in section["notes"]:
        yield from inner(note)


def _staggering(section: Section) -> Iterator[str]:
    yield filled(
        "Staggering (ranks relabelled per layer; time over balanced time): "
        f"barrier per layer {section['barrier_gain']:+g}, it gains nothing there"
    )
    times = ("barrier", "two micro-batches", "one layer ahead", "no barrier")
    rows: list[tuple[str, ...]] = [("  labels", "heat", "P99", *times, "network bytes", "memory bytes")]
    for row in section["rows"]:
        seen = " (has seen the judged steps)" if row["fitted_on_judged"] else ""
        rows.append(
            (f"  {row['labels']}{seen}", f"{row['heat_mean']:.3f}", f"{row['heat_p99']:.2f}", f"{row['barrier']:.3f}",
             f"{row['micro_batches']:.3f}", f"{row['one_ahead']:.3f}", f"{row['unbound']:.3f}",
             *("–" if row[name] is None else f"{row[name]:.3f}" for name in ("network", "memory")))
        )  # fmt: skip
    yield aligned(rows)


def _queue(section: Section) -> Iterator[str]:
    yield filled("Order of micro-batches at a rank (a layer is its experts and its all-to-all, attention aside):")
    rows = [("  in flight, order", "tokens/s", "against one", "request P50, ms", "P99, ms", "idle", "above the bound")]
    rows += [
        (f"  {row['in_flight']}, {row['rule']}", f"{row['tokens_per_s']:,.0f}",
         f"{section['lockstep_s'] / row['makespan_s']:.3f} ×", f"{row['request_p50_s'] * 1e3:,.1f}",
         f"{row['request_p99_s'] * 1e3:,.1f}", f"{row['idle']:.0%}", f"{abs(row['gap']):.1%}")
        for row in section["rows"]
    ]  # fmt: skip
    yield aligned(rows)
    for line in section["explained"]:
        yield from inner(line)


def _admission(section: Section) -> Iterator[str]:
    """What each way of admission gains, then what it costs."""
    mode = section["mode"]
    yield filled(
        f"Admission by topic, judged on {many(section['requests'], 'request')} that neither placement nor topics "
        f"have seen ({mode}):"
    )
    gains = [("  placement, admission", "copies per token", "fewer", "rank load", "window P99", "layer P99, µs")]
    costs = [("  placement, admission", "KV tokens max/mean", "spilled", "started elsewhere")]
    for row in section["variants"]:
        crossing, balance, price = row["judged"]["crossing"][mode], row["judged"]["balance"], row["price"]
        gains.append(
            (f"  {row['name']}", f"{crossing['copies_per_token']:.3f}", f"{row['fewer_copies'][mode]:.0%}",
             f"{balance['step_mean']:.3f}", f"{balance['window_p99']:.3f}", f"{crossing['layer_us_p99']:,.0f}")
        )  # fmt: skip
        costs.append(
            (f"  {row['name']}", f"{price['kv_rank']['mean']:.2f}", f"{price['spilled_share']:.0%}",
             f"{price['cold']['moved_share']:.0%}")
        )  # fmt: skip
    yield aligned(gains)
    yield aligned(costs)
    for note in section["notes"]:
        yield from inner(note)


PARTS: dict[str, Callable[[Section], Iterator[str]]] = {
    "feedback": _feedback,
    "replicas": _replicas,
    "staggering": _staggering,
    "queue": _queue,
    "admission": _admission,
    "sensing": _sensing,
}
"""In the order of reading; what re-routing does is in the front."""
