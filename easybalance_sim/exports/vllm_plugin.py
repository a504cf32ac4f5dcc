"""The plug-in package that makes vLLM place experts by a plan: `vllm_policy` and the placement, ready for pip.

Layout: `pyproject.toml`, `ebsim_vllm_plan/__init__.py`, `ebsim_vllm_plan/placement.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from easybalance_sim.errors import UsageError
from easybalance_sim.exports.engine_file import EngineFile
from easybalance_sim.exports.placement import Placement
from easybalance_sim.exports.reading import count, parse_json, read_text, require_mapping, require_rows
from easybalance_sim.exports.sidecar import is_built, require_sidecar_place

PACKAGE, PROJECT, PLACEMENT, ROWS = "ebsim_vllm_plan", "pyproject.toml", "placement.json", "physical_to_logical_map"

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "ebsim-vllm-plan"
version = "1+{short}"
description = "Places the experts of a model served by vLLM as ebsim planned it."
requires-python = ">=3.9"

[project.entry-points."vllm.general_plugins"]
ebsim_plan = "{package}:register"

[tool.setuptools]
packages = ["{package}"]

[tool.setuptools.package-data]
{package} = ["{placement}"]
"""


def fill_plugin(folder: Path, placed: Placement, fingerprint: str) -> None:
    """Write the package into the empty `folder`."""
    content = {
        "fingerprint": fingerprint,
        "experts": placed.experts,
        "ranks": placed.ranks,
        "slots": placed.slots,
        "layers": list(placed.rows),
        ROWS: [list(row) for row in placed.rows.values()],
    }
    policy = resources.files("easybalance_sim.exports").joinpath("vllm_policy.py").read_text(encoding="utf-8")
    project = _PYPROJECT.format(short=fingerprint[:12], package=PACKAGE, placement=PLACEMENT)
    inside = folder / PACKAGE
    inside.mkdir()
    (folder / PROJECT).write_text(project, encoding="utf-8")
    (inside / "__init__.py").write_text(policy, encoding="utf-8")
    (inside / PLACEMENT).write_text(json.dumps(content) + "\n", encoding="utf-8")


def read_plugin(folder: Path) -> EngineFile:
    """The placement in such a package. Raises `PlanError` when it holds none."""
    inside = folder / PACKAGE / PLACEMENT
    where = str(inside)
    content = require_mapping(parse_json(read_text(inside), where), "the file", where)
    rows = require_rows(content.get(ROWS), ROWS, where)
    return EngineFile(
        path=folder,
        layers=tuple(range(len(rows))),
        rows=rows,
        slots=count(content.get("slots")),
        experts=count(content.get("experts")),
    )


def require_plugin_place(folder: Path) -> None:
    """Raise `UsageError` when the package or its sidecar cannot be put at `folder`: an older package is replaced, but
    nothing else that a folder holds."""
    where, fix = str(folder), "choose another -o"
    if not folder.name or folder.suffix in (".json", ".jsonl"):
        raise UsageError(
            "a plug-in is a folder",
            where=where,
            fix="name one, or give --schema pr41141 (.jsonl), pr49572 or pr53022 (.json)",
        )
    if not folder.parent.is_dir():
        raise UsageError(f"there is no folder {folder.parent}", where=where, fix=fix)
    if folder.exists() and not folder.is_dir():
        raise UsageError("is a file, not a folder", where=where, fix=fix)
    foreign = sorted(_foreign(folder)) if folder.is_dir() else []
    if foreign:
        raise UsageError(f"the folder holds other things ({foreign[0]})", where=where, fix=fix)
    require_sidecar_place(folder)


def _foreign(folder: Path) -> Iterator[str]:
    """What is in a folder besides such a package and what pip leaves of its builds."""
    is_package = (folder / PACKAGE / PLACEMENT).is_file()
    own = (PROJECT, PACKAGE, f"{PACKAGE}/__init__.py", f"{PACKAGE}/{PLACEMENT}") if is_package else ()
    for path in (*folder.glob("*"), *(folder / PACKAGE).glob("*")):
        name = path.relative_to(folder)
        if name.as_posix() not in own and not is_built(name):
            yield name.as_posix()
