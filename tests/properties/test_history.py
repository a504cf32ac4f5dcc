"""No edit of a history passes for another one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.history import LOCK, LOG, History, add, read_history, roll_back
from easybalance_sim.plan.planfile import PlanDocument, write_plan
from tests.histories import write_history
from tests.properties.test_planfile import TEXT, documents


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        write_history(Path(folder))
        yield Path(folder, "history")


def _copy(whole: Path, folder: str) -> Path:
    copy = Path(folder, "history")
    shutil.copytree(whole, copy)
    return copy


def _require_refused(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(PlanError) as refused:
        read_history(folder)
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_changed_bytes_are_refused(whole: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = _copy(whole, place)
        path = data.draw(st.sampled_from(sorted(path for path in folder.iterdir() if path.name != LOCK)))
        content = path.read_bytes()
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, min(len(content), start + 4)))
        changed = content[:start] + data.draw(st.binary(max_size=3)) + content[stop:]
        path.write_bytes(changed)
        if changed == content:
            assert read_history(folder).plan_bytes(1)
        else:
            _require_refused(folder)


@given(st.lists(st.integers(0, 4), max_size=7))
@settings(max_examples=150, deadline=None)
def test_lines_cut_swapped_or_repeated_are_refused(whole: Path, order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = _copy(whole, place)
        lines = (folder / LOG).read_bytes().splitlines(keepends=True)
        (folder / LOG).write_bytes(b"".join(lines[number] for number in order))
        if order == [0, 1, 2, 3, 4]:
            assert isinstance(read_history(folder), History)
        else:
            _require_refused(folder)


@given(
    st.permutations(["generation-0001.json", "generation-0002.json", "generation-0003.json", "generation-0004.json"])
)
@settings(max_examples=24, deadline=None)
def test_plan_files_under_other_names_are_refused(whole: Path, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = _copy(whole, place)
        plans = [(folder / f"generation-000{number}.json").read_bytes() for number in (1, 2, 3)]
        for path in folder.glob("generation-*"):
            path.unlink()
        for name, content in zip(names, plans, strict=False):
            (folder / name).write_bytes(content)
        if names == sorted(names):
            assert len(read_history(folder).records) == 4
        else:
            _require_refused(folder)


@given(st.lists(documents(), min_size=1, max_size=3, unique_by=lambda one: one.fingerprint()), TEXT)
@settings(max_examples=40, deadline=None)
def test_any_plan_can_be_kept_and_written_out_again(plans: list[PlanDocument], note: str) -> None:
    """Whatever evidence it carries; a history is of one model, so each plan is tried in one of its own and then in the
    first one's."""
    with tempfile.TemporaryDirectory() as place:
        first = Path(place, "0")
        for number, document in enumerate(plans):
            path, out = Path(place, f"plan{number}.json"), Path(place, "out.json")
            write_plan(path, document)
            history, _ = add(Path(place, str(number)), path, note)
            assert read_history(Path(place, str(number))) == history
            roll_back(history.folder, 1, out)
            assert out.read_bytes() == path.read_bytes()
            same = (len(document.layers), document.experts) == (len(plans[0].layers), plans[0].experts)
            if number and same:
                assert add(first, path)[0] == read_history(first)
            elif number:
                with pytest.raises(UsageError, match="keep a history for each model"):
                    add(first, path)
