"""Control loops for each phase, workload or model revision on its own: a mean over them may describe none of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.planning.session import Listener, open_session
from easybalance_sim.rebalancing.request import RebalanceRequest
from easybalance_sim.rebalancing.run import rebalance
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.files import expand
from easybalance_sim.trace.schema import PHASES

KINDS = ("phase", "workload", "model-revision")


def rebalance_by(kind: str, request: RebalanceRequest, tell: Listener) -> dict[str, Any]:
    """`{"by": kind, "strata": {name: report}}` for the strata with traffic; one that is too short says so instead.

    Raises `UsageError` for another kind, or when no stratum is long enough.
    """
    if kind not in KINDS:
        raise UsageError(
            f"no strata by {kind!r}", where="--by", fix=f"{did_you_mean(kind, KINDS)}choose {', '.join(KINDS)}"
        )
    strata: dict[str, Any] = {}
    for name, chosen in _strata(kind, request, tell).items():
        try:
            strata[name] = rebalance(replace(request, settings=replace(request.settings, **chosen)), tell)
        except UsageError as error:
            tell.note(f"{kind} {name} is left out: {error}")
    if not strata:
        raise UsageError(f"no {kind} has windows enough", where="--by", fix="give a longer trace")
    return {"by": kind, "strata": strata}


def _strata(kind: str, request: RebalanceRequest, tell: Listener) -> dict[str, dict[str, Any]]:
    """The settings that choose each stratum; a revision is what the metadata of its files says, in the order given."""
    if kind == "model-revision":
        files: dict[str, tuple[Path, ...]] = {}
        for path in expand(request.settings.traces):
            revision = open_trace([path]).meta.model_revision or "unknown"
            files[revision] = (*files.get(revision, ()), path)
        return {revision: {"traces": paths} for revision, paths in files.items()}
    field = "phase" if kind == "phase" else "workloads"
    return {name: {field: name if kind == "phase" else (name,)} for name in _names(kind, request, tell)}


def _names(kind: str, request: RebalanceRequest, tell: Listener) -> list[str]:
    """Phases or workloads that hold traffic."""
    trace = open_session(request.settings, tell).trace
    if kind == "workload":
        if isinstance(trace, TokenTrace):
            return [name for name, tokens in zip(trace.workloads, trace.scan().workload_tokens, strict=True) if tokens]
        return [trace.workloads[at] for at in np.unique(trace.workload)]
    if isinstance(trace, TokenTrace):
        return [name for name, tokens in zip(PHASES, trace.scan().phase_tokens, strict=True) if tokens]
    return [PHASES[at] for at in np.unique(trace.phase)]
