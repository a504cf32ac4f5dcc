"""The names that shells complete are those of the code, and as quick to come as help."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from easybalance_sim import exports, kernels, policies
from easybalance_sim.cli import completing
from easybalance_sim.cluster.hardware import MODES, profile_names
from easybalance_sim.cluster.shapes import WEIGHT_BYTES, model_names
from easybalance_sim.cost.layer import OVERLAPS
from easybalance_sim.deployment.fields import SERVED_OVERLAPS
from easybalance_sim.exports.engines import vllm
from easybalance_sim.load import forecast, split
from easybalance_sim.mechanisms.request import PARTS
from easybalance_sim.planning.memory import KV_DTYPES
from easybalance_sim.planning.request import OBJECTIVES
from easybalance_sim.profiling import sources
from easybalance_sim.rebalancing import strata
from easybalance_sim.rebalancing.request import LOOPS
from easybalance_sim.replay.dispatch import RULES
from easybalance_sim.simulate.offloading import policies as cache_policies
from easybalance_sim.simulate.offloading import prefetch
from easybalance_sim.simulate.offloading.cache import SCOPES
from easybalance_sim.simulate.offloading.link import NOMINAL_GB_PER_S
from easybalance_sim.simulate.offsets.controllers import LAWS, SIGNALS
from easybalance_sim.simulate.rollout import faults, protocol
from easybalance_sim.trace import importers
from easybalance_sim.trace.schema import PHASES


@pytest.mark.parametrize(
    ("offered", "known"),
    [
        (completing.policies, policies.names()),
        (completing.engines, exports.names()),
        (completing.profiles, profile_names()),
        (completing.models, model_names()),
        (completing.devices, kernels.DEVICES),
        (completing.dispatch_rules, RULES),
        (completing.splits, split.MODES),
        (completing.forecasts, forecast.METHODS),
        (completing.objectives, OBJECTIVES),
        (completing.all_to_all, ("auto", *MODES)),
        (completing.overlaps, OVERLAPS),
        (completing.served_overlaps, SERVED_OVERLAPS),
        (completing.phases, PHASES),
        (completing.kv_dtypes, KV_DTYPES),
        (completing.loops, LOOPS),
        (completing.parts, PARTS),
        (completing.strata, strata.KINDS),
        (completing.controllers, [f"{signal}-{law}" for signal in SIGNALS for law in LAWS]),
        (completing.cache_policies, cache_policies.names()),
        (completing.prefetches, prefetch.names()),
        (completing.scopes, SCOPES),
        (completing.hosts, NOMINAL_GB_PER_S),
        (completing.weight_dtypes, WEIGHT_BYTES),
        (completing.schemas, vllm.SCHEMAS),
        (completing.protocol_parts, protocol.PARTS),
        (completing.faults, ("pairs", "all", "none", *faults.FAULTS)),
        (completing.tables, sources.kinds()),
        (completing.placements, ("auto", *policies.names())),
    ],
)
def test_names_are_those_of_the_code(offered: Callable[[], list[str]], known: Iterable[str]) -> None:
    assert sorted(offered()) == sorted(known)


def test_recordings_come_with_what_they_are() -> None:
    offered = dict(completing.recordings())
    assert sorted(offered) == sorted(name.replace("_", "-") for name in importers.names())
    assert all(offered.values())
