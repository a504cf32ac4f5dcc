"""Which workload leads in a window, from the first and last steps of requests."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.load.selection import Selection
from easybalance_sim.load.split import HELD_OUT, make_split
from easybalance_sim.replay.workloads import judged_requests, leading
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from tests.trace_files import token_meta, write_trace

REQUESTS = ((0, 7, "code"), (0, 3, "chat"), (0, 15, "code"), (8, 15, "chat"), (8, 15, "chat"))
"""First step, last step, workload."""
IDS = np.arange(4)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TokenTrace:
    rows = sorted((step, one) for one, (first, last, _) in enumerate(REQUESTS) for step in range(first, last + 1))
    step, request = (np.array(column) for column in zip(*rows, strict=True))
    columns = {
        "step": step.astype(np.int32),
        "request": request,
        "workload": np.array([REQUESTS[one][2] for one in request]),
        "experts": np.zeros((len(rows), 1, 1), np.uint8),
    }
    path = write_trace(tmp_path_factory.mktemp("workloads") / "trace.parquet", columns, token_meta((0,), 4, 1))
    found = open_trace([path])
    assert isinstance(found, TokenTrace)
    return found


def test_the_workload_of_most_running_requests_leads(trace: TokenTrace) -> None:
    """Windows of 4 steps: two of code and one of chat; two of code; then one of code and two of chat."""
    assert leading(trace, np.ones(5, np.bool_), IDS, 4) == ("code", "code", "chat", "chat")


def test_half_of_the_requests_is_no_lead(trace: TokenTrace) -> None:
    chosen = np.array([True, True, False, True, True])
    assert leading(trace, chosen, IDS, 4) == ("", "code", "chat", "chat")
    assert leading(trace, np.zeros(5, np.bool_), IDS, 4) == ("",) * 4


def test_only_judged_requests_count(trace: TokenTrace) -> None:
    everything, codes = Selection(), Selection(workloads=(trace.workloads.index("code"),))
    of_code = [name == "code" for *_, name in REQUESTS]
    assert judged_requests(trace, everything, None).all()
    assert judged_requests(trace, codes, None).tolist() == of_code
    split = make_split(trace.scan(), trace.workloads, "request", 0.5, 0, 4)
    held = (split.side == HELD_OUT).tolist()
    assert judged_requests(trace, everything, split).tolist() == held
    unseen = Selection(without=Selection(workloads=codes.workloads, without=Selection(split=split, side=HELD_OUT)))
    expected = [kept or not mine for kept, mine in zip(held, of_code, strict=True)]
    assert judged_requests(trace, unseen, None).tolist() == expected
    assert judged_requests(trace, Selection(without=codes), None).tolist() == [not one for one in of_code]
