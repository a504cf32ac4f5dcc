"""`Verdict`: what the gate says, one finding per criterion."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

ACCEPTED, REJECTED, INSUFFICIENT_EVIDENCE = "accepted", "rejected", "insufficient_evidence"
EXIT_CODES = {ACCEPTED: 0, REJECTED: 1, INSUFFICIENT_EVIDENCE: 3}
NOT_JUDGED = "not judged: "
"""How the note of a criterion begins that the report gives no ground to judge."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One criterion. limit: from the criteria file · observed: None where the report leaves it open · note: why."""

    criterion: str
    limit: float
    observed: float | None
    ok: bool
    note: str = ""

    @property
    def judged(self) -> bool:
        """False where the report gives no ground; such a finding is ok."""
        return not self.note.startswith(NOT_JUDGED)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """accepted, rejected or insufficient_evidence, and the findings that led there."""

    status: str
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 accepted · 1 rejected · 3 insufficient evidence."""
        return EXIT_CODES[self.status]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that are not ok."""
        return tuple(finding for finding in self.findings if not finding.ok)

    def to_dict(self) -> dict[str, Any]:
        """The `verdict` section of a report: `status` and `findings`."""
        return {"status": self.status, "findings": [asdict(finding) for finding in self.findings]}
