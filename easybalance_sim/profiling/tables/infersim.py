"""Grouped-GEMM times of InferSim (f2293da, `bench_data/grouped_gemm`): the two GEMMs only, balanced loads."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.rows import ExpertRow, Table, sift

HALF_EMPTY = "256 experts on one GPU at one token each: only about half of them were active"
_INTEGERS = ("num_experts", "num_gpus", "num_local_experts", "topk", "hidden_size", "intermediate_size")
_TIMES = ("tokens_per_expert", "up_proj_us", "down_proj_us")


def read(path: Path) -> Table[ExpertRow]:
    """The usable rows. Raises `ProfileError` naming the file and row: unreadable, missing column, not a number."""
    return sift(str(path), ((row, _reason(row)) for row in _rows(path)))


def _reason(row: ExpertRow) -> str:
    return HALF_EMPTY if row.ep == 1 and len(row.counts) == 256 and max(row.counts) == 1 else ""


def _rows(path: Path) -> Iterator[ExpertRow]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in (*_INTEGERS, *_TIMES) if name not in (reader.fieldnames or ())]
            if missing:
                raise ProfileError(f"column {missing[0]} is missing", where=str(path), fix="give an InferSim table")
            for number, raw in enumerate(reader, start=1):
                yield _row(raw, f"{path}: row {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check the path") from error


def _row(raw: dict[str, str], where: str) -> ExpertRow:
    try:
        experts, ranks, local, top_k, hidden, intermediate = (int(raw[name]) for name in _INTEGERS)
        each, up_us, down_us = (float(raw[name]) for name in _TIMES)
    except (TypeError, ValueError) as error:
        raise ProfileError(f"not a number: {error}", where=where, fix="remove the row") from error
    return ExpertRow(
        us=up_us + down_us,
        hidden=hidden,
        intermediate=intermediate,
        experts=experts,
        top_k=top_k,
        ep=ranks,
        slots=local * ranks,
        tokens=int(each) * local * ranks,
        distribution="balanced",
        counts=(int(each),) * local,
    )
