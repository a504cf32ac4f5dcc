from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from easybalance_sim.errors import EbsimError, PlanError, UsageError
from easybalance_sim.plan import history as kept
from easybalance_sim.plan.history import LOCK, LOG, add, read_history, roll_back
from easybalance_sim.plan.planfile import write_plan
from tests.histories import plan_files, write_history
from tests.plan_documents import example_document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_history(tmp_path)
    return tmp_path / "history"


def test_plan_files_stay_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    history = read_history(folder)
    for number in (1, 2, 3):
        added = (tmp_path / f"plan{number}.json").read_bytes()
        assert (folder / f"generation-000{number}.json").read_bytes() == history.plan_bytes(number) == added
    assert (tmp_path / "back.json").read_bytes() == history.plan_bytes(2)


def test_records_say_what_the_plans_say(folder: Path) -> None:
    first, *_, last = read_history(folder).records
    document = example_document()
    assert (first.record, first.event, first.generation, first.note) == (1, "added", 1, "note on plan1.json")
    assert (first.model, first.layers, first.experts, first.slots) == ("example-moe", 2, 4, 6)
    assert (first.policy, first.verdict, first.rank_imbalance_p99) == ("policy 1", "accepted", 1.25)
    assert first.trace["fingerprint"] == document.trace.fingerprint
    assert first.trace["files"] == ["traces/样本.parquet"] and first.trace["held_out"]["windows"] == 8
    assert (last.record, last.event, last.generation, last.policy, last.note) == (4, "rolled back", 2, "policy 2", "")


def test_each_record_holds_the_sha256_of_the_line_before(folder: Path) -> None:
    *lines, seal = (folder / LOG).read_bytes().splitlines()
    before = "0" * 64
    for line in lines:
        assert json.loads(line)["previous"] == before
        before = hashlib.sha256(line).hexdigest()
    assert json.loads(seal) == {"records": 4, "sha256": before}


def test_lines_that_stand_are_never_written_anew(folder: Path, tmp_path: Path) -> None:
    *before, _ = (folder / LOG).read_bytes().splitlines()
    roll_back(folder, 1, tmp_path / "back.json", "why not")
    assert (folder / LOG).read_bytes().splitlines()[:-2] == before


def test_a_plan_is_in_a_history_once(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"generation 2 is this plan already — --rollback 2 -o PLAN goes back to it"):
        add(folder, tmp_path / "plan2.json")
    assert len(read_history(folder).records) == 4


def test_a_plan_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    document = example_document()
    write_plan(
        tmp_path / "other.json",
        msgspec.structs.replace(document, layers=document.layers[:1], replica_counts=document.replica_counts[:1]),
    )
    with pytest.raises(UsageError, match="1 layers × 4 experts, the history 2 × 4"):
        add(folder, tmp_path / "other.json")


def test_a_damaged_plan_is_not_added(tmp_path: Path) -> None:
    (plan,) = plan_files(tmp_path, 1)
    plan.write_text(plan.read_text().replace("policy 1", "policy 9"))
    with pytest.raises(PlanError, match="does not match its fingerprint"):
        add(tmp_path / "history", plan)
    assert not (tmp_path / "history").exists()


def test_who_replaces_whom_is_told(folder: Path, tmp_path: Path) -> None:
    document = msgspec.structs.replace(example_document(), policy="from nowhere")
    write_plan(tmp_path / "new.json", document)
    history, notes = add(folder, tmp_path / "new.json")
    (note,) = notes
    assert note.startswith("the plan was made to replace no plan, in force was ") and "(generation 2)" in note
    assert history.in_force is not None and history.in_force.generation == 4
    assert read_history(folder) == history


def test_going_back_to_the_plan_in_force_records_nothing(folder: Path, tmp_path: Path) -> None:
    history, notes = roll_back(folder, 2, tmp_path / "again.json")
    assert notes == ("generation 2 is in force already: nothing was recorded",)
    assert (len(history.records), (tmp_path / "again.json").read_bytes()) == (4, history.plan_bytes(2))


def test_what_cannot_be_gone_back_to_leaves_the_target(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan1.json"
    before = target.read_bytes()
    with pytest.raises(UsageError, match="there is no generation 4 — choose 1 to 3"):
        roll_back(folder, 4, target)
    (folder / "generation-0003.json").unlink()
    with pytest.raises(PlanError, match="the plan file is missing"):
        roll_back(folder, 1, target)
    assert target.read_bytes() == before


def test_a_target_inside_the_history_is_refused(folder: Path) -> None:
    for name in ("generation-0001.json", "new.json"):
        with pytest.raises(UsageError, match="lies inside the history"):
            roll_back(folder, 2, folder / name)
    assert len(read_history(folder).records) == 4


def _swap(folder: Path) -> None:
    lines = (folder / LOG).read_bytes().splitlines(keepends=True)
    (folder / LOG).write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))


