"""`ebsim trace loads`: what each rank computes in each step, for simulators that know no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from easybalance_sim.amounts import Amount
from easybalance_sim.cli import completing, options
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.cli.layout import aligned, filled, kept
from easybalance_sim.cli.trace_output import facts, facts_line, without_nan
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    from easybalance_sim.cluster.topology import Topology
    from easybalance_sim.plan.plan import Plan
    from easybalance_sim.replay.loads_run import LoadsJob
    from easybalance_sim.replay.loads_summary import PhaseLoads, Spread
    from easybalance_sim.trace.schema import TraceMeta

DEFAULT_RANKS = 8
MEASURES = {"local_tokens": "local_tokens", "activated_experts": "activated"}


def loads(
    traces: options.Traces,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN", help="The plan in force [contiguous, no redundancy].")
    ] = None,
    cluster: options.Cluster = None,
    ranks: options.Ranks = None,
    ranks_per_node: options.RanksPerNode = None,
    dispatch: Annotated[
        str | None,
        typer.Option(
            "--dispatch",
            autocompletion=completing.dispatch_rules,
            metavar="RULE",
            help="Replica choice [the plan's, or even].",
        ),
    ] = None,
    phase: options.Phase = None,
    workload: options.Workloads = None,
    window_steps: Annotated[
        int, typer.Option("--window-steps", metavar="N", min=1, help="Steps of one row of the file: their means.")
    ] = 1,
    seed: options.Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The table: .csv or .parquet [none].")
    ] = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Loads per step, layer and rank for other simulators, and the power law that they would draw instead.

    local tokens: distinct tokens that reach a rank · active experts: experts of it with a token. alpha is the
    exponent with which aiconfigurator's draws are as uneven as the recorded steps (0: balanced), "by max" the one with
    which their busiest expert is as busy; max/mean: busiest expert over mean, as recorded and as drawn with alpha.
    Every window of a count trace stands for one step. Exit 0.

    \b
    Example: ebsim trace loads traces/tinymoe.parquet --ranks 8 -o loads.csv
    """
    console = Console()
    from easybalance_sim.load.selection import Selection, phase_filter, workload_filter
    from easybalance_sim.replay.loads_file import require_output
    from easybalance_sim.replay.loads_run import LoadsJob, run
    from easybalance_sim.trace.dataset import open_trace

    trace = open_trace(traces)
    if output is not None:
        require_output(output, [*traces, *([plan] if plan else [])])
    placed, topology, rule = _placement(trace.meta, plan, _cluster(cluster, ranks, ranks_per_node), console)
    job = LoadsJob(
        trace=trace,
        selection=Selection(phase=phase_filter(phase), workloads=workload_filter(workload or (), trace.workloads)),
        plan=placed, topology=topology, rule=_known_rule(dispatch or rule), seed=seed, window_steps=window_steps,
        output=output,
    )  # fmt: skip
    document = _document(job, run(job, console.progress("loads", Amount(_tokens(job, console), "tokens"))), console)
    emit(json.dumps(without_nan(document), indent=2) if format is Format.JSON else _text(document))


def _cluster(cluster: Path | None, ranks: int | None, ranks_per_node: int | None) -> Topology | None:
    """What the user said, None when nothing; room for any placement."""
    from easybalance_sim.cluster.topology import load_cluster, uniform

    if cluster is not None:
        if ranks is not None or ranks_per_node is not None:
            raise UsageError("--cluster and --ranks do not go together", fix="use one of them")
        return load_cluster(cluster)
    if ranks is None and ranks_per_node is None:
        return None
    count = ranks or DEFAULT_RANKS
    return uniform(count, ranks_per_node or min(count, DEFAULT_RANKS), 1)


def _placement(
    meta: TraceMeta, path: Path | None, said: Topology | None, console: Console
) -> tuple[Plan, Topology, str]:
    """The placement, its cluster and the dispatch rule that goes with it."""
    if path is None:
        if said is None:
            console.note(f"no cluster given: one node of {DEFAULT_RANKS} ranks")
        return *_contiguous(meta, said), "even"
    from easybalance_sim.plan.planfile import read_plan

    document = read_plan(path)
    if (document.layer_ids, document.experts) != (meta.layers, meta.experts):
        raise PlanError(
            f"the plan is for {len(document.layers)} layers × {document.experts} experts, the trace has "
            f"{len(meta.layers)} × {meta.experts} (or other layer ids)",
            where=str(path),
            fix="give a trace of the model that the plan was made for",
        )
    placed, topology = document.plan(), said or document.topology.topology()
    if placed.ranks != topology.ranks:
        raise PlanError(
            f"the plan is for {many(placed.ranks, 'rank')}, the cluster has {topology.ranks}",
            where=str(path),
            fix="leave --cluster and --ranks out: the plan knows its cluster",
        )
    return placed, topology, document.dispatch


