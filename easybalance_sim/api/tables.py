"""Parts of reports as pandas tables: rows and columns are named by the keys of the JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd


def flat(section: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """All single values of a section by their path, as in "rank_imbalance.p99"; lists are left out."""
    found: dict[str, Any] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{under}{name}.")
        elif not isinstance(value, list | tuple):
            found[f"{under}{name}"] = value
    return found


def rows_of(sections: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per section, one column per value."""
    return pd.DataFrame([flat(section) for section in sections])


def typed(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> pd.DataFrame:
    """The same with the columns and dtypes of `kinds`, also of no rows; Int64 and Float64 hold what is not known."""
    return pd.DataFrame(rows, columns=list(kinds)).astype(dict(kinds))


def html_of(table: pd.DataFrame) -> str:
    """A table for a notebook, a dash for what is not known."""
    # pandas shows a missing value of Int64 and Float64 as <NA>, whatever it is told.
    missing = [name for name, kind in table.dtypes.items() if str(kind) in ("Int64", "Float64")]
    plain = table.astype(dict.fromkeys(missing, object))
    return str(plain.where(table.notna(), float("nan")).to_html(na_rep="–"))


def side_by_side(sides: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row per number, one column per side; `change`: of the last side over the first, less 1, where there is a
    first."""
    numbers = {side: _numbers(flat(section)) for side, section in sides.items()}
    table = pd.DataFrame(numbers, columns=list(sides), dtype=float)
    table = table.reindex([name for name in next(iter(numbers.values())) if name in table.index])
    first, last = table.iloc[:, 0], table.iloc[:, -1]
    table["change"] = (last / first.where(first != 0)) - 1
    return table


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
