"""`ebsim profile measure`: expert GEMMs, weight reads and copies timed on the GPU of this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from easybalance_sim.cli import completing
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.cli.layout import aligned, command, filled, kept
from easybalance_sim.cli.options import OutputFormat
from easybalance_sim.cli.sweep_options import numbers
from easybalance_sim.errors import UsageError
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    from easybalance_sim.profiling.measure import Outcome, Request
    from easybalance_sim.profiling.tables.measured import Measurement

RANKS, SLOTS = 8, 32
_WHERE = "profile measure"
_LABELS = {
    "read": "read of memory",
    "copy-device": "copy within the GPU",
    "copy-host": "copy from the host",
    "copy-peer": "copy to GPU {}",
}


class _Model(NamedTuple):
    """name: "" for widths alone · dtype: the model's own."""

    name: str
    dtype: str
    hidden: int
    intermediate: int
    matrices: int
    slots: int


def measure(
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|config.json", autocompletion=completing.models, help="Model whose experts to measure."
        ),
    ] = "",
    hidden: Annotated[
        int | None, typer.Option(metavar="H", min=1, max=1 << 17, help="Without --model: width of a token.")
    ] = None,
    intermediate: Annotated[
        int | None, typer.Option(metavar="I", min=1, max=1 << 17, help="Without --model: width inside an expert.")
    ] = None,
    matrices: Annotated[int, typer.Option(min=2, max=3, help="Without --model: 3 for gated experts, else 2.")] = 3,
    slots: Annotated[
        int | None,
        typer.Option(metavar="S", min=1, max=4096, help="Experts in memory [ceil(E/8) + 1; 32 without --model]."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="bf16 or fp16: what cuBLAS multiplies through cupy.")] = "bf16",
    tokens: Annotated[
        str, typer.Option(metavar="N,N,…", help="Tokens of each active expert [16 counts to 4096].")
    ] = "",
    active: Annotated[
        str, typer.Option(metavar="N,N,…", help="Numbers of active experts [1, 2, 4, … half the slots, all].")
    ] = "",
    repeats: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Timed runs of each point.")] = 20,
    budget_s: Annotated[
        float, typer.Option("--budget-s", metavar="SECONDS", min=0.0, help="No point begins after this time.")
    ] = 120.0,
    output_format: OutputFormat = Format.TABLE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.csv", help="The table, to fit or import.")
    ] = None,
) -> None:
    """Time experts on this machine's GPU: both GEMMs of a layer, over tokens per expert and active experts.

    Also reads of memory and copies: within the GPU, from the host, to other GPUs. Medians of runs that find nothing in
    the cache. Needs an NVIDIA GPU and the extra cuda12 or cuda13. The table goes into a profile by
    `ebsim profile import ebsim-measured FILE.csv --profile GPU -o mine.toml`. Exit 0 measured.

    \b
    Example: ebsim profile measure --model qwen3-30b-a3b -o rows.csv
    """
    from easybalance_sim.files import require_place, write_text
    from easybalance_sim.profiling.measure import measure as run
    from easybalance_sim.profiling.tables.measured import table_text

    found = _model(model, hidden, intermediate, matrices)
    request = _request(found, slots, dtype, tokens, active, repeats, budget_s)
    if output is not None:
        require_place(output)
    console, gpu, began = Console(), _gpu(), time.monotonic()
    outcome = run(request, gpu, console.progress)
    if not outcome.rows:
        raise UsageError(f"nothing was measured: {outcome.notes[0]}", where=_WHERE, fix="give a larger --budget-s")
    if output is not None:
        write_text(output, table_text(outcome.rows))
    if found.name and found.dtype != "bf16":
        console.note(f"{found.name} is served in {found.dtype}: measured are {dtype} experts of its widths")
    for note in outcome.notes:
        console.note(note)
    if output_format is Format.JSON:
        about = {"device": gpu.about._asdict(), "model": found.name, "seconds": round(time.monotonic() - began, 3)}
        emit(json.dumps(about | _document(request, outcome, output), indent=2, allow_nan=False))
    else:
        emit(_tables(found, request, outcome, output))


