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
compares it. For all commands:

* stdout is the result (`--format table|json`), stderr notes, progress and the one line of an error. `-q` leaves notes
  and progress out, `-v` adds every stage with its seconds. Colours are for terminals, and not where `NO_COLOR` is set.
* Files are written whole or not at all. Ctrl-C leaves none half-written and exits with 130;
  so do SIGTERM and SIGHUP (a closed terminal; under `nohup` a run goes on).
* Exit codes: 0 accepted or ok · 1 rejected, or errors found · 2 bad input · 3 insufficient evidence · 70 internal error
  (`EBSIM_DEBUG=1` shows where) · 130 interrupted. The help of a command says which of them are its own.
* `ebsim --install-completion` completes commands, options and names in the shell.

What is printed and written: [formats.md](formats.md).
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
