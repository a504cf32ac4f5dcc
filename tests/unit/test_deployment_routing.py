from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.deployment.fields import Recipe, Routing
from easybalance_sim.deployment.routing import routing_trace
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.synthesis import Recipe as Synthesis
from easybalance_sim.trace.synthesis import synthesise
from tests.listeners import Heard


def _shape(layers: int, experts: int = 16, top_k: int = 2) -> ModelShape:
    ids = tuple(range(1, layers + 1))
    return ModelShape(name="toy", layers=ids, experts=experts, top_k=top_k, hidden=64, intermediate=32)


def _experts(paths: tuple[Path, ...]) -> tuple[tuple[int, ...], np.typing.NDArray[np.int64]]:
    trace = open_trace(paths)
    assert isinstance(trace, TokenTrace)
    return trace.meta.layers, np.concatenate([batch.experts.astype(np.int64) for batch in trace.batches()])


def _recorded(folder: Path, **said: int) -> Routing:
    path = folder / "recorded.parquet"
    numbers = {"layers": 3, "experts": 16, "top_k": 2, "steps": 20, "tokens_per_step": 8} | said
    synthesise(Synthesis(kind="power-law", **numbers), path)
    return Routing(trace=str(path))


def test_a_trace_with_fewer_layers_serves_the_model_in_turn(tmp_path: Path) -> None:
    routing, heard = _recorded(tmp_path), Heard()
    _, few = _experts(routing.traces)
    layers, many = _experts(routing_trace(routing, _shape(7), tmp_path, heard))
    assert layers == (1, 2, 3, 4, 5, 6, 7)
    for layer in range(7):
        np.testing.assert_array_equal(many[:, layer], few[:, layer % 3])
    assert heard.notes == ["3 layers of routing serve the 7 of toy in turn"]


def test_a_trace_with_the_models_layers_is_taken_as_it_is(tmp_path: Path) -> None:
    routing = _recorded(tmp_path)
    assert routing_trace(routing, _shape(3), tmp_path, Heard()) == routing.traces


@pytest.mark.parametrize(("said", "layers"), [(2, 5), (0, 5), (9, 5)])
def test_a_recipe_takes_the_models_experts(tmp_path: Path, said: int, layers: int) -> None:
    routing = Routing(recipe=Recipe(kind="topic-mixture", layers=said, steps=20, tokens_per_step=8))
    ids, experts = _experts(routing_trace(routing, _shape(layers), tmp_path, Heard()))
    assert experts.shape == (160, layers, 2)
    assert len(ids) == layers
    assert (np.array_equal(experts[:, 0], experts[:, 2])) == (said == 2)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (_shape(3, experts=32), "holds top-2 of 16 experts in 3 layers, toy takes top-2 of 32 in 3"),
        (_shape(3, top_k=4), "toy takes top-4 of 16"),
        (_shape(2), "in 3 layers, toy takes top-2 of 16 in 2"),
    ],
)
def test_another_models_trace_is_refused(tmp_path: Path, shape: ModelShape, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        routing_trace(_recorded(tmp_path), shape, tmp_path, Heard())
