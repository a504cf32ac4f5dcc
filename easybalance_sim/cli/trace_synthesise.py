"""`ebsim trace synthesise`: traces whose truth is known."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from easybalance_sim.cli.console import Console, emit
from easybalance_sim.cli.layout import filled, kept
from easybalance_sim.report.words import many


class Kind(StrEnum):
    """What the traffic is like."""

    POWER_LAW = "power-law"
    LOGNORMAL = "lognormal"
    TOPIC_MIXTURE = "topic-mixture"
    BURST = "burst"
    UNIFORM = "uniform"
    TENANT_SHIFT = "tenant-shift"
    SINGLE_EXPERT = "single-expert"
    DAY = "day"


def synthesise(
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="KIND",
            help="Traffic: power-law, lognormal, topic-mixture, burst, uniform, tenant-shift, single-expert or day.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT.parquet", help="The trace to write.")],
    layers: Annotated[int, typer.Option(help="MoE layers.")] = 8,
    experts: Annotated[int, typer.Option(help="Routed experts E.")] = 64,
    top_k: Annotated[int, typer.Option(help="Experts per token K, drawn without replacement.")] = 6,
    steps: Annotated[int, typer.Option(help="Steps of the trace (not of day: --hours, --step-ms).")] = 512,
    tokens_per_step: Annotated[
        int, typer.Option(help="Requests that decode in a step; doubled in a burst; day: mean over 24 hours.")
    ] = 64,
    ranks: Annotated[int, typer.Option(help="Source ranks (day has none).")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same file.")] = 0,
    skew: Annotated[
        float,
        typer.Option(
            help="power-law: exponent; lognormal, burst, tenant-shift: sigma of the weights; "
            "day: the i-th tenant has i^-SKEW of the traffic."
        ),
    ] = 1.0,
    topics: Annotated[
        int | None, typer.Option(help="topic-mixture: number of topics (4); day: dealt to the tenants in turn (8).")
    ] = None,
    concentration: Annotated[
        float, typer.Option(help="topic-mixture, day: Dirichlet; small = specialised topics.")
    ] = 0.3,
    groups: Annotated[int, typer.Option(help="Expert groups; topics prefer whole groups.")] = 1,
    hours: Annotated[float, typer.Option(help="day: how long.")] = 24.0,
    window_seconds: Annotated[float, typer.Option(help="day: length of a window of counts.")] = 60.0,
    step_ms: Annotated[float, typer.Option(help="day: milliseconds of a step, hence the steps of a window.")] = 25.0,
    tenants: Annotated[int, typer.Option(help="day: tenants, half of them active at a time.")] = 4,
    within: Annotated[
        float, typer.Option(help="day: as if so many independent requests made a window; small = windows differ more.")
    ] = 100.0,
    stationary: Annotated[
        bool,
        typer.Option("--stationary", help="day: no drift, switch, burst or daily curve; windows differ by chance."),
    ] = False,
) -> None:
    """Write a trace and OUT.truth.json: the true share of tokens per topic, layer and expert, and the schedule.

    single-expert sends every token to one expert first; its other K - 1 experts are the same for all tokens, too.
    day writes counts, not tokens: topics drift, tenants change, one topic bursts, and the truth says when. Exit 0
    written.

    \b
    Example: ebsim trace synthesise topic-mixture -o drift.parquet \\
        --topics 6 --steps 1024 --seed 7

    \b
    Example: ebsim trace synthesise day -o day.parquet --hours 24 --seed 7
    """
    shape = {"layers": layers, "experts": experts, "top_k": top_k, "tokens_per_step": tokens_per_step, "groups": groups}
    draws = {"seed": seed, "skew": skew, "concentration": concentration}
    if kind is Kind.DAY:
        clock = {"hours": hours, "window_seconds": window_seconds, "step_ms": step_ms, "stationary": stationary}
        topics = 8 if topics is None else topics
        truth, said = _day(output, shape | draws | clock | {"tenants": tenants, "topics": topics, "within": within})
    else:
        topics = 4 if topics is None else topics
        of_kind = {"kind": kind.value, "steps": steps, "ranks": ranks, "topics": topics}
        truth, said = _tokens(output, shape | draws | of_kind)
    emit(
        filled(f"wrote {kept(output)}: {kind.value}, {said}, {many(layers, 'layer')} × {experts} experts, top-{top_k}")
    )
    emit(filled(f"wrote {kept(truth)}: the true expert probabilities and the schedule"))


def _tokens(output: Path, settings: dict[str, Any]) -> tuple[Path, str]:
    """(the truth's path, how long the trace is)."""
    from easybalance_sim.trace.synthesis import Recipe
    from easybalance_sim.trace.synthesis import synthesise as write

    recipe = Recipe(**settings)
    return write(recipe, output, Console().progress), many(recipe.steps, "step")


def _day(output: Path, settings: dict[str, Any]) -> tuple[Path, str]:
    """(the truth's path, how long the trace is)."""
    from easybalance_sim.trace.synthesis_day import DayRecipe, synthesise_day

    recipe = DayRecipe(**settings)
    windows = f"{many(recipe.windows, 'window')} of {recipe.window_seconds:g} s"
    return synthesise_day(recipe, output, Console().progress), windows
