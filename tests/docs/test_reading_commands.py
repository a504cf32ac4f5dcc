"""How commands are found in documents: nothing that a reader would type is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.shown_commands import Shown, shown


def found(folder: Path, *lines: str) -> list[Shown]:
    """The commands of a document with one block, which begins in line 3."""
    document = folder / "page.md"
    document.write_text("\n".join(("# Page", "```bash", *lines, "```", "")), encoding="utf-8")
    return shown((document,))


def test_lines_are_joined_and_split_as_a_shell_does(tmp_path: Path) -> None:
    commands = found(
        tmp_path,
        "ebsim plan a.parquet \\",
        "      --ranks 8   # a comment; not && a command",
        "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/ebsim lint 'my plan.json'",
        "ebsim gate r.json --format json > out.json; python -m easybalance_sim --version",
    )
    assert [(one.line, one.arguments, one.stdout) for one in commands] == [
        (3, ("plan", "a.parquet", "--ranks", "8"), ""),
        (5, ("lint", "my plan.json"), ""),
        (6, ("gate", "r.json", "--format", "json"), "out.json"),
        (6, ("--version",), ""),
    ]


@pytest.mark.parametrize(
    "line", ["ebsims plan a.parquet", "make report", "EBSIM_DEBUG=1 ebsim plan a", "cat a | wc -l"]
)
def test_what_no_test_can_run_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md:3: .*: a command that no test knows how to run"):
        found(tmp_path, line)
