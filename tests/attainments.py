"""Attainments of deployments whose highest rate is known."""

from __future__ import annotations

from easybalance_sim.deployment.sizing.attainment import Attainment


class Deployment:
    """Holds rates up to `most`; beyond, times per token are missed, or only the queue grows. asked: rates, in order."""

    def __init__(self, most: float, *, grows: bool = False) -> None:
        self.most, self.grows = most, grows
        self.asked: list[float] = []

    def at(self, rate_per_s: float) -> Attainment:
        """What it attains."""
        self.asked.append(rate_per_s)
        beyond = rate_per_s > self.most
        inside = 0.5 if beyond and not self.grows else 1.0
        return Attainment(
            rate_per_s=rate_per_s, inside=inside, inside_least=inside, inside_most=inside,
            growth=0.1 if beyond and self.grows else 0.0, rise=0.0, late_first=0.0, slow=1 - inside, refused=0.0,
            requests=1000, goodput_per_s=inside * rate_per_s, output_tokens_per_s=0.0, kv_in_use=0.0, ttft_p99_s=0.1,
            tpot_p99_s=0.01,
        )  # fmt: skip
