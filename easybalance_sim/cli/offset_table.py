"""The tables of `ebsim offset`: will it help, the front, then part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.cli.console import aligned
from easybalance_sim.cli.offset_parts import PARTS, remarked, remarks

Section = Mapping[str, Any]


def of(report: Section) -> str:
    """Everything that was asked for."""
    blocks = [_head(report), *_helps(report), _front(report)]
    for part, lines in PARTS.items():
        if report[part] is not None:
            blocks.append("\n".join(lines(report[part])))
    return "\n\n".join([*blocks, *_files(report)])


def of_scenario(report: Section) -> str:
    """A capacity claim: the answer, what each mechanism adds, and on which assumptions it hangs."""
    rungs = [("mechanism", "alone, requests/s", "gain", "on top", "all so far", "changed", "")]
    rungs += [_rung(rung) for rung in report["rungs"]]
    rows = [("assumption", "baseline, requests/s", "gap", "a layer", "lossless", "lossy too", "all alike", "claim")]
    rows += [_assumption(one, report["claimed_gain"]) for one in report["assumptions"]]
    answer, baseline, *rest = report["explained"]
    told = [line for line in rest if not _tabled(line, report)]
    told += [f"seconds not calibrated (± {report['band_p90']:.0%}): {reason}" for reason in report["reasons"]]
    return "\n\n".join([report["title"], f"{answer}\n{baseline}", aligned(rungs), aligned(rows), "\n".join(told)])


def _rung(rung: Section) -> tuple[str, str, str, str, str, str, str]:
    return (
        rung["mechanism"], f"{rung['alone']['qps']:,.0f}", f"x{rung['alone_gain']:.2f}", f"x{rung['added']:.3f}",
        f"x{rung['total_gain']:.2f}", "–" if rung["lossless"] else f"{rung['alone_changed']:.1%}",
        "" if rung["kept"] else "left out again",
    )  # fmt: skip


def _assumption(one: Section, claim: float) -> tuple[str, str, str, str, str, str, str, str]:
    holds = "holds" if one["holds_lossless"] else "lossy only" if one["holds"] else "no"
    gains = tuple(_gain(one[name], claim) for name in ("lossless", "everything", "perfect"))
    return (
        one["name"],
        f"{one['baseline']['qps']:,.0f}",
        f"{one['gap']:.1f}x",
        f"{one['layer_peak']:.2f}x",
        gains[0],
        gains[1],
        gains[2],
        holds,
    )


def _gain(value: float, claim: float) -> str:
    """Below the claim where two digits would hide that it is missed."""
    short = f"x{value:.2f}"
    return f"<{short}" if value < claim and short == f"x{claim:.2f}" else short


def _tabled(line: str, report: Section) -> bool:
    """Whether a line only says in words what a row says."""
    names = [rung["mechanism"] for rung in report["rungs"]] + [one["name"] for one in report["assumptions"]]
    return any(line.startswith(f"{name}:") for name in names)


def _head(report: Section) -> str:
    plan, judged, past, trace = report["plan"], report["judged"], report["past"], report["trace"]
    return "\n".join(
        [
            f"{plan['policy']} on {plan['ranks']} ranks, {plan['slots']} slots in each of {trace['layers']} layers × "
            f"{trace['experts']} experts",
            f"judged on steps {judged['first_step']:,}–{judged['last_step']:,} ({judged['tokens']:,} tokens, "
            f"{judged['step_ms']:.3g} ms a step); placements made from steps {past['first_step']:,}–"
            f"{past['last_step']:,} of {past['files'][0]}",
        ]
    )


def _helps(report: Section) -> Iterator[str]:
    feedback = report["feedback"]
    if feedback is not None:
        yield f"Will a router offset help? {feedback['predictability']['verdict']}."


def _front(report: Section) -> str:
    """Balance beside price. A row with * is on the front by mean or P99."""
    front = report["front"]
    best = {point["name"] for one in front["fronts"] for point in one["points"]}
    head = ("", "step mean", "P99", "window", "P99", "heat", "loss, mnat", "changed", "top-1 lost", "slots")
    rows = [head, *(_row(row, best) for row in front["rows"])]
    lines = ["Balance and its price (max/mean rank load; * = nothing beats it):", aligned(rows)]
    lines += [
        "  loss: a band over several proxies, calibrated on a 14 M model; 0 = the router's choice is left alone",
        *_knee(front),
        *remarks(front["rows"]),
    ]
    return "\n".join(lines)


def _row(row: Section, best: set[str]) -> tuple[str, ...]:
    balance, price = row["balance"], row["price"]
    mark = "*" if row["name"] in best else " "
    said = {True: "", False: " (unstable)", None: " (stability not judged)"}[row["stable"]]
    name = f"{mark} {row['name']}{said}{remarked(row)}"
    return (
        name,
        f"{balance['step_mean']:.3f}",
        f"{balance['step_p99']:.2f}",
        f"{balance['window_mean']:.3f}",
        f"{balance['window_p99']:.2f}",
        f"{balance['heat_mean']:.3f}",
        _loss(row),
        "" if row["lossless"] else _changed(price),
        "" if row["lossless"] else f"{price['top1_lost']:.2%}",
        str(row["slots"]),
    )


def _changed(price: Section) -> str:
    """Share of assignments to other experts, and to none."""
    if not price["dropped"]:
        return f"{price['changed']:.1%}"
    moved = f"{price['changed']:.1%}, " if price["changed"] else ""
    return f"{moved}{price['dropped']:.1%} dropped"


def _loss(row: Section) -> str:
    if row["lossless"]:
        return "0"
    band = row["price"]["loss_nats"]
    text = f"{band['low_nats'] * 1e3:.1f} to {band['high_nats'] * 1e3:.1f}"
    return f"{text}, beyond" if band["beyond"] else text


def _knee(front: Section) -> Iterator[str]:
    knees = dict.fromkeys(one["knee"] for one in front["fronts"] if one["knee"])
    if knees:
        yield f"  knee: {', '.join(knees)}; what lies beyond buys little for its loss"


def _files(report: Section) -> Iterator[str]:
    files = report["files"]
    if files["lossy"]:
        yield f"wrote {files['lossy']}: lossy, not a plan"
    if files["plan"]:
        yield f"wrote {files['plan']}: the staggered plan, lossless, not judged (`ebsim replay` does that)"
    if files["figure"]:
        yield f"drew {files['figure']}"
