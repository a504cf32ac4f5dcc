"""The recorder on small models of Hugging Face with random weights: every router's own choice, token for token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.trace.recorder import record
from easybalance_sim.trace.schema import ScoreMeta
from tests.engines.torch_modules import needed, torch
from tests.trace_files import read_columns, token_trace

transformers: Any = needed("transformers")

pytestmark = pytest.mark.engine_loader
EXPERTS, TOP_K, PAD, END = 8, 2, 0, 1
SHARED = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_experts_per_tok": TOP_K,
    "pad_token_id": PAD,
    "eos_token_id": END,
}
LATENT = {
    "moe_intermediate_size": 16,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
MODELS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "Qwen2Moe": ({"num_experts": EXPERTS, "moe_intermediate_size": 16}, (0, 1, 2)),
    "Qwen3Moe": ({"num_experts": EXPERTS, "moe_intermediate_size": 16, "mlp_only_layers": [1]}, (0, 2)),
    "Mixtral": ({"num_local_experts": EXPERTS}, (0, 1, 2)),
    "Olmoe": ({"num_experts": EXPERTS}, (0, 1, 2)),
    "DeepseekV2": (LATENT | {"topk_method": "group_limited_greedy", "q_lora_rank": None}, (1, 2)),
    "DeepseekV3": (LATENT | {"q_lora_rank": 16}, (1, 2)),
    "GptOss": ({"num_local_experts": EXPERTS, "head_dim": 8}, (0, 1, 2)),
}


def made(name: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SHARED | MODELS[name][0])
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    for key, buffer in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            torch.nn.init.uniform_(buffer, -0.5, 0.5)
    return model


def own_choices(model: Any, layer: int, kept: dict[int, list[AnyArray]]) -> Any:
    """A hook that keeps the ids that a router returns."""

    def hook(module: Any, args: Any, output: Any) -> None:
        (ids,) = [one for one in output if not one.is_floating_point()]
        kept.setdefault(layer, []).append(ids.numpy())

    block = model.model.layers[layer].mlp
    return getattr(block, "gate", None) or block.router, hook


@pytest.mark.parametrize("name", MODELS)
def test_generated_text_is_recorded_as_routed(tmp_path: Path, name: str) -> None:
    model, (_, layers) = made(name), MODELS[name]
    kept: dict[int, list[AnyArray]] = {}
    for layer in layers:
        router, hook = own_choices(model, layer, kept)
        router.register_forward_hook(hook)
    prompt = torch.randint(2, 64, (3, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(prompt)
    mask[0, :4], prompt[0, :4] = 0, PAD
    with record(model, tmp_path / "t.parquet", all_scores=True, stop_tokens=[]), torch.no_grad():
        model.generate(input_ids=prompt, attention_mask=mask, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    trace = token_trace(tmp_path / "t.parquet")
    columns = read_columns(trace, gates=True)
    assert (trace.meta.layers, trace.meta.experts, trace.meta.top_k) == (layers, EXPERTS, TOP_K)
    # 14 tokens of the prompts, then three rows a step; the last sampled token is never fed.
    assert np.bincount(columns["step"]).tolist() == [14, 3, 3, 3]
    assert columns["position"].tolist() == [0, 1, *range(6), *range(6), *[2, 6, 6], *[3, 7, 7], *[4, 8, 8]]
    assert columns["phase"].tolist() == ["prefill"] * 14 + ["decode"] * 9
    for index, layer in enumerate(layers):
        whole = np.concatenate([kept[layer][0][4:], *kept[layer][1:]])
        np.testing.assert_array_equal(np.sort(columns["experts"][:, index]), np.sort(whole))
    assert (np.diff(columns["gates"].astype(float), axis=2) <= 0).all()
    require_scores(tmp_path / "t.parquet", grouped=trace.meta.groups > 1)


def require_scores(path: Path, grouped: bool) -> None:
    """The chosen experts have the best scores, unless groups restrict the choice; runners-up are behind them."""
    trace = token_trace(path)
    parts = list(trace.batches(scores=True))
    ids = np.concatenate([part.experts for part in parts])
    scores = np.concatenate([part.all_scores for part in parts if part.all_scores is not None]).astype(float)
    behind = np.concatenate([part.runner_up_scores for part in parts if part.runner_up_scores is not None])
    chosen = np.take_along_axis(scores, ids.astype(np.int64), axis=2)
    best = -np.sort(-scores, axis=2)
    if not grouped:
        np.testing.assert_array_equal(np.sort(chosen), np.sort(best[:, :, :TOP_K]))
        assert (behind[:, :, 0] <= chosen.min(axis=2)).all()
    assert behind.shape[2] == 4 and (np.diff(behind.astype(float), axis=2) <= 0).all()
    assert isinstance(trace.meta.all_scores, ScoreMeta)
    assert len(trace.meta.all_scores.bias) == (len(trace.meta.layers) if trace.meta.model == "deepseek_v3" else 0)


def test_rows_that_have_ended_are_left_out(tmp_path: Path) -> None:
    """After a row's end the model is fed padding in its place, with a mask of ones."""
    model = made("Mixtral")
    prompt = torch.randint(2, 64, (2, 3), generator=torch.Generator().manual_seed(2))
    free = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False)
    # What row 0 generates second becomes the end of text; row 1 must not say it.
    stop = int(free[0, 4])
    wanted = [0] * 3 + [1] * 3 + [0] + [1] * 5
    assert stop not in free[1, 3:].tolist() and stop != int(free[0, 3])
    model.generation_config.eos_token_id = stop
    with record(model, tmp_path / "t.parquet"), torch.no_grad():
        model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False)
    columns = read_columns(token_trace(tmp_path / "t.parquet"))
    assert sorted(columns["request"].tolist()) == sorted(wanted)


