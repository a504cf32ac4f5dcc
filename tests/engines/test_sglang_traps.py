"""What SGLang 0.5.23's own loader does with files that are wrong: most of them it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.errors import PlanError
from easybalance_sim.exports import checks
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import lint_file
from tests.engines.engine_plans import DEEPSEEK_V3, Case
from tests.engines.sglang_runtime import Serving, SGLang

pytestmark = pytest.mark.engine_loader

GOOD = [[0, 1, 2, 3, 0, 1], [0, 2, 1, 3, 2, 0]]
EXAMPLE = Serving(ranks=2, experts=4, hidden_layers=2, redundant=2)
KEY = "physical_to_logical_map"


@dataclass(frozen=True, kw_only=True)
class Trap:
    """A file's content under settings. stops: what the loader raises, None = it takes the file · rule: under which
    `ebsim lint` says so."""

    content: dict[str, Any]
    stops: type[BaseException] | None
    rule: str
    says: str | None = None
    serving: Serving = EXAMPLE


def rows(*first: Any) -> dict[str, Any]:
    """The good file with another first layer."""
    return {KEY: [list(first), GOOD[1]]}


TRAPS = {
    "another key": Trap(
        content={KEY: GOOD, "ep_size": 2}, stops=TypeError, says="unexpected keyword argument", rule=checks.UNKNOWN_KEY
    ),
    "counts beside the map": Trap(
        content={KEY: GOOD, "logical_count": GOOD}, stops=TypeError, says="logical_count", rule=checks.UNKNOWN_KEY
    ),
    "slots not divisible": Trap(
        content={KEY: [[*row, 2] for row in GOOD]},
        stops=AssertionError,
        serving=replace(EXAMPLE, redundant=3),
        rule=checks.DIVISIBILITY,
    ),
    "more slots than told": Trap(content={KEY: [[*row, 2, 3] for row in GOOD]}, stops=None, rule=checks.EXPECTED),
    "fewer slots than told": Trap(content={KEY: [row[:5] for row in GOOD]}, stops=None, rule=checks.EXPECTED),
    "a layer too few": Trap(content={KEY: GOOD[:1]}, stops=None, rule=checks.LAYERS),
    "a layer too many": Trap(content={KEY: [*GOOD, GOOD[0]]}, stops=None, rule=checks.EXTRA_LAYERS),
    "expert without replica": Trap(content=rows(0, 1, 2, 2, 0, 1), stops=ZeroDivisionError, rule=checks.COVERAGE),
    "expert without replica, dynamic": Trap(
        content=rows(0, 1, 2, 2, 0, 1), stops=None, serving=replace(EXAMPLE, dispatch="dynamic"), rule=checks.COVERAGE
    ),
    "unknown expert": Trap(content=rows(0, 1, 2, 3, 4, 1), stops=IndexError, rule=checks.RANGE),
    "expert -1": Trap(content=rows(0, 1, 2, -1, 0, 1), stops=None, rule=checks.NEGATIVE),
    "ragged rows": Trap(content=rows(0, 1, 2, 3, 0), stops=ValueError, rule=checks.RAGGED),
    "fractions": Trap(content=rows(0.0, 1.0, 2.0, 3.0, 0.5, 1.0), stops=TypeError, rule=checks.NOT_INTEGER),
    "twice on a rank": Trap(content=rows(0, 0, 1, 2, 3, 1), stops=None, rule=checks.DUPLICATE),
    "more replicas than ranks": Trap(content=rows(0, 0, 1, 2, 3, 0), stops=None, rule=checks.REPLICAS),
}


@pytest.mark.parametrize("name", TRAPS)
def test_what_the_loader_says_of_a_trap(name: str, sglang: SGLang) -> None:
    trap = TRAPS[name]
    if trap.stops is None:
        held = sglang.load(json.dumps(trap.content), trap.serving).physical_to_logical_map
        assert held.tolist() == trap.content[KEY]
        return
    with pytest.raises(trap.stops, match=trap.says):
        sglang.load(json.dumps(trap.content), trap.serving)


@pytest.mark.parametrize("name", TRAPS)
def test_lint_says_what_the_loader_does(name: str, tmp_path: Path) -> None:
    """Under the trap's rule: the exception that was raised, or that the file is taken."""
    trap, file = TRAPS[name], tmp_path / "location.json"
    file.write_text(json.dumps(trap.content))
    deployment = Deployment(ranks=2, experts=4, redundant=trap.serving.redundant, hidden_layers=2)
    messages = [one.message for one in lint_file(file, "sglang", deployment).findings if one.rule == trap.rule]
    wanted = ("accepts", "ignores") if trap.stops is None else (trap.stops.__name__,)
    assert messages and all(any(word in message for word in wanted) for message in messages), messages


