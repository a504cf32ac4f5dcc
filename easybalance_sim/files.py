"""Files and folders are written whole or not at all: a temporary one beside the target, fsync, rename."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from easybalance_sim.errors import UsageError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_unfinished: set[Path] = set()
"""Temporary files and folders that may lie about: each is named here before it is made."""


def require_place(path: Path, keep: Sequence[Path] = (), *, flag: str = "-o") -> None:
    """Raise `UsageError` when a file could not be put at `path`: for long runs to ask before they begin.

    keep: files that the run reads and that must not be written over, or folders whose files it reads · flag: that names
    `path`, for the message.
    The folder is tried with a temporary file, since permissions alone do not tell of read-only or foreign file systems.
    """
    _require_replaceable(path, flag)
    if path.exists() and any(_same(path, one) for one in keep):
        raise UsageError("the run reads this file, it would be lost", where=str(path), fix=f"choose another {flag}")
    _remove(_temporary_beside(path, flag))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; on success it is synced and renamed over `path`.

    On any exception, the interrupt included, the temporary file is removed and the old file stays as it was.
    A symbolic link stays one: the file that it leads to is replaced. Raises `UsageError` when the folder does not exist
    or cannot be written.
    """
    temporary = _temporary_beside(path)
    try:
        yield temporary
        _publish(temporary, path)
    except BaseException:
        _remove(temporary)
        raise
    _unfinished.discard(temporary)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`; on success it is synced and takes the place of `path` and all that was in it.

    On any exception, the interrupt included, the new folder is removed and the old one stays as it was. Raises
    `UsageError` when the folder above does not exist or cannot be written.
    """
    target = Path(os.path.realpath(path))
    temporary = _part_of(target)
    try:
        temporary.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"cannot write here: {error.strerror}", where=str(path), fix="choose another -o") from error
    try:
        yield temporary
        _publish_folder(temporary, target)
    except BaseException:
        _remove(temporary)
        raise
    _unfinished.discard(temporary)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 `text` to `path` whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_unfinished() -> None:
    """Remove what writes left behind: for the end of a program that was interrupted even while it tidied up."""
    for path in tuple(_unfinished):
        _remove(path)


def _same(path: Path, other: Path) -> bool:
    """Whether they are one file, or `path` is a Parquet file in the folder `other`."""
    if other.is_dir():
        return path.suffix == ".parquet" and other.resolve() in path.resolve().parents
    return other.exists() and path.samefile(other)


def _require_replaceable(path: Path, flag: str = "-o") -> None:
    try:
        if path.is_dir():
            raise UsageError("is a folder, not a file", where=str(path), fix=f"name a file with {flag}")
        if path.exists() and not path.is_file():
            raise UsageError("is a device or pipe, not a file", where=str(path), fix=f"name a file with {flag}")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}", where=str(path), fix=f"choose another {flag}")
    except OSError as error:
        what, fix = f"cannot write here: {error.strerror}", f"choose another {flag}"
        raise UsageError(what, where=str(path), fix=fix) from error


def _temporary_beside(path: Path, flag: str = "-o") -> Path:
    """A new empty file in the folder where the contents of `path` are."""
    temporary = _part_of(Path(os.path.realpath(path)))
    try:
        temporary.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        what, fix = f"cannot write here: {error.strerror}", f"choose another {flag}"
        raise UsageError(what, where=str(path), fix=fix) from error
    return temporary


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)
    _unfinished.discard(temporary)


def _part_of(target: Path) -> Path:
    """The name of a new temporary file or folder beside the target."""
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}.part")
    _unfinished.add(temporary)
    return temporary


def _publish(temporary: Path, path: Path) -> None:
    _require_replaceable(path)
    _sync(temporary)
    temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
    target = Path(os.path.realpath(path))
    temporary.replace(target)
    _sync(target.parent)


def _publish_folder(temporary: Path, target: Path) -> None:
    for inside in temporary.rglob("*"):
        _sync(inside)
    temporary.chmod(0o777 & ~_umask())
    if not target.exists():
        temporary.rename(target)
    elif _exchange(temporary, target):
        shutil.rmtree(temporary)
    else:
        # A folder cannot be renamed over a full one: the old one steps aside and comes back when that fails.
        old = temporary.with_suffix(".old")
        target.rename(old)
        try:
            temporary.rename(target)
        except BaseException:
            old.rename(target)
            raise
        shutil.rmtree(old)
    _sync(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Whether two folders swapped names in one step, as Linux does on most file systems (`renameat2`)."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
