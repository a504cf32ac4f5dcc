"""The generations of a deployment: an append-only folder of plan files and a log whose records form a chain.

Plan files lie in the folder byte for byte as they were added, their sha256 in the log (`history_log`). Whatever is
edited, cut, swapped or missing is refused, and nothing is changed then.

A plan is first laid down as `generation-0003.json.pending`; the log, written whole and renamed, is what makes it a
generation; then the file takes its name. Readers take the pending file where the last step is missing, so a kill at any
moment leaves the old history or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.files import replacing, require_place
from easybalance_sim.plan.history_log import NOTHING_BEFORE, RESTORE, Record, chain, digest, line_of, log_of
from easybalance_sim.plan.planfile import PlanDocument, read_plan

LOG, LOCK = "log.jsonl", ".lock"
PATIENCE_S = 10.0
"""How long a command waits for another one that adds to the same history."""

_PLAN_FILE = re.compile(r"generation-(\d{4,})\.json")


@dataclass(frozen=True, kw_only=True)
class History:
    """A verified history. records: in order · lines: of the log, one for each."""

    folder: Path
    records: tuple[Record, ...] = ()
    lines: tuple[bytes, ...] = ()

    @property
    def in_force(self) -> Record | None:
        """The last record: its generation is the one that serves."""
        return self.records[-1] if self.records else None

    def added(self) -> dict[int, Record]:
        """The record with which each generation was added."""
        return {record.generation: record for record in self.records if record.event == "added"}

    def plan_bytes(self, generation: int) -> bytes:
        """A plan file as it was added. Raises `UsageError` for a generation that there is not."""
        known = self.added()
        if generation not in known:
            raise UsageError(
                f"there is no generation {generation}", where=str(self.folder), fix=f"choose 1 to {len(known)}"
            )
        return _plan_bytes(self.folder, known[generation])

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `ebsim history`, its notes aside."""
        return {
            "folder": str(self.folder),
            "in_force": None if self.in_force is None else self.in_force.generation,
            "records": [msgspec.to_builtins(record) for record in self.records],
        }

    def _with(self, record: Record) -> History:
        """One record more, in the log too."""
        lines = (*self.lines, line_of(record))
        with replacing(self.folder / LOG) as temporary:
            temporary.write_bytes(log_of(lines))
        return History(folder=self.folder, records=(*self.records, record), lines=lines)


def read_history(folder: Path) -> History:
    """Read and verify all of it.

    Raises `PlanError`, one line that names the record and the file, for anything that is not as it was written.
    """
    while True:
        data = _log_bytes(folder)
        try:
            return _verified(folder, data)
        except PlanError:
            # Another command may have added a generation between two looks.
            if _log_bytes(folder) == data:
                raise


def add(folder: Path, plan: Path, note: str = "") -> tuple[History, tuple[str, ...]]:
    """Add a plan file as the next generation, whole or not at all; the folder is made when there is none.

    Returns the history and what the user should know. Raises `PlanError` for a plan or history that does not verify,
    `UsageError` for a plan that is in it already or is of another model.
    """
    document = read_plan(plan)
    with _locked(folder):
        history = _settled(folder)
        _require_new(document, history, plan)
        content = plan.read_bytes()
        record = _record(document, content, note, history)
        path = _plan_path(folder, record.generation)
        with replacing(_pending(path)) as temporary:
            temporary.write_bytes(content)
        if read_plan(_pending(path)) != document:
            raise PlanError("the file was changed while it was read", where=str(plan), fix="try again")
        longer = history._with(record)
        _pending(path).replace(path)
    return longer, _notes(record, history)


def roll_back(folder: Path, generation: int, output: Path, note: str = "") -> tuple[History, tuple[str, ...]]:
    """Write the plan file of a generation to `output` again and record that it is in force from now on.

    Nothing is recorded when it is in force already. Raises as `add`, and `UsageError` for a generation that there is
    not or an `output` inside the history; whatever was at `output` stays then.
    """
    if folder.resolve() in output.absolute().resolve().parents:
        raise UsageError("lies inside the history", where=str(output), fix="choose another -o")
    read_history(folder)
    require_place(output)
    with _locked(folder):
        history = _settled(folder)
        content = history.plan_bytes(generation)
        with replacing(output) as temporary:
            temporary.write_bytes(content)
        if history.records[-1].generation == generation:
            return history, (f"generation {generation} is in force already: nothing was recorded",)
        back = msgspec.structs.replace(
            history.added()[generation],
            record=len(history.records) + 1,
            event="rolled back",
            note=note,
            previous=digest(history.lines[-1]),
        )
        return history._with(back), ()


