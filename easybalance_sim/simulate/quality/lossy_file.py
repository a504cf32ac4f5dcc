"""The lossy file: settings that make tokens choose other experts, with what they were judged on and what they cost.

A file of its own, so that no plan ever carries them: a plan only says where experts lie and leaves the model as it is.
One canonical JSON object with a sha256 fingerprint, marked `"lossy": true`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim import __version__
from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import UsageError
from easybalance_sim.files import write_text
from easybalance_sim.plan import canonical
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.stability import Margin
from easybalance_sim.simulate.quality.judged import Judged
from easybalance_sim.simulate.steps.balance import Balance
from easybalance_sim.simulate.steps.recorded import RecordedSteps

FORMAT, VERSION = "ebsim.lossy", 1
OFFSET_TABLE, REROUTE_CAP = "offset-table", "re-route-cap"
KINDS = (OFFSET_TABLE, REROUTE_CAP)
RULES = ("next", "least", "drop")
TABLE_ADVICE = "offsets of the last judged step, to start a controller from: frozen, they overshoot"
FORCED_ADVICE = "forced: the gain is above 0.7 of what is stable, it was written to be looked at, not to be used; "
_REMAKE = "write it again with `ebsim offset`"


class Placement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The placement it was judged on. fingerprint: of its plan file, "" without one."""

    policy: str
    slots_per_rank: tuple[int, ...]
    fingerprint: str = ""


class JudgedOn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps it was judged on. trace: fingerprint, "" when unknown · first_step, last_step: ids · warm_up: first
    steps that were not judged · scores: which of them the trace holds."""

    trace: str
    files: tuple[str, ...]
    first_step: int
    last_step: int
    steps: int
    warm_up: int
    tokens: int
    scores: str


class LossyDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a lossy file holds, its fingerprint aside; build one with `document`.

    lossy: always true · kind: of `KINDS` · layers: ids · offsets: [L][E] that are taken off the selection scores, of an
    offset table · cap, rule: of a re-route cap · mechanism, settings: what it was, as simulated · sensor: what an
    engine has to know for it · balance, balance_without: with and without it on the placement · price: see
    `quality.price` · stable: whether its loop settled on the judged steps, None where that was not judged · forced: its
    gain would have been refused, share_of_limit: of what is stable, None = no limit known.
    """

    format: str
    version: int
    lossy: bool
    tool_version: str
    kind: str
    model: str
    model_revision: str
    layers: tuple[int, ...]
    experts: int
    mechanism: str
    settings: dict[str, Any]
    sensor: str
    placement: Placement
    judged_on: JudgedOn
    balance: dict[str, float]
    balance_without: dict[str, float]
    price: dict[str, Any]
    offsets: tuple[tuple[float, ...], ...] | None = None
    advice: str = ""
    cap: float | None = None
    rule: str | None = None
    stable: bool | None = None
    forced: bool = False
    share_of_limit: float | None = None

    def fingerprint(self) -> str:
        """sha256 over the canonical content."""
        return canonical.digest(msgspec.to_builtins(self))


def document(
    found: Judged,
    without: Balance,
    plan: Plan,
    steps: RecordedSteps,
    *,
    warm_up: int,
    scores: str,
    settings: Mapping[str, Any],
    offsets: AnyArray | None = None,
    cap: float | None = None,
    rule: str | None = None,
    trace: str = "",
    files: tuple[str, ...] = (),
    plan_fingerprint: str = "",
    margin: Margin | None = None,
) -> LossyDocument:
    """All that a lossy file says. found: the mechanism on `plan` · without: the balance of `plan` alone · steps: with
    the warm-up · offsets: [L, E], or cap and rule · margin: of a controller; the other arguments as in the classes
    above.

    Raises `UsageError` for anything else than one of the two kinds, for what is not offered and for offsets without a
    clip, `PlanError` for a value that JSON cannot hold.
    """
    if not found.offered:
        raise UsageError(f"{found.name} is a comparison, not for use", where="lossy file", fix="choose another one")
    meta, forced = steps.meta, margin is not None and margin.refuses
    content = {
        "format": FORMAT,
        "version": VERSION,
        "lossy": True,
        "tool_version": __version__,
        "kind": REROUTE_CAP if offsets is None else OFFSET_TABLE,
        "model": meta.model,
        "model_revision": meta.model_revision,
        "layers": meta.layers,
        "experts": meta.experts,
        "mechanism": found.name,
        "settings": settings,
        "sensor": found.sensor,
        "placement": {
            "policy": plan.policy, "slots_per_rank": plan.slots_per_rank, "fingerprint": plan_fingerprint,
        },
        "judged_on": {
            "trace": trace, "files": files, "first_step": int(steps.step[0]), "last_step": int(steps.step[-1]),
            "steps": len(steps), "warm_up": warm_up, "tokens": steps.tokens, "scores": scores,
        },
        "balance": found.balance.to_dict(),
        "balance_without": without.to_dict(),
        "price": found.price.to_dict(),
        "offsets": offsets,
        "advice": "" if offsets is None else f"{FORCED_ADVICE if forced else ''}{TABLE_ADVICE}",
        "cap": cap,
        "rule": rule,
        "stable": found.stable,
        "forced": forced,
        "share_of_limit": None if margin is None else margin.share,
    }  # fmt: skip
    made = msgspec.convert(canonical.plain(content), LossyDocument)
    _verify(made, found.name)
    return made


