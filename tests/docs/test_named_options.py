"""Commands and options that the text names in passing exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from easybalance_sim.cli.commands import app
from tests.docs.shown_commands import DOCUMENTS
from tests.docs.test_links import FENCED
from tests.ebsim_process import ROOT

INLINE = re.compile(r"`ebsim ([^`]+)`")
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


@cache
def root() -> Any:
    """The command that holds all others."""
    return typer.main.get_command(app)


def commands_of(words: list[str]) -> Iterator[Any]:
    """The commands that "plan|replay … --metrics" is about; raises KeyError for one that there is not."""
    if not re.fullmatch(r"[a-z|]+", words[0]):
        yield root()
        return
    for name in words[0].split("|"):
        found: Any = root().commands[name]
        inner = words[1].split("|") if hasattr(found, "commands") and len(words) > 1 else []
        yield from (found.commands[one] for one in inner) if inner else (found,)


def options_of(command: Any) -> set[str]:
    """Everything that begins with a dash."""
    return {"--help", "-h", *(name for one in command.params for name in (*one.opts, *one.secondary_opts))}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_commands_and_options_in_the_text_exist(document: Path) -> None:
    text = FENCED.sub("", document.read_text("utf-8"))
    for said in INLINE.findall(text):
        for command in commands_of(said.split()):
            assert set(OPTION.findall(said)) <= options_of(command), said


def test_what_does_not_exist_is_found() -> None:
    (plan,) = commands_of(["plan", "TRACE", "…", "--slots"])
    assert "--slots" not in options_of(plan)
    with pytest.raises(KeyError):
        list(commands_of(["plans"]))
