"""What `ebsim explain` does: a plan file, and a trace where one is given, to one of the answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easybalance_sim.errors import UsageError
from easybalance_sim.explaining.answers import Explained
from easybalance_sim.explaining.load import load_of
from easybalance_sim.plan.planfile import PlanDocument, read_plan
from easybalance_sim.planning.session import Listener


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """What is asked about: nothing = the whole plan · layer: absolute id · expert: of that layer · rank: in all layers,
    or in that one."""

    plan: Path
    traces: tuple[Path, ...] = ()
    layer: int | None = None
    expert: int | None = None
    rank: int | None = None


def explain_plan(request: ExplainRequest, tell: Listener) -> dict[str, Any]:
    """The documented JSON object: `of` names the answer that follows. Raises `EbsimError` subclasses for bad input."""
    document = read_plan(request.plan)
    row = _require_known(request, document)
    load = load_of(document, request.traces) if request.traces else None
    if load is None:
        tell.note(f"the plan file holds no load: shares, excess and what-ifs need --trace{_whose(document)}")
    elif not load.own:
        tell.note("the plan was not made from this trace: its replicas answer to other loads")
    plan = document.plan()
    explained = Explained(document=document, plan=plan, topology=document.topology.topology(), load=load)
    head = {
        "plan": {
            "file": str(request.plan),
            "fingerprint": document.fingerprint(),
            "policy": document.policy,
            "model": document.model,
            "ranks": plan.ranks,
            "layers": plan.layers,
            "experts": plan.experts,
            "slots": plan.slots,
            "redundant_slots": plan.redundant_slots,
        },
        "load": None if load is None else load.to_dict(),
    }
    of, answer = _answer(request, explained, row)
    return {**head, "of": of, of: answer}


def _answer(request: ExplainRequest, explained: Explained, row: int | None) -> tuple[str, dict[str, Any]]:
    if request.rank is not None:
        rows = tuple(range(explained.plan.layers)) if row is None else (row,)
        return "rank", explained.rank(request.rank, rows)
    if row is None:
        return "overview", explained.overview()
    if request.expert is None:
        return "layer", explained.layer(row)
    return "expert", explained.expert(row, request.expert)


def _whose(document: PlanDocument) -> str:
    """Which trace to give."""
    files = document.trace.files
    return f" {files[0]}{', …' if len(files) > 1 else ''} (the plan's own)" if files else ""


def _require_known(request: ExplainRequest, document: PlanDocument) -> int | None:
    """Row of the layer that is asked about, None for all. Raises `UsageError` for what the plan does not have."""
    ids, ranks = document.layer_ids, len(document.plan_slots_per_rank)
    if request.expert is not None and request.rank is not None:
        raise UsageError("--expert and --rank exclude each other", where="explain", fix="ask about one of them")
    if request.expert is not None and request.layer is None:
        raise UsageError("every layer has such an expert", where="--expert", fix="say --layer too")
    for flag, value, count in (("--expert", request.expert, document.experts), ("--rank", request.rank, ranks)):
        if value is not None and not 0 <= value < count:
            raise UsageError(f"the plan has no {flag[2:]} {value}", where=flag, fix=f"give 0 to {count - 1}")
    if request.layer is None:
        return None
    if request.layer not in ids:
        span = f"{min(ids)} to {max(ids)}" if len(ids) == max(ids) - min(ids) + 1 else ", ".join(map(str, ids))
        raise UsageError(f"the plan has no MoE layer {request.layer}", where="--layer", fix=f"its layers are {span}")
    return ids.index(request.layer)
