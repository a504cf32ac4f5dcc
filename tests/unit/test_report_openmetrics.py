"""The text format, line by line."""

from __future__ import annotations

import pytest

from easybalance_sim.report.openmetrics import Family, Sample, number, text
from tests.exposition import read


def family(*samples: tuple[float, dict[str, str]], name: str = "ebsim_move_bytes") -> Family:
    return Family(name=name, help="Bytes.", samples=tuple(Sample(value=v, labels=labels) for v, labels in samples))


def test_the_text_is_this() -> None:
    odd = {"policy": 'a "b" \\ c\nd', "layer": "3"}
    assert text([family((1.5, odd), (2, {})), family(name="ebsim_nothing")]) == (
        "# TYPE ebsim_move_bytes gauge\n"
        "# UNIT ebsim_move_bytes bytes\n"
        "# HELP ebsim_move_bytes Bytes.\n"
        r'ebsim_move_bytes{policy="a \"b\" \\ c\nd",layer="3"} 1.5'
        "\nebsim_move_bytes 2\n# EOF\n"
    )
    assert text([]) == "# EOF\n"


@pytest.mark.parametrize(
    ("value", "says"),
    [(0.0, "0"), (24870912.0, "24870912"), (1e-05, "1e-05"), (float("nan"), "NaN"), (float("-inf"), "-Inf")],
)
def test_numbers_are_short_and_exact(value: float, says: str) -> None:
    assert number(value) == says


def test_what_the_format_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no label name"):
        family((1, {"no-label": "x"}))
    with pytest.raises(ValueError, match="no metric name"):
        family(name="2bad")
    with pytest.raises(ValueError, match="same labels"):
        family((1, {"a": "x", "b": "y"}), (2, {"b": "y", "a": "x"}))


@pytest.mark.parametrize(
    "damaged", ["ebsim_x 1\n# EOF\n", "# TYPE a gauge\na 1\n", '# TYPE a gauge\na{b="x} 1\n# EOF\n']
)
def test_the_reader_of_these_tests_is_strict(damaged: str) -> None:
    with pytest.raises(AssertionError):
        read(damaged)
