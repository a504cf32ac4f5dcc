"""The specification: every kernel as naive loops, gathered under one name."""

from easybalance_sim.kernels.reference_coactivation import coactivation
from easybalance_sim.kernels.reference_costs import expert_seconds
from easybalance_sim.kernels.reference_counts import check_ids, count_windows, local_rows
from easybalance_sim.kernels.reference_dispatch import dispatch
from easybalance_sim.kernels.reference_expert_cache import run_cache, stack_depths
from easybalance_sim.kernels.reference_greedy import greedy, greedy_hierarchical, replicate
from easybalance_sim.kernels.reference_layer_queue import layer_queue
from easybalance_sim.kernels.reference_overflow import reroute_overflow
from easybalance_sim.kernels.reference_rank_moments import rank_moments
from easybalance_sim.kernels.reference_replica_sources import fill_slots, share_by_source, split_by_source
from easybalance_sim.kernels.reference_replicas import split_counts
from easybalance_sim.kernels.reference_routing import compare_routing, route
from easybalance_sim.kernels.reference_scoring import score_plans
from easybalance_sim.kernels.reference_search import search
from easybalance_sim.kernels.reference_serving import serve_steps
from easybalance_sim.kernels.reference_settle import settle
from easybalance_sim.kernels.reference_traffic import copies_per_token, search_traffic

__all__ = [
    "check_ids",
    "coactivation",
    "compare_routing",
    "copies_per_token",
    "count_windows",
    "dispatch",
    "expert_seconds",
    "fill_slots",
    "greedy",
    "greedy_hierarchical",
    "layer_queue",
    "local_rows",
    "rank_moments",
    "replicate",
    "reroute_overflow",
    "route",
    "run_cache",
    "score_plans",
    "search",
    "search_traffic",
    "serve_steps",
    "settle",
    "share_by_source",
    "split_by_source",
    "split_counts",
    "stack_depths",
]
