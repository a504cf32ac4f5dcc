"""Damaged engine files are refused with one line or reported; nothing else happens to them."""

from __future__ import annotations

import contextlib
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim import exports
from easybalance_sim.errors import EbsimError
from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.linting import lint_file
from easybalance_sim.exports.sidecar import read_sidecar, sidecar_of
from tests.plan_documents import example_document
from tests.properties.test_exports_roundtrip import CASES

KNOWN = Deployment(ranks=2, experts=4, hidden_layers=6, moe_layers=(3, 4), redundant=2)
INSIDE = "ebsim_vllm_plan/placement.json"
PIECES = [
    b"",
    b"9" * 30,
    b"0x" + b"f" * 5000,
    b"1" + b":59" * 3000,
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"[" * 5000,
    b"&a [*a]",
    b"\xff",
    b'"3"',
]


@cache
def _bytes(engine: str, schema: str, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"plan{suffix}"
        exports.load(engine).write(example_document(), KNOWN, path, schema)
        return (path / INSIDE if path.is_dir() else path).read_bytes()


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """Where (a share of the length), how many bytes are taken out, and what is put there."""
    piece = st.sampled_from(PIECES) | st.binary(max_size=4)
    return draw(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), piece), min_size=1, max_size=3))


def _damaged(content: bytes, wounds: list[tuple[float, int, bytes]]) -> bytes:
    for share, taken, put in wounds:
        at = int(share * len(content))
        content = content[:at] + put + content[at + taken :]
    return content


@pytest.mark.parametrize(("engine", "schema", "suffix"), CASES)
@settings(max_examples=60, deadline=None)
@given(wounds=damages())
def test_refused_or_reported(engine: str, schema: str, suffix: str, wounds: list[tuple[float, int, bytes]]) -> None:
    if suffix == ".pt" and find_spec("torch") is None:
        pytest.skip(".pt files need PyTorch, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"plan{suffix}"
        file = path if suffix else path / INSIDE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_damaged(_bytes(engine, schema, suffix), wounds))
        for known in (KNOWN, Deployment(ranks=2), Deployment()):
            with contextlib.suppress(EbsimError):
                if lint_file(path, engine, known).errors == 0:
                    adopt(path, engine, known)


@settings(max_examples=100, deadline=None)
@given(wounds=damages())
def test_a_damaged_sidecar_is_reported_or_vouches_as_before(wounds: list[tuple[float, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        exports.load("vllm-ascend").write(example_document(), KNOWN, path, "")
        sidecar = sidecar_of(path)
        sidecar.write_bytes(_damaged(sidecar.read_bytes(), wounds))
        report = lint_file(path, "vllm-ascend", Deployment())
        said, findings = read_sidecar(path)
        assert (said is None) == bool(findings)
        if findings:
            assert {one.rule for one in report.findings} == {"checksum", "unchecked"}
        else:
            with contextlib.suppress(EbsimError):
                adopt(path, "vllm-ascend", Deployment())
