"""Options that only `capacity` has."""

from __future__ import annotations

from typing import Annotated

import typer

from easybalance_sim.errors import UsageError

FewestGpus = Annotated[
    bool, typer.Option("--fewest-gpus", help="Also the fewest GPUs, any number, that hold --rate inside the SLO.")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", metavar="R", help="Requests per second for --fewest-gpus [the scenario's]."),
]
Replicas = Annotated[
    str,
    typer.Option(
        "--replicas",
        show_default=False,
        metavar="N,N",
        help="Also the highest rate with so many spare slots on every rank, and how many are worth their memory.",
    ),
]
Parallel = Annotated[
    bool,
    typer.Option(
        "--parallel", help="Also the same GPUs with experts apart (EP), each over several GPUs (TP), and between."
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", help="Runs of every rate, each with a seed of its own.")]
Tolerance = Annotated[float, typer.Option("--tolerance", metavar="SHARE", help="How closely a rate is found.")]


def numbers_of(text: str) -> tuple[int, ...]:
    """The numbers of "0,1,2"; none of "". Raises `UsageError` for what is no list of numbers."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise UsageError(f"{text!r} is no list of numbers", where="--replicas", fix="write it as 0,1,2") from error
