"""Importers of loads, tables and published recordings that no serving engine wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import EbsimError
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion, Converted
from tests.trace_files import count_trace, read_columns, token_trace

SHAPE: dict[str, Any] = {"experts": 4, "top_k": 2, "order": "file", "drain": True}


def run(kind: str, source: Path, output: Path, **settings: Any) -> Converted:
    known = {name: value for name, value in (SHAPE | settings).items() if value is not None}
    (written,) = importers.load(kind).convert(Conversion(source=source, output=output, **known))
    return written


def refused(kind: str, source: Path, output: Path, **settings: Any) -> str:
    before = sorted(output.parent.iterdir())
    with pytest.raises(EbsimError) as caught:
        run(kind, source, output, **settings)
    assert sorted(output.parent.iterdir()) == before
    return str(caught.value).removeprefix(f"{source}")


# --- requests as JSON ---

# 2 prompt tokens, then 2 generated ones; layer 0 is dense.
STEPS = [
    {"0": None, "1": [[0, 1], [2, 3]], "3": [[1, 0], [3, 2]]},
    {"0": None, "1": [[2, 0]], "3": [[0, 2]]},
    {"0": None, "1": [[3, 1]], "3": [[1, 3]]},
]
TOKENS = [[[0, 1], [1, 0]], [[2, 3], [3, 2]], [[2, 0], [0, 2]], [[3, 1], [1, 3]]]


def dump(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_steps_of_one_request_per_file(tmp_path: Path) -> None:
    for subject in ("law", "art"):
        (tmp_path / "in" / subject).mkdir(parents=True)
        dump(tmp_path / "in" / subject / "7.json", STEPS)
    written = run("request_json", tmp_path / "in", tmp_path / "o.parquet", concurrency=1, top_k=None)
    trace = token_trace(tmp_path / "o.parquet")
    columns = read_columns(trace)
    assert trace.meta.layers == (1, 3) and written.notes == ()
    assert columns["step"].tolist() == [0, 0, 1, 2, 3, 3, 4, 5]
    assert columns["phase"].tolist() == ["prefill", "prefill", "decode", "decode"] * 2
    assert columns["workload"].tolist() == ["art"] * 4 + ["law"] * 4
    assert columns["experts"].tolist() == TOKENS * 2


def test_ids_by_token(tmp_path: Path) -> None:
    lines = [{"experts": TOKENS, "prompt_tokens": 2}, TOKENS, {"experts": [[None, *layers] for layers in TOKENS]}]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps(line) for line in lines[:2]) + "\n\n")
    written = run("request_json", source, tmp_path / "o.parquet", concurrency=1)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert columns["phase"].tolist() == ["prefill", "prefill", "decode", "decode"] + ["unknown"] * 4
    assert columns["experts"].tolist() == TOKENS * 2
    assert written.notes == (
        "1 of 2 requests do not say the length of their prompt: their tokens have no phase and run one per step",
    )
    dump(tmp_path / "dense.json", lines[2])
    run("request_json", tmp_path / "dense.json", tmp_path / "o.parquet", layers=(1, 2))
    assert token_trace(tmp_path / "o.parquet").meta.layers == (1, 2)


def step(**layers: Any) -> list[dict[str, Any]]:
    return [{"1": [[0, 1]], "3": [[1, 0]]}, {"1": [[0, 1]], "3": [[1, 0]]} | {key[1:]: v for key, v in layers.items()}]


GIVE = "give a list of steps {layer: [[ids]]}, or ids as [tokens][layers][top-k]"


@pytest.mark.parametrize(
    ("content", "settings", "says"),
    [
        ({"a": 1}, {}, f": holds no list of steps or tokens — {GIVE}"),
        ([], {}, f": holds no list of steps or tokens — {GIVE}"),
        ([1, 2], {}, f": token 0 is no list of layers — {GIVE}"),
        ({"experts": TOKENS, "prompt_tokens": "2"}, {}, f": prompt_tokens is '2' — {GIVE}"),
        ([{"one": [[0, 1]]}], {}, f": a step must map layer numbers to ids — {GIVE}"),
        (step(_3=None), {}, f": step 1 holds other layers than step 0 — {GIVE}"),
        (step(_3=[[0, 1], [2]]), {}, f": step 1, layer 3: no list of equally many ids per token — {GIVE}"),
        (step(_3=[[0, 1.5]]), {}, f": step 1, layer 3: no list of equally many ids per token — {GIVE}"),
        (step(_3=[0, 1]), {}, f": step 1, layer 3: no list of equally many ids per token — {GIVE}"),
        (step(_3=[[0, 1]] * 2), {}, f": step 1: layers hold different numbers of tokens or ids — {GIVE}"),
        (step(_1=[[0]], _3=[[1]]), {}, f": steps hold different top-k — {GIVE}"),
        ([TOKENS[0], [[0, 1]]], {}, f": token 1 holds other layers than token 0 — {GIVE}"),
        ([TOKENS[0], [[0], [1]]], {}, f": tokens hold different top-k — {GIVE}"),
        (STEPS, {"layers": (0, 1, 3)}, ": holds ids in layers 1..3 (2), not in 0..3 (3) — correct --layers or --model"),
        (
            STEPS,
            {"top_k": 1},
            ": holds 2 ids per token, not top-1 of 4 experts — correct --top-k, --experts or --model",
        ),
        (
            STEPS,
            {"experts": None},
            ": the number of experts is unknown — pass --model NAME, or --experts and --top-k (and --layers)",
        ),
        (
            step(_3=[[1, 4]]),
            {},
            ": token 1, layer 3: id 4 is not in 0..3 — correct --experts or --model; slots of a plan are not experts",
        ),
        (
            step(_3=[[1, 1]]),
            {},
            ": token 1, layer 3: expert 1 stands twice in one top-2 — correct --top-k, --layers or --model",
        ),
    ],
)
def test_bad_requests(tmp_path: Path, content: Any, settings: dict[str, Any], says: str) -> None:
    source = dump(tmp_path / "in.json", content)
    assert refused("request_json", source, tmp_path / "o.parquet", **settings) == says


def test_requests_of_another_model(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    dump(tmp_path / "in" / "1.json", STEPS)
    dump(tmp_path / "in" / "2.json", [token[:1] for token in TOKENS])
    assert refused("request_json", tmp_path / "in", tmp_path / "o.parquet") == (
        "/2.json: holds 1 layers × top-2, the first request 2 × top-2, or other layers — import requests of one model "
        "at a time"
    )


# --- loads as EPLB takes them ---

WEIGHT = np.array([[5, 1, 2, 0], [0, 3, 3, 2]])


def save(path: Path, weight: Any) -> Path:
    if path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file({"weight": weight}, path)
        return path
    if path.suffix == ".pt":
        torch: Any = pytest.importorskip("torch", reason="needs torch (the extra [torch])")
        torch.save(torch.tensor(weight), path)
        return path
    if path.suffix == ".json":
        return dump(path, weight.tolist() if isinstance(weight, np.ndarray) else weight)
    if path.suffix == ".npz":
        np.savez(path, other=np.zeros(3), weight=weight)
    else:
        np.save(path, weight)
    return path


@pytest.mark.parametrize("name", ["w.npy", "w.npz", "w.json", "w.safetensors", "w.pt"])
def test_loads_become_counts(tmp_path: Path, name: str) -> None:
    written = run("eplb_weight", save(tmp_path / name, WEIGHT), tmp_path / "o.parquet", layers=(3, 4))
    trace = count_trace(tmp_path / "o.parquet")
    assert trace.meta.layers == (3, 4) and trace.tokens.tolist() == [WEIGHT.tolist()]
    assert (written.tokens, written.notes) == (4, ())


def test_windows_of_loads_and_dense_rows(tmp_path: Path) -> None:
    windows = np.stack([WEIGHT, np.zeros_like(WEIGHT), WEIGHT * 2])
    written = run("eplb_weight", save(tmp_path / "w.npy", windows), tmp_path / "o.parquet")
    assert count_trace(tmp_path / "o.parquet").tokens.tolist() == [WEIGHT.tolist(), (WEIGHT * 2).tolist()]
    assert written.notes == ("1 of 3 windows hold no token: left out",)
    hidden = np.concatenate([np.zeros((2, 4), np.int64), WEIGHT])
    run("eplb_weight", save(tmp_path / "h.npy", hidden), tmp_path / "o.parquet")
    assert count_trace(tmp_path / "o.parquet").meta.layers == (2, 3)


def test_loads_that_are_no_counts(tmp_path: Path) -> None:
    shares = WEIGHT / 8 * 0.37
    written = run("eplb_weight", save(tmp_path / "w.npy", shares), tmp_path / "o.parquet")
    tokens = count_trace(tmp_path / "o.parquet").tokens[0]
    np.testing.assert_allclose(tokens / tokens.sum(axis=1, keepdims=True), WEIGHT / 8, atol=1e-6)
    assert written.notes == (
        "loads are no counts: scaled to 1,000,000 assignments of the busiest layer, so tokens are made up",
    )
    averages = WEIGHT * 100_000 + np.array([0.25, 0, 0.5, 0.25])
    written = run("eplb_weight", save(tmp_path / "w.npy", averages), tmp_path / "o.parquet")
    assert count_trace(tmp_path / "o.parquet").tokens.tolist() == [np.rint(averages).astype(int).tolist()]
    assert written.notes == ("loads are rounded to whole counts",)
    run("eplb_weight", save(tmp_path / "w.npy", WEIGHT * 1e300), tmp_path / "o.parquet")
    assert count_trace(tmp_path / "o.parquet").tokens[0, 0].tolist() == [625000, 125000, 250000, 0]


@pytest.mark.parametrize(
    ("weight", "settings", "says"),
    [
        (np.array([1.0, 2.0]), {}, ": is float64 of shape (2,), expected numbers of [layers, experts] or "),
        (np.array([["a"]]), {}, ": is <U1 of shape (1, 1), expected numbers"),
        (np.array([[1.0, -2.0]]), {}, ": layer row 0, expert 1: load -2 — give numbers ≥ 0"),
        (np.array([[1.0, np.nan]]), {}, ": layer row 0, expert 1: load nan — give numbers ≥ 0"),
        (np.array([[1.0, np.inf]]), {}, ": layer row 0, expert 1: load inf — give numbers ≥ 0"),
        (WEIGHT * 0, {}, ": no token was counted — record while requests are served"),
        (WEIGHT, {"experts": 8}, ": holds 4 experts, 8 expected — correct --model or --experts"),
        (WEIGHT, {"layers": (3, 4, 5)}, ": layer 0 has tokens, the recording has 2 layers, 2 of them with tokens"),
        (WEIGHT, {"top_k": None}, ": the number of top-k is unknown — pass --model NAME"),
    ],
)
def test_bad_loads(tmp_path: Path, weight: Any, settings: dict[str, Any], says: str) -> None:
    assert refused("eplb_weight", save(tmp_path / "w.npy", weight), tmp_path / "o.parquet", **settings).startswith(says)


def test_bad_files_of_loads(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=WEIGHT, b=WEIGHT)
    np.save(tmp_path / "pickled.npy", np.array([{}], object))
    dump(tmp_path / "ragged.json", [[1, 2], [3]])
    for name, says in (
        ("two.npz", ": holds 2 arrays ('a', 'b') — keep one, or call it weight"),
        ("pickled.npy", ": not a .npy file of plain arrays, or damaged (ValueError) — write it again; pickled "),
        ("ragged.json", ": rows hold different numbers of experts — give one number per layer and expert"),
        ("absent.npy", ": no such file — check the path"),
    ):
        assert refused("eplb_weight", tmp_path / name, tmp_path / "o.parquet").startswith(says)


# --- plain tables of counts ---

LONG = "step,layer,expert,count\n" + "".join(
    f"{w},{layer},{expert},{count * (w + 1)}\n"
    for w in range(2)
    for layer, row in zip((3, 4), WEIGHT.tolist(), strict=True)
    for expert, count in enumerate(row)
)


def table(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_long_and_wide_tables_agree(tmp_path: Path) -> None:
    wide = "layer,window,c1,c0,c3,c2\n4,0,3,0,2,3\n3,0,1,5,0,2\n3,1,2,10,0,4\n4,1,6,0,4,6\n"
    for name, content in (("long.csv", LONG), ("wide.csv", wide)):
        run("csv_counts", table(tmp_path / name, content), tmp_path / "o.parquet", experts=None)
        trace = count_trace(tmp_path / "o.parquet")
        assert trace.meta.layers == (3, 4)
        assert trace.tokens.tolist() == [WEIGHT.tolist(), (WEIGHT * 2).tolist()]


def test_rows_that_are_not_there_count_nothing(tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", "layer,expert,count\n0,1,4\n1,3,4\n")
    run("csv_counts", source, tmp_path / "o.parquet")
    assert count_trace(tmp_path / "o.parquet").tokens.tolist() == [[[0, 4, 0, 0], [0, 0, 0, 4]]]
    assert refused("csv_counts", source, tmp_path / "o.parquet", experts=None) == (
        ": experts up to 3 have rows, which need not be all — pass --experts or --model"
    )


TABLE = "give layer,expert,count or layer,c0,c1,… and optionally window"


@pytest.mark.parametrize(
    ("content", "settings", "says"),
    [
        ("expert,count\n0,1\n", {}, f": no column layer, or no rows — {TABLE}"),
        ("layer,expert,count\n", {}, f": no column layer, or no rows — {TABLE}"),
        ("layer,expert\n0,1\n", {}, f": column count is missing — {TABLE}"),
        ("layer,other\n0,1\n", {}, f": no column expert, no c0 — {TABLE}"),
        ("layer,c0,c2\n0,1,2\n", {}, f": columns of 2 experts, not 0..2 — {TABLE}"),
        ("layer,expert,count\n0,1,-4\n", {}, f": column count, row 0: -4 is no number from 0 on — {TABLE}"),
        ("layer,expert,count\n0,1,2\n0,2,many\n", {}, f": column count, row 1: many is no number from 0 on — {TABLE}"),
        ("layer,expert,count\n0.5,1,4\n", {}, f": column layer, row 0: 0.5 is no number from 0 on — {TABLE}"),
        ("layer,expert,count\n70000,1,4\n", {}, f": column layer: there is no layer 70000 — {TABLE}"),
        ("layer,expert,count\n0,4,4\n", {}, ": holds experts up to 4, 4 expected — correct --experts"),
        ("layer,c0,c1\n0,4,4\n", {}, ": holds experts up to 1, 4 expected — correct --experts"),
        (
            "layer,expert,count\n0,1,4\n0,1,4\n",
            {},
            ": row 1: its window and expert stand in an earlier row, too — sum them",
        ),
        (
            "layer,c0,c1,c2,c3\n0,1,1,1,1\n0,1,1,1,1\n",
            {},
            ": row 1: its window and layer stand in an earlier row, too — sum them",
        ),
        (
            "window,layer,expert,count\n0,0,1,4\n0,1,1,4\n1,1,1,4\n",
            {},
            ": window 1 has no row of layer 0 — give zeros",
        ),
        (LONG, {"layers": (3, 5)}, ": holds 2 layers (3..4), 2 others expected — correct --layers or --model"),
        (LONG, {"top_k": 5}, ": top-5 of 4 experts — correct --experts or --top-k"),
    ],
)
def test_bad_tables(tmp_path: Path, content: str, settings: dict[str, Any], says: str) -> None:
    source = table(tmp_path / "in.csv", content)
    assert refused("csv_counts", source, tmp_path / "o.parquet", **settings) == says