def _contiguous(meta: TraceMeta, said: Topology | None) -> tuple[Plan, Topology]:
    import numpy as np

    from easybalance_sim.cluster.topology import Topology, uniform
    from easybalance_sim.policies import Problem, make

    topology = said or uniform(DEFAULT_RANKS, DEFAULT_RANKS, 1)
    room = Topology(
        node_of_rank=topology.node_of_rank,
        slots_per_rank=np.full(topology.ranks, -(-meta.experts // topology.ranks)),
        speed=np.ones(topology.ranks),
    )
    shape = (len(meta.layers), meta.experts)
    problem = Problem(forecast=np.zeros(shape), windows=np.zeros((0, *shape), np.int64), topology=room)
    return make("contiguous", problem), room


def _known_rule(rule: str) -> str:
    from easybalance_sim.planning.session import require_choice
    from easybalance_sim.replay.dispatch import RULES

    require_choice("--dispatch", rule, tuple(RULES))
    return rule


def _tokens(job: LoadsJob, console: Console) -> int:
    """Tokens ahead; notes what has to be assumed."""
    from easybalance_sim.replay.loads_run import recorded_ranks
    from easybalance_sim.trace.dataset import TokenTrace

    if not isinstance(job.trace, TokenTrace):
        console.note("count trace: each window stands for one step, loads of ranks are expected values")
        return 1
    for note in job.trace.scan().notes:
        console.note(note)
    known = recorded_ranks(job.trace)
    if known != job.plan.ranks:
        console.note(
            f"source ranks of the trace ({known or 'none'}) do not fit {many(job.plan.ranks, 'rank')}: "
            "request mod R instead"
        )
    return job.trace.tokens


def _document(job: LoadsJob, phases: list[PhaseLoads], console: Console) -> dict[str, Any]:
    from easybalance_sim.trace.dataset import TokenTrace

    scan = job.trace.scan() if isinstance(job.trace, TokenTrace) else None
    return {
        "trace": facts(job.trace, scan),
        "cluster": {"ranks": job.plan.ranks, "nodes": job.topology.nodes},
        "placement": job.plan.policy,
        "slots": job.plan.slots,
        "dispatch": job.rule,
        "phases": {one.phase: _phase(one, job.trace.meta) for one in phases},
        "file": None if job.output is None else str(job.output),
        "window_steps": job.window_steps,
        "notes": console.notes,
    }


def _phase(loads: PhaseLoads, meta: TraceMeta) -> dict[str, Any]:
    rows = [_row(loads, row) for row in range(len(meta.layers) + 1)]
    return {
        "steps": loads.steps,
        "step_tokens": _spread(loads.tokens, 0),
        "layers": [{"layer": layer, **row} for layer, row in zip(meta.layers, rows, strict=False)],
        "all_layers": rows[-1],
    }


def _row(loads: PhaseLoads, row: int) -> dict[str, Any]:
    law = loads.power_law
    return {
        **{name: _spread(loads.measures[field], row) for name, field in MEASURES.items()},
        "power_law": {
            "alpha": float(law.alpha[row]),
            "alpha_of_busiest": float(law.alpha_of_busiest[row]),
            "gini": float(law.gini[row]),
            "max_over_mean": float(law.busiest[row]),
            "drawn_max_over_mean": float(law.drawn_busiest[row]),
        },
    }


def _spread(spread: Spread, row: int) -> dict[str, float]:
    return {name: float(getattr(spread, name)[row]) for name in ("mean", "p50", "p99")}


def _text(document: dict[str, Any]) -> str:
    cluster, file = document["cluster"], document["file"]
    lines = [
        filled(facts_line(document["trace"])),
        filled(
            f"ranks {cluster['ranks']}, nodes {cluster['nodes']} · {document['placement']} placement, "
            f"{many(document['slots'], 'slot')} · dispatch {document['dispatch']}"
        ),
    ]
    for name, phase in document["phases"].items():
        tokens = phase["step_tokens"]
        title = (
            f"{name}: {many(phase['steps'], 'step')} of {tokens['mean']:,.1f} tokens "
            f"(P50 {tokens['p50']:,.0f}, P99 {tokens['p99']:,.0f})"
        )
        lines += ["", filled(title), _table(phase)]
    return "\n".join([*lines, *(["", filled(f"wrote {kept(file)}")] if file else [])])


_HEAD = (
    "layer", "local tokens", "P50", "P99", "active experts", "P50", "P99", "alpha", "by max", "Gini", "max/mean",
    "drawn",
)  # fmt: skip
_WHOLE = 1000
"""From so many tokens on, their mean has no decimal."""


def _table(phase: dict[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [_HEAD]
    both = [*phase["layers"], {"layer": "all", **phase["all_layers"]}]
    for row in both:
        spreads: list[str] = []
        for name in MEASURES:
            digits = 0 if max(one[name]["mean"] for one in both) >= _WHOLE else 1
            spread = row[name]
            spreads += [f"{spread['mean']:,.{digits}f}", f"{spread['p50']:,.0f}", f"{spread['p99']:,.0f}"]
        rows.append((str(row["layer"]), *spreads, *map(_number, row["power_law"].values())))
    return aligned(rows)


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"
