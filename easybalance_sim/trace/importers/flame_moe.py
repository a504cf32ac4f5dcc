"""FLAME-MoE: routing of one checkpoint, a Parquet file per layer (indices, scores), row i the same token.

Source: the folder of one checkpoint, such as `actives/iter_5473`. The tokens are a training corpus in file order, not
requests: every --concurrency rows become a step, in equal parts from every rank. Layer ids are those of the file names.
Layout: data set CMU-FLAME/FLAME-MoE-Traces (Kang et al. 2025, arXiv 2505.20225).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace import layouts
from easybalance_sim.trace.conversion import (
    Conversion,
    Converted,
    refuse_slots,
    settle_experts,
    settle_layers,
    settle_top_k,
    trace_meta,
)
from easybalance_sim.trace.files import open_parquet, reading
from easybalance_sim.trace.recorded_ids import checked_ids
from easybalance_sim.trace.schema import NO_WORKLOAD, PREFILL, TokenBatch, TraceMeta
from easybalance_sim.trace.writer import token_trace_writer

CHUNK_TOKENS = 65536
_LAYER = re.compile(r"(?:.*[_-])?layer[_-]?(\d{1,5})")


def convert(job: Conversion) -> list[Converted]:
    """Write the token trace, with gates where there are scores. Raises `TraceError` naming file, row and layer,
    `UsageError` for settings."""
    refuse_slots(job)
    if job.concurrency < 1 or not 1 <= job.ranks <= np.iinfo(np.int16).max:
        raise UsageError(f"--concurrency is {job.concurrency}, --ranks {job.ranks}", fix="give at least 1")
    files = _files(job.source)
    tokens = _require_equal(files)
    meta = _meta(job, files)
    with token_trace_writer(job.output, meta, (NO_WORKLOAD,)) as writer:
        advance = job.progress("convert", Amount(tokens, "tokens"))
        for batch in _batches(job, files, meta):
            writer.append(batch)
            advance(batch.tokens)
    return [
        Converted(
            path=job.output,
            kind="tokens",
            model=meta.model,
            tokens=tokens,
            steps=-(-tokens // job.concurrency),
            layers=len(meta.layers),
            experts=meta.experts,
            top_k=meta.top_k,
            notes=(f"training tokens in file order, no requests: every {job.concurrency:,} of them are a step",),
        )
    ]


def _files(source: Path) -> dict[int, Path]:
    """The file of each layer, ascending."""
    paths = sorted(source.glob("*.parquet")) if source.is_dir() else []
    found: dict[int, Path] = {}
    for path in paths:
        name = _LAYER.fullmatch(path.stem)
        if name is None:
            raise TraceError("no layer number in the name", where=str(path), fix="name the files layer_02.parquet, …")
        if int(name[1]) in found:
            raise TraceError(
                f"layer {int(name[1])} is in {found[int(name[1])].name}, too",
                where=str(path),
                fix="import one iteration at a time, each from its own folder",
            )
        found[int(name[1])] = path
    if not found:
        raise TraceError(
            "folder of one iteration expected, with a layer_NN.parquet per layer",
            where=str(source),
            fix="name a folder such as actives/iter_5473",
        )
    return dict(sorted(found.items()))


def _require_equal(files: dict[int, Path]) -> int:
    """Tokens. Raises `TraceError` unless all layers hold as many, and at least one."""
    rows = {layer: int(open_parquet(path).metadata.num_rows) for layer, path in files.items()}
    tokens = next(iter(rows.values()))
    for layer, path in files.items():
        if rows[layer] != tokens or tokens == 0:
            raise TraceError(
                f"holds {rows[layer]:,} tokens, the first layer {tokens:,}", where=str(path), fix="copy all files whole"
            )
        names = open_parquet(path).schema_arrow.names
        if "indices" not in names:
            raise TraceError("column indices is missing", where=str(path), fix="give the files below actives/")
    return tokens


def _meta(job: Conversion, files: dict[int, Path]) -> TraceMeta:
    where = str(job.source)
    path = next(iter(files.values()))
    with reading(str(path)):
        first = next(open_parquet(path).iter_batches(batch_size=1, columns=["indices"])).column(0)
    if not layouts.is_list(first.type) or not pa.types.is_integer(first.type.value_type):
        raise TraceError(
            f"column indices has type {first.type}, expected lists of ids", where=str(path), fix="copy it again"
        )
    width = len(first[0].as_py() or ())
    says = {"top_k": str(width)}
    top_k, experts = settle_top_k(job, says, where), settle_experts(job, {}, where)
    if top_k != width or not 1 <= top_k <= experts <= 65536:
        raise UsageError(
            f"holds {width} ids per token, not top-{top_k} of {experts} experts",
            where=where,
            fix="correct --top-k, --experts or --model",
        )
    layers = settle_layers(job, len(files), where) if job.layers or job.model else tuple(files)
    return trace_meta(job, "tokens", layers, experts, top_k, {})


def _batches(job: Conversion, files: dict[int, Path], meta: TraceMeta) -> Iterator[TokenBatch]:
    """Whole steps; their parts that come from one rank are a request each."""
    at_once = max(1, CHUNK_TOKENS // job.concurrency) * job.concurrency
    scored = all("scores" in open_parquet(path).schema_arrow.names for path in files.values())
    first = 0
    for columns in zip(*(_rows(path, meta.top_k, at_once, scored) for path in files.values()), strict=True):
        ids, gates = np.stack([ids for ids, _ in columns], axis=1), None
        token = np.arange(first, first + len(ids))
        if scored:
            gates = np.stack([scores for _, scores in columns], axis=1)
            order = np.argsort(-gates, axis=2, kind="stable")
            ids, gates = np.take_along_axis(ids, order, axis=2), np.take_along_axis(gates, order, axis=2)
        step, inside = token // job.concurrency, token % job.concurrency
        rank = inside * job.ranks // job.concurrency
        yield TokenBatch(
            step=step.astype(np.int32),
            request=step * job.ranks + rank,
            position=inside.astype(np.int32),
            phase=np.full(len(ids), PREFILL, np.uint8),
            source_rank=rank.astype(np.int16),
            workload=np.zeros(len(ids), np.int16),
            experts=checked_ids(ids, meta, str(job.source), token),
            gates=gates,
            first_row=first,
        )
        first += len(ids)


def _rows(path: Path, top_k: int, at_once: int, scored: bool) -> Iterator[tuple[AnyArray, AnyArray]]:
    """[n, K] ids and float16 scores (the ids again without any), `at_once` rows at a time."""
    names = ["indices", "scores"] if scored else ["indices"]
    where, first, held = str(path), 0, pa.table({})
    records = iter(open_parquet(path).iter_batches(batch_size=at_once, columns=names))
    while True:
        with reading(where):
            record = next(records, None)
        table = held if record is None else pa.Table.from_batches([record])
        if record is not None and held.num_rows:
            table = pa.concat_tables([held, table])
        while table.num_rows >= at_once or (record is None and table.num_rows):
            yield _values(table.slice(0, at_once), top_k, where, first, scored)
            first += min(at_once, table.num_rows)
            table = table.slice(at_once)
        held = table
        if record is None:
            return


def _values(table: Any, top_k: int, where: str, first: int, scored: bool) -> tuple[AnyArray, AnyArray]:
    ids = layouts.flat_list("indices", table.column("indices").combine_chunks(), top_k, where, first)
    ids = ids.reshape(-1, top_k)
    if not scored:
        return ids, ids
    column = table.column("scores").combine_chunks()
    if not layouts.is_list(column.type) or not pa.types.is_floating(column.type.value_type):
        raise TraceError(f"column scores has type {column.type}, expected lists of floats", where=where, fix="copy it")
    scores = layouts.flat_list("scores", column, top_k, where, first).astype(np.float16).reshape(-1, top_k)
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if len(bad):
        raise TraceError(f"column scores, row {first + int(bad[0])}: not a number", where=where, fix="copy it again")
    return ids, scores
