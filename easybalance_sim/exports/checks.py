"""Rules that a placement file of any engine is held to, whether the engine looks or not.

Each engine says in its `RULES` what it does with a file that breaks a rule; a rule that it does not list means nothing
to it. `check_file` looks at the rows as they stand and believes none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.reading import is_whole, shown
from easybalance_sim.plan.lint import ERROR, INT16_SLOTS, KERNEL_EXPERTS, WARNING, Finding

NOT_INTEGER, RAGGED, NEGATIVE, RANGE, COVERAGE = "not-integer", "ragged", "negative", "range", "coverage"
DIVISIBILITY, DUPLICATE, REPLICAS, UNEVEN, DEVICES = "divisibility", "duplicate", "replicas", "uneven", "devices"
DECLARED, EXPECTED, REDUNDANT = "slots-declared", "slots-expected", "redundant"
LAYERS, EXTRA_LAYERS, MTP = "layers", "extra-layers", "mtp"
SLOT_LIMIT, EXPERT_LIMIT, REDUNDANT_LIMIT = "slot-limit", "expert-limit", "redundant-limit"
UNKNOWN_KEY, SUFFIX, DEVICE_ORDER, MOVED = "unknown-key", "suffix", "device-order", "moved"
CHECKSUM, EXPORTED_FOR, PLAN_FILE = "checksum", "exported-for", "plan-file"
FILLER, UNCHECKED, GROUPS, MODEL = "filler", "unchecked", "groups", "model"

MOST_REDUNDANT = 1023
"""vLLM's limit of `num_redundant_experts`."""

UNIVERSAL = (NOT_INTEGER, RAGGED, NEGATIVE, RANGE, COVERAGE, DIVISIBILITY, DUPLICATE, REPLICAS, EXPECTED, LAYERS)
"""Rules that every engine must say something about."""

HIDDEN, MOE, ABSOLUTE = "hidden", "moe", "absolute"
"""What a layer of a file is: a row per hidden layer, a row per MoE layer in order, or absolute ids of MoE layers."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What an engine does with a file that breaks a rule: `does` ends the sentence "<engine> …"."""

    level: str
    does: str


@dataclass(frozen=True, kw_only=True)
class Rules:
    """One engine's behaviour.

    engine: name and version · layers: `HIDDEN`, `MOE` or `ABSOLUTE` · effects: by rule name, see `UNIVERSAL` for
    those that must be there · source: the files that were read or run to know it · suffixes: file endings that the
    engine insists on · one_row: whether a single row stands for every layer · drafts: whether rows of draft (MTP)
    layers are loaded, too.
    """

    engine: str
    layers: str
    effects: Mapping[str, Effect]
    source: str
    suffixes: tuple[str, ...] = ()
    one_row: bool = False
    drafts: bool = False

    def found(self, rule: str, what: str, *, layer: int | None = None, slot: int | None = None) -> list[Finding]:
        """The finding "what; engine does", or none where `rule` means nothing to the engine."""
        effect = self.effects.get(rule)
        if effect is None:
            return []
        message = f"{what}; {self.engine} {effect.does}"
        return [Finding(level=effect.level, message=message, layer=layer, slot=slot, rule=rule)]


def check_file(rules: Rules, file: EngineFile, deployment: Deployment) -> list[Finding]:
    """Everything wrong with the rows of `file`, one finding per rule and layer, file-wide ones first.

    What is not known of the deployment is not checked, and a warning says so.
    """
    experts = deployment.experts or file.experts or _largest_id(file) + 1
    findings = [*file.findings, *_unchecked(file, deployment, experts)]
    if rules.suffixes and file.path.suffix not in rules.suffixes:
        findings += rules.found(SUFFIX, f"the name does not end in {' or '.join(rules.suffixes)}")
    findings += _shape(rules, file, deployment, experts)
    findings += _layers(rules, file, deployment)
    for row, layer in enumerate(file.layers):
        findings += _row(rules, file.rows[row], layer, experts, _places(file, row, deployment.ranks))
    return findings


def _largest_id(file: EngineFile) -> int:
    return max((value for row in file.rows for value in row if is_whole(value)), default=-1)


def _unchecked(file: EngineFile, deployment: Deployment, experts: int) -> Iterator[Finding]:
    messages = []
    if deployment.ranks is None and file.ranks_of_rows is None:
        messages.append("the number of ranks is not known: divisibility and duplicates are not checked (--ranks)")
    if deployment.experts is None and file.experts is None:
        messages.append(f"the number of experts is not known: taken as {experts}, the largest id + 1 (--experts)")
    if deployment.moe_layers is None and deployment.hidden_layers is None:
        messages.append("the model is not known: the number of layers is not checked (--model)")
    return (Finding(level=WARNING, message=message, rule=UNCHECKED) for message in messages)


