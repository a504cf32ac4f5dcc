"""Damaged recordings: imported to a sound trace or refused with one line, never anything else, never half a file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.errors import EbsimError
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from tests.reply_files import SHAPE, routing, sglang, store, text, vllm

IDS = routing()[:, 2:]
PIECES = [
    b"",
    b"9" * 30,
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"[" * 1200,
    b'{"a":' * 1200,
    b"\xff",
    b"\x00" * 9,
    b'"3"',
    b"\n",
    b",",
]


def _write(kind: str, folder: Path) -> Path:
    """A small sound recording; the file that is damaged."""
    if kind == "sglang_routed_experts":
        return store(folder / "in.jsonl", sglang(routing(), id="a"), sglang(routing(7, 1), id="b"))
    if kind == "vllm_routed_experts":
        return store(folder / "in.json", vllm(routing()))
    if kind == "request_json":
        steps = [{str(layer): IDS[t : t + 1, layer].tolist() for layer in range(3)} for t in range(4)]
        return store(folder / "in.jsonl", steps, {"experts": IDS.tolist(), "prompt_tokens": 2})
    if kind == "csv_counts":
        rows = [f"{w},{layer},{e},{e + w}" for w in range(2) for layer in range(2, 5) for e in range(8)]
        (folder / "in.csv").write_text("\n".join(["window,layer,expert,count", *rows]) + "\n")
        return folder / "in.csv"
    if kind == "eplb_weight":
        np.savez(folder / "in.npz", weight=np.arange(24).reshape(3, 8))
        return folder / "in.npz"
    for layer in range(2, 5):
        table = pa.table({"indices": IDS[:, layer - 2].tolist(), "scores": [[0.5, 0.25]] * 5})
        pq.write_table(table, folder / f"layer_{layer}.parquet")
    return folder / "layer_3.parquet"


KINDS = ("sglang_routed_experts", "vllm_routed_experts", "request_json", "csv_counts", "eplb_weight", "flame_moe")
SAID: list[dict[str, Any]] = [SHAPE, {"experts": 8, "top_k": 2}, {"experts": 300, "top_k": 1, "layers": (0,)}]


@st.composite
def wounds(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """Where (a share of the length), how many bytes are taken out, and what is put there."""
    piece = st.sampled_from(PIECES) | st.binary(max_size=4)
    return draw(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 60), piece), min_size=1, max_size=3))


def require_sound_or_refused(kind: str, source: Path, output: Path, **settings: Any) -> None:
    beside = sorted(output.parent.iterdir())
    job = Conversion(source=source, output=output, concurrency=3, **settings)
    try:
        written = importers.load(kind).convert(job)
    except EbsimError as error:
        assert error.exit_code == 2 and "\n" not in str(error) and len(str(error)) < 900
        assert sorted(output.parent.iterdir()) == beside
        return
    trace = open_trace([one.path for one in written])
    if isinstance(trace, TokenTrace):
        trace.check()
    output.unlink()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(wounds=wounds(), said=st.sampled_from(SAID))
def test_damaged_bytes(kind: str, wounds: list[tuple[float, int, bytes]], said: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        folder.mkdir()
        path = _write(kind, folder)
        content = path.read_bytes()
        for share, taken, put in wounds:
            at = int(share * len(content))
            content = content[:at] + put + content[at + taken :]
        path.write_bytes(content)
        known = {key: value for key, value in said.items() if key not in ("order", "drain")}
        require_sound_or_refused(kind, folder if kind == "flame_moe" else path, Path(name) / "o.parquet", **known)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["0", "1", "3", "-1", "x", "experts", "prompt_tokens", "weight"]), inner)
    ),
    max_leaves=12,
)
blobs = st.none() | st.text(max_size=4) | st.binary(max_size=40).map(text) | st.just(text(routing().tobytes()))
numbers = st.none() | st.integers(-2, 12) | st.integers(2**31 - 1, 2**70)
counts = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b\n"]),
        "prompt_tokens": numbers,
        "completion_tokens": numbers,
        "cached_tokens": numbers,
        "routed_experts": blobs,
        "routed_experts_start_len": numbers,
    },
)
choices = st.fixed_dictionaries({}, optional={"index": st.integers(), "routed_experts": blobs, "sgl_ext": counts})
answers = st.fixed_dictionaries(
    {}, optional={"id": st.just("x"), "meta_info": counts, "choices": st.lists(choices, max_size=2), "usage": counts}
)


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(KINDS[:2]), content=answers | st.lists(answers, max_size=3), said=st.sampled_from(SAID))
def test_replies_with_anything_inside(kind: str, content: Any, said: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "in.json"
        source.write_text(json.dumps(content))
        known = {key: value for key, value in said.items() if key not in ("order", "drain")}
        require_sound_or_refused(kind, source, Path(name) / "o.parquet", **known)


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(["request_json", "eplb_weight"]), content=values, said=st.sampled_from(SAID))
def test_json_with_anything_inside(kind: str, content: Any, said: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "in.json"
        source.write_text(json.dumps(content))
        known = {key: value for key, value in said.items() if key not in ("order", "drain")}
        require_sound_or_refused(kind, source, Path(name) / "o.parquet", **known)
