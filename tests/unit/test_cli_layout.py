"""Text within 80 columns: sentences, wide characters, tables that are too wide in every way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cli.layout import (
    WIDTH,
    aligned,
    command,
    filled,
    flags,
    kept,
    noted,
    shown,
    worded,
    wrapped,
)
from tests.one_text import unbroken

LONG = "window_search_no_redundancy"


def widest(text: str) -> int:
    return max(map(shown, text.splitlines()))


@pytest.mark.parametrize(("text", "columns"), [("", 0), ("abc", 3), ("→ µs ×", 6), ("测试a", 5), ("e\u0301", 1)])
def test_columns_are_those_of_a_terminal(text: str, columns: int) -> None:
    assert shown(text) == columns


def test_a_sentence_is_broken_at_blanks_and_hangs() -> None:
    assert wrapped("one two three", width=9) == ["one two", "  three"]
    assert wrapped("one two", first="- ", then="  ", width=6) == ["- one", "  two"]
    assert wrapped("") == [""]


def test_a_number_stays_with_its_unit() -> None:
    assert wrapped("ab 12 %), cd 3 GB", then="", width=6) == ["ab", "12 %),", "cd", "3 GB"]
    assert wrapped("L3/E4 (7.5×), two", width=14) == ["L3/E4 (7.5×),", "  two"]


def test_what_is_kept_together_is_not_broken() -> None:
    told = wrapped(f"to {kept('my own plan.json')} now", width=12)
    assert told == ["to my own plan.json", "  now"]
    assert wrapped(f"to {kept('my own plan')} now", width=14) == ["to my own plan", "  now"]
    assert wrapped(f"into {kept('my own plan')} now", width=14) == ["into", "  my own plan", "  now"]


@pytest.mark.parametrize("text", ["x" * 200, "测" * 100, "a" + "测" * 99 + " b"])
def test_a_word_longer_than_a_line_is_cut(text: str) -> None:
    told = filled(text)
    assert widest(told) <= WIDTH and told.replace("\n  ", "") == text


@pytest.mark.parametrize("path", ["/a/" + "b" * 100, "c" * 100 + ".json,"])
def test_a_path_is_never_broken_but_makes_its_line_longer(path: str) -> None:
    assert filled(f"wrote {path} and more").splitlines() == [f"wrote {path}", "  and more"]


def test_a_command_can_be_copied() -> None:
    plan = f"ebsim plan trace.parquet --cluster {'c' * 20}/cluster.toml --criteria gate.toml -o plan.json"
    lines = command(plan, first="next: ", then=" " * 8)
    assert len(lines) == 2 and lines[0].endswith("/cluster.toml \\")
    assert " ".join(line.removesuffix("\\").strip() for line in lines) == f"next: {plan}"
    assert all(len(line) <= WIDTH for line in lines)
    assert flags("--tp-size 8 --ep-size 8") == ["  --tp-size 8 --ep-size 8"]


def test_columns_line_up_without_trailing_blanks() -> None:
    rows = [("name", "a", ""), ("x", "100", "µs"), ("测试 name", "7", "")]
    assert aligned(rows).splitlines() == ["name         a", "x          100  µs", "测试 name    7"]
    assert aligned(rows, left=3).splitlines() == ["name       a", "x          100  µs", "测试 name  7"]


def test_heads_take_several_lines_before_anything_else_gives() -> None:
    rows = [("loop", "seconds that are saved in an hour", "slots/rank over-full", *"abcdefgh"), (LONG, *["1"] * 10)]
    first, *others, last = aligned(rows).splitlines()
    assert unbroken(" ".join((first, *others))).count("seconds") == 1 and len(last) <= WIDTH
    assert last.split() == [LONG, *["1"] * 10] and 1 <= len(others) <= 4


def test_a_label_that_is_too_long_gets_a_line_of_its_own() -> None:
    numbers = ["1,234,567"] * 5
    rows = [("", "policy", *"abcde"), ("→", LONG, *numbers), ("", "eplb", *numbers)]
    _, label, figures, short = aligned(rows, left=2).splitlines()
    assert (label, figures.split(), short.split()) == (f"→  {LONG}", numbers, ["eplb", *numbers])
    assert len(figures) == len(short) <= WIDTH


def test_an_indented_label_stays_indented_on_its_own_line() -> None:
    rows = [("  share", *"abcdef"), (f"  {LONG}", *["12,345.67"] * 6)]
    head, label, figures = aligned(rows).splitlines()
    assert head.startswith("  share ") and label == f"  {LONG}" and figures.split() == ["12,345.67"] * 6


def test_figures_that_are_too_wide_come_in_parts() -> None:
    rows = [("tokens", *map(str, range(20))), ("64", *[f"{n:,}" for n in range(10**6, 10**6 + 20)])]
    parts = aligned(rows).split("\n\n")
    assert len(parts) == 4 and all(widest(part) <= WIDTH for part in parts)
    assert all(part.splitlines()[1].startswith("64 ") for part in parts)
    assert [word for part in parts for word in part.splitlines()[0].split()[1:]] == [str(n) for n in range(20)]


def test_words_are_wrapped_beside_their_row() -> None:
    rows = [("a", "n", "words"), ("x", "1", "few"), ("y", "22", "some " * 20)]
    assert worded(rows).splitlines()[:2] == ["a   n  words", "x   1  few"]
    first, second = worded(rows).splitlines()[2:]
    assert first.startswith("y  22  some") and second.startswith("       some") and len(first) <= WIDTH


def test_words_beside_a_long_label_keep_their_room() -> None:
    told = worded([("a", "words"), ("x" * 120, "some " * 10), ("y", "few")])
    assert widest(told) <= WIDTH and told.splitlines()[-1].split() == ["y", "few"]


def test_a_note_hangs_under_its_row() -> None:
    rows = [("", "criterion", "limit"), ("ok", "one", "1"), ("NO", "two", "2")]
    told = noted(rows, ["", "", "why " * 30], left=3).splitlines()
    assert told[:3] == ["    criterion  limit", "ok  one        1", "NO  two        2"]
    assert all(line.startswith("      why") and len(line) <= WIDTH for line in told[3:]) and len(told) == 5


def test_notes_and_words_where_even_figures_are_too_wide() -> None:
    numbers = ["1,234,567,890.123"] * 6
    rows = [("", "policy", *"abcdef"), ("→", LONG, *numbers)]
    for told in (noted(rows, ["", "why"], left=2), worded([(*rows[0], "words"), (*rows[1], "why")], left=2)):
        assert widest(told) <= WIDTH and told.count(numbers[0]) == 6 and told.splitlines()[-1] == f"{LONG}: why"


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="/.\\"), max_size=90)
NUMBERS = st.integers(0, 10**18).map("{:,}".format)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 12), st.data())
def test_no_table_is_too_wide(labels: list[str], columns: int, data: st.DataObject) -> None:
    heads = data.draw(
        st.lists(st.sampled_from(["P99", "KV tokens lost", "max/mean"]), min_size=columns, max_size=columns)
    )
    numbers = st.lists(NUMBERS, min_size=columns, max_size=columns)
    rows = [("", "label", *heads), *(("→", label, *data.draw(numbers)) for label in labels)]
    words = [data.draw(TEXTS) for _ in rows]
    texts = [aligned(rows, left=2), noted(rows, words, left=2)]
    texts.append(worded([(*row, word) for row, word in zip(rows, words, strict=True)], left=2))
    assert all(widest(text) <= WIDTH for text in texts)
    for text in texts:
        assert all(text.count(number) for row in rows[1:] for number in row[2:])


def test_a_table_of_heads_alone() -> None:
    assert aligned([("a", "b")]) == "a  b"
