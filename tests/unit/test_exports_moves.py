from __future__ import annotations

from pathlib import Path

from easybalance_sim import exports
from easybalance_sim.exports.engine_file import EngineFile
from easybalance_sim.exports.moves import check_moves

ASCEND, VLLM = exports.load("vllm-ascend").RULES, exports.load("vllm").RULES
MOVED = (
    "expert {} stays on its rank but moves from slot {} to slot {}{}; vllm-ascend 182b75e rejects the layer while it "
    "serves and keeps the old one"
)


def _file(*rows: tuple[object, ...], sizes: tuple[int, ...] | None = None) -> EngineFile:
    devices = None if sizes is None else (sizes,) * len(rows)
    return EngineFile(path=Path("f.json"), layers=tuple(range(len(rows))), rows=rows, ranks_of_rows=devices)


def test_a_kept_expert_that_changes_its_slot_is_found() -> None:
    before, after = _file((0, 1, 2, 3), (0, 1, 2, 3)), _file((1, 0, 2, 3), (0, 3, 2, 1))
    (finding,) = check_moves(ASCEND, after, before, 2)
    assert (finding.level, finding.rule, finding.layer, finding.slot) == ("error", "moved", 0, 0)
    assert finding.message == MOVED.format(1, 1, 0, " (1 more in this layer)")


def test_an_expert_that_changes_its_rank_may_take_any_slot() -> None:
    assert check_moves(ASCEND, _file((2, 1, 0, 3)), _file((0, 1, 2, 3)), 2) == []


def test_an_engine_that_orders_slots_itself_does_not_mind() -> None:
    assert check_moves(VLLM, _file((1, 0, 2, 3)), _file((0, 1, 2, 3)), 2) == []


def test_device_lists_count_before_the_number_of_ranks() -> None:
    before, after = _file((0, 1, 2, 3), sizes=(1, 3)), _file((1, 0, 2, 3), sizes=(1, 3))
    assert check_moves(ASCEND, after, before, 2) == []
    assert len(check_moves(ASCEND, after, before, None)) == 0
    assert len(check_moves(ASCEND, _file((1, 0, 2, 3), sizes=(2, 2)), _file((0, 1, 2, 3)), 2)) == 1


def test_what_only_one_of_the_two_has_is_not_compared() -> None:
    assert check_moves(ASCEND, _file((1, 0, 2, 3)), _file(), 2) == []
    assert check_moves(ASCEND, _file((1, 0, 2, 3)), _file((0, 1, 2, 3)), 3) == []
    assert check_moves(ASCEND, _file((1, [0], 2, None)), _file(([0], 0, 2, None)), 2) == []
