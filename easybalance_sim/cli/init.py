"""`ebsim init`: cluster, scenario and gate files for a model on so many GPUs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import completing, options
from easybalance_sim.cli.console import emit, say_notes
from easybalance_sim.cli.layout import command, filled, kept, worded
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    from easybalance_sim.deployment.starting import Start


def init(
    model: Annotated[
        str,
        typer.Option(
            "--model", autocompletion=completing.models, metavar="NAME|config.json", help="The model to be served."
        ),
    ],
    gpus: Annotated[
        int, typer.Option("--gpus", metavar="N", min=1, max=options.MOST_RANKS, help="GPUs, each one rank.")
    ],
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu",
            autocompletion=completing.profiles,
            metavar="NAME",
            help="a100, h100, h200, h20, h800, b200 or gb200.",
        ),
    ] = ("h200"),
    ranks_per_node: Annotated[
        int | None,
        typer.Option("--ranks-per-node", metavar="M", min=1, help="GPUs that share NVLink [the GPU's domain]."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the files go; made if missing.")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write cluster.toml, scenario.toml and gate.toml for a model on so many GPUs, every field explained.

    Slots per rank are one more than the experts need, where memory has room for them; a model that does not fit is
    refused with what would. Nothing that is there is written over without --force. Exit 0.

    \b
    Example: ebsim init --model deepseek-v3 --gpus 32 -o deployment
    """
    from easybalance_sim.deployment.starting import start
    from easybalance_sim.deployment.starting_files import write_files

    chosen = start(model, gpus, gpu, ranks_per_node)
    paths = write_files(output, chosen, force=force)
    say_notes(f"{one}: memory is a guess, see kv_blocks in scenario.toml" for one in chosen.guessed)
    emit(f"{_facts(chosen)}\n\n{_next(paths)}")


def _facts(chosen: Start) -> str:
    memory = chosen.memory
    shared = f", attention split over {chosen.tensor_ranks} GPUs" if chosen.tensor_ranks > 1 else ""
    none = "none spare: one more takes more of the KV cache than gate.toml allows"
    spare = f"{chosen.spare_slots} spare" if chosen.spare_slots else none
    rows = [
        (
            "model",
            f"{chosen.shape.name}: {many(len(chosen.shape.layers), 'MoE layer')} × {chosen.shape.experts} experts",
        ),
        ("cluster", f"{chosen.ranks} {chosen.hardware.name}, {chosen.ranks_per_node} share NVLink{shared}"),
        ("slots per rank", f"{chosen.slots_per_rank} in a layer, {spare}"),
        ("weights", f"{memory.weights / 1e9:,.1f} of {memory.usable / 1e9:,.0f} GB usable on a GPU"),
        ("KV cache", f"{memory.tokens:,} tokens on {_gpus(chosen.tensor_ranks)}"),
    ]
    return worded(rows)


def _gpus(count: int) -> str:
    return "a GPU" if count == 1 else f"{count} GPUs"


def _next(paths: tuple[Path, ...]) -> str:
    cluster, scenario, gate = (shlex.quote(str(path)) for path in paths)
    plan = f"ebsim plan TRACE --cluster {cluster} --criteria {gate} -o plan.json"
    return "\n".join(
        (
            filled(f"written: {kept(cluster)}, {kept(scenario)}, {kept(gate)}"),
            *command(f"ebsim simulate {scenario}", first="next: "),
            *command(plan, first=" " * 6, then=" " * 8),
        )
    )
