"""`ebsim trace summary`: how uneven the load is, how lasting, and how much of it is batch noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from easybalance_sim.amounts import Amount
from easybalance_sim.cli.console import Console, Format, emit, say_notes
from easybalance_sim.cli.layout import aligned, filled, kept, wrapped
from easybalance_sim.cli.options import Cluster, OutputFormat, Ranks, RanksPerNode, Traces
from easybalance_sim.cli.trace_output import by_phase, by_workload, facts, facts_line, without_nan
from easybalance_sim.cli.trace_pairs import pair_facts, pair_lines
from easybalance_sim.errors import UsageError
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    from easybalance_sim.cluster.topology import Topology
    from easybalance_sim.load.windows import LoadWindows
    from easybalance_sim.trace.schema import TraceMeta

HOT_LISTED = 8
DEFAULT_RANKS = 8


def summary(
    traces: Traces,
    ranks: Ranks = None,
    ranks_per_node: RanksPerNode = None,
    cluster: Cluster = None,
    window_steps: Annotated[int, typer.Option(help="Steps per window.")] = 16,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Describe the load of a trace, layer by layer, and on a cluster under contiguous placement.

    over-dispersion is the variance of the window loads over that of independent tokens: 1 means batch noise only.
    Co-activation says which experts of a layer tokens choose together more often than independent choices would.

    Exit 0.

    \b
    Example: ebsim trace summary traces/tinymoe.parquet --ranks 8
    """
    from easybalance_sim.load.counting import Windowing, windows_of_counts
    from easybalance_sim.load.description import describe
    from easybalance_sim.trace.dataset import TokenTrace, open_trace

    trace = open_trace(traces)
    topology = _topology(trace.meta, ranks, ranks_per_node, cluster)
    windowing = Windowing(steps=window_steps)
    if isinstance(trace, TokenTrace):
        scan = trace.scan()
        windows, together, every = describe(
            trace, windowing, Console().progress("summary", Amount(trace.tokens, "tokens"))
        )
    else:
        scan, windows, together, every = None, windows_of_counts(trace), None, 1
    document = {
        "trace": facts(trace, scan),
        "phases": by_phase(trace, scan),
        "workloads": by_workload(trace, scan),
        **_measure(windows.full_only(), trace.meta, topology),
        "coactivation": pair_facts(together, trace.meta),
        "notes": [*(scan.notes if scan else ()), *_cluster_note(topology, ranks, cluster), *_length_note(every)],
    }
    if format is Format.JSON:
        emit(json.dumps(without_nan(document), indent=2))
        return
    emit(_text(document))
    say_notes(document["notes"])


