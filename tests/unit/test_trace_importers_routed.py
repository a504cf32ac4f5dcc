"""Replies of SGLang and vLLM with the experts of their tokens: what is read, and every way they can mislead."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.errors import EbsimError
from easybalance_sim.trace.slot_map import SlotMap
from tests.reply_files import GENERATED, LAYERS, PROMPT, TOP_K, npy, routing, run, sglang, store, text, vllm
from tests.trace_files import read_columns, token_trace

EXAMPLES = Path(__file__).parents[3] / "shared" / "engine_examples"
KINDS = {"sglang_routed_experts": sglang, "vllm_routed_experts": vllm}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_is_a_prompt_and_its_generated_tokens(tmp_path: Path, kind: str) -> None:
    ids = routing()
    written = run(kind, store(tmp_path / "in.jsonl", KINDS[kind](ids)), tmp_path / "o.parquet", concurrency=1)
    trace = token_trace(tmp_path / "o.parquet")
    columns = read_columns(trace)
    assert trace.meta.layers == LAYERS and trace.meta.engine == kind.split("_")[0]
    assert columns["step"].tolist() == [0, 0, 0, 1, 2]
    assert columns["phase"].tolist() == ["prefill"] * 3 + ["decode"] * 2
    assert columns["position"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(columns["experts"], ids[:, list(LAYERS)])
    assert (written.tokens, written.notes) == (5, ())


def test_replies_join_a_continuous_batch(tmp_path: Path) -> None:
    found = [sglang(routing(tokens, seed), id=f"r{seed}") for seed, tokens in enumerate((5, 4, 6))]
    run("sglang_routed_experts", store(tmp_path / "in.jsonl", *found), tmp_path / "o.parquet", concurrency=2, ranks=2)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    # Requests 0 and 1 start together; 2 takes the slot of 1 after its prompt and one generated token.
    by_request = [sorted(set(columns["step"][columns["request"] == one].tolist())) for one in range(3)]
    assert by_request == [[0, 1, 2], [0, 1], [2, 3, 4, 5]]
    assert columns["source_rank"][columns["request"] == 1].tolist() == [1] * 4


def test_long_prompts_are_served_in_chunks(tmp_path: Path) -> None:
    ids = routing(4100)
    source = store(tmp_path / "in.jsonl", sglang(ids, prompt_tokens=4099, completion_tokens=2))
    run("sglang_routed_experts", source, tmp_path / "o.parquet", concurrency=1)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert np.bincount(columns["step"]).tolist() == [2048, 2048, 3, 1]


def test_dense_layers_of_an_array_need_not_be_named(tmp_path: Path) -> None:
    source = store(tmp_path / "in.jsonl", vllm(routing()))
    run("vllm_routed_experts", source, tmp_path / "o.parquet", layers=None, top_k=None)
    trace = token_trace(tmp_path / "o.parquet")
    assert (trace.meta.layers, trace.meta.top_k, trace.meta.model) == (LAYERS, TOP_K, "my/moe")


def test_layers_behind_the_last_moe_layer_are_told_by_the_token_counts(tmp_path: Path) -> None:
    ids = routing()
    longer = np.concatenate([ids, np.zeros_like(ids[:, :2])], axis=1)
    run("sglang_routed_experts", store(tmp_path / "in.jsonl", sglang(longer)), tmp_path / "o.parquet")
    np.testing.assert_array_equal(read_columns(token_trace(tmp_path / "o.parquet"))["experts"], ids[:, list(LAYERS)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", [True, False])
def test_a_reply_that_begins_late_keeps_its_positions(tmp_path: Path, kind: str, said: bool) -> None:
    late = routing()[2:]
    reply = sglang(late, completion_tokens=GENERATED)
    if kind == "vllm_routed_experts":
        reply = vllm(late, usage={"prompt_tokens": PROMPT, "completion_tokens": GENERATED})
    if said:
        reply["routed_experts_start_len" if kind == "sglang_routed_experts" else "routed_experts_prompt_start"] = 2
    run(kind, store(tmp_path / "in.jsonl", reply), tmp_path / "o.parquet")
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert columns["position"].tolist() == [2, 3, 4]
    assert columns["phase"].tolist() == ["prefill", "decode", "decode"]


def test_replies_that_do_not_say_their_prompt_have_no_phase(tmp_path: Path) -> None:
    reply = {"meta_info": {"routed_experts": text(routing().tobytes())}}
    written = run("sglang_routed_experts", store(tmp_path / "in.jsonl", reply), tmp_path / "o.parquet", concurrency=1)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert set(columns["phase"].tolist()) == {"unknown"}
    assert columns["step"].tolist() == [0, 1, 2, 3, 4]
    assert written.notes == (
        "1 of 1 requests do not say the length of their prompt: their tokens have no phase and run one per step",
    )


def test_choices_of_one_reply_share_a_request_and_usage_says_nothing_of_them(tmp_path: Path) -> None:
    choices = [{"index": n, "routed_experts": npy(routing(5, n).astype(np.uint8))} for n in range(2)]
    source = store(tmp_path / "in.jsonl", vllm(routing(), choices=choices))
    written = run("vllm_routed_experts", source, tmp_path / "o.parquet")
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert set(columns["request"].tolist()) == {0} and set(columns["phase"].tolist()) == {"unknown"}
    assert written.notes[0].startswith("2 of 2 requests do not say the length of their prompt")


def test_sglang_behind_the_openai_endpoint(tmp_path: Path) -> None:
    ids = routing()
    choice = {"index": 0, "sgl_ext": {"routed_experts": text(ids.tobytes())}}
    source = store(tmp_path / "in.jsonl", vllm(ids, choices=[choice]))
    run("sglang_routed_experts", source, tmp_path / "o.parquet")
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    np.testing.assert_array_equal(columns["experts"], ids[:, list(LAYERS)])


def test_tokens_that_were_not_recorded_are_left_out_and_said(tmp_path: Path) -> None:
    ids = routing()
    ids[0], ids[1, :] = 0, -1
    blank = sglang(np.zeros_like(ids))
    none = {"meta_info": {"prompt_tokens": 3, "completion_tokens": 1, "cached_tokens": 2}}
    source = store(tmp_path / "in.jsonl", blank, none, sglang(ids, cached_tokens=2))
    written = run("sglang_routed_experts", source, tmp_path / "o.parquet", concurrency=1)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert columns["position"].tolist() == [2, 3, 4]
    assert columns["phase"].tolist() == ["prefill", "decode", "decode"]
    assert written.notes == (
        "2 replies without routed experts are left out",
        "2 tokens that were not recorded (0 or -1 in all layers) are left out",
        "2 prompt tokens came from the prefix cache; they count as if computed",
    )


def test_folders_name_workloads_and_files_follow_their_numbers(tmp_path: Path) -> None:
    for name, seed in (("law/10.json", 0), ("law/9.json", 1), ("code/1.json", 2)):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(json.dumps([sglang(routing(5, seed))]))
    run("sglang_routed_experts", tmp_path / "in", tmp_path / "o.parquet", concurrency=1)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert columns["workload"].tolist() == ["code"] * 5 + ["law"] * 10
    np.testing.assert_array_equal(columns["experts"][5:10], routing(5, 1)[:, list(LAYERS)])


def test_top_1_experts_0_are_no_dense_layer(tmp_path: Path) -> None:
    ids = routing()[:, :, :1]
    ids[:, 2] = 0
    run("vllm_routed_experts", store(tmp_path / "in.jsonl", vllm(ids)), tmp_path / "o.parquet", top_k=1)
    np.testing.assert_array_equal(read_columns(token_trace(tmp_path / "o.parquet"))["experts"], ids[:, list(LAYERS)])


@pytest.mark.skipif(not EXAMPLES.exists(), reason=f"no recordings at {EXAMPLES}")
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_replies_of_the_engines(tmp_path: Path, kind: str) -> None:
    source = EXAMPLES / f"{kind.split('_')[0]}_response_routed_experts.json"
    written = run(kind, source, tmp_path / "o.parquet", layers=(0, 1), experts=4, top_k=2)
    columns = read_columns(token_trace(tmp_path / "o.parquet"))
    assert columns["experts"].tolist() == [[[0, 1], [0, 1]]] * written.tokens and written.tokens == 4


def changed(row: int, layer: int, ids: list[int]) -> AnyArray:
    found = routing()
    found[row, layer] = ids
    return found


RAW, ARRAY = "sglang_routed_experts", "vllm_routed_experts"
FAULTS: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "npy under sglang": (
        RAW,
        vllm(routing()),
        {},
        "in.jsonl, line 1: routed_experts is a .npy array, which vLLM writes — import it as vllm-routed-experts",
    ),
    "raw under vllm": (
        ARRAY,
        sglang(routing()),
        {},
        "in.jsonl, line 1: routed_experts is no .npy array; raw int32 is what SGLang writes — "
        "import it as sglang-routed-experts",
    ),
    "cut base64": (
        RAW,
        sglang(routing(), routed_experts="AAA"),
        {},
        "in.jsonl, line 1: routed_experts is no base64 text, or was cut — store the whole reply",
    ),
    "cut int32": (
        RAW,
        sglang(routing(), routed_experts=text(b"12345")),
        {},
        "in.jsonl, line 1: routed_experts has 5 bytes, no whole number of int32 — store the whole reply",
    ),
    "cut npy": (
        ARRAY,
        vllm(routing(), choices=[{"routed_experts": text(base64.b64decode(npy(routing()))[:-4])}]),
        {},
        "in.jsonl, line 1: .npy array of int32 and shape (5, 5, 2) with 196 bytes — store the whole reply",
    ),
    "npy of objects": (
        ARRAY,
        vllm(routing(), choices=[{"routed_experts": npy(np.array([{}], object))}]),
        {},
        "in.jsonl, line 1: holds pickled objects, which are never read — store plain numbers",
    ),
    "npy of floats": (
        ARRAY,
        vllm(routing(), choices=[{"routed_experts": npy(np.zeros((5, 5, 2)))}]),
        {},
        "in.jsonl, line 1: routed_experts is float64 of shape (5, 5, 2), expected whole numbers of "
        "[tokens, layers, top-k] — store the reply as the engine sent it",
    ),
    "raw without layers": (
        RAW,
        sglang(routing()),
        {"layers": None},
        "in.jsonl, line 1: raw int32 ids do not say how many layers they hold — pass --layers or --model",
    ),
    "no experts": (
        RAW,
        sglang(routing()),
        {"experts": None},
        "in.jsonl, line 1: the number of experts is unknown — pass --model NAME, or --experts and --top-k (and "
        "--layers)",
    ),
    "last sampled token": (
        RAW,
        sglang(routing(6), completion_tokens=GENERATED),
        {},
        "in.jsonl, line 1: holds 6 tokens; 3 of the prompt + 3 generated − 1 never routed are 5 — correct --top-k, "
        "--layers or --model, or store the reply as the engine sent it",
    ),
    "start that does not fit": (
        RAW,
        sglang(routing()[2:], completion_tokens=GENERATED, routed_experts_start_len=1),
        {},
        "in.jsonl, line 1: holds 3 tokens; 3 of the prompt + 3 generated − 1 never routed − 1 skipped are 4 — correct "
        "--top-k, --layers or --model, or store the reply as the engine sent it",
    ),
    "no whole tokens": (
        RAW,
        sglang(routing()),
        {"layers": (2, 3)},
        "in.jsonl, line 1: 50 ids are no whole number of tokens of 4 layers × top-2 — correct --top-k, --layers or "
        "--model",
    ),
    "dense layer named": (
        ARRAY,
        vllm(routing()),
        {"layers": (1, 2, 3, 4)},
        "in.jsonl, line 1: layer 1 holds no expert ids: it is dense, or was not recorded — correct --layers or --model",
    ),
    "layer that is not there": (
        ARRAY,
        vllm(routing()),
        {"layers": (2, 3, 5)},
        "in.jsonl, line 1: holds 5 hidden layers, so there is no layer 5 — correct --layers or --model",
    ),
    "another top-k": (
        ARRAY,
        vllm(routing()),
        {"top_k": 4},
        "in.jsonl, line 1: holds 2 experts per token, not top-4 — correct --top-k or --model",
    ),
    "top-1 without layers": (
        ARRAY,
        vllm(routing()[:, :, :1]),
        {"layers": None, "top_k": None},
        "in.jsonl, line 1: top-1: a dense layer looks like expert 0 — pass --layers or --model",
    ),
    "ids that are too narrow": (
        ARRAY,
        vllm(routing()),
        {"experts": 300},
        "in.jsonl, line 1: ids are uint8, which vLLM uses up to 256 experts, not for 300 — correct --experts or "
        "--model",
    ),
    "plan in force": (
        RAW,
        sglang(routing()),
        {"slots": SlotMap(expert_of_slot=np.zeros((1, 1), np.int32), experts=1, name="plan")},
        "in.jsonl: ids are logical experts, not slots — leave --plan-in-force out",
    ),
    "unknown expert": (
        RAW,
        sglang(changed(3, 4, [1, 8])),
        {},
        "in.jsonl, line 1: token 3, layer 4: id 8 is not in 0..7 — correct --experts or --model; slots of a plan are "
        "not experts",
    ),
    "padding inside": (
        RAW,
        sglang(changed(3, 4, [1, -1])),
        {},
        "in.jsonl, line 1: token 3, layer 4: id -1 is not in 0..7 — correct --experts or --model; slots of a plan are "
        "not experts",
    ),
    "expert twice": (
        RAW,
        sglang(changed(4, 2, [6, 6])),
        {},
        "in.jsonl, line 1: token 4, layer 2: expert 6 stands twice in one top-2 — correct --top-k, --layers or --model",
    ),
    "negative count": (
        RAW,
        sglang(routing(), prompt_tokens=-3),
        {},
        "in.jsonl, line 1: prompt_tokens is -3 — store the reply as the engine sent it",
    ),
    "no reply": (
        RAW,
        {"error": "overloaded"},
        {},
        "in.jsonl, line 1: neither meta_info nor choices, so this is no reply of SGLang or vLLM — store the engine's "
        "whole reply",
    ),
    "no routing": (
        ARRAY,
        vllm(routing(), choices=[{"index": 0}]),
        {},
        "in.jsonl: no reply holds routed_experts — start the engine with --enable-return-routed-experts",
    ),
    "ids as a list": (
        RAW,
        sglang(routing(), routed_experts=[1, 2]),
        {},
        "in.jsonl, line 1: not a reply of an engine: Expected `str | null`, got `array` - at "
        "`$.meta_info.routed_experts` — record it again",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_exactly(tmp_path: Path, fault: str) -> None:
    kind, reply, settings, says = FAULTS[fault]
    with pytest.raises(EbsimError) as caught:
        run(kind, store(tmp_path / "in.jsonl", reply), tmp_path / "o.parquet", **settings)
    assert str(caught.value) == f"{tmp_path}/{says}"
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_faults_of_files(tmp_path: Path) -> None:
    twice = store(tmp_path / "twice.jsonl", vllm(routing()), vllm(routing()))
    other = np.concatenate([routing(), routing()], axis=1)
    mixed = store(tmp_path / "mixed.jsonl", vllm(routing()), vllm(other, id="b"))
    (tmp_path / "cut.json").write_text('{"meta_info": {')
    (tmp_path / "empty").mkdir()
    for source, says in (
        (twice, f"{twice}, line 2: request 'cmpl-1/0' was already in {twice}, line 1 — drop one"),
        (mixed, f"{mixed}, line 2: holds 10 layers, the first reply 5 — import the replies of one model at a time"),
        (
            tmp_path / "cut.json",
            f"{tmp_path / 'cut.json'}: not a reply of an engine: Input data was truncated — record it again",
        ),
        (tmp_path / "empty", f"{tmp_path / 'empty'}: folder holds no .json or .jsonl file — check the path"),
        (tmp_path / "absent", f"{tmp_path / 'absent'}: no such file or folder — check the path"),
    ):
        with pytest.raises(EbsimError) as caught:
            run(ARRAY, source, tmp_path / "o.parquet")
        assert str(caught.value) == says
    assert not (tmp_path / "o.parquet").exists()


def test_a_model_names_layers_experts_and_top_k(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ids = np.zeros((4, 61, 8), np.int32)
    ids[:, 3:] = rng.random((4, 58, 256)).argsort(axis=2)[:, :, :8]
    source = store(tmp_path / "in.jsonl", sglang(ids))
    model = load_shape("deepseek-v3")
    run(RAW, source, tmp_path / "o.parquet", model=model, layers=None, experts=None, top_k=None)
    trace = token_trace(tmp_path / "o.parquet")
    assert trace.meta.layers == tuple(range(3, 61)) and trace.meta.hidden == 7168
    np.testing.assert_array_equal(read_columns(trace)["experts"], ids[:, 3:])
