"""`AttentionShape`: the widths of a model's attention that time and memory depend on."""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.errors import ProfileError

MLA, GQA = "mla", "gqa"
VALUE_BYTES = 2
"""Of a value in the KV cache, BF16."""


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """kind: `MLA` (keys and values from one latent vector per token) or `GQA` (also plain multi-head attention).

    heads: query heads · kv_heads, head_dim: of GQA · q_lora: latent width of queries, 0 = none · kv_lora, nope, rope,
    value: latent width of keys and values, and widths per head of MLA · gated: queries come with as many output gates ·
    blocks: attention blocks of the model, 0 = one in every layer · full: blocks that attend to the whole context, 0 =
    all · window: tokens that the other blocks attend to, 0 = none · note: what these numbers leave out of the model.
    Raises `ProfileError` when a width is missing.
    """

    kind: str
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    q_lora: int = 0
    kv_lora: int = 0
    nope: int = 0
    rope: int = 0
    value: int = 0
    gated: bool = False
    blocks: int = 0
    full: int = 0
    window: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        needed = {MLA: ("kv_lora", "nope", "rope", "value"), GQA: ("kv_heads", "head_dim")}
        if self.kind not in needed:
            raise ProfileError(f"attention is {self.kind!r}, expected {MLA} or {GQA}")
        missing = [name for name in ("heads", *needed[self.kind]) if getattr(self, name) < 1]
        if missing:
            raise ProfileError(f"{self.kind} attention lacks {missing[0]}")

    def token_values(self, ranks: int = 1) -> int:
        """Values that a token leaves in the cache of one block on each of `ranks` tensor-parallel GPUs.

        MLA keeps the whole latent vector on each of them, GQA its share of the heads, at least one.
        """
        if self.kind == MLA:
            return self.kv_lora + self.rope
        return 2 * self.head_dim * max(1, -(-self.kv_heads // ranks))

    def parameters(self, width: int, ranks: int = 1) -> float:
        """Weights of one block's projections on each of `ranks` GPUs; heads are split, latent projections are not."""
        heads = self.heads / ranks
        if self.kind == GQA:
            queries = heads * self.head_dim * (3 if self.gated else 2)
            return width * (queries + self.token_values(ranks))
        per_head = self.kv_lora * (self.nope + self.value) + self.value * width
        query = (self.q_lora or width) * (self.nope + self.rope)
        return width * (self.q_lora + self.kv_lora + self.rope) + heads * (per_head + query)

    @property
    def products(self) -> int:
        """Matrix products of one block's projections."""
        if self.kind == GQA:
            return 2
        return 6 if self.q_lora else 5

    @property
    def context_flops(self) -> float:
        """Of one block, for a decoding token and a token of its context. MLA multiplies with the latent vector itself
        (DeepSeek-V2, arXiv 2405.04434, 2.1.2)."""
        per_head = 2 * self.kv_lora + self.rope if self.kind == MLA else 2 * self.head_dim
        return 2.0 * self.heads * per_head

    @property
    def pair_flops(self) -> float:
        """Of one block, for a token of a prompt and a token that it attends to, with keys and values expanded."""
        per_head = self.nope + self.rope + self.value if self.kind == MLA else 2 * self.head_dim
        return 2.0 * self.heads * per_head

    def cache_bytes(self, hidden_layers: int) -> int:
        """Of a token, over the blocks that attend to the whole context, at `VALUE_BYTES` a value."""
        return (self.full or self.blocks or hidden_layers) * self.token_values() * VALUE_BYTES
