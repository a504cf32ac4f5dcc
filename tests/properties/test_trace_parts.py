"""Random recordings in random files, read in random parts: the tokens, and the scan, of a naive reader."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.trace import parts, source
from easybalance_sim.workers.threads import Threads
from tests.trace_files import (
    LAYOUTS,
    Columns,
    joined,
    random_columns,
    read_columns,
    require_equal,
    take,
    token_meta,
    token_trace,
    write_trace,
)

META = token_meta(layers=(3, 5), experts=8, top_k=2)


def recordings_of(files: list[Columns]) -> list[list[Columns]]:
    """The files numbered on, those of a recording together."""
    found: list[list[Columns]] = []
    base = {"step": 0, "request": 0, "time_s": 0.0}
    last_step, last_request, last_time_s, opening = -1, -1, 0.0, -1
    for columns in files:
        begin = int(columns["step"][0])
        if not found or begin + base["step"] < last_step or begin == opening:
            if found:
                behind_s = max(0.0, last_time_s - float(columns["time_s"][0]))
                base = {"step": last_step + 1 - begin, "request": last_request + 1, "time_s": behind_s}
            opening = begin
            found.append([])
        moved = columns | {name: columns[name] + more if more else columns[name] for name, more in base.items()}
        last_step, last_time_s = int(moved["step"][-1]), float(moved["time_s"][-1])
        last_request = max(last_request, int(moved["request"].max()))
        found[-1].append(moved)
    return found


def without_warmup(recording: list[Columns]) -> list[Columns]:
    """Less the leading steps in which all tokens are alike, file by file; all of it where every step is like that."""
    kept, begun = [], False
    for columns in recording:
        alike = 0
        for step in [] if begun else np.unique(columns["step"]):
            ids = columns["experts"][columns["step"] == step]
            begun = len(ids) < 2 or not (ids == ids[0]).all()
            if begun:
                break
            alike += len(ids)
        kept.append(take(columns, slice(alike, None)))
    return kept if begun else recording


def random_files(rng: np.random.Generator) -> list[Columns]:
    """Files that start again, go on with the last step, or with the one behind it; some begin with a warm-up."""
    files, last = [], 0
    for _ in range(rng.integers(1, 5)):
        steps = np.cumsum(rng.choice([0, 0, 0, 1, 2], rng.integers(1, 40)))
        steps += rng.choice([0, last, last + 1]) - steps[0]
        columns = random_columns(rng, steps.tolist(), META)
        if rng.random() < 0.4:
            columns["experts"][steps <= rng.choice(steps)] = columns["experts"][0]
        files.append(columns)
        last = int(steps[-1])
    return files


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(1, 50), st.integers(1, 12), st.sampled_from([1, 2, 7])
)
def test_any_files_in_any_parts(seed: int, span: int, batch: int, row_group: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    files = random_files(rng)
    wanted = joined([part for recording in recordings_of(files) for part in without_warmup(recording)])
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(source, SPAN_TOKENS=span, BATCH_TOKENS=batch),
        mock.patch.object(parts, "TAIL_TOKENS", 1 + batch // 2),
        mock.patch.object(Threads, "parts", lambda self, state_bytes: count),
    ):
        for number, columns in enumerate(files):
            write_trace(Path(folder, f"{number}.parquet"), columns, META, str(rng.choice(LAYOUTS)), row_group=row_group)
        trace = token_trace(Path(folder))
        scan = trace.scan()
        require_equal(read_columns(trace, gates=True), wanted)
        steps = list(trace.map(lambda batches: [each.step for each in batches]))
    found = np.concatenate([np.zeros(0, np.int32), *(step for part in steps for step in part)])
    assert found.tolist() == wanted["step"].tolist()
    assert (scan.tokens, scan.steps) == (len(found), len(np.unique(found)))
    requests, first = np.unique(wanted["request"], return_index=True)
    assert scan.request.tolist() == requests.tolist()
    assert scan.request_first.tolist() == wanted["step"][first].tolist()
    assert [trace.workloads[code] for code in scan.request_workload] == wanted["workload"][first].tolist()