def _edit(record: int, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        lines = (folder / LOG).read_text().splitlines(keepends=True)
        assert old in lines[record - 1]
        lines[record - 1] = lines[record - 1].replace(old, new)
        (folder / LOG).write_text("".join(lines))

    return edit


def _cut(lines: int) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        (folder / LOG).write_bytes(b"".join((folder / LOG).read_bytes().splitlines(keepends=True)[:lines]))

    return cut


def _older_log(folder: Path) -> None:
    """What a log of two records would be: it holds together, the third plan file gives it away."""
    other = folder.parent / "other"
    for number in (1, 2):
        add(other, folder.parent / f"plan{number}.json", f"note on plan{number}.json")
    (folder / LOG).write_bytes((other / LOG).read_bytes())


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_edit(1, "accepted", "rejected"), "log.jsonl: record 1 was edited: the sha256 in record 2 is another one"),
        (_edit(2, "policy 2", "policy 9"), "log.jsonl: record 2 was edited: "),
        (_edit(2, '"previous":"', '"previous":"0'), "log.jsonl: record 2 was edited: "),
        (_edit(1, '"previous":"0', '"previous":"1'), "log.jsonl: record 1 was edited: "),
        (_edit(4, "rolled back", "added"), "log.jsonl: the seal does not fit record 4: "),
        (_edit(3, '"record":3', '"record":7'), "log.jsonl: record 3: record 7 stands in its place"),
        (_edit(3, '"experts":4', '"experts":"4"'), "log.jsonl: record 3: not a record: Expected `int`, got `str`"),
        (_edit(5, '"records":4', '"records":5'), "log.jsonl: the seal does not fit record 4: "),
        (_swap, "log.jsonl: record 2: record 3 stands in its place"),
        (_cut(4), "log.jsonl: the seal does not fit record 3: "),
        (_cut(1), "log.jsonl: the log was cut: "),
        (_cut(0), "log.jsonl: the log was cut: "),
        (_older_log, "generation-0003.json: the log has no such generation: it was cut"),
        (lambda folder: (folder / LOG).unlink(), "log.jsonl: the log is missing, generation-0001.json is there"),
        (
            lambda folder: (folder / "generation-0002.json").unlink(),
            "generation-0002.json: record 2: the plan file is missing",
        ),
        (
            lambda folder: (folder / "generation-0002.json").write_bytes(
                (folder / "generation-0001.json").read_bytes()
            ),
            "generation-0002.json: record 2: the plan file is not the one that was added: it was edited",
        ),
    ],
)
def test_damage_is_named_and_nothing_is_changed(
    damage: Callable[[Path], object], says: str, folder: Path, tmp_path: Path
) -> None:
    new = msgspec.structs.replace(example_document(), policy="one more")
    write_plan(tmp_path / "new.json", new)
    damage(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for attempt in (
        lambda: read_history(folder),
        lambda: add(folder, tmp_path / "new.json"),
        lambda: roll_back(folder, 1, tmp_path / "out.json"),
    ):
        with pytest.raises(PlanError) as refused:
            attempt()
        assert says in str(refused.value) and "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not (tmp_path / "out.json").exists()


def test_no_history_is_said(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere", plan_files(tmp_path, 1)[0]):
        with pytest.raises(PlanError, match="there is no history here — begin one with --add PLAN"):
            read_history(folder)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (plan,) = plan_files(tmp_path, 1)
    for folder in (plan, tmp_path / "no" / "where"):
        with pytest.raises(UsageError, match="cannot write here"):
            add(folder, plan)


def test_a_pending_plan_is_read_and_settled(folder: Path, tmp_path: Path) -> None:
    """What a kill just before the last step leaves."""
    last = folder / "generation-0003.json"
    last.rename(folder / "generation-0003.json.pending")
    assert read_history(folder).plan_bytes(3) == (tmp_path / "plan3.json").read_bytes()
    assert not last.exists()
    roll_back(folder, 1, tmp_path / "out.json")
    assert last.exists() and not (folder / "generation-0003.json.pending").exists()


def test_leftovers_of_a_killed_add_do_not_matter(folder: Path, tmp_path: Path) -> None:
    (folder / "generation-0004.json.pending").write_bytes(b"half a pl")
    assert len(read_history(folder).records) == 4
    write_plan(tmp_path / "new.json", msgspec.structs.replace(example_document(), policy="one more"))
    assert len(add(folder, tmp_path / "new.json")[0].added()) == 4
    assert read_history(folder).plan_bytes(4) == (tmp_path / "new.json").read_bytes()


def test_a_lock_that_is_not_given_back_is_said(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "PATIENCE_S", 0.05)
    with (folder / LOCK).open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another command adds to this history"):
            roll_back(folder, 1, tmp_path / "out.json")
        assert len(read_history(folder).records) == 4
    assert not (tmp_path / "out.json").exists()


def test_a_reader_looks_again_when_the_log_has_grown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generation that appears between the look at the log and the look at the files is no damage."""
    write_plan(tmp_path / "new.json", msgspec.structs.replace(example_document(), policy="one more"))
    looks, look = [], kept._log_bytes

    def look_then_add(place: Path) -> bytes:
        data = look(place)
        looks.append(data)
        if len(looks) == 1:
            monkeypatch.setattr(kept, "_log_bytes", look)
            add(folder, tmp_path / "new.json")
        return data

    monkeypatch.setattr(kept, "_log_bytes", look_then_add)
    assert len(read_history(folder).records) == 5


def test_a_note_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (plan,) = plan_files(tmp_path, 1)
    with pytest.raises(EbsimError, match="cannot be written as UTF-8"):
        add(tmp_path / "history", plan, "\udc80")
    with pytest.raises(PlanError, match="there is no history"):
        read_history(tmp_path / "history")


def test_a_plan_that_was_not_accepted_is_told(tmp_path: Path) -> None:
    write_plan(tmp_path / "bad.json", msgspec.structs.replace(example_document(), verdict={"status": "rejected"}))
    assert add(tmp_path / "history", tmp_path / "bad.json")[1] == ("the verdict of this plan is 'rejected'",)
