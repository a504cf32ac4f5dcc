"""Words of `ebsim explain` that depend on the answer."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cli.explain_table import of


def expert(replicas: int, policy: str = "window_search", **changed: Any) -> str:
    change = {"rank": 1, "leaves": 2, "comes": 3, "rank_imbalance": {"mean": 1.21, "p99": 1.5}, "growth": 0.1}
    found = {
        "layer": 4, "expert": 2, "replicas": replicas, "ranks": list(range(replicas)), "share": 0.25,
        "over_mean": 2.0, "place": 1, "peak_over_mean": 3.0, "peak_place": 2, "fills_ranks": 1.0,
        "replica_fills_ranks": 1.0 / replicas, "rank_imbalance": {"mean": 1.1, "p99": 1.2}, "lower_bound": 1.0,
        "holders": [
            {"rank": rank, "node": 0, "over_mean": 1.0, "place": 1, "experts": [
                {"expert": one, "replicas": 1 + one % 2, "replica_fills_ranks": 0.2} for one in range(6)
            ]} for rank in range(replicas)
        ],
        "one_fewer": change, "one_more": change, **changed,
    }  # fmt: skip
    plan = {"policy": policy, "layers": 8, "experts": 8, "slots": 12, "ranks": 4}
    load = {"windows": 1200, "made_from": True}
    return of({"of": "expert", "expert": found, "plan": plan, "load": load})


def test_an_expert_with_replicas() -> None:
    told = expert(2)
    assert "1,200 windows that the plan was made from" in told
    assert "expert 2: 2 replicas, on ranks 0, 1\n25.00 % of the layer's load, 2.00 of a mean expert's" in told
    assert "each replica 0.50" in told and "searches even out the tail" in told
    assert "0 20 %, 1×2 20 %, 2 20 %, 3×2 20 % +2" in told
    assert "one replica fewer 1.210 (+10.0 %) 1.500 its slot on rank 1 to expert 3" in " ".join(told.split())
    assert "on rank 1, in place of expert 2" in told


def test_many_replicas_are_cut_short() -> None:
    assert "11 replicas, on ranks 0, 1, 2, 3, 4, 5, 6, 7 +3" in expert(11)


def test_what_cannot_be_changed_is_said() -> None:
    told = expert(1, "eplb", one_fewer=None, one_more=None)
    assert "1 replica, on rank 0" in told and "searches" not in told
    assert "none fewer: every expert needs one\nnone more: it is on every rank, or no other expert can spare" in told
