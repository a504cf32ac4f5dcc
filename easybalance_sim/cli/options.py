"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing
from easybalance_sim.cli.console import Format

MOST_RANKS, MOST_SEED, MOST_STEP_TOKENS = 1024, 2**32 - 1, 2**24
"""Beyond them matrices of rank pairs, the kernels' random numbers and their 32-bit counts end."""

Traces = Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Trace files or folders of one model.")]
Cluster = Annotated[
    Path | None, typer.Option("--cluster", metavar="FILE.toml", help="The cluster (examples: scenarios/clusters).")
]
Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="R", min=1, max=MOST_RANKS, help="Ranks of the EP group [8].")
]
RanksPerNode = Annotated[
    int | None,
    typer.Option("--ranks-per-node", metavar="N", min=1, help="Ranks that share NVLink [8, or all if fewer]."),
]
SlotsPerRank = Annotated[
    int | None,
    typer.Option("--slots-per-rank", metavar="S", min=1, help="Expert slots per rank and layer [ceil(E/R) + 1]."),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        autocompletion=completing.models,
        metavar="NAME|config.json",
        help="Model shape, when the trace does not say it.",
    ),
]
EngineName = Annotated[
    str,
    typer.Argument(
        metavar="ENGINE", autocompletion=completing.engines, help="sglang, tensorrt-llm, vllm, vllm-ascend or omni."
    ),
]
EngineRanks = Annotated[
    int | None,
    typer.Option("--ranks", metavar="R", min=1, max=MOST_RANKS, help="Ranks of the EP group [FILE's, if it says so]."),
]
EngineModel = Annotated[
    str,
    typer.Option(
        "--model",
        autocompletion=completing.models,
        metavar="NAME|config.json",
        help="The model, for its layers and experts.",
    ),
]
EngineExperts = Annotated[
    int | None, typer.Option("--experts", metavar="E", min=1, help="Routed experts per layer [the model's].")
]
EngineSchema = Annotated[
    str,
    typer.Option(
        "--schema",
        autocompletion=completing.schemas,
        metavar="NAME",
        help="vllm: plugin, pr41141, pr49572 or pr53022 [as FILE has it].",
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        autocompletion=completing.profiles,
        metavar="NAME|FILE",
        help="GPU: a100, h100, h200, h20, h800, b200, gb200, or your .toml, .csv, .parquet [h200].",
    ),
]
Phase = Annotated[
    str | None,
    typer.Option(
        "--phase",
        autocompletion=completing.phases,
        metavar="NAME",
        help="Only these tokens: prefill, decode or unknown [all].",
    ),
]
Workloads = Annotated[
    list[str] | None, typer.Option("--workload", metavar="NAME", help="Only this workload; may be repeated [all].")
]
WindowSeconds = Annotated[
    float,
    typer.Option(
        "--window-seconds",
        show_default=False,
        metavar="SECONDS",
        min=0.0,
        help="Windows of this many seconds instead of steps [steps].",
    ),
]
AllToAll = Annotated[
    str,
    typer.Option(
        "--all-to-all",
        autocompletion=completing.all_to_all,
        metavar="MODE",
        help="auto (by phase), normal, low_latency (DeepEP), nccl or nvlink (TensorRT-LLM; one NVLink domain each).",
    ),
]
StepTokens = Annotated[
    int,
    typer.Option(
        "--step-tokens",
        show_default=False,
        metavar="N",
        min=0,
        max=MOST_STEP_TOKENS,
        help="Count traces: tokens per drawn step [128 or 4096 per rank].",
    ),
]
Criteria = Annotated[
    Path | None, typer.Option("--criteria", metavar="FILE.toml", help="Limits of the gate that replace the defaults.")
]
Stress = Annotated[
    bool,
    typer.Option(
        "--stress", help="Judge under other mixes, bursts, uniform routing, a lost node and slow GPUs, too (seconds)."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, max=MOST_SEED, help="Seed of every random choice.")]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        autocompletion=completing.devices,
        metavar="NAME",
        help="Where kernels run: auto (a GPU that works, else CPU), cpu, gpu.",
    ),
]
Overlap = Annotated[
    str,
    typer.Option(
        "--overlap",
        autocompletion=completing.overlaps,
        metavar="HOW",
        help="Communication that hides behind experts, for ranking: none, two-batch or full. Both ends are reported.",
    ),
]
Dask = Annotated[
    str,
    typer.Option(
        "--dask",
        show_default=False,
        metavar="ADDRESS",
        help="Scheduler of a Dask cluster whose workers pass over the trace, e.g. tcp://host:8786 [this machine].",
    ),
]
Metrics = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE.prom",
        help="Also write the figures as OpenMetrics text (docs/grafana-dashboard.json).",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", help="Also write a page with the verdict, figures and their data."),
]
Figures = Annotated[
    Path | None,
    typer.Option("--figures", metavar="DIR", help="Also write the figures of that page as SVG and PNG into a folder."),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to print the result.")]
