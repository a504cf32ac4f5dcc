"""Dumps of SGLang's expert distribution recorder, read and checked; what they mean stands in the SGLang 0.5.23 source,
`srt/eplb/expert_distribution.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.array_files import as_counts
from easybalance_sim.trace.slot_map import SlotMap
from easybalance_sim.trace.torch_files import read_pt

STAT, PER_PASS, PER_TOKEN = "stat", "per_pass", "per_token"
MAP = "last_physical_to_logical_map"
DUMP_AGAIN = "dump it again"
_MOST_PASS, _MOST_RANK = 2**31 - 1, 2**15 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """One forward pass as one rank recorded it.

    pass_id, rank: as recorded · counts: int[H, P] tokens per slot, row = layer id · content: the whole record ·
    place: file and record, for messages.
    """

    pass_id: int
    rank: int
    counts: AnyArray
    content: Mapping[str, Any]
    place: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Passes:
    """All passes of all ranks of one run, by pass and rank.

    copies: ranks that recorded the same tokens, of which only the first is kept; else 1 · notes: for the user.
    """

    mode: str
    passes: tuple[Pass, ...]
    slots: SlotMap
    copies: int
    notes: tuple[str, ...]


def read_dumps(source: Path) -> tuple[str, list[tuple[Path, dict[str, Any]]]]:
    """The mode that recorded, told from the keys, and the files with their content, oldest first.

    Raises `TraceError` when the folder holds no dump, files of several modes, or another kind of file.
    """
    if not source.exists():
        raise TraceError("no such file or folder", where=str(source), fix="check the path")
    paths = sorted(source.glob("*.pt"), key=_by_number) if source.is_dir() else [source]
    if not paths:
        raise TraceError("folder holds no .pt file", where=str(source), fix="name the recorder's folder")
    files = [(path, _dictionary(read_pt(path), path)) for path in paths]
    modes = {path: mode for path, content in files if (mode := _mode(content, path))}
    if len(set(modes.values())) > 1 or (STAT in modes.values() and len(modes) < len(files)):
        found = ", ".join(sorted({modes.get(path, "empty") for path in paths}))
        raise TraceError(f"dumps of several modes ({found})", where=str(source), fix="give the files of one run")
    if not modes:
        raise TraceError("no pass was recorded", where=str(source), fix="record while requests are served")
    return next(iter(modes.values())), files


def read_passes(source: Path, mode: str, files: Sequence[tuple[Path, dict[str, Any]]], experts: int | None) -> Passes:
    """The passes of a run; experts: E as the user says it, else the highest id in the map + 1.

    Raises `TraceError` for a pass that a rank recorded twice, for ranks with different maps and for missing ranks.
    """
    slots = _one_map(files, experts)
    passes = [one for path, content in files for one in _passes(content, path, slots)]
    passes.sort(key=lambda one: (one.pass_id, one.rank))
    _require_distinct(passes, source)
    ranks = sorted({one.rank for one in passes})
    if ranks != list(range(len(ranks))) and len(files) > 1:
        missing = min(set(range(max(ranks))) - set(ranks))
        raise TraceError(f"the dump of rank {missing} is missing", where=str(source), fix="put all ranks in one folder")
    copies = len(ranks) if _alike(passes, len(ranks)) else 1
    notes = _notes(passes, ranks, slots, copies)
    kept = tuple(one for one in passes if copies == 1 or one.rank == ranks[0])
    return Passes(mode=mode, passes=kept, slots=slots, copies=copies, notes=notes)


def stat_counts(files: Sequence[tuple[Path, dict[str, Any]]]) -> IntArray:
    """int64[B, H, E] of the `stat` and `stat_approx` modes; several dumps follow each other.

    Without the axis of passes, as SGLang takes it too, a dump is one sum.
    """
    counts = [as_counts(content["logical_count"], str(path), "logical_count") for path, content in files]
    counts = [one[None] if one.ndim == 2 else one for one in counts]
    for (path, _), one in zip(files, counts, strict=True):
        if one.ndim != 3 or not one.size or one.shape[1:] != counts[0].shape[1:]:
            raise TraceError(
                f"logical_count has shape {list(one.shape)}, expected passes × layers × experts as in every dump",
                where=str(path),
                fix=DUMP_AGAIN,
            )
    return np.concatenate(counts)


def whole(content: Mapping[str, Any], key: str, most: int, place: str) -> int:
    """A whole number of 0..most. Raises `TraceError` for anything else."""
    value = content.get(key)
    if type(value) is not int or not 0 <= value <= most:
        shown = repr(value)[:40] if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"
        raise TraceError(f"{key} is {shown}, expected 0..{most}", where=place, fix=DUMP_AGAIN)
    return value


def _by_number(path: Path) -> tuple[list[float], str]:
    """Dumps are named by their time and rank."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", path.stem)], path.name


