"""What `ebsim rollout` does: the facts of a plan, every order of events of a small group, random ones of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from easybalance_sim.amounts import Amount
from easybalance_sim.cost.profiles import load_profile
from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.plan.planfile import PlanDocument, read_plan
from easybalance_sim.simulate.rollout import protocol
from easybalance_sim.simulate.rollout.explore import Exploration, Walk, explore, wander
from easybalance_sim.simulate.rollout.facts import BY_LAYER, IN_PLACE, WHOLE, Before, Facts, before, facts, widths_of
from easybalance_sim.simulate.rollout.faults import FAULTS, IN_STAGING
from easybalance_sim.simulate.rollout.state import fresh

OK, REFUSED, UNFINISHED = 0, 1, 3
"""Exit codes: as asked it works · an invariant breaks, or memory is too small · more states than could be looked at."""

PAIRS = "pairs"
"""The quick choice of faults: each alone and any two, but not all of them in one history."""

AT_ONCE = 2
"""Faults of one history in the exploration after the single ones."""

MOST_RANKS, MOST_STEPS = 3, 2
"""The group and run that all faults at once are explored on: 2.7 million states, half a minute."""


class Listener(Protocol):
    """Who hears of notes and progress."""

    def note(self, text: str) -> None:
        """A line for the user."""

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        """A stage of `total` units; call the result with the units that are done."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The flags of `ebsim rollout`. faults: names of `FAULTS` · together: all of them in one history too · ranks,
    steps, in_flight: of the small group · without: parts of the protocol that are left out · walks: random orders on
    the plan's ranks."""

    plan: Path
    current: Path | None = None
    faults: tuple[str, ...] = FAULTS
    together: bool = False
    ranks: int = 3
    steps: int = 3
    in_flight: int = 2
    in_place: bool = False
    without: frozenset[str] = frozenset()
    walks: int = 20
    seed: int = 0
    model: str = ""
    profile: str = ""

    def behaviour(self, steps: int) -> protocol.Protocol:
        """The protocol as asked for, over a number of steps."""
        return protocol.Protocol(steps=steps, in_flight=self.in_flight, staging=not self.in_place, without=self.without)

    def possible(self) -> tuple[str, ...]:
        """The faults that can happen at all."""
        return tuple(fault for fault in self.faults if not (self.in_place and fault == IN_STAGING))


def faults_of(text: str) -> tuple[str, ...]:
    """Of `PAIRS`, "all", "none" or names with commas between. Raises `UsageError` for a name that there is not."""
    if text in (PAIRS, "all", "none"):
        return () if text == "none" else FAULTS
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in FAULTS:
            raise UsageError(
                f"{name!r} is no fault",
                where="--faults",
                fix=f"{did_you_mean(name, FAULTS)}{PAIRS}, all, none or {', '.join(FAULTS)}",
            )
    return names


def simulate_rollout(request: Request, tell: Listener) -> tuple[dict[str, Any], int]:
    """The report (the documented JSON object, its notes aside) and the exit code.

    Raises `EbsimError` subclasses for plans that cannot be read or do not fit each other.
    """
    behaviour = request.behaviour(request.steps)
    new = read_plan(request.plan)
    old = before(new, None if request.current is None else read_plan(request.current))
    found = facts(new, old, load_profile(request.profile or new.topology.profile), widths_of(request.model, new))
    _tell(request, new, old, found, tell)
    explored = list(_explored(request, found, tell))
    walks = _walks(request, found, tell)
    report = {
        "plan": _plan_section(request.plan, new),
        "current": None if old.document is None else _plan_section(request.current, old.document),
        "facts": found.to_dict(),
        "protocol": {
            "ranks": request.ranks,
            "steps": behaviour.steps,
            "in_flight": behaviour.in_flight,
            "in_place": request.in_place,
            "left_out": sorted(behaviour.without),
        },
        "explored": explored,
        "walks": walks,
    }
    outcome, code = _outcome(request, found, report)
    return {**report, "outcome": outcome}, code


def _plan_section(path: Path | None, document: PlanDocument) -> dict[str, Any]:
    """Which plan it is, with all that a dispatch handle has to carry beside the layer."""
    return {
        "file": str(path),
        "policy": document.policy,
        "model": document.model,
        "model_revision": document.model_revision,
        "generation": document.generation,
        "fingerprint": document.fingerprint(),
        "layer_checksums": {str(record.layer): record.checksum for record in document.layers},
    }


