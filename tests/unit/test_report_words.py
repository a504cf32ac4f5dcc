"""Numbers in words."""

from __future__ import annotations

from easybalance_sim.report.content import Fact, MadeBy
from easybalance_sim.report.provenance import files_fact, provenance
from easybalance_sim.report.words import (
    amount,
    capital,
    change,
    microseconds,
    milliseconds,
    moved,
    percent,
    portion,
    rate,
    sentence,
    share,
    slug,
    tenths,
    times,
    trusted,
    value_at,
)


def test_numbers_have_as_many_digits_as_say_something() -> None:
    assert (share(0.1234), rate(12.345), rate(1234.5), tenths(1234.56)) == ("12.3 %", "12.3", "1,234", "1,234.6")
    assert (milliseconds(12.34), milliseconds(1234.5), microseconds(99.94), times(1.234)) == (
        "12.3 ms", "1,234 ms", "99.9 µs", "1.23 ×",
    )  # fmt: skip
    assert {form(None) for form in (share, rate, tenths, milliseconds, microseconds, times)} == {"–"}


def test_large_counts_get_a_unit() -> None:
    told = [amount(count) for count in (0, 9_999_999, 12_345_678, 987_654_321, 1_234_567_890, 5e11)]
    assert told == ["0", "9,999,999", "12.3 M", "988 M", "1.23 G", "500 G"] and rate(12_345_678.0) == "12.3 M"


def test_what_is_not_quite_all_does_not_read_like_all() -> None:
    shares = (0, 0.004, 0.5, 255 / 256, 4095 / 4096, 1)
    assert [portion(share) for share in shares] == ["0 %", "0.4 %", "50 %", "99.6 %", "99.98 %", "100 %"]


def test_a_line_becomes_a_sentence() -> None:
    assert (sentence("the queue grows"), capital(""), sentence("TTFT")) == ("The queue grows.", "", "TTFT.")


def test_a_band_of_nothing_is_not_known() -> None:
    told = "seconds by h200, error band {} for both plans alike: trust ratios, not figures"
    assert trusted({"label": "h200", "band_p90": 0.0}) == told.format("not known")
    assert trusted({"label": "h200", "band_p90": 0.37}) == told.format("±37 %")


def test_a_number_at_a_path() -> None:
    assert (value_at({"a": {"b": 1}}, "a.b"), value_at({"a": None}, "a")) == (1.0, None)


def test_a_change_is_told_in_its_own_unit() -> None:
    assert moved(0.5, 0.4, share) == "-10.0 pt" and moved(50.0, 40.0, rate) == "-20.0 %"
    assert moved(50.0, 50.001, rate) == "–" and moved(None, 1.0, rate) == "–" and moved(0.0, 1.0, rate) == "new"
    assert (percent(0.0123), percent(-0.0001), percent(0.0)) == ("+1.2 %", "0.0 %", "0.0 %")
    assert (change(1000.0, 999.9), change(1000.0, 1000.1), change(2.0, 2.0)) == ("0.0 %", "0.0 %", "–")


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
