"""Values of a routing trace and the metadata that travels with it (trace format version 1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int16Array, Int32Array, IntArray, sealed
from easybalance_sim.errors import TraceError

METADATA_KEY = b"ebsim.trace"
VERSION = 1
_LAYERS = 1 << 16
PREFILL, DECODE, UNKNOWN_PHASE = 0, 1, 2
PHASES = ("prefill", "decode", "unknown")
NO_WORKLOAD = "(none)"


_FORMULA = re.compile(r"score = value( */ *(?P<parts>\d+(\.\d+)?))?( *(?P<shift>[+-] *\d+(\.\d+)?))?( *;.*)?")


class ScoreMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What column `all_scores` holds: score = value · scale + shift, of the scores by which experts are chosen.

    dtype: "float16" or "uint16" · bias: [L][E] what is in the scores but not in the gate weights (DeepSeek-V3's
    correction), empty = nothing · formula: "score = value/1024 - 0.5" is how some recorders say scale and shift;
    `decode_meta` puts them in its place.
    """

    dtype: str = "float16"
    scale: float = 1.0
    shift: float = 0.0
    bias: tuple[tuple[float, ...], ...] = ()
    formula: str | msgspec.UnsetType = msgspec.UNSET


class TraceMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What the file metadata key `ebsim.trace` says.

    layers: absolute ids of the MoE layers · experts: E · top_k: K · groups / topk_group: expert groups of
    group-limited routing · dtype: "uint8" (E ≤ 256) or "uint16" · ids: "logical", or "physical" with the plan in
    force named · ranks: R of the recording, 0 = unknown · hidden / intermediate / weight_dtype / matrices: the model's
    widths where the recorder knew them (0 or "" = unknown) · origin: how the trace was made (settings, seeds) ·
    all_scores: of a trace with such a column.
    """

    kind: str
    layers: tuple[int, ...]
    experts: int
    top_k: int
    version: int = VERSION
    model: str = "unknown"
    model_revision: str = ""
    groups: int = 1
    topk_group: int = 1
    dtype: str = "uint8"
    engine: str = ""
    recorder: str = ""
    ids: str = "logical"
    plan_in_force: str = ""
    ranks: int = 0
    hidden: int = 0
    intermediate: int = 0
    matrices: int = 3
    weight_dtype: str = ""
    origin: dict[str, Any] = {}
    all_scores: ScoreMeta | msgspec.UnsetType = msgspec.UNSET

    def encode(self) -> bytes:
        """The JSON bytes stored under `METADATA_KEY` (keys sorted)."""
        return msgspec.json.encode(self, order="sorted")


def decode_meta(raw: bytes, where: str) -> TraceMeta:
    """Parse the metadata JSON. Raises `TraceError` naming the file and the field; unknown fields are ignored."""
    try:
        meta = msgspec.json.decode(raw, type=TraceMeta)
    except msgspec.DecodeError as error:
        raise TraceError(
            f"metadata key ebsim.trace: {error}", where=where, fix="rewrite with `ebsim trace convert`"
        ) from error
    meta = _without_formula(meta, where)
    check_meta(meta, where)
    return meta


def _without_formula(meta: TraceMeta, where: str) -> TraceMeta:
    """The same with scale and shift in place of a formula; what follows a semicolon in it is a remark."""
    held = meta.all_scores
    if isinstance(held, msgspec.UnsetType) or isinstance(held.formula, msgspec.UnsetType):
        return meta
    found = _FORMULA.fullmatch(held.formula.strip())
    if found is None or not float(found["parts"] or 1):
        raise TraceError(
            f"metadata key ebsim.trace: all_scores have formula {held.formula!r}",
            where=where,
            fix='write it as "score = value/1024 - 0.5", or give scale and shift',
        )
    scale, shift = 1 / float(found["parts"] or 1), float((found["shift"] or "0").replace(" ", ""))
    held = msgspec.structs.replace(held, scale=scale, shift=shift, formula=msgspec.UNSET)
    return msgspec.structs.replace(meta, all_scores=held)


def check_meta(meta: TraceMeta, where: str) -> None:
    """Raise `TraceError` when the numbers of the metadata contradict each other."""
    problem = ""
    if meta.version != VERSION:
        problem = f"trace format version {meta.version}, this ebsim reads version {VERSION}"
    elif meta.kind not in ("tokens", "counts"):
        problem = f"kind is {meta.kind!r}, expected 'tokens' or 'counts'"
    elif not _are_layers(meta.layers):
        problem = "layers must be distinct ids ≥ 0, at least one"
    elif not 1 <= meta.experts <= 65536:
        problem = f"experts is {meta.experts}, expected 1..65536"
    elif not 1 <= meta.top_k <= meta.experts:
        problem = f"top_k is {meta.top_k} with {meta.experts} experts"
    elif meta.dtype not in ("uint8", "uint16") or (meta.dtype == "uint8" and meta.experts > 256):
        problem = f"dtype {meta.dtype!r} cannot hold {meta.experts} experts"
    elif meta.groups < 1 or meta.experts % meta.groups:
        problem = f"{meta.experts} experts do not fall into {meta.groups} groups"
    elif not 1 <= meta.topk_group <= meta.groups:
        problem = f"topk_group is {meta.topk_group} of {meta.groups} groups"
    elif meta.all_scores is not msgspec.UNSET and meta.all_scores.dtype not in ("float16", "uint16"):
        problem = f"all_scores are {meta.all_scores.dtype!r}, expected 'float16' or 'uint16'"
    elif meta.ranks < 0:
        problem = f"ranks is {meta.ranks}, expected a number of ranks, or 0 for unknown"
    if problem:
        raise TraceError(f"metadata key ebsim.trace: {problem}", where=where, fix="rewrite with `ebsim trace convert`")


def _are_layers(ids: tuple[int, ...]) -> bool:
    return 0 < len(ids) == len(set(ids)) and min(ids) >= 0 and max(ids) < _LAYERS


def id_dtype(experts: int) -> str:
    """The narrowest id dtype of trace format version 1 for E experts."""
    return "uint8" if experts <= 256 else "uint16"


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenBatch:
    """Consecutive rows of a token trace, always whole steps.

    step: int32[T] · request: int64[T] · position: int32[T] · phase: uint8[T] index into `PHASES` ·
    source_rank: int16[T], -1 unknown · workload: int16[T] index into the trace's `workloads` ·
    experts: uint8|uint16[T, L, K] logical ids, sorted by gate weight · gates: float16[T, L, K] or None ·
    time_s: float64[T] or None · all_scores: [T, L, E] as `ScoreMeta` says, or None · runner_up: uint8|uint16[T, L, M]
    the next experts and runner_up_scores: float16[T, L, M] their scores, or None · selection_scores: float16[T, L, K]
    those of the chosen experts in the order of `experts`, or None · first_row: row number of the first token in the
    trace.
    """

    step: Int32Array
    request: IntArray
    position: Int32Array
    phase: AnyArray
    source_rank: Int16Array
    workload: Int16Array
    experts: AnyArray
    gates: AnyArray | None = None
    time_s: FloatArray | None = None
    all_scores: AnyArray | None = None
    runner_up: AnyArray | None = None
    runner_up_scores: AnyArray | None = None
    selection_scores: AnyArray | None = None
    first_row: int = 0

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.step)

    @property
    def step_starts(self) -> IntArray:
        """int64[W] the row with which each step begins."""
        changes: IntArray = np.flatnonzero(self.step[1:] != self.step[:-1]) + 1
        return np.concatenate([np.zeros(min(1, self.tokens), np.int64), changes])

    def select(self, rows: AnyArray | slice) -> TokenBatch:
        """The rows given by a boolean mask, an index array or a slice; arrays stay read-only."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        kept: dict[str, Any] = {name: None if c is None else sealed(c[rows]) for name, c in columns.items()}
        return TokenBatch(**kept, first_row=self.first_row)


