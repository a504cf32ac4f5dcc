"""A first deployment of a model on so many GPUs: slots, attention and memory, or what would fit.

One slot more than every expert once needs, where the gate's limit on lost KV cache allows it; attention data-parallel
where the weights leave room, else split over as few GPUs of an NVLink domain as do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from easybalance_sim.cluster.hardware import FITTED_MODES, HardwareProfile, load_profile, profile_names
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.shapes import find_shape, load_shape, model_names
from easybalance_sim.cluster.topology import MOST_RANKS
from easybalance_sim.cost.attention import dense_parameters, known_attention, shared_parameters
from easybalance_sim.cost.kv_room import RankMemory, rank_memory, step_buffers
from easybalance_sim.cost.memory import kv_loss_frac
from easybalance_sim.errors import UsageError
from easybalance_sim.gate.criteria import load_criteria

BATCH_TOKENS, CHUNK_TOKENS, BLOCK_TOKENS = 2048, 1024, 64
"""Of the scenario's engine: small chunks, for every rank waits for the one with the longest."""
LEAST_KV_TOKENS = 16_384
"""Of cache on a data-parallel rank, under which a model counts as not fitting: some ten requests of chat."""
REQUEST_TOKENS = 1_366
"""Mean prompt and answer of Azure's conversation trace (2023)."""
BUSY_FRAC = 0.02
"""Share of the peak that the first rate takes; the scenarios of this repository keep their limits at 2-6 %."""
STAND_IN_VOCAB = 150_000
_ATTENTION_GPUS = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Start:
    """model: as the user said it · tensor_ranks: GPUs that share the attention of one data-parallel rank · memory: of
    the fullest GPU · kv_loss: share of the KV cache that the slots beyond one per expert take · guessed: what of the
    model is not public and was taken from another."""

    model: str
    shape: ModelShape
    hardware: HardwareProfile
    ranks: int
    ranks_per_node: int
    slots_per_rank: int
    tensor_ranks: int
    memory: RankMemory
    kv_loss: float
    guessed: tuple[str, ...]

    @property
    def spare_slots(self) -> int:
        """Slots of a layer for second and later replicas."""
        return self.ranks * self.slots_per_rank - self.shape.experts

    @property
    def rate_per_s(self) -> float:
        """Requests per second to begin with: `BUSY_FRAC` of the peak, two digits."""
        peak = self.hardware.peak_flops[self.shape.dtype] * self.ranks
        return float(f"{BUSY_FRAC * peak / (2 * _active_parameters(self.shape) * REQUEST_TOKENS):.2g}")


def start(model: str, gpus: int, gpu: str = "h200", ranks_per_node: int | None = None) -> Start:
    """Choose slots and attention. gpus: R, every GPU a rank · ranks_per_node: None = the GPU's NVLink domain.

    Raises `UsageError`, one line: a model or GPU that is not known (with the nearest names), or one that does not fit
    (with what would).
    """
    shape, hardware = _model(model), _gpu(gpu)
    if ranks_per_node is not None and ranks_per_node > gpus:
        raise UsageError(f"{ranks_per_node} is more than {gpus} GPUs", where="--ranks-per-node", fix="give fewer")
    complete, guessed = _complete(shape)
    domain = ranks_per_node or hardware.nvlink_domain
    found = _chosen(model, complete, hardware, gpus, domain)
    if found is None:
        raise _does_not_fit(model, complete, hardware, gpus, domain)
    return replace(found, shape=shape, guessed=guessed)


def _model(name: str) -> ModelShape:
    path = Path(name)
    if path.suffix == ".json" or (path / "config.json").is_file():
        return load_shape(name)
    shape = find_shape(name)
    if shape is None:
        raise _unknown("model", name, model_names(), "or give a config.json")
    return shape


def _gpu(name: str) -> HardwareProfile:
    if name.lower() not in profile_names():
        raise _unknown("GPU", name, profile_names(), "for one of your own change profile in the file")
    return load_profile(name)


