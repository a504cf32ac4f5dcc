"""The user's own table: reading, interpolation, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.cluster.hardware import ExpertTable
from easybalance_sim.cost.profiles import load_profile, load_table, table_us
from easybalance_sim.errors import ProfileError

TABLE = ExpertTable(tokens=(1, 10, 20, 30), us=(50, 59, 79, 89), calibrated=True, source="mine.csv")


def _us(*tokens: float) -> list[float]:
    return [round(float(us), 9) for us in table_us(TABLE, np.array(tokens))]


def test_exact_at_the_rows_and_linear_between_them() -> None:
    assert _us(1, 10, 20, 30) == [50, 59, 79, 89]
    assert _us(4, 15) == [53, 69]


def test_flat_below_and_zero_at_zero() -> None:
    assert _us(0.5, 0) == [50, 0]


def test_least_squares_slope_beyond() -> None:
    assert _us(40, 120) == [89 + 10 * 1.5, 89 + 90 * 1.5]


def test_a_falling_tail_is_continued_flat() -> None:
    table = ExpertTable(tokens=(1, 2, 3), us=(50, 40, 30), calibrated=True, source="t")
    assert table_us(table, np.array([9])).tolist() == [30]


def test_refused_beyond_four_times() -> None:
    with pytest.raises(ProfileError, match=r"mine\.csv: 121 tokens at a rank are more than 4 times .*\(30\)"):
        table_us(TABLE, np.array([3, 121]))


def test_csv_and_parquet_read_alike(tmp_path: Path) -> None:
    csv, parquet = tmp_path / "t.csv", tmp_path / "t.parquet"
    csv.write_text("us, tokens\n50, 1\n59.5, 10\n")
    pq.write_table(pa.table({"tokens": [1, 10], "us": [50.0, 59.5]}), parquet)
    for path in (csv, parquet):
        table = load_table(path)
        assert (table.tokens, table.us) == ((1, 10), (50, 59.5))


def test_a_table_alone_stands_on_the_h200(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("tokens,us\n1,50\n10,60\n")
    profile = load_profile(str(path))
    assert profile.expert_table == load_table(path)
    assert (profile.name, profile.links) == ("h200", load_profile("h200").links)


def test_a_table_stands_on_the_profile_before_the_plus(tmp_path: Path) -> None:
    path = tmp_path / "a+b.csv"
    path.write_text("tokens,us,slots\n1,50,9\n10,60,9\n")
    profile = load_profile(f"h100+{path}")
    assert (profile.name, profile.experts) == ("h100", load_profile("h100").experts)
    assert profile.expert_table is not None
    assert profile.expert_table.slots == 9
    assert load_profile(str(path)).name == "h200"
    with pytest.raises(ProfileError, match="h9: unknown hardware profile"):
        load_profile(f"h9+{path}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tokens,ms\n1,2\n", "column us is missing"),
        ("", "column tokens is missing"),
        ("tokens,us\n1,5\n2,nan\n", "row 2: tokens, us and slots must be finite"),
        ("tokens,us\n1,5\ninf,6\n", "row 2: tokens, us and slots must be finite"),
        ("tokens,us\n1,5\n2,fast\n", "row 2: 'fast' is not a number"),
        ("tokens,us\n1,5\n2\n", "row 2: None is not a number"),
        ("tokens,us\n1,5\n1,6\n", "row 2: tokens must be > 0 and rise strictly"),
        ("tokens,us\n0,5\n1,6\n", "row 1: tokens must be > 0 and rise strictly"),
        ("tokens,us\n1,5\n2,0\n", "row 2: .* us must be > 0"),
        ("tokens,us\n1,5\n", "at least two rows"),
        ("tokens,us,slots\n1,5,8\n2,6,9\n", "row 2: slots must be one whole number in all rows"),
        ("tokens,us,slots\n1,5,1.5\n2,6,1.5\n", "row 1: slots must be one whole number"),
        ("tokens,us,slots\n1,5,\n2,6,8\n", "row 1: '' is not a number"),
    ],
)
def test_bad_tables_are_refused_with_file_and_row(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ProfileError, match=words) as caught:
        load_table(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["none.csv", "none.parquet"])
def test_absent_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProfileError, match="cannot read"):
        load_profile(str(tmp_path / name))


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_text("tokens,us\n")
    with pytest.raises(ProfileError, match="cannot read"):
        load_table(path)


def test_null_in_parquet_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"tokens": [1, None], "us": [5.0, 6.0]}), path)
    with pytest.raises(ProfileError, match="row 2: None is not a number"):
        load_table(path)
