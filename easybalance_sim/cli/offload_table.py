"""The tables of `ebsim offload`: the answers, then hit rates, step times and bytes by size of the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from easybalance_sim.cli.layout import aligned, filled, kept

Section = Mapping[str, Any]


def of(report: Section) -> str:
    """Everything that was asked for."""
    blocks = ["\n".join(map(filled, report["answers"])), "\n".join(map(filled, _head(report)))]
    blocks += ["\n\n".join(_batch(batch)) for batch in report["batches"]]
    if report["figure"]:
        blocks.append(filled(f"drew {kept(report['figure'])}"))
    return "\n\n".join(blocks)


def _head(report: Section) -> Iterator[str]:
    model, host, trace = report["model"], report["host"], report["trace"]
    sent = "" if model["offload_dtype"] == model["resident_dtype"] else f", {model['offload_dtype']} on the link"
    cache = "a cache for every layer" if report["scope"] == "layer" else "one cache for all layers"
    yield (
        f"{model['name'] or 'unnamed model'}: {trace['layers']} layers × {trace['experts']} experts of "
        f"{model['resident_bytes'] / 1e6:.3g} MB {model['resident_dtype']}{sent}, {model['all_bytes'] / 1e9:.3g} GB in "
        f"all; {cache}"
    )
    yield (
        f"link {host['name']}: {host['bytes_per_s'] / 1e9:.3g} GB/s after {host['latency_us']:.3g} µs, "
        f"{host['expert_us']:.3g} µs an expert"
    )
    yield f"seconds: {report['seconds']}"


def _batch(batch: Section) -> Iterator[str]:
    title = "as recorded" if batch["batch"] is None else f"{batch['batch']} at once"
    resident = batch["all_resident"]
    judged = (
        f"{title}: {batch['judged_steps']:,} steps judged after {batch['past_steps']:,}, "
        f"{batch['tokens_per_step']:.3g} tokens a step, {batch['experts_per_layer']:.3g} experts a layer"
    )
    fastest = (
        f"with all experts on the GPU a layer takes {resident['layer_us']:.3g} µs, a step "
        f"{resident['step_us']['mean']:,.0f} µs (P99 {resident['step_us']['p99']:,.0f})"
    )
    yield f"{filled(judged)}\n{filled(fastest)}"
    yield _table(
        batch, "hit rate, % of the experts that a layer needs", lambda one: f"{100 * one['hit_rate']:.1f}", bounded=True
    )
    yield _table(batch, "hit rate, % of tokens", lambda one: f"{100 * one['token_hit_rate']:.1f}")
    yield _table(batch, "mean step, times all-resident", lambda one: f"{one['slowdown']:.2f}")
    yield _table(batch, "P99 of what a step waits, ms", lambda one: f"{one['added_us']['p99'] / 1e3:.2f}")
    yield _table(
        batch, "MB on the link per token", lambda one: f"{one['link_bytes_per_token'] / 1e6:.3g}", bounded=True
    )


def _table(batch: Section, title: str, cell: Callable[[Section], str], *, bounded: bool = False) -> str:
    """A row per size of the cache. bounded: no policy can pass Belady's, which has the fewest experts to fetch."""
    curves = batch["curves"]
    rows = [("  on the GPU", *(_name(curve, bounded) for curve in curves))]
    for place, one in enumerate(curves[0]["points"]):
        rows.append((f"  {100 * one['share']:3.0f} %", *(cell(curve["points"][place]) for curve in curves)))
    return f"{title}\n{aligned(rows)}"


def _name(curve: Section, bounded: bool) -> str:
    name = curve["policy"] if curve["prefetch"] == "none" else f"{curve['policy']} + {curve['prefetch']}"
    return f"{name} (bound)" if curve["bound"] and bounded else name
