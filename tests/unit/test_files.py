from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from easybalance_sim import files
from easybalance_sim.errors import UsageError
from easybalance_sim.files import replacing, replacing_folder, require_place, write_text

WRITES_FOR_EVER = """
import sys
from pathlib import Path
from easybalance_sim.files import replacing

with replacing(Path(sys.argv[1])) as temporary, temporary.open("w") as stream:
    while True:
        stream.write("new" * 10_000)
        stream.flush()
"""


def _leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(".part")]


def test_text_is_written_as_utf8(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write_text(path, "计划\n")
    assert path.read_bytes() == "计划\n".encode()
    assert _leftovers(tmp_path) == []


def test_old_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("a much longer old text", encoding="utf-8")
    write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"


def test_reader_never_sees_a_half_written_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old", encoding="utf-8")
    with replacing(path) as temporary:
        temporary.write_text("half", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "half"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_failure_keeps_the_old_file_and_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise error
    assert path.read_text(encoding="utf-8") == "old"
    assert _leftovers(tmp_path) == []


def test_failure_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), replacing(tmp_path / "out.txt"):
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none/out\.txt: cannot write here: No such file.* — choose another -o"):
        write_text(tmp_path / "none" / "out.txt", "x")


def test_folder_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(UsageError, match="is a folder, not a file"):
        write_text(target, "x")
    assert _leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fifo", "is a device or pipe, not a file"),
        ("folder", "is a folder, not a file"),
        ("none/plan.json", "there is no folder"),
        ("x" * 300, "cannot write here: File name too long"),
        ("/proc/plan.json", "cannot write here"),
    ],
)
def test_a_place_that_cannot_take_a_file_is_refused_before_the_work(name: str, message: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=message):
        require_place(tmp_path / name)
    assert _leftovers(tmp_path) == []


def test_a_place_that_can_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    path.write_text("old", encoding="utf-8")
    require_place(path)
    assert [(found, found.read_text(encoding="utf-8")) for found in tmp_path.iterdir()] == [(path, "old")]
    write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(UsageError, match="is a device or pipe, not a file"):
        write_text(fifo, "x")
    assert fifo.is_fifo() and _leftovers(tmp_path) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link, target = tmp_path / "plan.json", tmp_path / "store" / "v1.json"
    link.symlink_to(target)
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink() and target.read_text(encoding="utf-8") == text
    assert _leftovers(tmp_path) == _leftovers(target.parent) == []


def test_permissions_follow_the_old_file_or_the_umask(tmp_path: Path) -> None:
    old, fresh = tmp_path / "old.txt", tmp_path / "fresh.txt"
    old.write_text("old", encoding="utf-8")
    old.chmod(0o640)
    mask = os.umask(0o027)
    try:
        write_text(old, "new")
        write_text(fresh, "new")
    finally:
        os.umask(mask)
    assert (old.stat().st_mode & 0o777, fresh.stat().st_mode & 0o777) == (0o640, 0o640)


@pytest.mark.parametrize("written_bytes", [1, 100_000, 5_000_000])
def test_kill_while_writing_keeps_the_old_file(written_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old", encoding="utf-8")
    child = subprocess.Popen([sys.executable, "-c", WRITES_FOR_EVER, str(path)])
    try:
        deadline = time.monotonic() + 60
        while sum(part.stat().st_size for part in tmp_path.glob(".*.part")) < written_bytes:
            assert child.poll() is None
            assert time.monotonic() < deadline
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert path.read_text(encoding="utf-8") == "old"
    assert [found.name for found in tmp_path.iterdir() if not found.name.startswith(".")] == ["plan.json"]
    write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"


def test_a_file_that_the_run_reads_is_not_written_over(tmp_path: Path) -> None:
    trace, folder = tmp_path / "t.parquet", tmp_path / "traces"
    folder.mkdir()
    inside, beside = folder / "a.parquet", folder / "plan.json"
    link = tmp_path / "link.json"
    for path in (trace, inside, beside):
        path.write_bytes(b"x")
    link.symlink_to(trace)
    for path in (trace, link, inside):
        with pytest.raises(UsageError, match="the run reads this file"):
            require_place(path, keep=(trace, folder))
    for path in (beside, tmp_path / "new.json"):
        require_place(path, keep=(trace, folder))


def _folder(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        (path / name).write_text(name, encoding="utf-8")
    return path


@pytest.mark.parametrize("old", [[], ["kept", "lost"]])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_folder_takes_the_place_of_the_old_one_whole(
    at_once: bool, old: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    target = _folder(tmp_path / "out", *old) if old else tmp_path / "out"
    with replacing_folder(target) as temporary:
        (temporary / "inside").mkdir()
        (temporary / "inside" / "new").touch()
        assert target.exists() == bool(old)
    assert sorted(path.name for path in target.rglob("*")) == ["inside", "new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    made = _folder(tmp_path / "made")
    assert target.stat().st_mode == made.stat().st_mode


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_keeps_the_old_folder(error: type[BaseException], tmp_path: Path) -> None:
    target = _folder(tmp_path / "out", "old")
    with pytest.raises(error), replacing_folder(target) as temporary:
        (temporary / "half").touch()
        raise error
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename = _folder(tmp_path / "out", "old"), Path.rename

    def fails(path: Path, to: Path) -> Path:
        if path.name.endswith(".part"):
            raise PermissionError(1, "not permitted", str(path))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", fails)
    monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    with pytest.raises(PermissionError), replacing_folder(target) as temporary:
        (temporary / "new").touch()
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_no_folder_to_write_a_folder_in(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write here"), replacing_folder(tmp_path / "none" / "out"):
        raise AssertionError


def test_what_an_interrupt_of_the_tidying_left_is_removed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", interrupted)
        patched.setattr("shutil.rmtree", interrupted)
        for write in (replacing, replacing_folder):
            with pytest.raises(KeyboardInterrupt), write(tmp_path / "new"):
                raise KeyboardInterrupt
    assert len(_leftovers(tmp_path)) == 2
    files.remove_unfinished()
    assert _leftovers(tmp_path) == []