def _tell(request: Request, new: PlanDocument, old: Before, found: Facts, tell: Listener) -> None:
    if old.document is None:
        tell.note("no plan in force given: ranks hold the engine's own placement, experts in order")
    elif new.parent_fingerprint not in (None, old.document.fingerprint()):
        tell.note(f"the plan was made to replace {str(new.parent_fingerprint)[:12]}, not {request.current}")
    if not found.widths.expert_bytes:
        tell.note(f"model {new.model!r} is not known: bytes and seconds are left out (say --model)")
    elif found.widths.moe_layers > len(new.layers):
        tell.note(
            f"the plan has {len(new.layers)} of the model's {found.widths.moe_layers} MoE layers: what is loaded is "
            "that of these layers alone"
        )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One exploration. label: its row · most: faults in one history."""

    label: str
    faults: tuple[str, ...]
    most: int
    ranks: int
    steps: int


def _cases(request: Request) -> list[_Case]:
    """Each fault alone, any two of them; when asked for all of them together (which grows fastest) on a group and run
    that are not larger than `MOST_RANKS` and `MOST_STEPS`."""
    possible = request.possible()
    none = _Case(label="none", faults=(), most=0, ranks=request.ranks, steps=request.steps)
    cases = [none, *(replace(none, label=fault, faults=(fault,), most=1) for fault in possible)]
    if len(possible) > AT_ONCE or (len(possible) == AT_ONCE and not request.together):
        cases.append(replace(none, label="any two of them", faults=possible, most=AT_ONCE))
    if len(possible) > 1 and request.together:
        ranks, steps = min(request.ranks, MOST_RANKS), min(request.steps, MOST_STEPS)
        every = replace(none, faults=possible, most=len(possible), ranks=ranks, steps=steps)
        cases.append(replace(every, label="all of them"))
    return cases


def _explored(request: Request, found: Facts, tell: Listener) -> Iterator[dict[str, Any]]:
    cases = _cases(request)
    advance = tell.progress("exploring every order of events", Amount(len(cases), "cases"))
    for case in cases:
        loads = like(found.loads, case.ranks)
        seen = explore(fresh(loads, case.faults, case.most), request.behaviour(case.steps))
        advance(1)
        yield _case_section(case, loads, seen)


def _case_section(case: _Case, loads: Sequence[bool], seen: Exploration) -> dict[str, Any]:
    where = {"ranks": case.ranks, "ranks_that_load": sum(loads), "steps": case.steps}
    what = {"fault": case.label, "faults": list(case.faults), "most_faults": case.most}
    return {**what, **where, **asdict(seen), "history": list(seen.history)}


def like(loads: Sequence[bool], ranks: int) -> tuple[bool, ...]:
    """A small group in the likeness of a large one: where only some ranks load, so do some of the small group."""
    share = sum(loads) / len(loads)
    loading = round(share * ranks)
    if ranks > 1 and 0 < share < 1:
        loading = min(max(loading, 1), ranks - 1)
    return tuple(number < loading for number in range(ranks))


def _walks(request: Request, found: Facts, tell: Listener) -> dict[str, Any]:
    advance = tell.progress("walking through random orders", Amount(request.walks, "walks"))
    start, behaviour = fresh(found.loads), request.behaviour(request.steps)
    walks: list[Walk] = []
    for seed in range(request.seed, request.seed + request.walks):
        walks.append(wander(start, behaviour, request.possible(), seed))
        advance(1)
    bad = next((number for number, walk in enumerate(walks) if walk.violation), None)
    return {
        "ranks": len(found.loads),
        "count": len(walks),
        "seed": request.seed,
        "events": sum(len(walk.history) for walk in walks),
        "faults": sum(walk.faults for walk in walks),
        "published": sum(walk.published for walk in walks),
        "violation": "" if bad is None else walks[bad].violation,
        "violating_seed": None if bad is None else request.seed + bad,
        "history": [] if bad is None else list(walks[bad].history),
    }


def _outcome(request: Request, found: Facts, report: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """In words and as an exit code; what breaks an invariant counts before what does not fit."""
    broken = next((one for one in [*report["explored"], report["walks"]] if one["violation"]), None)
    if broken is not None:
        return {"status": "unsafe", "reason": broken["violation"]}, REFUSED
    ways = [found.way(name) for name in ((IN_PLACE,) if request.in_place else (WHOLE, BY_LAYER))]
    if all(way.fits is False for way in ways):
        fix = "fewer slots per rank" if request.in_place else "load in place (--in-place)"
        short = -max(way.left_bytes or 0 for way in ways)
        return {"status": "does-not-fit", "reason": f"{short / 1e6:,.1f} MB are missing: {fix}"}, REFUSED
    if not all(one["finished"] for one in report["explored"]):
        return {"status": "unfinished", "reason": "more states than could be looked at"}, UNFINISHED
    return {"status": "safe", "reason": "no order of events breaks an invariant"}, OK
