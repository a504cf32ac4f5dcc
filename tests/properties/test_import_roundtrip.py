"""Random routing, written the way other programs write it, and imported: the same experts for the same tokens."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion
from tests.reply_files import npy, store, text
from tests.trace_files import Columns, count_trace, read_columns, token_trace

few = settings(max_examples=25, deadline=None)


class Routing:
    """Random requests of a random model. dense: layers without experts · ids: [tokens, hidden layers, K] each."""

    def __init__(self, seed: int, requests: int, hidden: int, dense: int, experts: int, top_k: int) -> None:
        rng = np.random.default_rng(seed)
        self.experts, self.top_k, self.rng = experts, min(top_k, experts - 1), rng
        self.layers = tuple(sorted(rng.choice(hidden, hidden - min(dense, hidden - 1), replace=False).tolist()))
        self.prompt = rng.integers(1, 6, requests)
        self.ids: list[AnyArray] = []
        for tokens in self.prompt + rng.integers(0, 6, requests):
            ids = self._one(int(tokens), hidden)
            # First steps of equal tokens are taken for a recorder's warm-up: none may arise.
            while any((ids[0] == one[0]).all() for one in self.ids) or (len(ids) > 1 and (ids[0] == ids[1]).all()):
                ids = self._one(int(tokens), hidden)
            self.ids.append(ids)

    def _one(self, tokens: int, hidden: int) -> AnyArray:
        ids = np.zeros((tokens, hidden, self.top_k), np.int32)
        shape = (tokens, len(self.layers), self.experts)
        ids[:, list(self.layers)] = self.rng.random(shape).argsort(axis=2)[:, :, : self.top_k]
        return ids

    def shape(self) -> dict[str, Any]:
        return {"experts": self.experts, "top_k": self.top_k, "layers": self.layers}

    def wanted(self) -> list[AnyArray]:
        return [ids[:, list(self.layers)] for ids in self.ids]


routings = st.builds(
    Routing,
    st.integers(0, 9999),
    st.integers(1, 7),
    st.integers(1, 5),
    st.integers(0, 3),
    st.sampled_from([4, 200, 256, 300]),
    st.integers(2, 3),
)


def imported(kind: str, source: Path, **settings: Any) -> Columns:
    output = source.parent / "out.parquet"
    importers.load(kind).convert(Conversion(source=source, output=output, drain=True, **settings))
    return read_columns(token_trace(output))


def require_requests(columns: Columns, wanted: Sequence[AnyArray], prompt: AnyArray) -> None:
    """Every request has its tokens in their order, its prompt first; in no step more than one generated token."""
    assert sorted(set(columns["request"].tolist())) == list(range(len(wanted)))
    for number, ids in enumerate(wanted):
        mine = columns["request"] == number
        np.testing.assert_array_equal(columns["experts"][mine], ids)
        assert columns["position"][mine].tolist() == list(range(len(ids)))
        phases = columns["phase"][mine].tolist()
        assert phases == ["prefill"] * int(prompt[number]) + ["decode"] * (len(ids) - int(prompt[number]))
        decode = columns["step"][mine][int(prompt[number]) :]
        assert (np.diff(decode) == 1).all()


@few
@given(routing=routings, concurrency=st.integers(1, 4), order=st.sampled_from(["shuffled", "file"]))
def test_replies_of_both_engines(routing: Routing, concurrency: int, order: str) -> None:
    replies: dict[str, list[Any]] = {"sglang_routed_experts": [], "vllm_routed_experts": []}
    for number, ids in enumerate(routing.ids):
        prompt = int(routing.prompt[number])
        counts = {"prompt_tokens": prompt, "completion_tokens": len(ids) + 1 - prompt}
        raw = text(ids.astype("<i4").tobytes())
        replies["sglang_routed_experts"].append({"meta_info": counts | {"id": f"r{number}", "routed_experts": raw}})
        small = ids.astype(np.uint8 if routing.experts <= 256 else np.uint16)
        choice = {"index": 0, "routed_experts": npy(small)}
        replies["vllm_routed_experts"].append({"id": f"c{number}", "choices": [choice], "usage": counts})
    with tempfile.TemporaryDirectory() as folder:
        for kind, found in replies.items():
            source = store(Path(folder) / f"{kind}.jsonl", *found)
            columns = imported(kind, source, concurrency=concurrency, order=order, **routing.shape())
            require_requests(columns, routing.wanted(), routing.prompt)
            running = {*zip(columns["step"].tolist(), columns["request"].tolist(), strict=True)}
            assert max(np.bincount([step for step, _ in running])) <= concurrency


@few
@given(routing=routings)
def test_requests_as_json(routing: Routing) -> None:
    dense = {str(layer): None for layer in range(routing.ids[0].shape[1]) if layer not in routing.layers}
    with tempfile.TemporaryDirectory() as folder:
        for steps in (True, False):
            source = Path(folder) / f"steps-{steps}"
            source.mkdir()
            for number, ids in enumerate(routing.wanted()):
                prompt = int(routing.prompt[number])
                content: Any = {"experts": ids.tolist(), "prompt_tokens": prompt}
                if steps:
                    parts = np.split(ids, range(prompt, len(ids)))
                    content = [dense | _by_layer(part, routing.layers) for part in parts if len(part)]
                (source / f"{number}.json").write_text(json.dumps(content))
            shape = routing.shape() if steps else routing.shape() | {"layers": tuple(range(len(routing.layers)))}
            require_requests(imported("request_json", source, **shape), routing.wanted(), routing.prompt)


def _by_layer(part: AnyArray, layers: Sequence[int]) -> dict[str, Any]:
    return {str(layer): part[:, index].tolist() for index, layer in enumerate(layers)}


@few
@given(routing=routings, concurrency=st.integers(1, 9))
def test_layers_in_files_of_their_own(routing: Routing, concurrency: int) -> None:
    ids = np.concatenate(routing.wanted())
    # First steps of equal tokens are taken for a recorder's warm-up.
    assume(concurrency == 1 or (ids[:concurrency] != ids[0]).any())
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "iter_1"
        source.mkdir()
        for index, layer in enumerate(routing.layers):
            column = pa.array(ids[:, index].tolist(), pa.list_(pa.int16()))
            pq.write_table(pa.table({"indices": column}), source / f"layer_{layer:02}.parquet")
        columns = imported("flame_moe", source, concurrency=concurrency, **routing.shape())
        np.testing.assert_array_equal(columns["experts"], ids)
        assert columns["step"].tolist() == (np.arange(len(ids)) // concurrency).tolist()


@few
@given(routing=routings)
def test_counts_in_three_layouts(routing: Routing) -> None:
    """Windows are the requests: each is counted, and its tokens are those of the request."""
    counts = np.zeros((len(routing.ids), len(routing.layers), routing.experts), np.int64)
    for window, ids in enumerate(routing.wanted()):
        for index in range(ids.shape[1]):
            counts[window, index] = np.bincount(ids[:, index].ravel(), minlength=routing.experts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "w.npy", counts)
        w, at, expert = np.nonzero(counts)
        named = np.array(routing.layers)
        rows = zip(w.tolist(), named[at].tolist(), expert.tolist(), counts[w, at, expert].tolist(), strict=True)
        long = "window,layer,expert,count\n" + "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in rows)
        (folder / "long.csv").write_text(long)
        wide = "step,layer," + ",".join(f"e{n}" for n in range(routing.experts)) + "\n"
        for window, row in enumerate(counts):
            wide += "".join(
                f"{window},{one}," + ",".join(map(str, values)) + "\n"
                for one, values in zip(routing.layers, row.tolist(), strict=True)
            )
        (folder / "wide.csv").write_text(wide)
        for kind, source in (("eplb_weight", "w.npy"), ("csv_counts", "long.csv"), ("csv_counts", "wide.csv")):
            job = Conversion(source=folder / source, output=folder / "o.parquet", **routing.shape())
            importers.load(kind).convert(job)
            trace = count_trace(folder / "o.parquet")
            np.testing.assert_array_equal(trace.tokens, counts)
            assert trace.batch_tokens.tolist() == [len(ids) for ids in routing.ids]
            assert trace.meta.layers == routing.layers
