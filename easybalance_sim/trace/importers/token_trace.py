"""Traces of this format in any of its input layouts (packed, list, long rows; one file or a folder), rewritten packed.

Count traces are rewritten as they are. Files without metadata need the model's shape from the flags.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from easybalance_sim.amounts import Amount
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.conversion import Conversion, Converted, settle_hints, with_model
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.files import expand
from easybalance_sim.trace.schema import CountTrace, TraceMeta
from easybalance_sim.trace.tables import column_names
from easybalance_sim.trace.writer import token_trace_writer, write_count_trace


def matches(path: Path) -> bool:
    """Steps with experts, or windows with counts."""
    if path.is_dir() and not any(path.glob("*.parquet")):
        return False
    columns = column_names(expand([path])[0])
    return {"step", "experts"} <= set(columns) or {"window", "counts"} <= set(columns)


def convert(job: Conversion) -> list[Converted]:
    """Write the packed trace. Raises `TraceError` naming file, column and row."""
    trace = open_trace([job.source], settle_hints(job))
    meta = _meta(job, trace.meta)
    return [_counts(job, trace, meta) if isinstance(trace, CountTrace) else _tokens(job, trace, meta)]


def _meta(job: Conversion, meta: TraceMeta) -> TraceMeta:
    """The file's own metadata; --model adds the model's widths to it."""
    if job.model is None:
        return meta
    said, held = (job.model.layers, job.model.experts, job.model.top_k), (meta.layers, meta.experts, meta.top_k)
    if said != held:
        raise UsageError(
            f"the trace has {len(meta.layers)} layers × {meta.experts} experts, top-{meta.top_k}; {job.model.name} has "
            f"{len(job.model.layers)} × {job.model.experts}, top-{job.model.top_k}, or other layer ids",
            where=str(job.source),
            fix="correct --model",
        )
    return with_model(meta, job.model)


def _tokens(job: Conversion, trace: TokenTrace, meta: TraceMeta) -> Converted:
    scan = trace.scan()
    with token_trace_writer(job.output, meta, trace.workloads) as writer:
        advance = job.progress("convert", Amount(scan.tokens, "tokens"))
        for batch in trace.batches(gates=True, scores=True):
            writer.append(batch)
            advance(batch.tokens)
    return Converted(
        path=job.output,
        kind="tokens",
        model=meta.model,
        tokens=scan.tokens,
        steps=scan.steps,
        layers=len(trace.meta.layers),
        experts=trace.meta.experts,
        top_k=trace.meta.top_k,
        notes=scan.notes,
    )


def _counts(job: Conversion, trace: CountTrace, meta: TraceMeta) -> Converted:
    write_count_trace(job.output, replace(trace, meta=meta))
    return Converted(
        path=job.output,
        kind="counts",
        model=meta.model,
        tokens=int(trace.batch_tokens.sum()),
        steps=len(trace.window),
        layers=len(trace.meta.layers),
        experts=trace.meta.experts,
        top_k=trace.meta.top_k,
        notes=trace.notes,
    )