def write_lossy(path: Path, doc: LossyDocument) -> str:
    """Write `doc` whole or not at all; returns the fingerprint. Raises `UsageError` when that cannot be."""
    _verify(doc, str(path))
    fingerprint = doc.fingerprint()
    write_text(path, canonical.render({**msgspec.to_builtins(doc), "fingerprint": fingerprint}))
    return fingerprint


def read_lossy(path: Path) -> LossyDocument:
    """Read and verify a lossy file. Raises `UsageError`, one line that names the file and what is wrong with it."""
    where = str(path)
    try:
        content = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=where, fix="check the path") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"not JSON, or cut short: {error}", where=where, fix=_REMAKE) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("lossy") is not True:
        raise UsageError(f'not a lossy file: "format" is not "{FORMAT}" and "lossy" true', where=where, fix=_REMAKE)
    if content.get("version") != VERSION:
        found = content.get("version")
        raise UsageError(f"lossy format {found!r}, this ebsim reads version {VERSION}", where=where, fix=_REMAKE)
    fingerprint = content.pop("fingerprint", None)
    try:
        doc = msgspec.convert(content, LossyDocument)
    except msgspec.ValidationError as error:
        raise UsageError(f"not a lossy file: {error}", where=where, fix=_REMAKE) from error
    _verify(doc, where)
    if fingerprint != doc.fingerprint():
        raise UsageError("the content does not match its fingerprint: it was edited", where=where, fix=_REMAKE)
    return doc


def _verify(doc: LossyDocument, where: str) -> None:
    problem = ""
    if doc.kind not in KINDS:
        problem = f"kind is {doc.kind!r}, expected {' or '.join(KINDS)}"
    elif (doc.offsets is None) != (doc.kind == REROUTE_CAP) or (doc.cap is None) != (doc.kind == OFFSET_TABLE):
        problem = f"a file of kind {doc.kind} has offsets or a cap, not both"
    elif doc.offsets is not None and not _fits(doc.offsets, len(doc.layers), doc.experts):
        problem = f"offsets are not {len(doc.layers)} rows of {doc.experts} finite numbers"
    elif doc.offsets is not None and not _clipped(doc):
        problem = "an offset table has a clip, and no offset beyond it"
    elif doc.cap is not None and (not 1.0 <= doc.cap < math.inf or doc.rule not in RULES):
        problem = f"cap {doc.cap:g} with rule {doc.rule!r}: at least 1, and one of {', '.join(RULES)}"
    elif "loss_nats" not in doc.price:
        problem = "the price is missing"
    if problem:
        raise UsageError(problem, where=where, fix=_REMAKE)


def _clipped(doc: LossyDocument) -> bool:
    clip = doc.settings.get("clip")
    return (
        doc.settings.get("clipped", True) is True
        and isinstance(clip, int | float)
        and not isinstance(clip, bool)
        and 0 < clip < math.inf
        and all(abs(value) <= clip * (1 + 1e-9) for row in doc.offsets or () for value in row)
    )


def _fits(offsets: tuple[tuple[float, ...], ...], layers: int, experts: int) -> bool:
    return len(offsets) == layers and all(
        len(row) == experts and all(math.isfinite(value) for value in row) for row in offsets
    )
