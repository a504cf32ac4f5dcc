"""docs/cli.md is what the help says."""

from __future__ import annotations

import pytest

from tests.docs.cli_reference import REFERENCE, reference
from tests.ebsim_process import ebsim_here


def test_the_reference_is_what_the_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    written = REFERENCE.read_text(encoding="utf-8")
    assert written == reference(), "make it anew: python -m tests.docs.cli_reference"
    monkeypatch.setenv("COLUMNS", "80")
    for command in (("plan",), ("trace", "check")):
        shown = [line.rstrip() for line in ebsim_here(*command, "--help").stdout.splitlines()]
        assert "\n".join(("```text", *shown, "```")).replace("\n\n```", "\n```") in written
