"""Every kernel compiled for the CPU, gathered under one name."""

from easybalance_sim.kernels.numba_coactivation import coactivation
from easybalance_sim.kernels.numba_costs import expert_seconds
from easybalance_sim.kernels.numba_counts import check_ids, count_windows, local_rows
from easybalance_sim.kernels.numba_dispatch import dispatch
from easybalance_sim.kernels.numba_expert_cache import run_cache, stack_depths
from easybalance_sim.kernels.numba_greedy import greedy, greedy_hierarchical, replicate
from easybalance_sim.kernels.numba_layer_queue import layer_queue
from easybalance_sim.kernels.numba_overflow import reroute_overflow
from easybalance_sim.kernels.numba_rank_moments import rank_moments
from easybalance_sim.kernels.numba_replica_sources import fill_slots, share_by_source, split_by_source
from easybalance_sim.kernels.numba_replicas import split_counts
from easybalance_sim.kernels.numba_routing import compare_routing, route
from easybalance_sim.kernels.numba_scoring import score_plans
from easybalance_sim.kernels.numba_search import search
from easybalance_sim.kernels.numba_serving import serve_steps
from easybalance_sim.kernels.numba_settle import settle
from easybalance_sim.kernels.numba_traffic import copies_per_token, search_traffic

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
