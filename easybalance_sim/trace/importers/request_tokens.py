"""Routed tokens of single requests, recorded without steps: continuous batching is imposed on them.

Source: a Parquet file, or a folder with one, of columns `request_id` (or `request`), `token_pos` (or `position`) and
`experts` (L·K ids per token, list or packed bytes), no `step`. A second table of the folder with one row per request
may name its workload (column `workload` or `dataset`). Every token becomes one decode step of its request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace import layouts
from easybalance_sim.trace.conversion import (
    Conversion,
    Converted,
    settle_experts,
    settle_layers,
    settle_top_k,
    trace_meta,
)
from easybalance_sim.trace.files import open_parquet
from easybalance_sim.trace.schema import NO_WORKLOAD, TraceMeta
from easybalance_sim.trace.serving import CHUNK_TOKENS, IdSpool, Requests, id_spool, write_served
from easybalance_sim.trace.tables import (
    READABLE,
    column_names,
    file_says,
    first_present,
    read_table,
    text_codes,
)
from easybalance_sim.trace.validation import check_ids

REQUEST, POSITION, WORKLOAD = ("request_id", "request"), ("token_pos", "position"), ("workload", "dataset")


def matches(path: Path) -> bool:
    """A table of (request, position, experts) without steps, or a folder that holds one."""
    return _tokens_file(path) is not None


def convert(job: Conversion) -> list[Converted]:
    """Write the token trace. Raises `TraceError` for bad rows, `UsageError` for settings that do not fit."""
    source = _tokens_file(job.source)
    if source is None:
        raise TraceError("no table of routed tokens", where=str(job.source))
    with id_spool(job) as spool:
        meta = _meta(job, source)
        requests = _requests(source, job.source)
        _fill(spool, source, meta)
        return [write_served(job, meta, requests, spool.ids(meta, str(source)))]


def _tokens_file(path: Path) -> Path | None:
    inside = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return next((file for file in inside if file.suffix != ".csv" and _is_tokens(column_names(file))), None)


def _is_tokens(columns: tuple[str, ...]) -> bool:
    wanted = first_present(columns, REQUEST) and first_present(columns, POSITION)
    return bool(wanted) and "experts" in columns and "step" not in columns


def _meta(job: Conversion, source: Path) -> TraceMeta:
    says, where = file_says(source), str(source)
    top_k, experts = settle_top_k(job, says, where), settle_experts(job, says, where)
    if not 1 <= top_k <= experts <= 65536:
        raise UsageError(f"top-{top_k} of {experts} experts", where=where, fix="correct --experts or --top-k")
    width = _ids_per_token(source, experts)
    if width % top_k:
        raise UsageError(
            f"column experts has {width} ids per token, not a multiple of top-{top_k}",
            where=where,
            fix="correct --top-k",
        )
    return trace_meta(job, "tokens", settle_layers(job, width // top_k, where), experts, top_k, says)


def _ids_per_token(source: Path, experts: int) -> int:
    file = open_parquet(source)
    kind = file.schema_arrow.field("experts").type
    if file.metadata.num_rows == 0:
        raise TraceError("file has no rows", where=str(source), fix="record it again")
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width) // (1 if experts <= 256 else 2)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        first = next(file.iter_batches(batch_size=1, columns=["experts"])).column(0)[0].as_py()
        return len(first or ())
    raise TraceError(f"column experts has type {kind}, expected ids or bytes", where=str(source), fix="rewrite it")


def _requests(source: Path, folder: Path) -> Requests:
    columns = column_names(source)
    request_name, position_name = first_present(columns, REQUEST), first_present(columns, POSITION)
    own_workload = first_present(columns, WORKLOAD)
    light = [name for name in (request_name, position_name, own_workload) if name]
    frame = open_parquet(source).read(columns=light).to_pandas()
    for name in (request_name, position_name):
        _require_whole(frame[name], str(source))
    code, ids = pd.factorize(frame[request_name])
    position = frame[position_name].to_numpy(np.int64)
    row = np.lexsort((position, code))
    _require_distinct(code[row], position[row], row, str(source))
    length = np.bincount(code)
    begin = np.cumsum(length) - length
    first_rows = frame.iloc[row[begin]]
    named = first_rows[own_workload] if own_workload else _named_elsewhere(folder, source, ids)
    workload, workloads = text_codes(named)
    return Requests(
        row=row,
        request=np.asarray(ids, np.int64)[code[row]],
        position=position[row],
        length=length,
        prompt=np.zeros(len(length), np.int64),
        workload=workload,
        workloads=tuple(workloads),
    )


def _require_whole(column: pd.Series[Any], where: str) -> None:
    if not pd.api.types.is_integer_dtype(column) or bool(column.isna().any()):
        raise TraceError(f"column {column.name} must hold whole numbers without gaps", where=where, fix="correct it")


def _require_distinct(code: IntArray, position: IntArray, row: IntArray, where: str) -> None:
    twice = np.flatnonzero((np.diff(code) == 0) & (np.diff(position) == 0))
    if len(twice):
        first, second = sorted((int(row[twice[0]]), int(row[twice[0] + 1])))
        raise TraceError(
            f"rows {first} and {second}: the same request and position", where=where, fix="drop one, or number requests"
        )


def _named_elsewhere(folder: Path, source: Path, ids: AnyArray) -> list[str]:
    """Workload of each request id from the folder's request table; one name for all when there is none."""
    others = sorted(p for p in folder.glob("*") if p.suffix in READABLE and p != source) if folder.is_dir() else []
    for path in others:
        columns = column_names(path)
        key, name = first_present(columns, REQUEST), first_present(columns, WORKLOAD)
        if not key or not name or "experts" in columns or first_present(columns, POSITION):
            continue
        table = read_table(path).set_index(key)[name]
        if table.index.is_unique and pd.Index(ids).isin(table.index).all():
            return [str(text) for text in table.loc[ids]]
    return [NO_WORKLOAD] * len(ids)


def _fill(spool: IdSpool, source: Path, meta: TraceMeta) -> None:
    """Check the ids row by row and spool them."""
    file, where = open_parquet(source), str(source)
    layout = layouts.detect(file.schema_arrow, meta, where)
    row = 0
    for record in file.iter_batches(batch_size=CHUNK_TOKENS, columns=["experts"]):
        ids = layouts.expert_ids(record.column(0), layout, meta, where, row)
        check_ids(frozen(ids), meta, where, row)
        spool.append(ids)
        row += len(ids)
