"""Where a page comes from: what the run read and set, how it was called, which versions ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from easybalance_sim.report.content import Fact, MadeBy

SHORT = 12
"""Digits of a fingerprint that are shown."""


def provenance(made_by: MadeBy, facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The facts that say something, then the command, where it is known, and the versions."""
    said = [fact for fact in facts if fact.value]
    if made_by.command:
        said.append(Fact(label="command", value=made_by.command))
    versions = " · ".join(f"{name} {version}" for name, version in made_by.versions.items())
    return (*said, Fact(label="versions", value=versions))


def files_fact(files: Sequence[str], fingerprint: str | None = None) -> Fact:
    """The traces that were read."""
    note = f"fingerprint {fingerprint}" if fingerprint else ""
    return Fact(label="trace", value=", ".join(files), note=note)
