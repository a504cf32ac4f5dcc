"""House rules that no linter knows: sizes, names, docstrings, and which layer may use which heavy library."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "easybalance_sim"
PACKAGE_FILES = sorted(PACKAGE.rglob("*.py"))
FILES = PACKAGE_FILES + sorted((ROOT / "tests").rglob("*.py"))
BANNED_NAMES = {"utils", "helpers", "common", "misc", "core", "base", "manager"}
FUNCTION_CAP, FILE_CAP = 60, 400
MEDIAN_TARGET, P95_TARGET = 10, 35
HOMES = {"numba": "kernels", "cupy": "kernels", "typer": "cli", "rich": "cli", "matplotlib": "report"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _length(function: Function) -> int:
    """Lines from `def` to the last one, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is None or first.end_lineno is None:
        return lines
    return lines - (first.end_lineno - first.lineno + 1)


def _undocumented(tree: ast.Module) -> Iterator[str]:
    """Public classes and functions, methods of public classes included, that have no docstring."""
    for node in tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        members = node.body if isinstance(node, ast.ClassDef) else []
        for item in (node, *(member for member in members if isinstance(member, Function))):
            if not item.name.startswith("_") and ast.get_docstring(item) is None:
                yield item.name


def _imported(tree: ast.AST) -> set[str]:
    """Top-level packages that a module imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").split(".")[0])
    return names


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_files_stay_short() -> None:
    lines = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > FILE_CAP} == {}


def test_functions_stay_short() -> None:
    lines = {
        f"{_name(path)}:{function.lineno} {function.name}": _length(function)
        for path in FILES
        for function in _functions(_parsed(path))
    }
    assert {name: count for name, count in lines.items() if count > FUNCTION_CAP} == {}


def test_typical_functions_are_short() -> None:
    lengths = [_length(function) for path in PACKAGE_FILES for function in _functions(_parsed(path))]
    assert statistics.median(lengths) <= MEDIAN_TARGET
    assert statistics.quantiles(lengths, n=20)[-1] <= P95_TARGET


def test_module_names_say_what_is_inside() -> None:
    assert [_name(path) for path in PACKAGE_FILES if BANNED_NAMES & {path.stem, path.parent.name}] == []


def test_public_names_are_documented() -> None:
    trees = {path: _parsed(path) for path in PACKAGE_FILES}
    assert [_name(path) for path, tree in trees.items() if ast.get_docstring(tree) is None and tree.body] == []
    bare = {_name(path): list(_undocumented(tree)) for path, tree in trees.items() if path.name[:6] != "numba_"}
    assert {name: found for name, found in bare.items() if found} == {}


def test_heavy_libraries_stay_in_their_layer() -> None:
    strays = [
        f"{_name(path)}: {library}"
        for path in PACKAGE_FILES
        for library in _imported(_parsed(path))
        if library in HOMES and path.relative_to(PACKAGE).parts[0] != HOMES[library]
    ]
    assert strays == []


SAMPLE = '''
import numba.core
from typer import Option

def documented(a,
               b):
    """Two
    lines."""
    return a

def bare():
    return 1

class Thing:
    """A thing."""

    def method(self):
        from rich import print

    def _private(self):
        return 2
'''


def test_the_rules_see_what_they_should() -> None:
    tree = ast.parse(SAMPLE)
    assert {f.name: _length(f) for f in _functions(tree)} == {"documented": 3, "bare": 2, "method": 2, "_private": 2}
    assert list(_undocumented(tree)) == ["bare", "method"]
    assert _imported(tree) == {"numba", "typer", "rich"}
