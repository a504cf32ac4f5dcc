"""The plan file: one canonical JSON object that carries a placement and all that was proven about it.

Every layer has a checksum and the whole content a sha256 fingerprint, so a file that was cut short, edited by hand or
mixed with another one is refused before an engine loads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from easybalance_sim import __version__
from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import EbsimError, PlanError
from easybalance_sim.files import write_text
from easybalance_sim.plan import canonical
from easybalance_sim.plan.plan import Plan

FORMAT = "ebsim.plan"
VERSION = 1
CHECKSUM_DIGITS = 16

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class TopologyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster that the plan was made for; fields as in `Topology`."""

    ranks: Count
    node_of_rank: tuple[Count, ...]
    slots_per_rank: tuple[Count, ...]
    speed: tuple[float, ...]
    profile: str
    hbm_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**53)]

    @classmethod
    def of(cls, topology: Topology) -> TopologyRecord:
        """The record of a live topology."""
        return cls(
            ranks=topology.ranks,
            node_of_rank=tuple(topology.node_of_rank.tolist()),
            slots_per_rank=tuple(topology.slots_per_rank.tolist()),
            speed=tuple(topology.speed.tolist()),
            profile=topology.profile,
            hbm_bytes=topology.hbm_bytes,
        )

    def topology(self) -> Topology:
        """The live topology. Raises `UsageError` when the record contradicts itself."""
        return Topology(
            node_of_rank=np.array(self.node_of_rank),
            slots_per_rank=np.array(self.slots_per_rank),
            speed=np.array(self.speed),
            profile=self.profile,
            hbm_bytes=self.hbm_bytes,
        )


class LayerRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MoE layer: its absolute id, the expert in each slot, and a short checksum over both."""

    layer: int
    expert_of_slot: tuple[int, ...]
    checksum: str


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The traffic that the plan was made from and judged on.

    fingerprint: sha256 of the trace · files: as given by the user · file_fingerprints: sha256 of each ·
    fit, held_out: the ranges of either side ·
    split: the settings that drew the line between them.
    """

    fingerprint: str
    files: tuple[str, ...]
    file_fingerprints: tuple[str, ...]
    fit: dict[str, Any]
    held_out: dict[str, Any]
    split: dict[str, Any]


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a plan file holds, its fingerprint aside; build one with `document`.

    generation: 1 for a plan without a parent, otherwise the parent's + 1 · plan_slots_per_rank: slots that the plan
    fills on each rank, at most the topology's · replica_counts: [L][E] · dispatch: the replica-choice rule it was
    judged under · evidence: the replay report · verdict, migration: as the command line prints them · parent_ranks: the
    rank of the parent that each rank was, when ranks were lost; otherwise left out of the file.
    """

    format: str
    version: int
    tool_version: str
    model: str
    model_revision: str
    phase: str
    policy: str
    generation: Count
    parent_fingerprint: str | None
    experts: Count
    topology: TopologyRecord
    plan_slots_per_rank: tuple[Count, ...]
    layers: tuple[LayerRecord, ...]
    replica_counts: tuple[tuple[int, ...], ...]
    dispatch: str
    trace: TraceRecord
    evidence: dict[str, Any]
    verdict: dict[str, Any]
    migration: dict[str, Any]
    parent_ranks: tuple[Count, ...] | None = None

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Absolute ids of the MoE layers, in the order of the plan's rows."""
        return tuple(record.layer for record in self.layers)

    def fingerprint(self) -> str:
        """sha256 over the canonical content."""
        return canonical.digest(msgspec.to_builtins(self))

    def plan(self) -> Plan:
        """The placement. Raises `PlanError` when it breaks an invariant."""
        return Plan(
            expert_of_slot=np.array([record.expert_of_slot for record in self.layers], np.int32),
            slots_per_rank=np.array(self.plan_slots_per_rank, np.int64),
            experts=self.experts,
            policy=self.policy,
        )


