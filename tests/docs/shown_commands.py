"""The commands that README.md and docs/*.md show in their bash blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.ebsim_process import ROOT

DOCUMENTS: tuple[Path, ...] = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
SETTING_UP = ("pip", "pip3", "git", "curl", "export", "cd")
"""Programs that make the environment: the README's own test command runs them where changes land."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """One `ebsim` command as a document shows it."""

    document: str
    line: int
    arguments: tuple[str, ...]
    stdout: str = ""
    """The file that the shell would put stdout into, or nothing."""

    @property
    def text(self) -> str:
        """The command in one line, as it is named in tests."""
        return shlex.join(("ebsim", *self.arguments))


def shown(documents: tuple[Path, ...] = DOCUMENTS) -> list[Shown]:
    """All commands in the order of the documents."""
    return [command for document in documents for command in _of_text(document.name, document.read_text("utf-8"))]


def _of_text(document: str, text: str) -> Iterator[Shown]:
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1)) + 1
        for line, words in _lines(block.group(1), first):
            for command in _split(words):
                yield from _command(document, line, command)


def _lines(block: str, first: int) -> Iterator[tuple[int, list[str]]]:
    """Lines of a block with their numbers, continued ones joined, comments left out."""
    number, held = first, ""
    for offset, line in enumerate(block.splitlines()):
        number = number if held else first + offset
        held += line
        if held.endswith("\\"):
            held = held[:-1]
            continue
        lexer = shlex.shlex(held, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split = True
        yield number, list(lexer)
        held = ""


def _split(words: list[str]) -> Iterator[list[str]]:
    """The commands of a line: between `&&`, `||`, `;` and `|`."""
    command: list[str] = []
    for word in words:
        if word in ("&&", "||", ";", "|"):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _command(document: str, line: int, words: list[str]) -> Iterator[Shown]:
    """One of ours, or nothing for one that sets up; what is neither is refused."""
    if not words:
        return
    program = Path(words[0]).name
    if program in SETTING_UP or (program.startswith("python") and words[1:3] in (["-m", "venv"], ["-m", "pytest"])):
        return
    if program.startswith("python") and words[1:3] == ["-m", "easybalance_sim"]:
        program, words = "ebsim", words[2:]
    if program != "ebsim":
        raise ValueError(f"{document}:{line}: {shlex.join(words)}: a command that no test knows how to run")
    arguments, _, target = _cut(words[1:], ">")
    yield Shown(document=document, line=line, arguments=tuple(arguments), stdout=target[0] if target else "")


def _cut(words: list[str], at: str) -> tuple[list[str], str, list[str]]:
    if at not in words:
        return words, "", []
    place = words.index(at)
    return words[:place], at, words[place + 1 :]