def _topology(meta: TraceMeta, ranks: int | None, ranks_per_node: int | None, cluster: Path | None) -> Topology:
    from easybalance_sim.cluster.topology import load_cluster, uniform

    if cluster is not None:
        if ranks is not None or ranks_per_node is not None:
            raise UsageError("--cluster and --ranks do not go together", fix="use one of them")
        return load_cluster(cluster)
    count = ranks or DEFAULT_RANKS
    return uniform(count, ranks_per_node or min(count, DEFAULT_RANKS), -(-meta.experts // count))


def _cluster_note(topology: Topology, ranks: int | None, cluster: Path | None) -> list[str]:
    said = ranks is not None or cluster is not None
    return [] if said else [f"no cluster given: {many(topology.ranks, 'rank')}, as contiguous placement would use them"]


def _length_note(every: int) -> list[str]:
    return [f"the trace is long: one of {every} windows is described"] if every > 1 else []


def _measure(windows: LoadWindows, meta: TraceMeta, topology: Topology) -> dict[str, Any]:
    from easybalance_sim.load import analysis, hotspots

    tokens = windows.tokens
    share = _contiguous_share(windows, topology)
    by_rank, by_node = analysis.placed_imbalance(tokens, share, topology.node_of_rank)
    uneven, lasting = analysis.skew(windows.total), analysis.persistence(tokens)
    dispersion = analysis.over_dispersion(tokens, meta.top_k)
    experts, heated = hotspots.hot_experts(tokens), hotspots.staying_hot(tokens)
    columns: dict[str, Any] = {
        "layer": meta.layers,
        "max_over_mean": uneven.max_over_mean.tolist(),
        "entropy": uneven.entropy.tolist(),
        "gini": uneven.gini.tolist(),
        "rank_imbalance": [_spread(column) for column in by_rank.T],
        "node_imbalance": [_spread(column) for column in by_node.T],
        "correlation": lasting.correlation.tolist(),
        "hot_overlap": lasting.hot_overlap.tolist(),
        "over_dispersion": dispersion.tolist(),
        "hot_expert_windows": experts.windows.sum(axis=1).tolist(),
    }
    heat = hotspots.rank_heat(tokens, share)
    nodes = hotspots.node_heat(heat, topology.node_of_rank)
    return {
        "windows": {"count": len(tokens), "steps_per_window": windows.steps_per_window},
        "cluster": {"ranks": topology.ranks, "nodes": topology.nodes, "placement": "contiguous"},
        "layers": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "all_layers": {
            "max_over_mean": _range(columns["max_over_mean"]),
            "rank_imbalance": _spread(by_rank),
            "node_imbalance": _spread(by_node),
            "correlation": _mean(columns["correlation"]),
            "hot_overlap": _mean(columns["hot_overlap"]),
            "over_dispersion": _mean(columns["over_dispersion"]),
        },
        "reading": analysis.reading(_mean(columns["over_dispersion"])),
        "hot_spots": {
            "experts": _hottest(experts, meta),
            "suppressed_spikes": experts.suppressed,
            "rank_windows": hotspots.hot_ranks(heat).windows.tolist(),
            "node_windows": hotspots.hot_ranks(nodes).windows.tolist(),
            "staying": {
                "on": hotspots.ON,
                "off": hotspots.OFF,
                "experts": _hottest(heated, meta),
                "suppressed_spikes": heated.suppressed,
                "rank_windows": hotspots.staying_hot(heat).windows.tolist(),
                "node_windows": hotspots.staying_hot(nodes).windows.tolist(),
            },
        },
    }


def _contiguous_share(windows: LoadWindows, topology: Topology) -> Any:
    import numpy as np

    from easybalance_sim.load.hotspots import even_share
    from easybalance_sim.policies import Problem, make

    load = windows.total.astype(np.float64)
    plan = make("contiguous", Problem(forecast=load, windows=windows.tokens[:0], topology=topology))
    return even_share(plan.expert_of_slot, plan.rank_of_slot, plan.experts, topology.ranks)


def _hottest(found: Any, meta: TraceMeta) -> list[dict[str, int]]:
    import numpy as np

    counts = found.windows
    order = np.argsort(-counts, axis=None, kind="stable")[:HOT_LISTED]
    places = zip(*np.unravel_index(order, counts.shape), strict=True)
    return [
        {"layer": meta.layers[layer], "expert": int(expert), "windows": int(counts[layer, expert])}
        for layer, expert in places
        if counts[layer, expert]
    ]


def _text(document: dict[str, Any]) -> str:
    cluster, windows, all_layers = document["cluster"], document["windows"], document["all_layers"]
    steps = f"{windows['count']:,} of {many(windows['steps_per_window'], 'step')}"
    head = [
        facts_line(document["trace"]),
        f"over-dispersion {_number(all_layers['over_dispersion'])}: {document['reading']}",
    ]
    fields = [
        _field("phases", _counts(document["phases"])),
        _field("workloads", _counts(document["workloads"])),
        _field(
            "windows",
            f"{steps} · ranks {cluster['ranks']}, nodes {cluster['nodes']}, {cluster['placement']} placement",
        ),
    ]
    spread = all_layers["max_over_mean"]
    tail = [
        f"expert max/mean over layers: min {spread['min']:.2f}, median {spread['median']:.2f}, max {spread['max']:.2f}",
        *_hot(document["hot_spots"]),
        *pair_lines(document["coactivation"], len(document["layers"])),
    ]
    return "\n".join([*map(filled, head), *fields, "", _table(document), "", *map(filled, tail)])


def _field(title: str, text: str) -> str:
    return "\n".join(wrapped(text, first=title.ljust(11), then=" " * 11))


_LEGEND = (
    "max/mean: busiest expert · lasting: correlation of neighbouring windows · stays hot: share of the busiest tenth "
    "that is there in the next window, too · over-disp.: over-dispersion"
)


def _table(document: dict[str, Any]) -> str:
    """A row per layer; nodes only where there are several."""
    nodes = document["cluster"]["nodes"] > 1
    head = ("layer", "max/mean", "entropy", "Gini", "lasting", "stays hot", "over-disp.", "rank mean", "rank P99")
    rows: list[tuple[str, ...]] = [(*head, "node mean", "node P99") if nodes else head]
    for layer in document["layers"]:
        uneven = (_number(layer[name]) for name in ("max_over_mean", "entropy", "gini"))
        rows.append((str(layer["layer"]), *uneven, *_lasting(layer), *_placed(layer, nodes)))
    both = document["all_layers"]
    rows.append(("all", _number(both["max_over_mean"]["median"]), "", "", *_lasting(both), *_placed(both, nodes)))
    return f"{aligned(rows)}\n{filled(_LEGEND)}"


def _lasting(row: dict[str, Any]) -> list[str]:
    return [_number(row[name], 2) for name in ("correlation", "hot_overlap", "over_dispersion")]


def _placed(row: dict[str, Any], nodes: bool) -> list[str]:
    spreads = [row["rank_imbalance"], *([row["node_imbalance"]] if nodes else [])]
    return [text for spread in spreads for text in (_number(spread["mean"]), _number(spread["p99"], 2))]


def _hot(hot: dict[str, Any]) -> list[str]:
    staying = hot["staying"]
    return [
        f"hot (the last three windows over {staying['on']:g} × the mean, until below {staying['off']:g} ×; in "
        "brackets: windows)",
        *_hot_lines(staying),
        "hot by the EasyBalance article's rule (three windows above the mean, the last 15 % up), which finds less "
        "of what stays hot: `ebsim offset --part sensing` compares",
        *_hot_lines(hot),
    ]


def _hot_lines(hot: dict[str, Any]) -> list[str]:
    experts = [f"L{e['layer']}/E{e['expert']} ({e['windows']})" for e in hot["experts"]]
    ranks = [f"{rank} ({count})" for rank, count in enumerate(hot["rank_windows"]) if count]
    return [
        f"  experts: {', '.join(experts) or 'none'}; {hot['suppressed_spikes']:,} single-window spikes not counted",
        f"  ranks over all layers: {', '.join(ranks) or 'none'}",
    ]


def _counts(named: dict[str, int]) -> str:
    return " · ".join(kept(f"{name} {count:,}") for name, count in named.items())


def _number(value: float, digits: int = 3) -> str:
    return "–" if value != value else f"{value:.{digits}f}"


def _spread(values: Any) -> dict[str, float]:
    import numpy as np

    return {"mean": float(values.mean()), "p99": float(np.quantile(values, 0.99))}


def _range(values: list[float]) -> dict[str, float]:
    import numpy as np

    return {"min": min(values), "median": float(np.median(values)), "max": max(values)}


def _mean(values: list[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
