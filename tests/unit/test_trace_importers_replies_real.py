"""Published routing of GPT-OSS-20B, put into replies of the engines and imported (skipped where the data is absent)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion
from tests.reply_files import npy, store, text
from tests.trace_files import read_columns, token_trace

RECORDING = Path(__file__).parents[3] / "shared" / "data" / "gptoss20b_routing" / "routing_tokens.parquet"
REQUESTS, PROMPT = 40, 20

pytestmark = pytest.mark.skipif(not RECORDING.exists(), reason=f"no recording at {RECORDING}")


def recorded() -> list[AnyArray]:
    """[tokens, 24, 4] ids of the first requests, by position."""
    table = pq.read_table(RECORDING, columns=["request_id", "token_pos", "experts"])
    request, position = table["request_id"].to_numpy(), table["token_pos"].to_numpy()
    ids = table["experts"].combine_chunks().flatten().to_numpy().reshape(-1, 24, 4)
    found = []
    for one in np.unique(request)[:REQUESTS]:
        rows = np.flatnonzero(request == one)
        found.append(ids[rows[np.argsort(position[rows])]])
    return found


def reply(kind: str, number: int, ids: AnyArray) -> dict[str, Any]:
    counts = {"prompt_tokens": PROMPT, "completion_tokens": len(ids) + 1 - PROMPT}
    if kind == "sglang_routed_experts":
        return {"meta_info": counts | {"id": f"r{number}", "routed_experts": text(ids.astype("<i4").tobytes())}}
    choice = {"index": 0, "routed_experts": npy(ids.astype(np.uint8))}
    return {"id": f"r{number}", "choices": [choice], "usage": counts}


@pytest.mark.parametrize("kind", ["sglang_routed_experts", "vllm_routed_experts"])
def test_real_routing_comes_back_request_by_request(tmp_path: Path, kind: str) -> None:
    wanted = recorded()
    source = store(tmp_path / "in.jsonl", *(reply(kind, number, ids) for number, ids in enumerate(wanted)))
    job = Conversion(source=source, output=tmp_path / "o.parquet", model=load_shape("gpt-oss-20b"), drain=True)
    (written,) = importers.load(kind).convert(job)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert written.tokens == sum(map(len, wanted)) and written.layers == 24
    for number, ids in enumerate(wanted):
        np.testing.assert_array_equal(columns["experts"][columns["request"] == number], ids)
    assert int((columns["phase"] == "prefill").sum()) == PROMPT * REQUESTS
