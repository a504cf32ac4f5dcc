"""Services of requests whose waits are said, for tests of what is read off them."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import AnyArray
from easybalance_sim.simulate.serving.pools import Pool, RunSettings, Service, colocated
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.workload import Workload
from tests.serving_models import constant_model, roomy_limits


def requests(arrival_s: AnyArray, output_tokens: int = 1, prompt_tokens: AnyArray | int = 10) -> Workload:
    """Alike but for their arrival and prompts."""
    zeros = np.zeros(len(arrival_s), np.int32)
    return Workload(
        arrival_s=arrival_s,
        prompt_tokens=np.broadcast_to(prompt_tokens, len(arrival_s)).astype(np.int32),
        output_tokens=np.full(len(arrival_s), output_tokens, np.int32),
        cached_tokens=zeros,
        tenant=zeros,
        tenants=("",),
    )


def one_at_a_time(workload: Workload, step_s: float, **limits: int) -> Service:
    """One request after the other, every step of the same length."""
    zeros = np.zeros(workload.requests, np.int32)
    pool = Pool(limits=roomy_limits(running=1, **limits), model=constant_model(step_s))
    return colocated(workload, Profiles(prefill=zeros, decode=zeros), pool, RunSettings())