def _record(document: PlanDocument, content: bytes, note: str, history: History) -> Record:
    judged = _section(_section(document.evidence, "plan"), "rank_imbalance").get("p99")
    seen = _section(document.evidence, "trace")
    return Record(
        record=len(history.records) + 1,
        event="added",
        generation=len(history.added()) + 1,
        plan_sha256=digest(content),
        plan_fingerprint=document.fingerprint(),
        plan_generation=document.generation,
        parent_fingerprint=document.parent_fingerprint,
        model=document.model,
        layers=len(document.layers),
        experts=document.experts,
        policy=document.policy,
        verdict=str(document.verdict.get("status", "unknown")),
        rank_imbalance_p99=judged if isinstance(judged, float) else None,
        slots=sum(document.plan_slots_per_rank),
        trace={
            "fingerprint": document.trace.fingerprint,
            "files": list(document.trace.files),
            "tokens": seen.get("tokens"),
            "steps": seen.get("steps"),
            "fit": document.trace.fit,
            "held_out": document.trace.held_out,
        },
        note=note,
        previous=digest(history.lines[-1]) if history.lines else NOTHING_BEFORE,
    )


def _section(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of the evidence, empty when the plan was not written by `ebsim plan`."""
    found = report.get(name)
    return found if isinstance(found, dict) else {}


def _require_new(document: PlanDocument, history: History, plan: Path) -> None:
    for generation, record in history.added().items():
        if record.plan_fingerprint == document.fingerprint():
            raise UsageError(
                f"generation {generation} is this plan already",
                where=str(plan),
                fix=f"--rollback {generation} -o PLAN goes back to it",
            )
        if (record.layers, record.experts) != (len(document.layers), document.experts):
            raise UsageError(
                f"the plan has {len(document.layers)} layers × {document.experts} experts, the history "
                f"{record.layers} × {record.experts}",
                where=str(plan),
                fix="keep a history for each model",
            )


def _notes(record: Record, before: History) -> tuple[str, ...]:
    notes = () if record.verdict == "accepted" else (f"the verdict of this plan is {record.verdict!r}",)
    serving = before.in_force
    if serving is None or record.parent_fingerprint == serving.plan_fingerprint:
        return notes
    made_for = record.parent_fingerprint[:12] if record.parent_fingerprint else "no plan"
    in_force = f"{serving.plan_fingerprint[:12]} (generation {serving.generation})"
    return (*notes, f"the plan was made to replace {made_for}, in force was {in_force}")


def _plan_path(folder: Path, generation: int) -> Path:
    return folder / f"generation-{generation:04d}.json"


def _pending(path: Path) -> Path:
    return path.with_name(f"{path.name}.pending")


def _log_bytes(folder: Path) -> bytes:
    log = folder / LOG
    try:
        return log.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        _require_no_plans(folder)
        raise PlanError("there is no history here", where=str(log), fix="begin one with --add PLAN") from error
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(log), fix="check the path") from error


def _require_no_plans(folder: Path) -> None:
    """A folder that has plan files of a history has lost its log."""
    plans = [path.name for path in folder.iterdir() if _PLAN_FILE.fullmatch(path.name)] if folder.is_dir() else []
    if plans:
        raise PlanError(f"the log is missing, {min(plans)} is there", where=str(folder / LOG), fix=RESTORE)


def _verified(folder: Path, data: bytes) -> History:
    records, lines = chain(data, folder / LOG)
    history = History(folder=folder, records=records, lines=lines)
    known = history.added()
    for record in known.values():
        _plan_bytes(folder, record)
    for path in sorted(folder.iterdir()):
        found = _PLAN_FILE.fullmatch(path.name)
        if found and int(found[1]) not in known:
            raise PlanError("the log has no such generation: it was cut", where=str(path), fix=RESTORE)
    return history


def _plan_bytes(folder: Path, record: Record) -> bytes:
    """Of an added record, verified; the name is looked up again in case it was given between the two looks."""
    path = _plan_path(folder, record.generation)
    where = f"{path}: record {record.record}"
    for place in (path, _pending(path), path):
        try:
            content = place.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise PlanError(f"cannot read: {error.strerror}", where=where, fix=RESTORE) from error
        if digest(content) != record.plan_sha256:
            raise PlanError("the plan file is not the one that was added: it was edited", where=where, fix=RESTORE)
        return content
    raise PlanError("the plan file is missing", where=where, fix=RESTORE)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(exist_ok=True)
        stream = (folder / LOCK).open("wb")
    except OSError as error:
        raise UsageError(f"cannot write here: {error.strerror}", where=str(folder), fix="choose another DIR") from error
    with stream:
        until = time.monotonic() + PATIENCE_S
        while not _is_taken(stream.fileno()):
            if time.monotonic() > until:
                raise UsageError("another command adds to this history", where=str(folder), fix="try again")
            time.sleep(0.02)
        yield


def _is_taken(handle: int) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _settled(folder: Path) -> History:
    """The verified history with the last step of a killed `add` done; an empty one where none has begun."""
    if not (folder / LOG).exists():
        _require_no_plans(folder)
        return History(folder=folder)
    history = read_history(folder)
    for generation in history.added():
        path = _plan_path(folder, generation)
        if not path.exists():
            _pending(path).replace(path)
    return history
