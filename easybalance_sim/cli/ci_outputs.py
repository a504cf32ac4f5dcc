"""`--junit` and `--github`: a verdict for CI systems, and the refusal where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import voice
from easybalance_sim.errors import EbsimError

if TYPE_CHECKING:
    from easybalance_sim.gate.checks import Check

Junit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE.xml", help="Write the findings as test cases, for GitLab and Jenkins."),
]
Github = Annotated[
    bool,
    typer.Option("--github", help="Annotate on stderr as GitHub Actions reads it, and append a job summary."),
]


@dataclass(frozen=True, kw_only=True)
class CiOutputs:
    """Where a verdict goes beside stdout. command: as it is called, for titles."""

    command: str
    junit: Path | None
    github: bool

    @contextlib.contextmanager
    def telling(self, *reads: Path) -> Iterator[None]:
        """Around a run: an error is told to the CI system before it ends the command.

        reads: files of the run that --junit must not write over. Raises `UsageError` where --junit cannot be written.
        """
        if self.junit is not None:
            from easybalance_sim.files import require_place

            require_place(self.junit, reads, flag="--junit")
        try:
            yield
        except (EbsimError, OSError) as error:
            from easybalance_sim.gate.checks import of_error

            self.tell("ERROR", [of_error(str(error), type(error).__name__)])
            raise

    def tell(self, headline: str, checks: Sequence[Check]) -> None:
        """Write what was asked for. headline: the verdict in one line. Raises `UsageError`."""
        title = f"ebsim {self.command}: {headline}"
        if self.junit is not None:
            from easybalance_sim.files import write_text
            from easybalance_sim.gate.junit import junit_xml

            write_text(self.junit, junit_xml(title, checks))
        if self.github:
            from easybalance_sim.gate.github import append_summary, summary, workflow_commands

            for line in workflow_commands(checks):
                voice.say(line)
            append_summary(summary(title, checks))