def _model(model: str, hidden: int | None, intermediate: int | None, matrices: int) -> _Model:
    from easybalance_sim.cluster.shapes import load_shape

    if bool(model) == (hidden is not None and intermediate is not None) or (model and (hidden or intermediate)):
        raise UsageError("which experts?", where=_WHERE, fix="say --model, or --hidden and --intermediate")
    if not model:
        return _Model("", "bf16", hidden or 0, intermediate or 0, matrices, SLOTS)
    shape = load_shape(model)
    each = -(-shape.experts // RANKS) + 1
    return _Model(shape.name, shape.dtype, shape.hidden, shape.intermediate, shape.matrices, each)


def _request(
    model: _Model, slots: int | None, dtype: str, tokens: str, active: str, repeats: int, budget_s: float
) -> Request:
    from easybalance_sim.profiling.measure import TOKENS, Request, active_counts

    slots = slots or model.slots
    return Request(
        hidden=model.hidden,
        intermediate=model.intermediate,
        matrices=model.matrices,
        slots=slots,
        dtype=dtype,
        tokens=numbers("--tokens", tokens, 1, 1 << 20) or TOKENS,
        active=numbers("--active", active, 1, slots) or active_counts(slots),
        repeats=repeats,
        budget_s=budget_s,
    )


def _gpu() -> Any:
    from easybalance_sim.kernels.timing import open_gpu

    try:
        return open_gpu()
    except RuntimeError as error:
        raise UsageError(
            f"no GPU can be measured: {error}",
            where=_WHERE,
            fix="run it where an NVIDIA GPU is; in a clone of ebsim pip install '.[cuda12]' or '.[cuda13]' (by driver)",
        ) from error


def _document(request: Request, outcome: Outcome, output: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "request": asdict(request),
        "rows": [row.cells() for row in outcome.rows],
        "notes": list(outcome.notes),
        "table_file": None if output is None else str(output),
    }


def _tables(model: _Model, request: Request, outcome: Outcome, output: Path | None) -> str:
    of = f" of {model.name}" if model.name else ""
    device = outcome.rows[0].device
    widths = f"{request.hidden}×{request.intermediate}"
    runs = f"median of {many(request.repeats, 'run')}"
    head = f"{device}: {request.dtype} experts{of} ({widths}, {request.slots} in memory), {runs}"
    parts = [filled(head), _links(outcome.rows), _grid(request, outcome.rows)]
    if output is not None:
        written = filled(f"{many(len(outcome.rows), 'row')} written to {kept(output)}; next:")
        following = command(f"ebsim profile import ebsim-measured {output} --profile GPU -o mine.toml", first="  ")
        parts.append("\n".join([written, *following]))
    return "\n\n".join(part for part in parts if part)


def _links(rows: tuple[Measurement, ...]) -> str:
    cells = [
        (
            _LABELS[row.what].format(row.peer),
            f"{row.bytes / 1e6:,.1f}",
            f"{row.us:,.1f}",
            f"{row.bytes_per_s / 1e9:,.0f}",
        )
        for row in rows
        if row.what in _LABELS
    ]
    return aligned([("", "MB", "µs", "GB/s"), *cells]) if cells else ""


def _grid(request: Request, rows: tuple[Measurement, ...]) -> str:
    """µs of both GEMMs: tokens per expert down, active experts across."""
    us = {(row.tokens_per_expert, row.active): f"{row.us:,.1f}" for row in rows if row.what == "experts"}
    if not us:
        return ""
    lines = [(str(tokens), *(us.get((tokens, count), "–") for count in request.active)) for tokens in request.tokens]
    head = ("tokens per expert", *map(str, request.active))
    return "µs of both GEMMs, by active experts\n" + aligned([head, *lines])
