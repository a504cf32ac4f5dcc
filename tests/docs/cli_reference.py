"""docs/cli.md, made of the help of every command: `python -m tests.docs.cli_reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from easybalance_sim.cli.commands import app
from tests.cli.test_help import COMMANDS
from tests.ebsim_process import ROOT

REFERENCE = ROOT / "docs" / "cli.md"
WIDTH = 78
"""What a help takes in a terminal of 80 columns."""
HEAD = """# Command line reference

The help of every command, as `--help` prints it in 80 columns. Made by `python -m tests.docs.cli_reference`; a test
compares it. What is printed and written, and all exit codes: [formats.md](formats.md).
"""


def reference() -> str:
    """The whole document."""
    root: Any = typer.main.get_command(app)
    sections = [_section(root, command) for command in COMMANDS]
    return "\n".join([HEAD, *_contents(), "", *sections])


def _contents() -> Iterator[str]:
    for command in COMMANDS:
        name = " ".join(("ebsim", *command))
        yield f"* [`{name}`](#{name.replace(' ', '-')})"


def _section(root: Any, command: tuple[str, ...]) -> str:
    """A heading and the help. Of contexts, since the width of a terminal must not matter."""
    found, context = root, _context(root, None, "ebsim")
    for name in command:
        found = found.commands[name]
        context = _context(found, context, name)
    text = "\n".join(line.rstrip() for line in found.get_help(context).splitlines())
    return f"## {' '.join(('ebsim', *command))}\n\n```text\n{text}\n```\n"


def _context(command: Any, parent: Any, name: str) -> Any:
    settings = {"terminal_width": WIDTH, "max_content_width": WIDTH, **command.context_settings}
    return command.context_class(command, info_name=name, parent=parent, **settings)


def main(target: Path = REFERENCE) -> None:
    """Write the document, or another file for a look."""
    target.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
