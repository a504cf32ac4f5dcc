"""`ebsim trace synthesise`: traces whose truth is known."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli.console import Console, emit


class Kind(StrEnum):
    """What the traffic is like."""

    POWER_LAW = "power-law"
    LOGNORMAL = "lognormal"
    TOPIC_MIXTURE = "topic-mixture"
    BURST = "burst"
    UNIFORM = "uniform"
    TENANT_SHIFT = "tenant-shift"
    SINGLE_EXPERT = "single-expert"


def synthesise(
    kind: Annotated[Kind, typer.Argument(help="What the traffic is like.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT.parquet", help="The trace to write.")],
    layers: Annotated[int, typer.Option(help="MoE layers.")] = 8,
    experts: Annotated[int, typer.Option(help="Routed experts E.")] = 64,
    top_k: Annotated[int, typer.Option(help="Experts per token K, drawn without replacement.")] = 6,
    steps: Annotated[int, typer.Option(help="Steps of the trace.")] = 512,
    tokens_per_step: Annotated[int, typer.Option(help="Requests that decode in a step; doubled in a burst.")] = 64,
    ranks: Annotated[int, typer.Option(help="Source ranks.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same file.")] = 0,
    skew: Annotated[
        float, typer.Option(help="power-law: exponent; lognormal, burst, tenant-shift: sigma of the weights.")
    ] = 1.0,
    topics: Annotated[int, typer.Option(help="topic-mixture: number of topics.")] = 4,
    concentration: Annotated[float, typer.Option(help="topic-mixture: Dirichlet; small = specialised topics.")] = 0.3,
    groups: Annotated[int, typer.Option(help="Expert groups; topics of topic-mixture prefer whole groups.")] = 1,
) -> None:
    """Write a trace and OUT.truth.json: the true share of tokens per topic, layer and expert, and the schedule.

    single-expert sends every token to one expert first; its other K - 1 experts are the same for all tokens, too.

    \b
    Example: ebsim trace synthesise topic-mixture -o drift.parquet --topics 6 --steps 1024 --seed 7
    """
    from easybalance_sim.trace.synthesis import Recipe
    from easybalance_sim.trace.synthesis import synthesise as write

    recipe = Recipe(
        kind=kind.value,
        layers=layers,
        experts=experts,
        top_k=top_k,
        steps=steps,
        tokens_per_step=tokens_per_step,
        ranks=ranks,
        seed=seed,
        skew=skew,
        topics=topics,
        concentration=concentration,
        groups=groups,
    )
    truth = write(recipe, output, Console().progress)
    emit(f"wrote {output}: {kind.value}, {steps:,} steps, {layers} layers × {experts} experts, top-{top_k}")
    emit(f"wrote {truth}: the true expert probabilities and the schedule")
