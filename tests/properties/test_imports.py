"""Any counts that an engine could record come back; no damaged recording gets further than one line."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.errors import EbsimError
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.slot_map import SlotMap
from tests.recordings import (
    IN_FORCE,
    MAP,
    counts_at,
    load_line,
    one_pass,
    records,
    run,
    save_pt,
    stat,
    token_pass,
    torch_or_skip,
    write_statistic,
)

FEW = settings(max_examples=25, deadline=None)
DAMAGED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def random_map(rng: np.random.Generator, layers: int, experts: int, spare: int) -> IntArray:
    """[L, P]: every expert in a slot, some in more."""
    rows = [np.concatenate([np.arange(experts), rng.integers(0, experts, spare)]) for _ in range(layers)]
    return np.stack([rng.permutation(row) for row in rows])


def logical(slots: AnyArray, counts: AnyArray, experts: int) -> list[Any]:
    """[L][E] by the definition: every slot's count belongs to the expert in it."""
    found = np.zeros((len(slots), experts), np.int64)
    for layer, row in enumerate(slots):
        for slot, expert in enumerate(row):
            found[layer, expert] += counts[layer, slot]
    return found.tolist()


@FEW
@given(st.integers(0, 2**32 - 1))
def test_passes_of_any_ranks_and_dense_layers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, experts, spare, ranks, passes = rng.integers([1, 2, 0, 1, 1], [4, 7, 5, 4, 5])
    slots = random_map(rng, layers, experts, spare)
    dense = int(rng.integers(0, 3))
    counts = rng.integers(1, 9, (ranks, passes, layers, slots.shape[1]))
    padded = np.pad(counts, ((0, 0), (0, 0), (dense, 0), (0, 0)))
    whole_map = np.concatenate([np.arange(slots.shape[1])[None].repeat(dense, 0) % experts, slots])
    with tempfile.TemporaryDirectory() as name:
        held: dict[Path, Any] = {}
        for rank in rng.permutation(ranks):
            path = Path(name) / f"dump_{rank}.pt"
            path.touch()
            held[path] = records(
                *(one_pass(int(n), int(rank), padded[rank, n]) for n in rng.permutation(passes)), slots=whole_map
            )
        with mock.patch("easybalance_sim.trace.sglang_dumps.read_pt", held.__getitem__):
            written = run("sglang_recorder", Path(name), Path(name) / "o.parquet", top_k=1)
        trace = counts_at(written.path)
    assert trace.meta.layers == tuple(range(dense, dense + layers))
    kept = counts[:1] if ranks > 1 and (counts == counts[:1]).all() else counts
    assert trace.tokens.tolist() == [logical(slots, one, experts) for one in kept.sum(axis=0)]


@FEW
@given(st.integers(0, 2**32 - 1))
def test_tokens_of_any_plan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    top_k = int(rng.integers(1, 4))
    experts = np.stack([[rng.permutation(4)[:top_k] for _ in range(2)] for _ in range(int(rng.integers(2, 20)))])
    slots = np.empty_like(experts)
    for place in np.ndindex(*experts.shape):
        slots[place] = rng.choice(np.flatnonzero(MAP[place[1]] == experts[place]))
    where = np.sort(rng.integers(0, 4, len(experts)))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.pt"
        path.touch()
        dump = records(
            *(
                token_pass(int(n), 0, slots[where == n], np.flatnonzero(where == n).tolist())
                for n in rng.permutation(4)
                if (where == n).any()
            )
        )
        with mock.patch("easybalance_sim.trace.sglang_dumps.read_pt", return_value=dump):
            run("sglang_recorder", path, Path(name) / "o.parquet")
        trace = open_trace([Path(name) / "o.parquet"])
        assert isinstance(trace, TokenTrace)
        warm_up = trace.scan().tokens
        found = np.concatenate([batch.experts for batch in trace.batches()])
    assert found.tolist() == experts[len(experts) - warm_up :].tolist()


@FEW
@given(st.integers(0, 2**32 - 1))
def test_load_lines_with_a_map_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, experts, spare, lines = rng.integers([1, 2, 0, 1], [4, 7, 5, 5])
    maps = [random_map(rng, layers, experts, int(spare)) for _ in range(lines)]
    load = [rng.integers(1, 99, one.shape) for one in maps]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "load.jsonl"
        texts = [load_line(n, load[n].tolist(), maps[n].tolist()) for n in range(lines)]
        path.write_text("\n".join(texts))
        found = counts_at(run("vllm_eplb_load", path, Path(name) / "o.parquet", top_k=1).path).tokens
    assert found.tolist() == [logical(one, counts, experts) for one, counts in zip(maps, load, strict=True)]


@FEW
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_statistics_of_any_ranks_with_or_without_slots(seed: int, balanced: bool) -> None:
    rng = np.random.default_rng(seed)
    layers, experts, spare, ranks, iterations = rng.integers([1, 2, 0, 1, 1], [4, 7, 5, 4, 5])
    slots = random_map(rng, layers, experts, spare if balanced else 0)
    slots = slots if balanced else np.arange(experts)[None].repeat(layers, 0)
    first, ids = int(rng.integers(0, 99)), tuple(int(n) for n in np.sort(rng.choice(60, layers, replace=False)))
    counts = rng.integers(1, 99, (ranks, iterations, *slots.shape))
    files = [
        {f"{first + i}_{layer}": counts[rank, i, row] for i in range(iterations) for row, layer in enumerate(ids)}
        for rank in range(ranks)
    ]
    plan = SlotMap(expert_of_slot=slots, experts=int(experts), name="plan.json", layers=ids) if balanced else None
    with tempfile.TemporaryDirectory() as name:
        folder = write_statistic(Path(name) / "stat", files, experts=slots.shape[1], top_k=1)
        trace = counts_at(run("tensorrt_llm_statistic", folder, Path(name) / "o.parquet", slots=plan).path)
    assert trace.meta.layers == ids
    assert trace.tokens.tolist() == [logical(slots, one, experts) for one in counts.sum(axis=0)]


