"""KV cache that a data-parallel rank has beside its weights and buffers.

    tokens = (0.9 · HBM - experts - attention - shared - dense - embeddings - buffers) / bytes of a token, per GPU

All on one of the `tensor_ranks` GPUs of the rank: heads, shared experts, dense layers and vocabulary are split over
them, MLA's latent projections and its cache are kept by each. Experts: the slots of the plan. Buffers: dispatch and
activations of the fullest step, see `step_buffers`. Multi-token-prediction layers, norms and the engine's own overhead
are not counted, so the true number is a little smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.cluster.model_shape import WEIGHT_BYTES, ModelShape
from easybalance_sim.cost.attention import dense_parameters, shared_parameters
from easybalance_sim.cost.memory import USABLE_HBM_FRAC
from easybalance_sim.cost.memory_peak import USUAL_BUFFER_TOKENS, Peak, activation_bytes, buffer_bytes
from easybalance_sim.errors import UsageError

EMBEDDING_DTYPE = "bf16"
HOTTEST_RANK = 2.0
"""Rows of the fullest rank against an even share, for which buffers are held."""


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes on one GPU. usable: of its memory · experts: routed ones of the plan's slots · attention, shared, dense:
    weights · embeddings: and the head · buffers: of a step · token_bytes: cache of one token of the data-parallel
    rank."""

    usable: float
    experts: float
    attention: float
    shared: float
    dense: float
    embeddings: float
    buffers: float
    token_bytes: float

    @property
    def weights(self) -> float:
        """All of them."""
        return self.experts + self.attention + self.shared + self.dense + self.embeddings

    @property
    def tokens(self) -> int:
        """Of KV cache that fit, 0 when the weights do not."""
        return max(0, int((self.usable - self.weights - self.buffers) // self.token_bytes))

    def blocks(self, block_tokens: int) -> int:
        """Whole blocks of the cache. Raises `UsageError` for blocks of no tokens."""
        if block_tokens < 1:
            raise UsageError(f"blocks of {block_tokens} tokens", where="block_tokens", fix="give 1 or more")
        return self.tokens // block_tokens


def rank_memory(
    shape: ModelShape,
    hbm_bytes: float,
    slots: float,
    tensor_ranks: int = 1,
    *,
    kv_frac: float = 1.0,
    buffers: float = 0.0,
    expert_ranks: int = 1,
) -> RankMemory | None:
    """Memory of the fullest GPU, None where the model, its attention or its vocabulary is not known.

    slots: expert slots of that GPU, mean over MoE layers · kv_frac: bytes of the cache against those at two a value ·
    buffers: bytes of a step, see `step_buffers` · expert_ranks: GPUs that share one expert (tensor-parallel experts).
    """
    attention = shape.attention
    if shape.assumed or attention is None or not shape.vocab:
        return None
    dense_bytes, layers = WEIGHT_BYTES[shape.dense_dtype], shape.hidden_layers or len(shape.layers)
    moe = len(shape.layers)
    router = moe * shape.experts * shape.width * WEIGHT_BYTES[EMBEDDING_DTYPE]
    split = attention.token_values() / attention.token_values(tensor_ranks)
    return RankMemory(
        usable=USABLE_HBM_FRAC * hbm_bytes,
        experts=slots * moe * shape.expert_bytes / expert_ranks,
        attention=(attention.blocks or layers) * attention.parameters(shape.width, tensor_ranks) * dense_bytes,
        shared=moe * shared_parameters(shape) * dense_bytes / tensor_ranks + router,
        dense=shape.dense_layers * dense_parameters(shape) * dense_bytes / tensor_ranks,
        embeddings=2 * shape.vocab * shape.width * WEIGHT_BYTES[EMBEDDING_DTYPE] / tensor_ranks,
        buffers=buffers,
        token_bytes=(shape.kv_bytes_per_token or attention.cache_bytes(layers)) / split * kv_frac,
    )


def step_buffers(shape: ModelShape, batch_tokens: int, ranks: int, slots: int, mode: str) -> int | None:
    """Bytes of dispatch buffers and expert activations on the fullest rank, None when the model is assumed.

    batch_tokens: most tokens of a step on each of the `ranks` · slots: P of the plan · mode: the all-to-all. The
    fullest rank takes `HOTTEST_RANK` times an even share of the assignments; low-latency buffers are made for the
    usual number of tokens, engines that take in more send them in turns. Raises `UsageError` for an unknown mode.
    """
    sent = min(batch_tokens, USUAL_BUFFER_TOKENS) if mode == "low_latency" else batch_tokens
    rows = round(min(HOTTEST_RANK, ranks) * sent * shape.top_k)
    peak = Peak(sent=sent, arriving=min(rows, sent * ranks), rows=rows, slot_rows=rows)
    dispatch, activations = buffer_bytes(peak, shape, slots, mode), activation_bytes(peak, shape)
    return None if dispatch is None or activations is None else dispatch + activations
