"""Co-activation in words and as JSON values."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.cli.trace_pairs import pair_facts, pair_lines
from easybalance_sim.load.coactivation import Coactivation
from tests.trace_files import token_meta


def found(rows: list[int], pairs: list[list[int]]) -> Coactivation:
    counts = np.tile(np.array(pairs), (len(rows), 1, 1)).reshape(len(rows), len(pairs), len(pairs))
    return Coactivation(pairs=counts, rows=np.array(rows, np.int64), tokens=100)


PAIRED = [[50, 50, 0, 0], [50, 50, 0, 0], [0, 0, 50, 50], [0, 0, 50, 50]]


def test_pairs_in_words() -> None:
    meta = token_meta(layers=(3, 5), experts=4)
    facts = pair_facts(found([0, 1], PAIRED), meta)
    assert facts is not None
    assert (facts["tokens"], facts["layers_counted"], facts["strong_share"]) == (100, 2, 1.0)
    assert facts["strongest"][0] == {"layer": 3, "experts": [0, 1], "lift": pytest.approx(3), "tokens": 50}
    first, second = pair_lines(facts, 2)
    assert first.startswith("co-activation: 100 % of a token's pairs of experts (100 % to 100 % by layer)")
    assert second.startswith("strongest pairs (times as often): L3/E0+E1 (3.0×), L3/E2+E3 (3.0×), L5/E0+E1 (3.0×)")


def test_layers_that_are_not_counted_are_said() -> None:
    some = pair_facts(found([1], PAIRED), token_meta(layers=(3, 5), experts=4))
    assert some is not None and some["strongest"][0]["layer"] == 5
    assert pair_lines(some, 2)[0].startswith("co-activation in 1 of 2 layers: 100 %")
    none = pair_facts(found([], PAIRED), token_meta(layers=(3, 5), experts=4))
    assert pair_lines(none, 2) == ["co-activation: not counted, a layer has too many pairs of experts"]


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert pair_facts(None, token_meta()) is None
    assert pair_facts(found([0, 1], PAIRED), token_meta(experts=4, top_k=1)) is None
    assert pair_lines(None, 2) == []
    silent = pair_facts(found([0, 1], [[0] * 4] * 4), token_meta(experts=4))
    assert pair_lines(silent, 2) == []
