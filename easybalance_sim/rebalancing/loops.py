"""The control loops by name, set as the engines ship them."""

from __future__ import annotations

from dataclasses import replace

from easybalance_sim.rebalancing.request import LOOPS, NEVER, OURS, STATIC, RebalanceRequest
from easybalance_sim.simulate.rebalance.controllers import Controller
from easybalance_sim.simulate.rebalance.controllers.fixed import Fixed
from easybalance_sim.simulate.rebalance.controllers.guarded import Guarded
from easybalance_sim.simulate.rebalance.controllers.layerwise import Layerwise
from easybalance_sim.simulate.rebalance.controllers.periodic import Periodic
from easybalance_sim.simulate.rebalance.controllers.swaps import Swaps
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Service

PLANNING_S = {"sglang": 1.0, "vllm-sync": 0.03}
"""Seconds that serving waits for a plan of `PLANNED` besides the transfer, in proportion for other sizes: about 1 s by
SGLang's issue 7879; vLLM's greedy as measured (reports/benchmarks.md)."""
PLANNED = 58 * 256
"""Layers × experts of DeepSeek-V3."""
ONE_BY_ONE = Style(chunk_layers=1, stops=False)
"""A layer in every step, beside serving."""


def loops(request: RebalanceRequest, service: Service, experts: int) -> list[Controller]:
    """The control loops asked for, the one that never re-plans first; experts: in all layers."""
    made: dict[str, Controller] = {
        NEVER: Fixed(name=NEVER),
        STATIC: Fixed(name=STATIC),
        "sglang": Periodic(
            name="sglang", service=service, interval_steps=1000, window_steps=1000,
            style=stopping(request, "sglang", experts),
        ),
        "sglang-chunked": Periodic(
            name="sglang-chunked", service=service, interval_steps=1000, window_steps=1000,
            style=replace(stopping(request, "sglang", experts), chunk_layers=1),
        ),
        "vllm": Periodic(
            name="vllm", service=service, interval_steps=3000, window_steps=1000, first_steps=750,
            style=ONE_BY_ONE,
        ),
        "vllm-sync": Periodic(
            name="vllm-sync", service=service, interval_steps=3000, window_steps=1000, first_steps=750,
            style=stopping(request, "vllm-sync", experts),
        ),
        "tensorrt-llm": Layerwise(name="tensorrt-llm", service=service, layers_per_step=1),
        "vllm-ascend": Swaps(
            name="vllm-ascend", service=service, interval_steps=650, style=ONE_BY_ONE
        ),
        OURS: Guarded(
            name=OURS, service=service, style=ONE_BY_ONE, guard=request.guard,
            seed=request.settings.seed,
        ),
    }  # fmt: skip
    return [made[NEVER], *(made[name] for name in LOOPS if name in request.loops and name != NEVER)]


def stopping(request: RebalanceRequest, name: str, experts: int) -> Style:
    """Serving stops; a measured pause takes the place of planning and transfer. experts: in all layers."""
    return Style(fixed_s=PLANNING_S[name] * experts / PLANNED, measured_s=request.pause_s)
