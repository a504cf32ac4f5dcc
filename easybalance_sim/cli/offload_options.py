"""Options that only `offload` has, and its lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing
from easybalance_sim.errors import UsageError

GpuGb = Annotated[
    float | None, typer.Option("--gpu-gb", metavar="GB", help="GPU memory for experts, instead of --cached-share.")
]
CachedShare = Annotated[
    str,
    typer.Option(
        "--cached-share",
        show_default=False,
        metavar="LIST",
        help="Shares of all experts that the cache holds: 0.25,0.5 [0.05, 0.1 to 1].",
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        autocompletion=completing.cache_policies,
        metavar="NAME",
        help="lru, lfu (ageing), static or belady; may be repeated [all].",
    ),
]
Prefetch = Annotated[
    list[str] | None,
    typer.Option(
        "--prefetch",
        autocompletion=completing.prefetches,
        metavar="NAME",
        help="none, previous-layer, history or oracle, with every policy; may be repeated [none, and all with lru].",
    ),
]
Ahead = Annotated[int, typer.Option("--ahead", metavar="N", min=1, help="Layers that --prefetch looks ahead.")]
Scope = Annotated[
    str,
    typer.Option(
        "--scope",
        autocompletion=completing.scopes,
        metavar="NAME",
        help="layer: a cache for every layer; model: one for all of them.",
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        autocompletion=completing.hosts,
        metavar="NAME|GB/s",
        help="Where experts come from: pcie4, pcie5, pcie6, nvme, or a rate in GB/s.",
    ),
]
ResidentDtype = Annotated[
    str,
    typer.Option(
        "--resident-dtype",
        autocompletion=completing.weight_dtypes,
        metavar="DTYPE",
        help="Of experts on the GPU [the model's].",
    ),
]
OffloadDtype = Annotated[
    str,
    typer.Option(
        "--offload-dtype",
        autocompletion=completing.weight_dtypes,
        metavar="DTYPE",
        help="Of experts on the link: bf16, fp8_block, nvfp4, mxfp4 or int4_g32 [as on the GPU].",
    ),
]
Batches = Annotated[
    str,
    typer.Option(
        "--batch", show_default=False, metavar="LIST", help="Requests that run at once, anew: 1,8,64 [as recorded]."
    ),
]
BetweenUs = Annotated[
    float | None,
    typer.Option("--between-us", metavar="US", help="Of a layer beside its experts [attention, by the cost model]."),
]
Within = Annotated[
    float, typer.Option("--within", metavar="SHARE", help="By how much the mean step may be longer, for the answer.")
]
HeldOut = Annotated[
    float, typer.Option("--held-out", metavar="SHARE", help="Last share of the steps, which is judged.")
]
Figure = Annotated[Path | None, typer.Option("--figure", metavar="FILE.svg", help="Draw hit rate and step time.")]


def shares_of(text: str) -> tuple[float, ...]:
    """Numbers of "0.25,0.5", none of "". Raises `UsageError` for anything else."""
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{text!r} is no list of shares", where="--cached-share", fix="write 0.25,0.5") from None


def batches_of(text: str) -> tuple[int, ...]:
    """Numbers of "1,8,64", none of "". Raises `UsageError` for anything else."""
    parts = text.split(",") if text else []
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"{text!r} is no list of numbers of requests", where="--batch", fix="write 1,8,64")
    return tuple(dict.fromkeys(int(part) for part in parts))
