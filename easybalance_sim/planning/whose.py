"""Whether a plan and a trace name one model: layers and experts of two models may agree in number."""

from __future__ import annotations

from easybalance_sim.cluster.shapes import find_shape
from easybalance_sim.plan.planfile import PlanDocument
from easybalance_sim.planning.session import Listener, Session

UNNAMED = ("", "unknown", "unknown model")


def tell_of_another_model(document: PlanDocument, session: Session, tell: Listener, what: str = "the plan") -> None:
    """A note when plan and trace both name a model and the names differ; the trace that it was made from is its own."""
    recorded = session.meta.model if session.shape.assumed else session.shape.name
    names = [_known_as(name) for name in (document.model, recorded)]
    own = document.trace.fingerprint == session.trace_fingerprint
    if own or names[0] == names[1] or any(name in UNNAMED for name in names):
        return
    tell.note(
        f"{what} was made for {document.model}, the trace is of {recorded}: where these are two models, layers and "
        "experts agree in number only"
    )


def _known_as(name: str) -> str:
    """One name for the many that a checkpoint has."""
    shape = find_shape(name)
    return shape.name if shape is not None else name.strip().rstrip("/").rsplit("/", 1)[-1].lower()