def test_several_batches_are_new_requests(tmp_path: Path) -> None:
    model = made("Olmoe")
    with record(model, tmp_path / "t.parquet") as recorder, torch.no_grad():
        for number, workload in enumerate(("law", "code")):
            recorder.requests([10 * number, 10 * number + 1], workload=workload)
            prompt = torch.randint(2, 64, (2, 3), generator=torch.Generator().manual_seed(number))
            model(input_ids=prompt)
    columns = read_columns(token_trace(tmp_path / "t.parquet"))
    assert columns["request"].tolist() == [0] * 3 + [1] * 3 + [10] * 3 + [11] * 3
    assert columns["workload"].tolist() == ["law"] * 6 + ["code"] * 6


class Letters:
    """A tokenizer of single letters, padded on the left."""

    pad_token, eos_token = None, "end"

    def __call__(self, texts: list[str], return_tensors: str, padding: bool) -> dict[str, Any]:
        width = max(map(len, texts))
        ids = [[PAD] * (width - len(text)) + [2 + ord(letter) % 60 for letter in text] for text in texts]
        return {"input_ids": torch.tensor(ids), "attention_mask": (torch.tensor(ids) != PAD).long()}


def test_the_documented_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "recording.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda name, padding_side: Letters())
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda name, dtype: made("Olmoe").to(dtype)
    )
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/recording.md", "exec"), {})
    trace = token_trace(tmp_path / "trace.parquet")
    columns = read_columns(trace, gates=True)
    assert trace.check().requests == 4
    assert set(zip(columns["request"].tolist(), columns["workload"].tolist(), strict=True)) == {
        (0, "law"), (1, "law"), (2, "code"), (3, "code")
    }  # fmt: skip
    assert (columns["source_rank"] == columns["request"] % 8).all()
    assert int((columns["phase"] == "prefill").sum()) == sum(
        map(len, ["The contract says", "A tort is", "def fibonacci(n):", "SELECT name FROM"])
    )
