"""Detectors and metrics as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from easybalance_sim.simulate.sensing.judging import Detection, Kind
from easybalance_sim.simulate.sensing.metrics import METRICS
from easybalance_sim.simulate.sensing.summary import Sensing


def detection_lines(found: Detection) -> list[str]:
    """A table per kind of unit: share fired, precision, recall and F1 of every rule, then what is best."""
    return [line for kind in found.kinds for line in _kind_lines(kind)]


def _kind_lines(kind: Kind) -> Iterator[str]:
    note = f" ({kind.note})" if kind.note else ""
    yield f"{kind.name}: {kind.units} units{note}, {kind.hot:.1%} stay over {kind.threshold:g} of the mean"
    columns = f"{'precision':>11}{'recall':>8}{'F1':>7}{'suppressed':>12}{'added':>9}{'onsets/min':>12}"
    yield f"  {'rule':<16}{'fires':>8}{columns}"
    for score in kind.scores:
        yield (
            f"  {score.rule:<16}{score.fires:>8.1%}{score.precision:>11.3f}{score.recall:>8.2f}{score.f1:>7.2f}"
            f"{score.suppressed_share:>12.0%}{score.added:>9}{score.onsets_per_minute:>12.1f}"
        )
    sensors = ", ".join(f"{name} {value:.2f}" for name, value in kind.correlation.items())
    yield f"  correlation with what comes: {sensors}"
    yield f"  {kind.verdict.text}"


def sensing_lines(seen: Sensing) -> list[str]:
    """A table of every metric by node (per rank of it), and of the hottest rank."""
    lines = [
        f"{seen.ticks} ticks of {seen.tick_s * 1e3:g} ms; a step lasts {seen.step_s * 1e3:.3g} ms, its MoE layers "
        f"{seen.moe_s * 1e3:.3g} ms; {seen.late:.0%} of the steps began late",
        f"  {'metric':<22}{'mean':>12}{'P99':>12}{'highest':>12}{'rank':>6}{'ratio':>8}{'node':>6}{'ratio':>8}",
    ]
    for name in METRICS:
        rank, node = seen.ranks[name], seen.nodes[name]
        lines.append(
            f"  {name:<22}{rank.mean:>12.4g}{rank.p99:>12.4g}{rank.highest:>12.4g}{rank.hottest:>6}{rank.ratio:>8.2f}"
            f"{node.hottest:>6}{node.ratio:>8.2f}"
        )
    return lines
