"""Ranks are lost, the survivors go on, the ranks come back: plans and their differences, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from easybalance_sim.plan.planfile import read_plan
from tests.ebsim_process import ebsim_here
from tests.skewed_traces import skewed_trace

LOST = 2


def _diff(old: Path, new: Path, *flags: str | Path) -> dict[str, Any]:
    done = ebsim_here("diff", old, new, "--format", "json", "--steps", *flags)
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_whole_round(tmp_path: Path) -> None:
    trace, whole, left = skewed_trace(tmp_path / "t.parquet"), tmp_path / "whole.json", tmp_path / "left.json"
    begin = ebsim_here(
        "plan", trace, "--ranks", "4", "--slots-per-rank", "6", "--policy", "eplb", "--force", "--format", "json",
        "-o", whole,
    )  # fmt: skip
    assert json.loads(begin.stdout)["plan_file"] == str(whole)
    lost = ("--current", whole, "--lost-ranks", str(LOST), "--policy", "repair", "--force", "--format", "json")
    report = json.loads(ebsim_here("plan", trace, *lost, "-o", left).stdout)
    before, after = read_plan(whole).plan(), read_plan(left).plan()
    kept = [rank for rank in range(4) if rank != LOST]
    # No plan moves fewer: one for each expert whose every replica was on the lost rank.
    on_kept = [{int(e) for slot, e in enumerate(row) if before.rank_of_slot[slot] != LOST}
               for row in before.expert_of_slot]  # fmt: skip
    gone = sum(before.experts - len(held) for held in on_kept)
    assert gone > 0 and (report["cluster"]["ranks"], report["migration"]["moves"]) == (3, gone)

    there = _diff(whole, left, "-o", tmp_path / "there.json")
    assert (there["old"]["ranks"], there["new"]["ranks"], there["moves"]) == (4, 3, gone)
    assert json.loads((tmp_path / "there.json").read_text())["moves"] == gone
    assert there["bytes"] == gone * there["expert_bytes"] and there["seconds"] > 0

    back = _diff(left, whole)
    assert (back["old"]["ranks"], back["new"]["ranks"]) == (3, 4)
    # The rank that returns holds nothing; the others take back what they gave up for a lost expert.
    arrivals = [move["to_rank"] for step in back["steps"] for move in step["moves"]]
    assert back["moves"] == len(arrivals) and arrivals.count(LOST) == 6 * before.layers
    assert len(arrivals) - arrivals.count(LOST) <= gone
    assert {(m["layer"], m["expert"]) for s in back["steps"] for m in s["moves"] if m["from_rank"] is None} == set()

    held = _walked(left, whole, kept, back)
    for layer in range(before.layers):
        for rank in range(4):
            mine = before.expert_of_slot[layer, before.rank_of_slot == rank]
            assert held[layer][rank] == sorted(int(expert) for expert in mine)
    assert after.ranks == 3


def _walked(left: Path, whole: Path, kept: list[int], back: dict[str, Any]) -> list[list[list[int]]]:
    """Experts on each layer and rank when the steps of the way back have been carried out."""
    document, start = read_plan(left), read_plan(left).plan()
    ranks = read_plan(whole).plan().ranks
    held = [[set[int]() for _ in range(ranks)] for _ in range(start.layers)]
    for layer in range(start.layers):
        for slot, expert in enumerate(start.expert_of_slot[layer]):
            held[layer][kept[int(start.rank_of_slot[slot])]].add(int(expert))
    row = {layer: at for at, layer in enumerate(document.layer_ids)}
    for step in back["steps"]:
        for move in step["moves"]:
            own = held[row[move["layer"]]][move["to_rank"]]
            if move["replaces"] is not None:
                own.discard(move["replaces"])
            own.add(move["expert"])
        for drop in step["drops"]:
            held[row[drop["layer"]]][drop["rank"]].discard(drop["expert"])
    return [[sorted(own) for own in layer] for layer in held]
