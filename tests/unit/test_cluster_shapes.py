"""The table of known models, names as people write them, stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.cluster.shapes import (
    OTHER_TYPE,
    ModelShape,
    assumed_shape,
    find_shape,
    load_shape,
    model_names,
    model_type,
    weight_dtype,
)
from easybalance_sim.errors import ProfileError

ROUTED_BILLIONS = {  # public sizes: routed-expert parameters
    "deepseek-v3": 654,
    "deepseek-v2": 223,
    "kimi-k2": 1015,
    "qwen3-235b-a22b": 227,
    "qwen3-30b-a3b": 29,
    "glm-4.5": 336,
    "glm-4.5-air": 100,
    "gpt-oss-120b": 115,
    "gpt-oss-20b": 19,
    "mixtral-8x7b": 45,
    "minimax-m2": 225,
    "llama-4-maverick": 387,
    "nemotron-3-nano-30b-a3b": 29,
    "olmoe-1b-7b": 6,
    "hunyuan-a13b": 77,
    "dots.llm1": 135,
    "ling-flash-2.0": 100,
}


@pytest.mark.parametrize("name", model_names())
def test_every_known_model_loads_with_its_source(name: str) -> None:
    shape = load_shape(name)
    assert shape.source
    assert not shape.assumed
    assert list(shape.layers) == sorted(shape.layers)


@pytest.mark.parametrize(("name", "billions"), ROUTED_BILLIONS.items())
def test_routed_parameters_match_the_public_size(name: str, billions: int) -> None:
    shape = load_shape(name)
    routed = shape.matrices * shape.hidden * shape.intermediate * shape.experts * len(shape.layers)
    assert abs(routed / 1e9 - billions) < 1


def test_model_types_are_told_where_a_file_format_hangs_on_them(tmp_path: Path) -> None:
    assert model_type("deepseek-ai/DeepSeek-V4-Pro") == model_type("deepseek-v4-flash") == "deepseek_v4"
    assert (model_type("deepseek-v3"), model_type("none such")) == (OTHER_TYPE, "")
    config = tmp_path / "config.json"
    for text, said in (('{"model_type": "deepseek_v41"}', "deepseek_v41"), ("{}", ""), ('{"model_type": null}', "")):
        config.write_text(text)
        assert model_type(str(config)) == model_type(str(tmp_path)) == said


def test_deepseek_v3() -> None:
    shape = load_shape("DeepSeek-V3")
    assert (shape.layers[0], shape.layers[-1], len(shape.layers)) == (3, 60, 58)
    assert (shape.experts, shape.top_k, shape.groups, shape.topk_groups) == (256, 8, 8, 4)
    assert shape.expert_bytes == pytest.approx(44.05e6, rel=1e-3)
    assert shape.kv_bytes_per_token == 61 * 576 * 2


@pytest.mark.parametrize("name", model_names())
def test_moe_and_mtp_layers_are_among_and_after_all_layers(name: str) -> None:
    shape = load_shape(name)
    assert max(shape.layers) < shape.hidden_layers
    assert shape.mtp_layers in ((), (shape.hidden_layers,))


def test_layers_that_are_not_consecutive() -> None:
    assert load_shape("llama-4-maverick").layers == tuple(range(1, 48, 2))
    assert load_shape("nemotron-3-nano-30b-a3b").layers[:4] == (1, 3, 6, 8)


@pytest.mark.parametrize(
    ("written", "name", "dtype"),
    [
        ("openai/gpt-oss-20b", "gpt-oss-20b", "mxfp4"),
        ("DeepSeek-V3-0324", "deepseek-v3", "fp8_block"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3", "fp8_block"),
        ("nvidia/DeepSeek-R1-FP4", "deepseek-v3", "nvfp4"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b", "fp8_block"),
        ("zai-org/GLM-4.5-Air", "glm-4.5-air", "bf16"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b", "bf16"),
        ("rednote-hilab/dots.llm1.inst", "dots.llm1", "bf16"),
        ("tencent/Hunyuan-A13B-Instruct-FP8", "hunyuan-a13b", "fp8_block"),
        ("inclusionAI/Ling-flash-2.0", "ling-flash-2.0", "bf16"),
        ("/models/DeepSeek_V2_Lite/", "deepseek-v2-lite", "bf16"),
    ],
)
def test_names_as_people_write_them(written: str, name: str, dtype: str) -> None:
    shape = find_shape(written)
    assert shape is not None
    assert (shape.name, shape.dtype) == (name, dtype)


@pytest.mark.parametrize("written", ["", "tinymoe-14m", "DeepSeek-R1-Distill-Qwen-32B", "GLM-4.7-Flash", "unknown"])
def test_another_model_is_not_mistaken(written: str) -> None:
    assert find_shape(written) is None


def test_unknown_name_lists_the_known_ones_in_one_line() -> None:
    with pytest.raises(ProfileError) as caught:
        load_shape("gpt-9")
    message = str(caught.value)
    assert message.startswith("gpt-9: unknown model; known are ")
    assert all(name in message for name in model_names())
    assert "\n" not in message


def test_a_folder_with_a_config_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-mixtral"
    folder.mkdir()
    config = {
        "model_type": "mixtral",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "num_attention_heads": 8,
    }
    (folder / "config.json").write_text(json.dumps(config))
    assert load_shape(str(folder)).name == "my-mixtral"
    assert load_shape(str(folder / "config.json")).layers == (0, 1)


def test_stand_in_keeps_the_routing_numbers_and_says_that_it_is_one() -> None:
    shape = assumed_shape((0, 1), 64, 6, 8, 4)
    assert shape.assumed
    assert (shape.experts, shape.top_k, shape.groups, shape.topk_groups) == (64, 6, 8, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"top_k": 9}, "top_k is 9 with 8 experts"),
        ({"groups": 3}, "do not form 3 groups"),
        ({"dtype": "fp7"}, "not one of bf16"),
        ({"matrices": 4}, "4 matrices"),
        ({"layers": ()}, "at least one"),
        ({"hidden": 0}, "≥ 1"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {
        "name": "m",
        "layers": (0,),
        "experts": 8,
        "top_k": 2,
        "hidden": 64,
        "intermediate": 32,
    }
    with pytest.raises(ProfileError, match=words):
        ModelShape(**(fields | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "dtype"),
    [("torch.bfloat16", "bf16"), ("FP8", "fp8_block"), ("awq", "int4_g32"), ("MXFP4", "mxfp4"), ("int3", None)],
)
def test_dtype_words(word: str, dtype: str | None) -> None:
    assert weight_dtype(word) == dtype
