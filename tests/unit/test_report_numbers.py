"""Numbers in words."""

from __future__ import annotations

from easybalance_sim.report.content import Fact, MadeBy
from easybalance_sim.report.numbers import (
    microseconds,
    milliseconds,
    moved,
    percent,
    rate,
    share,
    slug,
    tenths,
    times,
)
from easybalance_sim.report.provenance import files_fact, provenance


def test_numbers_have_as_many_digits_as_say_something() -> None:
    assert (share(0.1234), rate(12.345), rate(1234.5), tenths(1234.56)) == ("12.3 %", "12.3", "1,234", "1,234.6")
    assert (milliseconds(12.34), milliseconds(1234.5), microseconds(99.94), times(1.234)) == (
        "12.3 ms", "1,234 ms", "99.9 µs", "1.23 ×",
    )  # fmt: skip
    assert {form(None) for form in (share, rate, tenths, milliseconds, microseconds, times)} == {"–"}


def test_a_change_is_told_in_its_own_unit() -> None:
    assert moved(0.5, 0.4, share) == "-10.0 pt" and moved(50.0, 40.0, rate) == "-20.0 %"
    assert moved(50.0, 50.001, rate) == "–" and moved(None, 1.0, rate) == "–" and moved(0.0, 1.0, rate) == "new"
    assert (percent(0.0123), percent(-0.0001), percent(0.0)) == ("+1.2 %", "0.0 %", "0.0 %")


def test_a_name_for_files_is_left_of_any_words() -> None:
    assert (slug("8 Ranks, windows of 1 step"), slug("模型")) == ("8_ranks_windows_of_1_step", "x")


def test_provenance_ends_with_the_command_and_the_versions() -> None:
    facts = [files_fact(["a.parquet", "b.parquet"], "abc"), Fact(label="profile", value="")]
    found = provenance(MadeBy(command="ebsim sweep", versions={"ebsim": "1", "python": "3"}), facts)
    assert [(one.label, one.value) for one in found] == [
        ("trace", "a.parquet, b.parquet"), ("command", "ebsim sweep"), ("versions", "ebsim 1 · python 3"),
    ]  # fmt: skip
    assert found[0].note == "fingerprint abc"
    assert [one.label for one in provenance(MadeBy(command="", versions={}), [])] == ["versions"]
