"""A report with anything else at any place has a page, or is refused in one line."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from easybalance_sim.errors import UsageError
from easybalance_sim.report.content import MadeBy, Page
from easybalance_sim.report.pages import page_of
from tests.golden.report.documents.make_golden import document, documents
from tests.plan_reports import plan_report, stressed

REPORT = stressed(plan_report(layers=2, windows=4))
GONE = object()
VALUES: tuple[Any, ...] = (
    GONE,
    None,
    "",
    "words",
    True,
    -1,
    0,
    10**400,
    1e308,
    float("nan"),
    [],
    [1],
    [[1], [1, 2]],
    {},
    {"a": 1},
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of the report; of a list the first one."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _places(one, (*path, key))


PLACES = tuple(_places(REPORT))
DOCUMENTS = {name: document(name) for name in documents()}
EVERYWHERE = tuple((name, path) for name, report in DOCUMENTS.items() for path in _places(report))


def _has_a_page_or_one_line(whole: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    report = copy.deepcopy(whole)
    target: Any = report
    for key in path[:-1]:
        target = target[key]
    if value is GONE:
        del target[path[-1]]
    else:
        target[path[-1]] = copy.deepcopy(value)
    try:
        assert isinstance(page_of(report, MadeBy(command="", versions={}), "saved.json"), Page)
    except UsageError as error:
        assert str(error).startswith("saved.json: ") and "\n" not in str(error)


@given(st.sampled_from(PLACES), st.sampled_from(VALUES))
@settings(max_examples=120, deadline=None)
def test_a_damaged_report_has_a_page_or_one_line(path: tuple[Any, ...], value: Any) -> None:
    _has_a_page_or_one_line(REPORT, path, value)


@given(st.sampled_from(EVERYWHERE), st.sampled_from(VALUES))
@example(("offset", ("front", "fronts")), [])
@settings(max_examples=60, deadline=None)
def test_so_has_a_damaged_report_of_any_other_command(place: tuple[str, tuple[Any, ...]], value: Any) -> None:
    name, path = place
    _has_a_page_or_one_line(DOCUMENTS[name], path, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_whatever_is_damaged(name: str) -> None:
    for path in _places(DOCUMENTS[name]):
        for value in VALUES:
            _has_a_page_or_one_line(DOCUMENTS[name], path, value)
