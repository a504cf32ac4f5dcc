"""`ebsim history` as a user runs it, killed at every stage, and by several at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from easybalance_sim.errors import PlanError
from easybalance_sim.plan.history import LOG, add, read_history
from easybalance_sim.plan.planfile import read_plan
from tests.ebsim_process import PATIENCE_S, ebsim, ebsim_here, environment, one_line, python
from tests.histories import plan_files, write_history


def test_a_history_from_the_first_plan_to_the_way_back(tmp_path: Path) -> None:
    first, second, _ = plan_files(tmp_path, 3)
    added = ebsim("history", "generations", "--add", first, "--note", "the first", cwd=tmp_path)
    assert (added.returncode, added.stderr) == (0, "")
    assert "→  1  " in added.stdout and "the first" in added.stdout and "1.250" in added.stdout
    assert ebsim_here("history", "generations", "--add", second, cwd=tmp_path).returncode == 0
    back = ebsim_here("history", "generations", "--rollback", "1", "-o", "old.json", "--note", "slower", cwd=tmp_path)
    assert back.returncode == 0 and (tmp_path / "old.json").read_bytes() == first.read_bytes()
    listed = ebsim_here("history", "generations", cwd=tmp_path)
    assert listed.stdout == back.stdout and "rolled back: slower" in listed.stdout.splitlines()[-1]
    content = json.loads(ebsim_here("history", "generations", "--format", "json", cwd=tmp_path).stdout)
    assert (set(content), content["in_force"]) == ({"folder", "in_force", "records", "notes"}, 1)
    assert [record["event"] for record in content["records"]] == ["added", "added", "rolled back"]
    assert content["records"][1]["plan_fingerprint"] == read_plan(second).fingerprint()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "there is no history here — begin one with --add PLAN"),
        (("--add", "plan1.json", "--rollback", "1"), "--add: --add and --rollback exclude each other"),
        (("--rollback", "1"), "--rollback and -o: belong together"),
        (("-o", "plan1.json"), "--rollback and -o: belong together"),
        (("--note", "why"), "--note: there is no record to put it in"),
        (("--add", "no.json"), "no.json: cannot read: "),
        (("--rollback", "0", "-o", "x.json"), "--rollback"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    flags: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_files(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    done = ebsim_here("history", "generations", *flags)
    assert done.returncode == 2 and says in one_line(done)
    assert not (tmp_path / "generations").exists()


def test_damage_is_one_line_with_record_and_file(tmp_path: Path) -> None:
    write_history(tmp_path)
    plan = tmp_path / "history" / "generation-0002.json"
    plan.write_text(plan.read_text().replace("policy 2", "policy 3"))
    done = ebsim_here("history", "history", cwd=tmp_path)
    assert done.returncode == 2
    assert "history/generation-0002.json: record 2: the plan file is not the one that was added" in one_line(done)


# Python is started once; each command is a child of its own, which one moment kills.
DYING = """
import json, os, signal, sys
from pathlib import Path
from easybalance_sim.cli import commands
from easybalance_sim.cli.app import main

calls = 0
def dying(what, late):
    def call(*args, **more):
        global calls
        calls += 1
        if calls == moment and not late:
            os.kill(os.getpid(), signal.SIGKILL)
        done = what(*args, **more)
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call
def half(path, content):
    global calls
    calls += 1
    write(path, content[: len(content) // 2] if calls == moment else content)
    if calls == moment:
        os.kill(os.getpid(), signal.SIGKILL)
write = Path.write_bytes
Path.write_bytes, Path.replace, Path.mkdir = half, dying(Path.replace, True), dying(Path.mkdir, True)
Path.chmod, os.fsync = dying(Path.chmod, False), dying(os.fsync, False)
returned = []
for moment, *arguments in json.load(sys.stdin):
    child = os.fork()
    if not child:
        sys.argv, sys.stdout = ["ebsim", "history", *arguments], open(os.devnull, "w")
        main()
    returned.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(returned))
"""
STAGES = 12
"""Calls of an `--add` that change or sync something: folder, plan file and log (each written, synced, given its rights,
renamed, its folder synced), the plan file's name."""


def _killed_at(commands: dict[int, tuple[str | Path, ...]]) -> dict[int, int]:
    """What each `ebsim history` returned that was killed at its moment."""
    done = python("-c", DYING, stdin=json.dumps([[moment, *map(str, said)] for moment, said in commands.items()]))
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(commands, json.loads(done.stdout), strict=True))


