"""The program that hears interrupts is above all else of the command line: nothing there imports it back."""

from __future__ import annotations

import ast
from pathlib import Path

from easybalance_sim import cli


def _imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_nothing_of_the_command_line_imports_the_program() -> None:
    files = sorted(Path(cli.__path__[0]).rglob("*.py"))
    assert len(files) > 20
    app = "easybalance_sim.cli.app"
    assert [file.name for file in files if any(f"{name}.".startswith(f"{app}.") for name in _imported(file))] == []
