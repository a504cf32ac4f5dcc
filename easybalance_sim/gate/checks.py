"""`Check`: one line of what a CI system shows, whether it comes from the gate, from a lint or from a refused run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from easybalance_sim.gate.verdict import Finding, Verdict
from easybalance_sim.plan import lint

PASSED, WARNED, SKIPPED, FAILED, ERROR = "passed", "warned", "skipped", "failed", "error"
GATE, LINT, RUN = "gate", "lint", "run"


@dataclass(frozen=True, kw_only=True)
class Check:
    """suite: what it belongs to · name: stays the same from run to run · outcome: failed blocks, error means that
    nothing could be judged · kind: why it blocks, in one word · file: what it is about, for links."""

    suite: str
    name: str
    outcome: str
    kind: str = ""
    message: str = ""
    limit: str = ""
    observed: str = ""
    file: str = ""


def of_verdict(verdict: Verdict, file: str) -> tuple[Check, ...]:
    """One check per finding of the gate, those under stress included; file: the report or plan that was judged."""
    return tuple(_of_finding(finding, verdict.status, file) for finding in verdict.findings)


def of_lint(findings: Iterable[lint.Finding], title: str, file: str, *, unchecked: str = "unchecked") -> list[Check]:
    """One check per rule that is broken, `no-errors` where none of them is an error.

    title: engine, or that it is a plan file · unchecked: the rule by which lint says what it could not look at.
    """
    found: dict[tuple[str, str], list[lint.Finding]] = {}
    for finding in findings:
        found.setdefault((finding.level, finding.rule or "house-rules"), []).append(finding)
    suite = f"{LINT} {title}"
    checks = [
        Check(
            suite=suite,
            name=rule,
            outcome=FAILED if level == lint.ERROR else SKIPPED if rule == unchecked else WARNED,
            kind=rule,
            message=_first_of(of_rule),
            file=file,
        )
        for (level, rule), of_rule in found.items()
    ]
    if not any(check.outcome == FAILED for check in checks):
        checks.insert(0, Check(suite=suite, name="no-errors", outcome=PASSED, file=file))
    return checks


def of_error(message: str, kind: str) -> Check:
    """The check of a run that was refused; kind: the class of the error."""
    return Check(suite=RUN, name=RUN, outcome=ERROR, kind=kind, message=message)


def _of_finding(finding: Finding, status: str, file: str) -> Check:
    outcome = FAILED if not finding.ok else PASSED if finding.judged else SKIPPED
    return Check(
        suite=GATE,
        name=finding.criterion,
        outcome=outcome,
        kind=status if outcome == FAILED else "",
        message=finding.note,
        limit=f"{finding.limit:g}",
        observed="" if finding.observed is None else f"{finding.observed:.4g}",
        file=file,
    )


def _first_of(findings: Sequence[lint.Finding]) -> str:
    """The first finding of a rule with its place, and how many more there are."""
    first = findings[0]
    places = (("layer", first.layer), ("slot", first.slot))
    place = ", ".join(f"{name} {at}" for name, at in places if at is not None)
    more = f" ({len(findings) - 1:,} more)" if len(findings) > 1 else ""
    return f"{place}: {first.message}{more}" if place else f"{first.message}{more}"
