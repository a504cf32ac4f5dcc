"""`Limits`: what an engine's scheduler allows."""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.errors import UsageError

ROUTERS = ("round-robin", "least-loaded", "affinity")
"""How requests are dealt to the data-parallel ranks: in turn; to the one with fewest tokens in cache and queue; those
of a tenant to the rank of its own (tenant mod D), to the least loaded one when that has no room in its queue."""

SCHEDULES = ("decode-first", "prefill-first")
"""What a rank takes into a step first: running requests, prompts get what is left of the budget (vLLM); or, while
prompts of its own fit, nothing but prompts (SGLang's default)."""

MIXED, PREFILL_ONLY, DECODE_ONLY = "mixed", "prefill", "decode"
"""What a pool does: everything; prompts up to the first token; the rest, with caches that came from elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Per data-parallel rank. batch_tokens: most tokens of a step · chunk_tokens: most prompt tokens of one request in
    a step · running: most requests that hold cache at once, never more than batch_tokens · kv_blocks: blocks of KV
    cache · block_tokens: tokens of a block · waiting: most requests in a rank's queue, further ones are refused and
    counted, 0 = no limit · router: one of `ROUTERS` · schedule: one of `SCHEDULES`. Raises `UsageError` naming the
    field."""

    batch_tokens: int = 8192
    chunk_tokens: int = 8192
    running: int = 256
    kv_blocks: int
    block_tokens: int = 64
    waiting: int = 0
    router: str = "least-loaded"
    schedule: str = "decode-first"

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "chunk_tokens", "running", "kv_blocks", "block_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"is {getattr(self, name)}", where=f"engine.{name}", fix="give 1 or more")
        if self.waiting < 0:
            raise UsageError(f"is {self.waiting}", where="engine.waiting", fix="give 0 (no limit) or more")
        for name, known in (("router", ROUTERS), ("schedule", SCHEDULES)):
            if getattr(self, name) not in known:
                raise UsageError(f"is {getattr(self, name)!r}", where=f"engine.{name}", fix=f"use {', '.join(known)}")