def test_kill_at_every_stage_of_an_add(tmp_path: Path) -> None:
    moments = range(1, STAGES + 2)
    plans = plan_files(tmp_path, 2)
    folders = {moment: tmp_path / f"history{moment}" for moment in moments}
    for folder in folders.values():
        add(folder, plans[0])
    before = {moment: (read_history(folder), (folder / LOG).read_bytes()) for moment, folder in folders.items()}
    returned = _killed_at({moment: (folder, "--add", plans[1]) for moment, folder in folders.items()})
    for moment, folder in folders.items():
        assert returned[moment] == (-signal.SIGKILL if moment <= STAGES else 0), moment
        after = read_history(folder)
        assert after.plan_bytes(1) == plans[0].read_bytes()
        if len(after.records) == 1:
            assert (after, (folder / LOG).read_bytes()) == before[moment]
            add(folder, plans[1])
        assert read_history(folder).plan_bytes(2) == plans[1].read_bytes()


def test_kill_during_the_first_add(tmp_path: Path) -> None:
    """There is no history before, or a whole one."""
    (plan,) = plan_files(tmp_path, 1)
    folders = {moment: tmp_path / f"history{moment}" for moment in (1, 2, 5, 7, 8, 11, 12)}
    returned = _killed_at({moment: (folder, "--add", plan) for moment, folder in folders.items()})
    assert set(returned.values()) == {-signal.SIGKILL}, returned
    for moment, folder in folders.items():
        try:
            assert read_history(folder).plan_bytes(1) == plan.read_bytes()
        except PlanError as error:
            assert error.what == "there is no history here", moment
            add(folder, plan)
        assert len(read_history(folder).records) == 1


def test_kill_during_a_way_back(tmp_path: Path) -> None:
    """The target is the old file or the whole plan, and a record is there only when the plan is."""
    places = {moment: tmp_path / str(moment) for moment in (2, 3, 5, 7, 10, 11)}
    commands: dict[int, tuple[str | Path, ...]] = {}
    for moment, place in places.items():
        place.mkdir()
        write_history(place)
        commands[moment] = (place / "history", "--rollback", "1", "-o", place / "plan3.json")
    old = (places[2] / "plan3.json").read_bytes()
    returned = _killed_at(commands)
    assert set(returned.values()) == {-signal.SIGKILL}, returned
    for moment, place in places.items():
        history, target = read_history(place / "history"), place / "plan3.json"
        assert target.read_bytes() in (old, history.plan_bytes(1)), moment
        assert len(history.records) == 4 or target.read_bytes() == history.plan_bytes(1), moment


def test_many_add_at_once(tmp_path: Path) -> None:
    plans, folder = plan_files(tmp_path, 5), tmp_path / "history"
    command = [sys.executable, "-m", "easybalance_sim", "history", str(folder), "--add"]
    running = [
        subprocess.Popen([*command, str(plan)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
        for plan in [*plans, plans[0]]
    ]
    said = [process.communicate(timeout=PATIENCE_S)[1].decode() for process in running]
    assert sorted(process.returncode for process in running) == [0, 0, 0, 0, 0, 2]
    assert sum("is this plan already" in text for text in said) == 1
    history = read_history(folder)
    assert {history.plan_bytes(number) for number in range(1, 6)} == {plan.read_bytes() for plan in plans}
