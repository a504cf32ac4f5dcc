"""`ebsim import`: what serving engines and other tools record, to a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from easybalance_sim.cli import completing
from easybalance_sim.cli.console import Console, emit, say_notes
from easybalance_sim.cli.layout import filled, kept
from easybalance_sim.cli.options import MOST_RANKS, MOST_SEED
from easybalance_sim.cli.trace_convert import Order
from easybalance_sim.cli.trace_output import facts_line, parse_layers
from easybalance_sim.errors import UsageError, did_you_mean


class ImportCommand(TyperCommand):
    """A command whose help ends with the kinds that can be imported."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """One line for each kind, then what all commands say."""
        from easybalance_sim.trace.importers import titles

        with formatter.section("Kinds"):
            formatter.write_dl(list(titles().items()))
        super().format_epilog(ctx, formatter)


Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND", autocompletion=completing.recordings, help="What recorded it: one of the kinds below."
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|config.json", autocompletion=completing.models, help="The model, for its layers and experts."
    ),
]


def import_(
    kind: Kind,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The recording: file or folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="TRACE", help="The trace to write.")],
    plan_in_force: Annotated[
        Path | None, typer.Option(metavar="PLAN", help="The plan of the recording, where ids are slots.")
    ] = None,
    model: ModelName = None,
    layers: Annotated[str | None, typer.Option(metavar="IDS", help="MoE layer ids: 3-60 or 0,1,2.")] = None,
    experts: Annotated[int | None, typer.Option(metavar="E", min=1, help="Routed experts per layer.")] = None,
    top_k: Annotated[int | None, typer.Option(metavar="K", min=1, help="Experts per token.")] = None,
    divide_counts: Annotated[
        int, typer.Option(metavar="N", min=1, help="Undo counts that each of N ranks recorded.")
    ] = 1,
    counts_only: Annotated[
        bool, typer.Option("--counts-only", help="Import the counts, not the tokens beside them.")
    ] = False,
    concurrency: Annotated[int, typer.Option(metavar="N", help="Single requests: how many run at once.")] = 128,
    order: Annotated[Order, typer.Option(help="Single requests: how they join the queue.")] = Order.SHUFFLED,
    arrivals: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Single requests: arrival times (column TIMESTAMP).")
    ] = None,
    step_ms: Annotated[float, typer.Option(metavar="MS", help="Length of a step on the arrival clock.")] = 25.0,
    ranks: Annotated[
        int, typer.Option(metavar="R", max=MOST_RANKS, help="Single requests: source ranks, dealt in turn.")
    ] = 8,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=MOST_SEED, help="Of the shuffled order.")] = 0,
    drain: Annotated[bool, typer.Option("--drain", help="Keep the ramp-down, when slots stay empty.")] = False,
    midway: Annotated[
        bool, typer.Option("--midway", help="Meet the first requests midway, not all at their start.")
    ] = False,
    group_by: Annotated[str | None, typer.Option(metavar="COLUMN", help="Groups of a count table.")] = None,
) -> None:
    """Turn what an engine recorded into a trace.

    KIND says what SRC is; nothing is guessed. The model's shape, where the recording does not say it, comes from
    --model, or from --experts, --top-k and --layers. Where a recording holds slot ids, --plan-in-force leads them back
    to experts; `ebsim adopt` makes such a plan of an engine's own placement file. Files of PyTorch need the extra
    [torch]; nothing in them is ever unpickled. Exit 0 written.

    \b
    Example: ebsim import vllm-eplb-load load_stats.jsonl --top-k 2 \\
        -o load.parquet
    """
    from easybalance_sim.cli.plan_in_force import slot_map
    from easybalance_sim.cluster.shapes import load_shape
    from easybalance_sim.files import require_place
    from easybalance_sim.trace.conversion import Conversion
    from easybalance_sim.trace.importers import load, names

    name = kind.replace("-", "_")
    if name not in names():
        known = [known.replace("_", "-") for known in names()]
        raise UsageError(f"no kind {kind!r}", fix=f"{did_you_mean(kind, known)}choose {', '.join(known)}")
    require_place(output, keep=[source, *(source.rglob("*") if source.is_dir() else ())])
    job = Conversion(
        source=source, output=output, concurrency=concurrency, order=order.value, arrivals=arrivals,
        step_s=step_ms / 1000, ranks=ranks, seed=seed, drain=drain, midway=midway, group_by=group_by,
        slots=slot_map(plan_in_force) if plan_in_force else None, divide_counts=divide_counts, counts_only=counts_only,
        model=load_shape(model) if model else None, layers=parse_layers(layers), experts=experts, top_k=top_k,
        progress=Console().progress,
    )  # fmt: skip
    for written in load(name).convert(job):
        known_facts = {name: getattr(written, name) for name in ("kind", "model", "tokens", "steps", "layers")}
        known_facts |= {"experts": written.experts, "top_k": written.top_k}
        emit(filled(f"wrote {kept(written.path)}: {facts_line(known_facts)}"))
        say_notes(written.notes)