def document(
    plan: Plan,
    *,
    layer_ids: Sequence[int],
    topology: Topology,
    trace: TraceRecord,
    dispatch: str,
    evidence: Mapping[str, Any],
    verdict: Mapping[str, Any],
    migration: Mapping[str, Any],
    model: str = "unknown",
    model_revision: str = "",
    phase: str = "",
    parent: PlanDocument | None = None,
    parent_ranks: IntArray | None = None,
) -> PlanDocument:
    """Everything a plan file says about `plan`; `parent` is the plan in force that it would replace, parent_ranks
    (int64[R]) which of its ranks are left.

    Raises `PlanError` for a report that JSON cannot hold (a number that is not finite, say).
    """
    if len(layer_ids) != plan.layers:
        raise PlanError(f"{len(layer_ids)} layer ids for {plan.layers} layers", where=plan.policy)
    rows = zip(layer_ids, plan.expert_of_slot.tolist(), strict=True)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "tool_version": __version__,
        "model": model,
        "model_revision": model_revision,
        "phase": phase,
        "policy": plan.policy,
        "generation": 1 if parent is None else parent.generation + 1,
        "parent_fingerprint": None if parent is None else parent.fingerprint(),
        "experts": plan.experts,
        "topology": msgspec.to_builtins(TopologyRecord.of(topology)),
        "plan_slots_per_rank": plan.slots_per_rank,
        "layers": [{"layer": layer, "expert_of_slot": row, "checksum": checksum(layer, row)} for layer, row in rows],
        "replica_counts": plan.replicas,
        "dispatch": dispatch,
        "trace": msgspec.to_builtins(trace),
        "evidence": evidence,
        "verdict": verdict,
        "migration": migration,
        "parent_ranks": None if parent_ranks is None else parent_ranks.tolist(),
    }
    return msgspec.convert(canonical.plain(content), PlanDocument)


def checksum(layer: int, expert_of_slot: Sequence[int]) -> str:
    """16 hex digits of the sha256 over one layer's id and slots."""
    content = {"layer": int(layer), "expert_of_slot": list(expert_of_slot)}
    return canonical.digest(content)[:CHECKSUM_DIGITS]


def write_plan(path: Path, doc: PlanDocument) -> str:
    """Write `doc` to `path` whole or not at all; returns the fingerprint.

    Raises `PlanError` when the content contradicts itself, `UsageError` when `path` cannot be written.
    """
    _verify(doc, str(path))
    fingerprint = doc.fingerprint()
    write_text(path, canonical.render({**msgspec.to_builtins(doc), "fingerprint": fingerprint}))
    return fingerprint


def read_plan(path: Path) -> PlanDocument:
    """Read and verify a plan file.

    Raises `PlanError`, one line that names the file and the field, layer or slot, for anything but a whole plan file
    of this version whose checksums, replica counts and fingerprint hold.
    """
    where = str(path)
    content = _decode(path)
    _require_version(content, where)
    fingerprint = content.pop("fingerprint", None)
    try:
        doc = msgspec.convert(content, PlanDocument)
    except msgspec.ValidationError as error:
        raise PlanError(f"not a plan: {error}", where=where, fix=_REMAKE) from error
    _verify(doc, where)
    if fingerprint != doc.fingerprint():
        raise PlanError("the content does not match its fingerprint: it was edited", where=where, fix=_REMAKE)
    return doc


_REMAKE = "write it again with `ebsim plan`"


def _decode(path: Path) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"not JSON, or cut short: {error}", where=str(path), fix=_REMAKE) from error
    if not isinstance(content, dict):
        raise PlanError("the file holds no JSON object", where=str(path), fix=_REMAKE)
    return content


_NO_PLAN = "give a plan file; such settings never go into one"


def refuse_lossy(content: Mapping[str, Any], where: str, fix: str = _NO_PLAN) -> None:
    """Raise `PlanError` for what changes the experts that tokens get: it never stands in for a plan."""
    if content.get("lossy") is True:
        raise PlanError(
            "holds lossy router settings, which change what experts tokens get, and no placement",
            where=where,
            fix=fix,
        )


