"""`ebsim profile`: what is known of a GPU, and measured tables turned into profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import completing, profile_measure, profile_table
from easybalance_sim.cli.command import Group
from easybalance_sim.cli.console import Format, emit, say_notes
from easybalance_sim.cli.layout import worded
from easybalance_sim.cli.options import OutputFormat

if TYPE_CHECKING:
    from easybalance_sim.profiling.imported import Imported

app = typer.Typer(
    name="profile",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Hardware profiles: list and show them, fit measured tables (fit), make a profile of them (import), "
    "measure this machine's GPU (measure).\n\nExit codes are those of `ebsim --help`.\n\nExample: ebsim profile list",
)
app.command(short_help="Time experts on this machine's GPU.")(profile_measure.measure)

Kind = Annotated[
    str,
    typer.Argument(
        autocompletion=completing.tables,
        help="trtllm-wideep, sglang-generation, sglang-context, infersim-decode, infersim-prefill, moe-perf, "
        "deepep-low-latency, deepep-normal, deepep-bench (the output of DeepEP's tests), nccl, trtllm-alltoall, "
        "tokens-us or ebsim-measured (what measure writes).",
    ),
]
Source = Annotated[Path, typer.Argument(metavar="SRC", help="The measured table.")]
Base = Annotated[
    str,
    typer.Option(
        "--profile",
        autocompletion=completing.profiles,
        help="Profile of the GPU that was measured: a name or a .toml file.",
    ),
]
Kernel = Annotated[
    str, typer.Option(help="Which kernel_source of a moe-perf or trtllm-alltoall table [the latter: NVLinkTwoSided].")
]
Dtype = Annotated[
    str, typer.Option(autocompletion=completing.weight_dtypes, help="Dtype of the expert weights that were timed.")
]
Nodes = Annotated[int, typer.Option(min=1, help="deepep-bench: nodes of 8 GPUs that it ran on.")]
Tokens = Annotated[int, typer.Option(min=1, help="deepep-bench: tokens of a rank, where its output does not say.")]
Hidden = Annotated[int, typer.Option(min=1, help="deepep-bench: width of a token, likewise.")]
TopK = Annotated[int, typer.Option(min=1, help="deepep-bench: experts of a token, likewise.")]
Experts = Annotated[int, typer.Option(min=1, help="deepep-bench: experts in all.")]


@app.command(name="list", short_help="List the profiles of the package.")
def list_profiles(output_format: OutputFormat = Format.TABLE) -> None:
    """List the profiles that come with the package. Exit 0.

    \b
    Example: ebsim profile list
    """
    from easybalance_sim.cluster.hardware import load_profile, profile_names

    titles = {name: load_profile(name).title for name in profile_names()}
    if output_format is Format.JSON:
        return emit(json.dumps({"profiles": [{"name": name, "title": title} for name, title in titles.items()]}))
    return emit(worded([("name", "GPU"), *titles.items()]))


@app.command(short_help="Print a profile as TOML.")
def show(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=completing.profiles, help="A profile's name, a .toml file, or a table: h100+table.csv."
        ),
    ],
    output_format: OutputFormat = Format.TABLE,
) -> None:
    """Print a profile as TOML: a start for your own. Exit 0.

    \b
    Example: ebsim profile show h200
    """
    from easybalance_sim.cost.profiles import load_profile
    from easybalance_sim.profiling.profile_text import profile_fields, profile_text

    profile = load_profile(name)
    text = json.dumps(profile_fields(profile)) if output_format is Format.JSON else profile_text(profile).rstrip("\n")
    emit(text)


@app.command(short_help="Fit a measured table and show the error.")
def fit(
    kind: Kind,
    source: Source,
    profile: Base = "h200",
    dtype: Dtype = "fp8_block",
    kernel: Kernel = "",
    nodes: Nodes = 1,
    tokens: Tokens = 128,
    hidden: Hidden = 7168,
    top_k: TopK = 8,
    experts: Experts = 288,
    output_format: OutputFormat = Format.TABLE,
) -> None:
    """Fit a measured table within physical bounds; print the numbers and the error on rows that the fit did not see.

    Rows that are known to mislead are left out, with a note. Exit 0.

    \b
    Example: ebsim profile fit infersim-decode grouped_gemm.csv --profile h800
    """
    bench = {"nodes": nodes, "tokens": tokens, "hidden": hidden, "top_k": top_k, "experts": experts}
    _report(_imported(kind, source, profile, dtype, kernel, bench), None, output_format)


@app.command(name="import", short_help="Write a profile with a measured table in it.")
def import_(
    kind: Kind,
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.toml", help="The profile to write.")],
    profile: Base = "h200",
    dtype: Dtype = "fp8_block",
    kernel: Kernel = "",
    nodes: Nodes = 1,
    tokens: Tokens = 128,
    hidden: Hidden = 7168,
    top_k: TopK = 8,
    experts: Experts = 288,
    output_format: OutputFormat = Format.TABLE,
) -> None:
    """Write the profile of a GPU with the fit of a measured table in it, for `--profile FILE.toml`.

    Exit 0 written.

    \b
    Example: ebsim profile import infersim-decode grouped_gemm.csv \\
        --profile h800 -o mine.toml
    """
    from easybalance_sim.errors import UsageError
    from easybalance_sim.files import write_text
    from easybalance_sim.profiling.profile_text import profile_text

    if output.suffix != ".toml":
        raise UsageError("a profile is a .toml file", where=str(output), fix="name it FILE.toml")
    bench = {"nodes": nodes, "tokens": tokens, "hidden": hidden, "top_k": top_k, "experts": experts}
    found = _imported(kind, source, profile, dtype, kernel, bench)
    write_text(output, profile_text(found.profile))
    _report(found, output, output_format)


def _imported(kind: str, source: Path, profile: str, dtype: str, kernel: str, bench: dict[str, int]) -> Imported:
    from easybalance_sim.cluster.hardware import load_profile
    from easybalance_sim.profiling.sources import import_table
    from easybalance_sim.profiling.tables.deepep_bench import Bench

    return import_table(kind, source, load_profile(profile), dtype, kernel, Bench(**bench))


def _report(found: Imported, written: Path | None, output_format: Format) -> None:
    emit(
        json.dumps(profile_table.of_import(found, written))
        if output_format is Format.JSON
        else profile_table.text_of_import(found)
    )
    say_notes([*map(str, found.dropped), *found.notes])
