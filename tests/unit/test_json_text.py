"""JSON as it is printed: the same values, rows of numbers on one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.json_text import json_text

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def test_rows_of_numbers_take_one_line() -> None:
    text = json_text({"rows": [[1, -2.5e-9, None], []], "words": ["a", "b"], "one": [3]})
    assert text.splitlines()[2:4] == ["    [1, -2.5e-09, null],", "    []"]
    assert text.splitlines()[5:7] == ['  "words": [', '    "a",'] and '"one": [3]' in text


@given(st.dictionaries(st.text(), VALUES))
@settings(max_examples=60, deadline=None)
def test_it_is_the_same_json(report: dict[str, Any]) -> None:
    assert json.loads(json_text(report)) == json.loads(json.dumps(report))


def test_no_number_that_json_does_not_know() -> None:
    with pytest.raises(ValueError):
        json_text({"a": [float("nan")]})