@st.composite
def damage(draw: st.DrawFn) -> list[tuple[str, float, int]]:
    """Bytes to overwrite, drop or put in, at shares of the length."""
    kinds = st.sampled_from(["overwrite", "drop", "insert", "cut"])
    return draw(st.lists(st.tuples(kinds, st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4))


def damaged(content: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    for kind, share, value in changes:
        at = int(share * len(content))
        middle = {"overwrite": bytes([value]), "insert": bytes([value]) + content[at : at + 1]}.get(kind, b"")
        content = content[:at] + middle + (b"" if kind == "cut" else content[at + 1 :])
    return content


def require_whole_or_nothing(kind: str, source: Path, output: Path, more: Mapping[str, Any]) -> None:
    """A trace that opens, or an error of ours and no file at all."""
    try:
        run(kind, source, output, **more)
    except EbsimError as error:
        assert "\n" not in str(error)
        left = []
    else:
        counts_or_tokens = open_trace([output])
        assert counts_or_tokens.meta.experts >= 1
        left = [output.name]
    assert [path.name for path in output.parent.iterdir()] == left


def recording(folder: Path, kind: str) -> tuple[Path, Path, dict[str, Any]]:
    """What is imported, the file of it that gets damaged, and the options."""
    load = [[10, 1, 5, 2, 9, 1], [2, 8, 1, 3, 1, 2]]
    if kind == "load.jsonl":
        path = folder / kind
        path.write_text(f"{load_line(1, load)}\n{load_line(2, load)}\n")
        return path, path, {"top_k": 2}
    if kind.startswith("hot"):
        path, values = folder / kind, np.array(load).reshape(2, 2, 3)
        np.savez_compressed(path, load=values) if kind.endswith("z") else np.save(path, values)
        return path, path, {"top_k": 2, "slots": IN_FORCE}
    rank = {f"{i}_{layer}": load[layer] for i in (7, 8) for layer in (0, 1)}
    write_statistic(folder / "stat", [rank, rank], experts=6)
    return folder / "stat", folder / "stat" / kind, {"slots": IN_FORCE}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("vllm_eplb_load", "load.jsonl"),
        ("tensorrt_llm_statistic", "rank1.safetensors"),
        ("tensorrt_llm_statistic", "meta_info.json"),
        ("ascend_hotness", "hot.npy"),
        ("ascend_hotness", "hot.npz"),
    ],
)
@DAMAGED
@given(changes=damage())
def test_a_damaged_recording_is_one_line(kind: str, name: str, changes: list[tuple[str, float, int]]) -> None:
    with tempfile.TemporaryDirectory() as holder:
        source, target, more = recording(Path(holder), name)
        target.write_bytes(damaged(target.read_bytes(), changes))
        (Path(holder) / "out").mkdir()
        require_whole_or_nothing(kind, source, Path(holder) / "out" / "o.parquet", more)


DUMPS: dict[str, dict[str, Any]] = {
    "stat": stat(np.arange(24, dtype=np.int32).reshape(3, 2, 4)),
    "per_pass": records(one_pass(1, 0, MAP), one_pass(2, 0, MAP)),
    "per_token": records(
        token_pass(1, 0, [[[0, 1], [1, 5]], [[5, 3], [3, 2]]], [0, 1], forward_mode=1, extend_seq_lens=[2])
    ),
}


@pytest.mark.engine_loader
@pytest.mark.parametrize("mode", list(DUMPS))
@DAMAGED
@given(changes=damage())
def test_a_damaged_dump_of_torch_is_one_line(mode: str, changes: list[tuple[str, float, int]]) -> None:
    torch_or_skip()
    with tempfile.TemporaryDirectory() as holder:
        path = save_pt(Path(holder) / "a.pt", DUMPS[mode])
        path.write_bytes(damaged(path.read_bytes(), changes))
        (Path(holder) / "out").mkdir()
        require_whole_or_nothing("sglang_recorder", path, Path(holder) / "out" / "o.parquet", {"top_k": 2})


VALUES = st.recursive(
    st.none() | st.integers(-(2**40), 2**40) | st.text(max_size=3) | st.sampled_from([MAP, MAP[0], MAP * 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rank", "records"]), inner),
    max_leaves=5,
)


@pytest.mark.parametrize("mode", list(DUMPS))
@DAMAGED
@given(data=st.data())
def test_a_dump_with_any_values_inside_is_one_line(mode: str, data: st.DataObject) -> None:
    """What a file of PyTorch can hold beside what the recorder writes."""
    content = {**DUMPS[mode]}
    held = content if mode == "stat" or data.draw(st.booleans()) else dict(content["records"][0])
    held[data.draw(st.sampled_from(sorted(held)))] = data.draw(VALUES)
    if held is not content:
        content["records"] = [held]
    with tempfile.TemporaryDirectory() as holder:
        path = Path(holder) / "a.pt"
        path.touch()
        (Path(holder) / "out").mkdir()
        with mock.patch("easybalance_sim.trace.sglang_dumps.read_pt", return_value=content):
            require_whole_or_nothing("sglang_recorder", path, Path(holder) / "out" / "o.parquet", {"top_k": 2})