def _unknown(kind: str, name: str, known: tuple[str, ...], otherwise: str) -> UsageError:
    near = get_close_matches(name.lower().rsplit("/", 1)[-1], known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    return UsageError(f"no {kind} {name!r} is known", where=f"--{kind.lower()}", fix=f"{hint}; {otherwise}")


def _complete(shape: ModelShape) -> tuple[ModelShape, tuple[str, ...]]:
    """The shape with stand-ins for what is not public, and what they stand in for."""
    attention, reasons = known_attention(shape)
    vocab = () if shape.vocab else (f"vocabulary assumed, {STAND_IN_VOCAB:,} tokens",)
    missing = reasons if shape.attention is None else ()
    return replace(shape, attention=attention, vocab=shape.vocab or STAND_IN_VOCAB), (*missing, *vocab)


def _chosen(model: str, shape: ModelShape, hardware: HardwareProfile, ranks: int, domain: int) -> Start | None:
    """The first combination that leaves room for a cache, None when none does."""
    per_node, plain = min(ranks, domain), -(-shape.experts // ranks)
    for slots, loss in _slots(shape, hardware, ranks):
        for shared in _attention_gpus(ranks, per_node):
            memory = _memory(shape, hardware, ranks, slots, shared)
            if memory.tokens >= LEAST_KV_TOKENS:
                return Start(
                    model=model,
                    shape=shape,
                    hardware=hardware,
                    ranks=ranks,
                    ranks_per_node=per_node,
                    slots_per_rank=slots,
                    tensor_ranks=shared,
                    memory=memory,
                    kv_loss=loss if slots > plain else 0.0,
                    guessed=(),
                )
    return None


def _slots(shape: ModelShape, hardware: HardwareProfile, ranks: int) -> Iterator[tuple[int, float]]:
    """Slots per rank to try and the share of the KV cache that they cost, the spare one first where the gate would let
    it pass."""
    plain = -(-shape.experts // ranks)
    spare = min(plain + 1, shape.experts)
    loss = kv_loss_frac(np.array([spare]), np.array([plain]), shape, hardware.hbm_bytes) or 0.0
    if spare > plain and loss <= load_criteria().kv_cache_loss_max:
        yield spare, loss
    yield plain, 0.0


def _attention_gpus(ranks: int, per_node: int) -> tuple[int, ...]:
    return tuple(n for n in _ATTENTION_GPUS if n <= per_node and ranks % n == 0 and per_node % n == 0)


def _memory(shape: ModelShape, hardware: HardwareProfile, ranks: int, slots: int, shared: int) -> RankMemory:
    """Of one GPU under the scenario's engine; shape: a complete one."""
    sent = -(-BATCH_TOKENS // shared)
    buffers = max(step_buffers(shape, sent, ranks, slots * ranks, mode) or 0 for mode in FITTED_MODES)
    found = rank_memory(shape, hardware.hbm_bytes, slots, shared, buffers=buffers)
    if found is None:
        raise UsageError("the memory that the model takes is not known", where="--model", fix="name a known model")
    return found


def _does_not_fit(model: str, shape: ModelShape, hardware: HardwareProfile, ranks: int, domain: int) -> UsageError:
    """What the model takes without any spare slot, and what would fit."""
    shared = _attention_gpus(ranks, min(ranks, domain))[-1]
    need = _memory(shape, hardware, ranks, -(-shape.experts // ranks), shared)
    fixes = [f"--gpus {count}" for count in _enough(shape, hardware, ranks, domain)]
    others = [name for name in profile_names() if _chosen(name, shape, load_profile(name), ranks, domain) is not None]
    fixes += [f"--gpu {' or '.join(others)}"] if others else []
    if need.usable < need.weights + need.buffers:
        why = f"weights of {need.weights / 1e9:,.0f} GB ({need.experts / 1e9:,.0f} GB of them experts) and buffers of "
        why += f"{need.buffers / 1e9:,.0f} GB on each, {need.usable / 1e9:,.0f} GB usable"
    else:
        why = f"its weights leave room for {need.tokens:,} tokens of KV cache, at least {LEAST_KV_TOKENS:,} are wanted"
    return UsageError(
        f"{model} does not fit on {ranks} {hardware.name.upper()}: {why}",
        where="--gpus",
        fix=f"what fits: {', or '.join(fixes)}"
        if fixes
        else "name a checkpoint with smaller weights, as -fp8 or -nvfp4",
    )


def _enough(shape: ModelShape, hardware: HardwareProfile, ranks: int, domain: int) -> Iterator[int]:
    """The fewest GPUs of this kind that fit, whole NVLink domains from one on; nothing when 1,024 do not."""
    for count in range(ranks + 1, MOST_RANKS + 1):
        whole = count % domain == 0 if count > domain else domain % count == 0
        if whole and _chosen("", shape, hardware, count, domain) is not None:
            yield count
            return


def _active_parameters(shape: ModelShape) -> float:
    """Weights that one token meets, embeddings left out."""
    attention, _ = known_attention(shape)
    moe, layers = len(shape.layers), shape.hidden_layers or len(shape.layers)
    routed = shape.top_k * shape.matrices * shape.hidden * shape.intermediate
    return float(
        moe * (routed + shared_parameters(shape))
        + shape.dense_layers * dense_parameters(shape)
        + (attention.blocks or layers) * attention.parameters(shape.width, 1)
    )
