"""The routing trace of a scenario, with as many layers as its model has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.deployment.fields import Routing
from easybalance_sim.errors import UsageError
from easybalance_sim.planning.session import Listener
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import TokenBatch
from easybalance_sim.trace.synthesis import Recipe, synthesise
from easybalance_sim.trace.writer import token_trace_writer

SYNTHESISED, REPEATED = "routing.parquet", "repeated.parquet"


def routing_trace(routing: Routing, shape: ModelShape, folder: Path, tell: Listener) -> tuple[Path, ...]:
    """Files of a token trace with the model's L, E and K; what has to be written goes to `folder`.

    A trace with fewer layers than the model is repeated over them: the model's i-th MoE layer routes as layer i mod L'
    of the trace. Balance is a matter of each layer, so its spread is that of the L' layers; that layers far apart
    agree matters only to what runs across layers, which a step that waits in every layer has not.
    Raises `UsageError` for a trace of another E or K, one with more layers, and one of counts.
    """
    paths = routing.traces
    if routing.recipe is not None:
        paths = (folder / SYNTHESISED,)
        synthesise(recipe_of(routing, shape), paths[0], tell.progress)
    trace = open_trace(paths)
    where = str(paths[0])
    if not isinstance(trace, TokenTrace):
        raise UsageError("counts do not know requests", where=where, fix="give a token trace")
    found, wanted = (trace.meta.experts, trace.meta.top_k), (shape.experts, shape.top_k)
    layers = len(trace.meta.layers)
    if found != wanted or layers > len(shape.layers):
        raise UsageError(
            f"holds top-{found[1]} of {found[0]} experts in {layers} layers, {shape.name} takes top-{wanted[1]} of "
            f"{wanted[0]} in {len(shape.layers)}",
            where=where,
            fix="name a model with these experts, or give a recipe",
        )
    if layers == len(shape.layers):
        return paths
    tell.note(f"{layers} layers of routing serve the {len(shape.layers)} of {shape.name} in turn")
    return (repeated(trace, shape, folder / REPEATED),)


def recipe_of(routing: Routing, shape: ModelShape) -> Recipe:
    """What is synthesised: the file's recipe with the model's experts. Raises `UsageError` naming a field that does
    not fit."""
    if routing.recipe is None:
        raise UsageError("has no recipe", where="routing")
    said = msgspec.structs.asdict(routing.recipe)
    layers = min(said.pop("layers") or len(shape.layers), len(shape.layers))
    try:
        return Recipe(layers=layers, experts=shape.experts, top_k=shape.top_k, groups=shape.groups, **said)
    except UsageError as error:
        field = error.where.removeprefix("--").replace("-", "_") or "kind"
        raise UsageError(error.what, where=f"routing.recipe.{field}", fix=error.fix) from error


def repeated(trace: TokenTrace, shape: ModelShape, output: Path) -> Path:
    """Write the trace with its layers taken in turn for the model's; gates and scores are left out."""
    layer = np.arange(len(shape.layers)) % len(trace.meta.layers)
    meta = msgspec.structs.replace(
        trace.meta, layers=shape.layers, model=shape.name, hidden=0, intermediate=0, all_scores=msgspec.UNSET
    )
    with token_trace_writer(output, meta, trace.workloads, level=1) as writer:
        for batch in trace.batches():
            writer.append(_of_layers(batch, layer))
    return output


def _of_layers(batch: TokenBatch, layer: IntArray) -> TokenBatch:
    return TokenBatch(
        step=batch.step,
        request=batch.request,
        position=batch.position,
        phase=batch.phase,
        source_rank=batch.source_rank,
        workload=batch.workload,
        time_s=batch.time_s,
        experts=batch.experts[:, layer, :],
    )