def _shape(rules: Rules, file: EngineFile, deployment: Deployment, experts: int) -> list[Finding]:
    widths = Counter(len(row) for row in file.rows)
    if not widths:
        return rules.found(LAYERS, "the file has no layer")
    slots = widths.most_common(1)[0][0]
    findings = []
    for layer, row in zip(file.layers, file.rows, strict=True):
        if len(row) != slots:
            findings += rules.found(RAGGED, f"{len(row)} slots, other layers have {slots}", layer=layer)
    if file.slots is not None and file.slots != slots:
        findings += rules.found(DECLARED, f"{slots} slots, the file declares {file.slots}")
    findings += _redundancy(rules, file, deployment, slots, experts)
    findings += _ranks(rules, file, deployment, slots)
    if slots > INT16_SLOTS:
        findings += rules.found(SLOT_LIMIT, f"{slots} slots, more than {INT16_SLOTS}")
    if experts > KERNEL_EXPERTS:
        findings += rules.found(EXPERT_LIMIT, f"{experts} experts, more than {KERNEL_EXPERTS}")
    if slots - experts > MOST_REDUNDANT:
        findings += rules.found(REDUNDANT_LIMIT, f"{slots - experts} redundant slots, more than {MOST_REDUNDANT}")
    return findings


def _redundancy(rules: Rules, file: EngineFile, deployment: Deployment, slots: int, experts: int) -> list[Finding]:
    findings = []
    if file.redundant is not None and file.redundant != slots - experts:
        findings += rules.found(
            REDUNDANT, f"{slots} slots for {experts} experts, the file declares {file.redundant} redundant ones"
        )
    if deployment.redundant is not None and slots != experts + deployment.redundant:
        findings += rules.found(
            EXPECTED, f"{slots} slots, the engine is told {experts} experts + {deployment.redundant} redundant ones"
        )
    return findings


def _ranks(rules: Rules, file: EngineFile, deployment: Deployment, slots: int) -> list[Finding]:
    if file.ranks_of_rows is None:
        if deployment.ranks is not None and (deployment.ranks < 1 or slots % deployment.ranks):
            return rules.found(DIVISIBILITY, f"{slots} slots on {deployment.ranks} ranks")
        return []
    findings = []
    listed = Counter(len(devices) for devices in file.ranks_of_rows).most_common(1)[0][0]
    for layer, devices in zip(file.layers, file.ranks_of_rows, strict=True):
        if deployment.ranks not in (None, len(devices)):
            findings += rules.found(DEVICES, f"{len(devices)} devices for {deployment.ranks} ranks", layer=layer)
        elif deployment.ranks is None and len(devices) != listed:
            findings += rules.found(DEVICES, f"{len(devices)} devices, other layers have {listed}", layer=layer)
        if len(set(devices)) > 1:
            message = f"devices of {min(devices)} to {max(devices)} slots"
            findings += rules.found(UNEVEN, message, layer=layer)
    return findings


def _layers(rules: Rules, file: EngineFile, deployment: Deployment) -> list[Finding]:
    if rules.layers == HIDDEN:
        return _hidden_rows(rules, file, deployment)
    if rules.layers == MOE and set(file.layers) != set(range(len(file.layers))):
        what = f"{len(file.layers)} rows are numbered {min(file.layers)} to {max(file.layers)}, not from 0 without gaps"
        return rules.found(LAYERS, what)
    if deployment.moe_layers is None:
        return []
    if rules.layers == ABSOLUTE:
        return _absolute_layers(rules, file, deployment.moe_layers, deployment.mtp_layers)
    rows, wanted, mtp = len(file.rows), len(deployment.moe_layers), len(deployment.mtp_layers)
    if rows == wanted and mtp:
        return rules.found(MTP, f"no row for MTP layer {deployment.mtp_layers[0]}")
    if rows in (wanted, wanted + mtp):
        return []
    return rules.found(LAYERS if rows < wanted else EXTRA_LAYERS, f"{rows} layers, the model has {wanted} MoE layers")


def _hidden_rows(rules: Rules, file: EngineFile, deployment: Deployment) -> list[Finding]:
    rows, wanted = len(file.rows), deployment.layers_with_drafts if rules.drafts else deployment.hidden_layers
    if wanted is None:
        least = max(deployment.moe_layers or (), default=-1) + 1
        if rows < least:
            return rules.found(LAYERS, f"{rows} rows, the last MoE layer has id {least - 1}")
        return []
    if rows == wanted:
        return []
    return rules.found(LAYERS if rows < wanted else EXTRA_LAYERS, f"{rows} rows, the model has {wanted} layers")