def _require_version(content: Mapping[str, Any], where: str) -> None:
    refuse_lossy(content, where)
    if content.get("format") != FORMAT:
        raise PlanError(f'not a plan file: field "format" is not "{FORMAT}"', where=where, fix=_REMAKE)
    if content.get("version") != VERSION:
        found = content.get("version")
        raise PlanError(f"plan format version {found!r}, this ebsim reads version {VERSION}", where=where, fix=_REMAKE)


def _verify(doc: PlanDocument, where: str) -> None:
    _verify_header(doc, where)
    for row, record in enumerate(doc.layers):
        place = f"{where}: layer {record.layer}"
        _verify_slots(doc, record, place)
        if record.checksum != checksum(record.layer, record.expert_of_slot):
            raise PlanError("the slots do not match their checksum: they were edited", where=place, fix=_REMAKE)
        _verify_counts(record, doc.replica_counts[row], doc.experts, place)


def _verify_header(doc: PlanDocument, where: str) -> None:
    problem = ""
    ranks = {doc.topology.ranks, len(doc.topology.node_of_rank), len(doc.plan_slots_per_rank)}
    if not doc.layers or len(set(doc.layer_ids)) != len(doc.layers):
        problem = "layers must be distinct, at least one"
    elif len(doc.replica_counts) != len(doc.layers):
        problem = f"replica_counts has {len(doc.replica_counts)} rows for {len(doc.layers)} layers"
    elif len(ranks) != 1:
        problem = "topology.ranks, topology.node_of_rank and plan_slots_per_rank disagree on the number of ranks"
    elif not 1 <= doc.experts <= sum(doc.plan_slots_per_rank) or min(doc.plan_slots_per_rank) < 1:
        problem = f"plan_slots_per_rank must be ≥ 1 on every rank and hold all {doc.experts} experts"
    elif (doc.generation == 1) != (doc.parent_fingerprint is None) or doc.generation < 1:
        problem = f"generation {doc.generation} does not fit parent_fingerprint {doc.parent_fingerprint}"
    elif doc.parent_ranks is not None and not _are_survivors(doc):
        problem = "parent_ranks must be rising, one per rank, and have a parent"
    if problem:
        raise PlanError(problem, where=where, fix=_REMAKE)
    try:
        doc.topology.topology()
    except EbsimError as error:
        raise PlanError(f"topology: {error.what}", where=where, fix=_REMAKE) from error


def _are_survivors(doc: PlanDocument) -> bool:
    left = doc.parent_ranks or ()
    return doc.generation > 1 and len(left) == doc.topology.ranks and list(left) == sorted(set(left))


def _verify_slots(doc: PlanDocument, record: LayerRecord, place: str) -> None:
    slots = sum(doc.plan_slots_per_rank)
    if len(record.expert_of_slot) != slots:
        found = len(record.expert_of_slot)
        raise PlanError(f"{found} slots, plan_slots_per_rank adds up to {slots}", where=place, fix=_REMAKE)
    for slot, expert in enumerate(record.expert_of_slot):
        if not 0 <= expert < doc.experts:
            raise PlanError(f"expert {expert} is not in 0..{doc.experts - 1}", where=f"{place}, slot {slot}")
    missing = set(range(doc.experts)).difference(record.expert_of_slot)
    if missing:
        raise PlanError(f"expert {min(missing)} has no replica", where=place, fix="give it a slot")


def _verify_counts(record: LayerRecord, counts: tuple[int, ...], experts: int, place: str) -> None:
    if len(counts) != experts:
        raise PlanError(f"replica_counts has {len(counts)} entries for {experts} experts", where=place, fix=_REMAKE)
    actual = np.bincount(record.expert_of_slot, minlength=experts).tolist()
    for expert, (found, said) in enumerate(zip(actual, counts, strict=True)):
        if found != said:
            raise PlanError(f"expert {expert} has {found} replicas, not {said}", where=place, fix=_REMAKE)