def _dictionary(content: Any, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise TraceError("no dump of SGLang's recorder: holds no dictionary", where=str(path), fix=DUMP_AGAIN)
    return content


def _mode(content: dict[str, Any], path: Path) -> str:
    """The mode that wrote a dump; "" for a rank that recorded no pass."""
    if isinstance(content.get("logical_count"), np.ndarray):
        return STAT
    if "physical_to_logical_map" in content:
        raise TraceError("a placement, no recording", where=str(path), fix="give a dump of the recorder")
    records = content.get("records")
    if not isinstance(records, list) or MAP not in content or not all(isinstance(one, dict) for one in records):
        keys = ", ".join(sorted(content)) or "none"
        raise TraceError(f"no dump of SGLang's recorder (keys: {keys})"[:200], where=str(path), fix=DUMP_AGAIN)
    detailed = {"topk_ids_of_layer" in one for one in records}
    if len(detailed) > 1:
        raise TraceError("only some records hold tokens", where=str(path), fix=DUMP_AGAIN)
    return {True: PER_TOKEN, False: PER_PASS}[detailed.pop()] if detailed else ""


def _one_map(files: Sequence[tuple[Path, dict[str, Any]]], experts: int | None) -> SlotMap:
    first_path, first = files[0]
    rows = _map(first[MAP], first_path)
    for path, content in files[1:]:
        if not np.array_equal(_map(content[MAP], path), rows):
            raise TraceError(
                f"{MAP} differs from that of {first_path.name}",
                where=str(path),
                fix="give the files of one run, dumped between two rebalances",
            )
    return SlotMap(
        expert_of_slot=rows.astype(np.int64), experts=experts or int(rows.max()) + 1, name=f"{first_path}: {MAP}"
    )


def _map(value: Any, path: Path) -> AnyArray:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.ndim != 2 or not value.size:
        raise TraceError(f"{MAP} is no matrix of ids", where=str(path), fix=DUMP_AGAIN)
    return value


def _passes(content: Mapping[str, Any], path: Path, slots: SlotMap) -> list[Pass]:
    found = []
    for number, record in enumerate(content["records"]):
        place = f"{path}: record {number}"
        counts: Any = record.get("global_physical_count")
        # Checked, and kept in the narrow type of the recorder: a run may hold gigabytes of them.
        as_counts(counts, place, "global_physical_count")
        if counts.shape != slots.expert_of_slot.shape:
            raise TraceError(
                f"global_physical_count has shape {list(counts.shape)}, the map {list(slots.expert_of_slot.shape)}",
                where=place,
                fix=DUMP_AGAIN,
            )
        pass_id, rank = (
            whole(record, key, most, place) for key, most in (("forward_pass_id", _MOST_PASS), ("rank", _MOST_RANK))
        )
        found.append(Pass(pass_id=pass_id, rank=rank, counts=counts, content=record, place=place))
    return found


def _require_distinct(passes: Sequence[Pass], source: Path) -> None:
    for one, two in itertools.pairwise(passes):
        if (one.pass_id, one.rank) == (two.pass_id, two.rank):
            raise TraceError(
                f"pass {one.pass_id} of rank {one.rank} stands twice: {one.place} and {two.place}",
                where=str(source),
                fix="give each run a folder of its own",
            )


def _alike(passes: Sequence[Pass], ranks: int) -> bool:
    """Whether all ranks recorded the same in every pass, as they do where each of them sees all tokens."""
    if ranks < 2 or len(passes) % ranks or not any(one.counts.any() for one in passes):
        return False
    groups = [passes[start : start + ranks] for start in range(0, len(passes), ranks)]
    return all(
        len({one.pass_id for one in group}) == 1
        and all(np.array_equal(one.counts, group[0].counts) for one in group)
        and all(np.array_equal(_tokens(one), _tokens(group[0])) for one in group)
        for group in groups
    )


def _tokens(one: Pass) -> AnyArray:
    return np.asarray(one.content.get("topk_ids_of_layer", ()))


def _notes(passes: Sequence[Pass], ranks: list[int], slots: SlotMap, copies: int) -> tuple[str, ...]:
    notes = []
    ids = {one.pass_id for one in passes}
    if copies > 1:
        notes.append(f"all {copies} ranks recorded the same tokens, as without an all-to-all backend: counted once")
    elif len(ranks) == 1:
        notes.append(f"holds rank {ranks[0]} only: other ranks' files of the run belong into the same folder")
    elif len(ids) * len(ranks) != len(passes):
        notes.append("some passes lack a rank: they hold fewer tokens than were served")
    if not (slots.expert_of_slot == np.arange(slots.slots)).all():
        notes.append(
            "slots are led back by the map at the end of the recording: passes before a rebalance would be led wrongly"
        )
    return tuple(notes)
