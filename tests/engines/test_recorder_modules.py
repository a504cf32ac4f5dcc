"""The recorder on small PyTorch modules: which routers it finds, what it makes of their outputs and of batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import EbsimError, TraceError, UsageError
from easybalance_sim.trace.recorder import record
from easybalance_sim.trace.schema import ScoreMeta
from tests.engines.torch_modules import (
    EXPERTS,
    HIDDEN,
    TOP_K,
    Cache,
    block,
    ids_first_router,
    linear_router,
    model,
    module,
    scattered_router,
    torch,
    weights,
)
from tests.trace_files import Columns, read_columns, token_trace

pytestmark = pytest.mark.engine_loader
KINDS = {"logits": linear_router, "ids, weights": ids_first_router, "scattered": scattered_router}


def states(rows: int = 2, tokens: int = 3, seed: int = 0) -> Any:
    return torch.randn(rows, tokens, HIDDEN, generator=torch.Generator().manual_seed(seed))


def logits_of(made: Any, hidden: Any, layer: int) -> AnyArray:
    """float[T, E] what the router of a layer computes; every block adds 0.01 to the hidden states."""
    weight = made.layers[layer].gate.weight
    found: AnyArray = ((hidden + 0.01 * layer).reshape(-1, HIDDEN) @ weight.T).detach().numpy()
    return found


def recorded(path: Path) -> Columns:
    return read_columns(token_trace(path), gates=True)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_gates_are_those_of_the_router(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    made, hidden = model([block(KINDS[kind]()) for _ in range(2)]), states()
    with record(made, tmp_path / "t.parquet", top_k=TOP_K) as recorder:
        made(hidden)
    assert (recorder.tokens, recorder.steps) == (6, 1)
    columns = recorded(tmp_path / "t.parquet")
    for layer in range(2):
        logits = logits_of(made, hidden, layer)
        order = np.argsort(-logits, axis=1)[:, :TOP_K]
        np.testing.assert_array_equal(columns["experts"][:, layer], order)
        chosen = np.take_along_axis(logits, order, axis=1)
        wanted = {
            "logits": np.exp(chosen) / np.exp(logits).sum(axis=1, keepdims=True),
            "ids, weights": 1 / (1 + np.exp(-chosen)),
            "scattered": np.exp(chosen) / np.exp(chosen).sum(axis=1, keepdims=True),
        }[kind]
        np.testing.assert_allclose(columns["gates"][:, layer], wanted, atol=1e-3)
    assert not made._forward_hooks and not made.layers[0].gate._forward_hooks


def test_runners_up_and_all_scores(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made, hidden = model([block(linear_router())]), states()
    with record(made, tmp_path / "t.parquet", top_k=TOP_K, all_scores=True):
        made(hidden)
    trace = token_trace(tmp_path / "t.parquet")
    (batch,) = trace.batches(scores=True)
    logits = logits_of(made, hidden, 0)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    order = np.argsort(-logits, axis=1)
    assert batch.all_scores is not None and batch.runner_up is not None and batch.runner_up_scores is not None
    np.testing.assert_allclose(batch.all_scores[:, 0], shares, atol=1e-3)
    np.testing.assert_array_equal(batch.runner_up[:, 0], order[:, TOP_K : TOP_K + 4])
    np.testing.assert_allclose(
        batch.runner_up_scores[:, 0], np.take_along_axis(shares, order[:, TOP_K : TOP_K + 4], axis=1), atol=1e-3
    )
    assert trace.meta.all_scores == ScoreMeta()


def test_a_bias_is_part_of_the_scores_but_not_of_the_gates(tmp_path: Path) -> None:
    def forward(self: Any, x: Any) -> Any:
        logits = x.reshape(-1, HIDDEN) @ self.weight.T
        ids = (logits.sigmoid() + self.e_score_correction_bias).topk(TOP_K).indices
        return logits, logits.sigmoid().gather(1, ids), ids

    torch.manual_seed(0)
    bias = torch.nn.Buffer(torch.linspace(-1, 1, EXPERTS))
    made = model([block(module("TopkRouter", forward, weight=weights(), e_score_correction_bias=bias))])
    hidden = states()
    with record(made, tmp_path / "t.parquet", top_k=TOP_K, all_scores=True):
        made(hidden)
    trace = token_trace(tmp_path / "t.parquet")
    (batch,) = trace.batches(scores=True, gates=True)
    gates = 1 / (1 + np.exp(-logits_of(made, hidden, 0)))
    scores = gates + np.linspace(-1, 1, EXPERTS)
    best = np.argsort(-scores, axis=1)[:, :TOP_K]
    np.testing.assert_array_equal(np.sort(batch.experts[:, 0]), np.sort(best))
    assert batch.all_scores is not None and batch.gates is not None
    np.testing.assert_allclose(batch.all_scores[:, 0], scores, atol=2e-3)
    assert (np.diff(batch.gates[:, 0].astype(float), axis=1) <= 0).all()
    assert isinstance(trace.meta.all_scores, ScoreMeta)
    np.testing.assert_allclose(trace.meta.all_scores.bias, [np.linspace(-1, 1, EXPERTS)], atol=1e-6)


def test_scores_that_do_not_explain_the_choice_are_left_out(tmp_path: Path) -> None:
    def forward(self: Any, x: Any) -> Any:
        logits = x.reshape(-1, HIDDEN) @ self.weight.T
        ids = (-logits).topk(TOP_K).indices
        return logits, logits.gather(1, ids), ids

    made = model([block(module("WorstRouter", forward, weight=weights()))])
    with record(made, tmp_path / "t.parquet", top_k=TOP_K):
        made(states())
    (batch,) = token_trace(tmp_path / "t.parquet").batches(scores=True)
    assert batch.runner_up is None and batch.tokens == 6
    (tmp_path / "t.parquet").unlink()
    assert refused(tmp_path, model([block(ids_first_router())]), all_scores=True) == (
        "router layers.0.gate does not return the scores of all experts — record without all_scores"
    )
    assert refused(tmp_path, made, all_scores=True) == (
        "the routers do not choose by the softmax, or sigmoid and bias, of what they return — record without all_scores"
    )


def test_ids_that_the_experts_are_called_with_win(tmp_path: Path) -> None:
    """A router that returns logits only, while its block chooses by groups."""

    def forward(self: Any, x: Any) -> Any:
        self.gate(x)
        ids = torch.tensor([[7, 1]]).expand(x.shape[0] * x.shape[1], 2)
        return self.experts(x, ids, top_k_weights=ids.float())

    experts = module("Experts", lambda self, x, ids, top_k_weights: x, num_experts=EXPERTS)
    made = model([module("Block", forward, gate=linear_router(), experts=experts, n_group=4)])
    with record(made, tmp_path / "t.parquet", top_k=2):
        made(states())
    columns = recorded(tmp_path / "t.parquet")
    assert columns["experts"].tolist() == [[[7, 1]]] * 6 and columns["gates"].tolist() == [[[7.0, 1.0]]] * 6


def test_batches_with_a_cache_and_padding(tmp_path: Path) -> None:
    made = model([block(linear_router())])
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    with record(made, tmp_path / "t.parquet", top_k=TOP_K, ranks=2) as recorder:
        made(states(2, 3), mask, Cache(0))
        made(states(2, 1), attention_mask=torch.nn.functional.pad(mask, (0, 1), value=1), past_key_values=Cache(3))
        recorder.requests([11, 10], workload="law")
        made(states(2, 1), past_key_values=Cache(0))
        made(states(2, 2), past_key_values=Cache(1))
        made(states(1, 1))
    columns = recorded(tmp_path / "t.parquet")
    assert columns["step"].tolist() == [0] * 5 + [1] * 2 + [2] * 2 + [3] * 4 + [4]
    assert columns["request"].tolist() == [0, 0, 1, 1, 1, 0, 1, 11, 10, 11, 11, 10, 10, 12]
    assert columns["position"].tolist() == [0, 1, 0, 1, 2, 2, 3, 0, 0, 1, 2, 1, 2, 0]
    assert columns["phase"].tolist() == ["prefill"] * 5 + ["decode"] * 2 + ["prefill"] * 7
    assert columns["workload"].tolist() == ["(none)"] * 7 + ["law"] * 6 + ["(none)"]
    assert columns["source_rank"].tolist() == (columns["request"] % 2).tolist()


def test_a_model_that_is_called_with_ids_ends_requests_at_stop_tokens(tmp_path: Path) -> None:
    def forward(self: Any, input_ids: Any, past_key_values: Any = None) -> Any:
        return self.layers[0](self.embed(input_ids))

    made = module(
        "Model",
        forward,
        embed=torch.nn.Embedding(20, HIDDEN),
        layers=torch.nn.ModuleList([block(linear_router())]),
        generation_config=SimpleNamespace(eos_token_id=[9, 8]),
    )
    calls = [[[9, 2], [3, 4]], [[5], [8]], [[6], [0]], [[9], [0]]]
    for stops, wanted in ((None, [0, 0, 1, 1, 0, 0]), ([], [0, 0, 1, 1, 0, 1, 0, 1, 0, 1])):
        with record(made, tmp_path / "t.parquet", top_k=TOP_K, stop_tokens=stops):
            for past, ids in enumerate(calls):
                made(input_ids=torch.tensor(ids), past_key_values=Cache(past and past + 1))
        assert recorded(tmp_path / "t.parquet")["request"].tolist() == wanted


def test_long_recordings_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easybalance_sim.trace.recorder._HELD_BYTES", 100)
    made = model([block(linear_router())])
    with record(made, tmp_path / "t.parquet", top_k=TOP_K) as recorder:
        for seed in range(5):
            recorder.requests([seed], workload=f"w{seed}")
            made(states(1, 4, seed))
    columns = recorded(tmp_path / "t.parquet")
    assert columns["step"].tolist() == np.repeat(np.arange(5), 4).tolist()
    assert columns["workload"].tolist() == np.repeat([f"w{seed}" for seed in range(5)], 4).tolist()


def refused(tmp_path: Path, made: Any, call: Any = None, **settings: Any) -> str:
    (tmp_path / "t.parquet").write_text("old")
    with pytest.raises(EbsimError) as caught, record(made, tmp_path / "t.parquet", **{"top_k": TOP_K} | settings):
        made(states()) if call is None else call()
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    assert (tmp_path / "t.parquet").read_text() == "old"
    assert not made._forward_hooks and not made._forward_pre_hooks
    return str(caught.value)


NAME_THEM = "name them: record(model, path, routers=['layers.0.mlp.gate', …], top_k=…)"


def test_routers_that_cannot_be_told(tmp_path: Path) -> None:
    plain = model([torch.nn.Linear(HIDDEN, HIDDEN)])
    assert refused(tmp_path, plain) == f"no router found in this model — {NAME_THEM}"
    assert refused(tmp_path, plain, routers=["layers.7"]) == (
        "the model has no module layers.7 — see model.named_modules()"
    )
    named = model([block(linear_router(), "chooser")])
    assert refused(tmp_path, named, top_k=None, routers=["layers.0.chooser"]) == (
        f"router layers.0.chooser chooses an unknown number of 8 experts — {NAME_THEM}"
    )
    with record(named, tmp_path / "n.parquet", routers=["layers.0.chooser"], top_k=3, layers=[5]):
        named(states())
    assert token_trace(tmp_path / "n.parquet").meta.layers == (5,)
    (tmp_path / "n.parquet").unlink()
    uneven = model([block(linear_router()), block(torch.nn.Linear(HIDDEN, 4), experts=4)])
    assert refused(tmp_path, uneven).startswith(
        "router layers.1.gate chooses 2 of 4 experts, layers.0.gate 2 of 8 — record layers of one kind"
    )
    assert refused(tmp_path, model([block(linear_router())]), layers=[1, 2]) == (
        "1 routers (layers.0.gate, …) in layers [1, 2] — pass layers=[…], one for each"
    )


def test_shared_expert_gates_and_gated_layers_are_no_routers(tmp_path: Path) -> None:
    mixed = block(linear_router())
    mixed.shared_expert_gate = torch.nn.Linear(HIDDEN, 1)
    mixed.gate_proj = torch.nn.Linear(HIDDEN, EXPERTS)
    gated = module("Gated", lambda self, x: x, gate=torch.nn.Linear(HIDDEN, HIDDEN))
    made = model([gated, mixed])
    with record(made, tmp_path / "t.parquet", top_k=TOP_K):
        made(states())
    assert token_trace(tmp_path / "t.parquet").meta.layers == (1,)


def test_outputs_that_cannot_be_told(tmp_path: Path) -> None:
    grouped = block(linear_router())
    grouped.n_group = 4
    assert refused(tmp_path, model([grouped])) == (
        "router layers.0.gate returns scores of all experts, but chooses by groups or a bias — name the modules that "
        "return the ids with routers=[…]"
    )
    silent = module("SilentRouter", lambda self, x: None, weight=weights())
    assert refused(tmp_path, model([block(silent)])).startswith("router layers.0.gate returns no ids — ")
    half = module("HalfRouter", lambda self, x: x[:, :1] @ self.weight.T, weight=weights())
    assert refused(tmp_path, model([block(half)])) == (
        "router layers.0.gate decided for 2 of 6 tokens of a forward pass — record an eager model (no compiled "
        "graphs), or name other modules with routers=[…]"
    )
    twice = module("TwiceRouter", lambda self, x: torch.full((6, TOP_K), 3), weight=weights())
    assert refused(tmp_path, model([block(twice)])).startswith(
        "step 0: token 0, layer 0: expert 3 stands twice in one top-2"
    )


def test_calls_that_cannot_be_told(tmp_path: Path) -> None:
    made = model([block(linear_router())])
    assert refused(tmp_path, made, lambda: made.layers[0](states())) == (
        "nothing was recorded — call the model itself, not a part of it, inside the block"
    )
    square = torch.ones(2, 1, 3, 3)
    assert refused(tmp_path, made, lambda: made(states(), attention_mask=square)) == (
        "attention_mask (2x1x3x3) does not say which tokens are padding — give a 2-D attention_mask, or batches "
        "without padding and no mask"
    )
    assert refused(tmp_path, made, lambda: made(torch.zeros(3))).startswith("the call has no tensor of tokens")

    def misnamed() -> None:
        with record(made, tmp_path / "t.parquet", top_k=TOP_K) as inner:
            inner.requests([1, 2, 3])
            made(states())

    with pytest.raises(UsageError, match="3 requests are named for a batch of 2 rows"):
        misnamed()


def test_a_pass_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    made = model([block(linear_router()), block(linear_router())])
    with record(made, tmp_path / "t.parquet", top_k=TOP_K):
        made(states())
        with pytest.raises(RuntimeError):
            made(torch.randn(2, 3, HIDDEN + 1))
        made(states(1, 2))
    assert np.bincount(recorded(tmp_path / "t.parquet")["step"]).tolist() == [6, 2]
    with pytest.raises(ZeroDivisionError), record(made, tmp_path / "u.parquet", top_k=TOP_K):
        made(states())
        raise ZeroDivisionError
    assert not (tmp_path / "u.parquet").exists()


def test_a_place_that_cannot_be_written_is_told_first(tmp_path: Path) -> None:
    made = model([block(linear_router())])
    with (
        pytest.raises(EbsimError, match="cannot write here") as caught,
        record(made, tmp_path / "absent" / "t.parquet", top_k=TOP_K),
    ):
        raise AssertionError("the block must not begin")
    assert not isinstance(caught.value, TraceError)
