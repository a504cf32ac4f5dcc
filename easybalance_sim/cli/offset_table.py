"""The tables of `ebsim offset`: will it help, the front, then part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.cli.layout import aligned, filled, inner, kept, noted
from easybalance_sim.cli.offset_parts import PARTS, remarked, remarks
from easybalance_sim.report import claim_words
from easybalance_sim.report.claim_words import calibrated, holds, untabled
from easybalance_sim.report.offset_words import answer

Section = Mapping[str, Any]


def of(report: Section) -> str:
    """Everything that was asked for."""
    blocks = [f"{filled(': '.join(answer(report)))}\n{_head(report)}", *_helps(report), _front(report)]
    for part, lines in PARTS.items():
        if report[part] is not None:
            blocks.append("\n".join(lines(report[part])))
    return "\n\n".join([*blocks, *_files(report)])


def of_scenario(report: Section) -> str:
    """A capacity claim: the answer, what each mechanism adds, and on which assumptions it hangs."""
    rungs = [("mechanism", "alone, requests/s", "gain", "on top", "all so far", "changed")]
    rungs += [_rung(rung) for rung in report["rungs"]]
    left_out = ["", *("" if rung["kept"] else "left out again" for rung in report["rungs"])]
    rows = [("assumption", "baseline, requests/s", "gap", "a layer", "lossless", "lossy too", "all alike", "holds")]
    rows += [_assumption(one, report["claimed_gain"]) for one in report["assumptions"]]
    _, baseline, *rest = report["explained"]
    told = untabled(rest, report)
    told += [f"seconds {calibrated(report)}: {reason}" for reason in report["reasons"]]
    head = filled(report["title"]), f"{filled(': '.join(claim_words.answer(report)))}\n{filled(baseline)}"
    return "\n\n".join([*head, noted(rungs, left_out), aligned(rows), "\n".join(map(filled, told))])


def _rung(rung: Section) -> tuple[str, str, str, str, str, str]:
    return (
        rung["mechanism"], f"{rung['alone']['qps']:,.0f}", f"x{rung['alone_gain']:.2f}", f"x{rung['added']:.3f}",
        f"x{rung['total_gain']:.2f}", "–" if rung["lossless"] else f"{rung['alone_changed']:.1%}",
    )  # fmt: skip


def _assumption(one: Section, claim: float) -> tuple[str, str, str, str, str, str, str, str]:
    gains = tuple(_gain(one[name], claim) for name in ("lossless", "everything", "perfect"))
    return (
        one["name"],
        f"{one['baseline']['qps']:,.0f}",
        f"{one['gap']:.1f}x",
        f"{one['layer_peak']:.2f}x",
        gains[0],
        gains[1],
        gains[2],
        holds(one),
    )


def _gain(value: float, claim: float) -> str:
    """Below the claim where two digits would hide that it is missed."""
    short = f"x{value:.2f}"
    return f"<{short}" if value < claim and short == f"x{claim:.2f}" else short


def _head(report: Section) -> str:
    plan, judged, past, trace = report["plan"], report["judged"], report["past"], report["trace"]
    lines = (
        f"{plan['policy']} on {plan['ranks']} ranks, {plan['slots']} slots in each of {trace['layers']} layers × "
        f"{trace['experts']} experts",
        f"judged on steps {judged['first_step']:,}–{judged['last_step']:,} ({judged['tokens']:,} tokens, "
        f"{judged['step_ms']:.3g} ms a step); placements made from steps {past['first_step']:,}–"
        f"{past['last_step']:,} of {kept(past['files'][0])}",
    )
    return "\n".join(map(filled, lines))


def _helps(report: Section) -> Iterator[str]:
    feedback = report["feedback"]
    if feedback is not None:
        yield filled(f"Will a router offset help? {feedback['predictability']['verdict']}.")


def _front(report: Section) -> str:
    """Balance, then the price of what changes the router's choice. A row with * is on the front by mean or P99."""
    front = report["front"]
    best = {point["name"] for one in front["fronts"] for point in one["points"]}
    balance = [("", "", "step mean", "P99", "window", "P99", "heat"), *(_balance(row, best) for row in front["rows"])]
    lossy = [row for row in front["rows"] if not row["lossless"]]
    price = [("", "", "loss, mnat", "changed", "top-1 lost"), *(_price(row, best) for row in lossy)]
    lines = ["Balance (max/mean rank load; * = nothing beats it in balance and price):", aligned(balance, left=2)]
    lines += remarks([row for row in front["rows"] if row["lossless"]])
    if lossy:
        lines += ["", "Price of what changes the router's choice (the other rows cost nothing):"]
        lines += [noted(price, ["", *map(_rare, lossy)], left=2)]
        lines += inner("loss: a band over several proxies, calibrated on a 14 M model; 0 = the choice is left alone")
    return "\n".join([*lines, *_knee(front), *remarks(lossy)])


def _name(row: Section, best: set[str]) -> tuple[str, str]:
    return "*" if row["name"] in best else "", f"{row['name']}{remarked(row)}"


def _balance(row: Section, best: set[str]) -> tuple[str, ...]:
    balance = row["balance"]
    return (
        *_name(row, best),
        f"{balance['step_mean']:.3f}",
        f"{balance['step_p99']:.2f}",
        f"{balance['window_mean']:.3f}",
        f"{balance['window_p99']:.2f}",
        f"{balance['heat_mean']:.3f}",
    )


def _price(row: Section, best: set[str]) -> tuple[str, ...]:
    price = row["price"]
    band = price["loss_nats"]
    return (
        *_name(row, best),
        f"{band['low_nats'] * 1e3:.1f} to {band['high_nats'] * 1e3:.1f}",
        f"{price['changed']:.1%}" if price["changed"] or not price["dropped"] else "",
        f"{price['top1_lost']:.2%}",
    )


def _rare(row: Section) -> str:
    """What few rows have."""
    price = row["price"]
    settles = {True: "", False: "unstable", None: "stability not judged"}[row["stable"]]
    dropped = f"{price['dropped']:.1%} dropped" if price["dropped"] else ""
    beyond = "beyond what the loss is calibrated for" if price["loss_nats"]["beyond"] else ""
    return ", ".join(filter(None, (settles, dropped, beyond)))


def _knee(front: Section) -> Iterator[str]:
    knees = dict.fromkeys(one["knee"] for one in front["fronts"] if one["knee"])
    if knees:
        yield from inner(f"knee: {', '.join(knees)}; up to it loss buys more balance than beyond it")


def _files(report: Section) -> Iterator[str]:
    files = report["files"]
    if files["lossy"]:
        yield filled(f"wrote {kept(files['lossy'])}: lossy, not a plan")
    if files["plan"]:
        yield filled(
            f"wrote {kept(files['plan'])}: the staggered plan, lossless, not judged (`ebsim replay` does that)"
        )
    if files["figure"]:
        yield filled(f"drew {kept(files['figure'])}")