SCORES = ("all_scores", "runner_up", "runner_up_scores", "selection_scores")
COLUMNS = ("step", "request", "position", "phase", "source_rank", "workload", "experts", "gates", "time_s", *SCORES)


def joined_batches(parts: Sequence[TokenBatch]) -> TokenBatch:
    """One batch of several that follow each other; columns that one of them lacks are left out."""
    if len(parts) == 1:
        return parts[0]

    def all_of(name: str) -> AnyArray | None:
        columns = [getattr(part, name) for part in parts]
        return None if any(column is None for column in columns) else sealed(np.concatenate(columns))

    columns: dict[str, Any] = {name: all_of(name) for name in COLUMNS}
    return TokenBatch(**columns, first_row=parts[0].first_row)


@dataclass(frozen=True, kw_only=True, eq=False)
class CountTrace:
    """A whole count trace (small by nature).

    tokens: int64[W, L, E] assignments per window · window: int64[W] ids · start_s, span_s: float64[W] ·
    phase: uint8[W] index into `PHASES` · workload: int16[W] index into `workloads` · batch_tokens: int64[W] tokens of
    the window (assignments / K where the file does not say).
    """

    meta: TraceMeta
    paths: tuple[str, ...]
    tokens: IntArray
    window: IntArray
    start_s: FloatArray
    span_s: FloatArray
    phase: AnyArray
    workload: Int16Array
    batch_tokens: IntArray
    workloads: tuple[str, ...] = (NO_WORKLOAD,)
    notes: tuple[str, ...] = field(default=())


def phase_code(name: str) -> int:
    """Index of a phase name in `PHASES`; any other name is `UNKNOWN_PHASE`."""
    return PHASES.index(name) if name in PHASES else UNKNOWN_PHASE


def as_ids(values: Any, experts: int) -> AnyArray:
    """Expert ids in the narrowest dtype of the format."""
    return np.ascontiguousarray(values, dtype=id_dtype(experts))
