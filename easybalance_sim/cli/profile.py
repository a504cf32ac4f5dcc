"""`ebsim profile`: what is known of a GPU, and measured tables turned into profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import profile_measure
from easybalance_sim.cli.console import aligned, emit, say_notes

if TYPE_CHECKING:
    from easybalance_sim.profiling.sources import Fit, Imported

AT_BOUND = 0.9995

app = typer.Typer(
    name="profile",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Hardware profiles: list and show them, fit measured tables (fit), make a profile of them (import), "
    "measure this machine's GPU (measure).\n\nExample: ebsim profile list",
)
app.command()(profile_measure.measure)

Kind = Annotated[
    str,
    typer.Argument(
        help="trtllm-wideep, sglang-generation, sglang-context, infersim-decode, infersim-prefill, moe-perf, "
        "deepep-low-latency, deepep-normal, tokens-us or ebsim-measured (what measure writes)."
    ),
]
Source = Annotated[Path, typer.Argument(metavar="SRC", help="The measured table.")]
Base = Annotated[str, typer.Option("--profile", help="Profile of the GPU that was measured: a name or a .toml file.")]
Kernel = Annotated[str, typer.Option(help="Which kernel_source of a moe-perf table.")]
Dtype = Annotated[str, typer.Option(help="Dtype of the expert weights that were timed.")]


@app.command(name="list")
def list_profiles() -> None:
    """List the profiles that come with the package.

    \b
    Example: ebsim profile list
    """
    from easybalance_sim.cluster.hardware import load_profile, profile_names

    emit(aligned([("name", "GPU"), *((name, load_profile(name).title) for name in profile_names())]))


@app.command()
def show(name: Annotated[str, typer.Argument(help="A profile's name or a .toml file.")]) -> None:
    """Print a profile as TOML: a start for your own.

    \b
    Example: ebsim profile show h200
    """
    from easybalance_sim.cluster.hardware import load_profile
    from easybalance_sim.profiling.profile_text import profile_text

    emit(profile_text(load_profile(name)).rstrip("\n"))


@app.command()
def fit(kind: Kind, source: Source, profile: Base = "h200", dtype: Dtype = "fp8_block", kernel: Kernel = "") -> None:
    """Fit a measured table within physical bounds; print the numbers and the error on rows that the fit did not see.

    Rows that are known to mislead are left out, with a note.

    \b
    Example: ebsim profile fit infersim-decode grouped_gemm.csv --profile h800
    """
    _report(_imported(kind, source, profile, dtype, kernel))


@app.command(name="import")
def import_(
    kind: Kind,
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.toml", help="The profile to write.")],
    profile: Base = "h200",
    dtype: Dtype = "fp8_block",
    kernel: Kernel = "",
) -> None:
    """Write the profile of a GPU with the fit of a measured table in it, for `--profile FILE.toml`.

    \b
    Example: ebsim profile import infersim-decode grouped_gemm.csv --profile h800 -o mine.toml
    """
    from easybalance_sim.errors import UsageError
    from easybalance_sim.files import write_text
    from easybalance_sim.profiling.profile_text import profile_text

    if output.suffix != ".toml":
        raise UsageError("a profile is a .toml file", where=str(output), fix="name it FILE.toml")
    found = _imported(kind, source, profile, dtype, kernel)
    write_text(output, profile_text(found.profile))
    _report(found)


def _imported(kind: str, source: Path, profile: str, dtype: str, kernel: str) -> Imported:
    from easybalance_sim.cluster.hardware import load_profile
    from easybalance_sim.profiling.sources import import_table

    return import_table(kind, source, load_profile(profile), dtype, kernel)


def _report(found: Imported) -> None:
    emit("\n\n".join(map(_lines, found.fits)) or "a table of the expert part, looked up and not fitted")
    say_notes([*map(str, found.dropped), *found.notes])


def _lines(fit: Fit) -> str:
    numbers = " · ".join(f"{name} {value:,.4g}" for name, value in fit.numbers.items())
    rows = [("error", "mean", "median", "p90"), _errors("rows fitted", fit.errors)]
    rows.append(_errors(f"held-out {fit.group}", fit.held_out))
    bound = [name for name in ("eff_bw", "eff_flop") if fit.numbers.get(name, 0.0) > AT_BOUND]
    said = f"\n{' and '.join(bound)} at the bound of 1: not identified" if bound else ""
    return f"{fit.name}, {fit.rows:,} rows\n{numbers}{said}\n{aligned(rows)}"


def _errors(label: str, values: tuple[float, float, float]) -> tuple[str, ...]:
    return label, *(f"{value:.1f} %" for value in values)