def test_a_file_without_the_map_stops_both(sglang: SGLang, tmp_path: Path) -> None:
    file = tmp_path / "location.json"
    file.write_text(json.dumps({"map": GOOD}))
    with pytest.raises(NotImplementedError, match="Unknown init_expert_location format"):
        sglang.load(file, EXAMPLE)
    with pytest.raises(PlanError, match="has no physical_to_logical_map"):
        lint_file(file, "sglang", Deployment())


def test_recorded_counts_are_no_placement(sglang: SGLang, tmp_path: Path) -> None:
    """The engine plans by itself; its own planner may put an expert twice on a rank."""
    file = tmp_path / "counts.json"
    file.write_text(json.dumps({"logical_count": [[10, 1, 1, 1]] * 2}))
    loaded = sglang.load(file, replace(EXAMPLE, dispatch="dynamic"))
    assert loaded.physical_to_logical_map.tolist() == [[0, 0, 3, 0, 1, 2]] * 2
    with pytest.raises(PlanError, match="holds recorded load"):
        lint_file(file, "sglang", Deployment())


def test_an_id_below_minus_experts_stops_the_loader(sglang: SGLang) -> None:
    with pytest.raises(IndexError):
        sglang.load(json.dumps(rows(0, 1, 2, 3, -5, 1)), EXAMPLE)


def test_minus_one_stands_for_the_last_expert(sglang: SGLang) -> None:
    loaded = sglang.load(json.dumps(rows(0, 1, 2, -1, 0, 1)), EXAMPLE)
    assert sglang.replicas(loaded, 0, 3) == [3]


def test_an_expert_without_replica_is_nowhere_with_the_dynamic_rule(sglang: SGLang) -> None:
    trap = TRAPS["expert without replica, dynamic"]
    loaded = sglang.load(json.dumps(trap.content), trap.serving)
    assert sglang.replicas(loaded, 0, 3) == []
    assert loaded.logical_to_all_physical_map_num_valid[0].tolist() == [1, 1, 1, 0]


def test_a_missing_layer_is_served_as_if_nothing_had_moved(sglang: SGLang) -> None:
    loaded = sglang.load(json.dumps({KEY: [GOOD[0]]}), EXAMPLE)
    assert [sglang.replicas(loaded, 1, expert) for expert in range(4)] == [[0], [1], [2], [3]]


def unloaded(sglang: SGLang, content: str, serving: Serving) -> set[tuple[int, int]]:
    """(source rank, slot) pairs that tokens are sent to although the slot's rank loaded no weights into it."""
    per_rank = [sglang.load(content, serving, rank) for rank in range(serving.ranks)]
    slots = (serving.experts + serving.redundant) // serving.ranks
    found = set()
    for source, loaded in enumerate(per_rank):
        table = loaded.logical_to_rank_dispatch_physical_map
        for layer in range(table.shape[0]):
            for expert, slot in enumerate(table[layer].tolist()):
                if slot not in sglang.replicas(per_rank[slot // slots], layer, expert):
                    found.add((source, slot))
    return found


def test_an_expert_twice_on_a_rank_is_sent_tokens_where_it_has_no_weights(sglang: SGLang) -> None:
    twice = json.dumps({KEY: [[0, 0, 1, 2, 3, 1, 2, 3]] * 8})
    assert unloaded(sglang, twice, Serving(ranks=4, experts=4, hidden_layers=8, redundant=4)) == {(1, 1), (2, 1)}


@pytest.mark.parametrize("nodes", [1, 4])
def test_our_plans_are_sent_tokens_only_where_weights_are(nodes: int, sglang: SGLang) -> None:
    case = Case(ranks=8, nodes=nodes, experts=32, slots_per_rank=6, dense=0, moe=3)
    content = json.dumps({KEY: case.plan().expert_of_slot.tolist()})
    assert unloaded(sglang, content, case.serving) == set()


@pytest.mark.parametrize("rule", ["static", "dynamic"])
def test_a_trivial_location_is_slot_modulo_experts(rule: str, sglang: SGLang) -> None:
    """What dense layers hold in our files, and what the engine starts from."""
    serving = replace(DEEPSEEK_V3.serving, dispatch=rule, hidden_layers=2)
    held = sglang.load("trivial", serving).physical_to_logical_map
    assert held.tolist() == [[slot % 256 for slot in range(288)]] * 2