def _absolute_layers(
    rules: Rules, file: EngineFile, moe_layers: Sequence[int], mtp_layers: Sequence[int]
) -> list[Finding]:
    findings, has = [], set(file.layers)
    for layer in sorted(set(moe_layers) - has):
        findings += rules.found(LAYERS, "the layer has no row", layer=layer)
    for layer in sorted(set(mtp_layers) - has):
        findings += rules.found(MTP, "the MTP layer has no row", layer=layer)
    for layer in sorted(has.difference(moe_layers, mtp_layers)):
        findings += rules.found(EXTRA_LAYERS, "the model has no MoE layer of this id", layer=layer)
    return findings


def _places(file: EngineFile, row: int, ranks: int | None) -> list[int] | None:
    """The rank of each slot of a row, None where the slots cannot be dealt to ranks."""
    slots = len(file.rows[row])
    if file.ranks_of_rows is not None:
        return [rank for rank, count in enumerate(file.ranks_of_rows[row]) for _ in range(count)]
    if not ranks or ranks < 1 or slots % ranks:
        return None
    return [slot // (slots // ranks) for slot in range(slots)]


def _row(
    rules: Rules, row: Sequence[Any], layer: int, experts: int, rank_of_slot: Sequence[int] | None
) -> list[Finding]:
    if not row:
        return [Finding(level=ERROR, message="the layer has no slots", layer=layer, rule=COVERAGE)]
    wrong = [slot for slot, value in enumerate(row) if not is_whole(value)]
    if wrong:
        return _no_ids(rules, row[wrong[0]], len(wrong), layer, wrong[0])
    findings = []
    below = [slot for slot, value in enumerate(row) if value < 0]
    if below:
        findings += rules.found(NEGATIVE, f"expert {row[below[0]]}{_more(len(below))}", layer=layer, slot=below[0])
    above = [slot for slot, value in enumerate(row) if value >= experts]
    if above:
        what = f"expert {row[above[0]]} is not in 0..{experts - 1}{_more(len(above))}"
        findings += rules.found(RANGE, what, layer=layer, slot=above[0])
    findings += _coverage(rules, row, layer, experts)
    # An id that is none is no second copy either, and would only be reported twice.
    if rank_of_slot is None or below or above:
        return findings
    return findings + _replicas(rules, row, layer, rank_of_slot)


def _no_ids(rules: Rules, first: object, wrong: int, layer: int, slot: int) -> list[Finding]:
    if type(first) is int:
        message = f"{shown(first)} is beyond 64 bits{_more(wrong)}"
        return [Finding(level=ERROR, message=message, layer=layer, slot=slot, rule=NOT_INTEGER)]
    return rules.found(NOT_INTEGER, f"{shown(first)} is not a whole number{_more(wrong)}", layer=layer, slot=slot)


def _coverage(rules: Rules, row: Sequence[int], layer: int, experts: int) -> list[Finding]:
    served = {value for value in row if 0 <= value < experts}
    if len(served) == experts:
        return []
    # An id of a damaged file can make `experts` astronomical: never list them all.
    first = next(expert for expert in range(len(served) + 1) if expert not in served)
    what = f"expert {first} has no replica{_more(experts - len(served))}"
    return rules.found(COVERAGE, what, layer=layer)


def _replicas(rules: Rules, row: Sequence[int], layer: int, rank_of_slot: Sequence[int]) -> list[Finding]:
    seen: dict[tuple[int, int], int] = {}
    doubled = []
    for slot, place in enumerate(zip(rank_of_slot, row, strict=True)):
        if seen.setdefault(place, slot) != slot:
            doubled.append(slot)
    if not doubled:
        return []
    rank, expert = rank_of_slot[doubled[0]], row[doubled[0]]
    what = f"expert {expert} is already on rank {rank} (slot {seen[rank, expert]}){_more(len(doubled))}"
    findings = rules.found(DUPLICATE, what, layer=layer, slot=doubled[0])
    ranks = rank_of_slot[-1] + 1
    crowded = sorted(expert for expert, count in Counter(row).items() if count > ranks)
    if crowded:
        what = f"expert {crowded[0]} has {row.count(crowded[0])} replicas on {ranks} ranks{_more(len(crowded))}"
        findings += rules.found(REPLICAS, what, layer=layer)
    return findings


def _more(count: int) -> str:
    return f" ({count - 1} more in this layer)" if count > 1 else ""
