"""Tables of times, and loads brought to their grain."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.observed.tables import Observed, at_grain, read_loads, read_observed

LOADS = pd.DataFrame(
    {
        "step": [0, 0, 0, 0, 1, 1, 1, 1],
        "steps": 1,
        "layer": [3, 3, 5, 5] * 2,
        "rank": [0, 1] * 4,
        "tokens": [1.0, 2, 3, 4, 5, 6, 7, 8],
    }
)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def grain(*keys: str) -> Observed:
    return Observed(keys=keys, frame=pd.DataFrame())


def test_columns_say_the_grain(tmp_path: Path) -> None:
    found = read_observed(written(tmp_path / "t.csv", "rank,layer,us,note\n0,3,1.5,a\n1,3,2,b\n"))
    assert (found.keys, found.steps, list(found.frame.columns)) == (("layer", "rank"), None, ["layer", "rank", "us"])
    stepped = read_observed(written(tmp_path / "s.csv", "step,rank,us,tokens\n4,0,1,10\n6,0,1,11\n"))
    assert (stepped.steps, stepped.frame["tokens"].tolist()) == (frozenset({4, 6}), [10, 11])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank,ms\n0,1\n", "no column us"),
        ("step,us\n0,1\n", "no column rank"),
        ("rank,us\n", "holds no row"),
        ("rank,us\n0,1\n1,-2\n", "us of row 2 is no number"),
        ("rank,us\n0,1\n1,\n", "us of row 2 is no number"),
        ("rank,us\n0,inf\n", "us of row 1 is no number"),
        ("rank,us\n0.5,1\n", "rank of row 1 is no number"),
        ("step,rank,us\n4,1,1\n4,1,2\n", "step 4, rank 1 is there twice"),
    ],
)
def test_bad_times_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_observed(written(tmp_path / "t.csv", text))


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.parquet"])
def test_a_table_that_is_not_there_is_said_to_be_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match="read: No such file or directory — check the path"):
        read_observed(tmp_path / name)


def test_layers_add_up_and_steps_are_averaged() -> None:
    assert at_grain(LOADS, grain("step", "layer", "rank"), "x")["tokens"].tolist() == LOADS["tokens"].tolist()
    assert at_grain(LOADS, grain("step", "rank"), "x")["tokens"].tolist() == [4, 6, 12, 14]
    assert at_grain(LOADS, grain("layer", "rank"), "x")["tokens"].tolist() == [3, 4, 5, 6]
    assert at_grain(LOADS, grain("rank"), "x")["tokens"].tolist() == [8, 10]


def test_windows_weigh_by_their_steps() -> None:
    windows = LOADS.assign(steps=[3, 3, 3, 3, 1, 1, 1, 1])
    assert at_grain(windows, grain("layer", "rank"), "x")["tokens"].tolist() == [2, 3, 4, 5]
    with pytest.raises(UsageError, match="means of several steps"):
        at_grain(windows, grain("step", "rank"), "x")


def test_other_tables_are_no_loads(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no column steps"):
        read_loads(written(tmp_path / "t.csv", "step,layer,rank,us\n0,0,0,1\n"))
