"""Memory of whole commands does not grow with the trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long_traces import Shape, measured, write_long_trace

SHAPE = Shape(layers=12, experts=64, top_k=6, ranks=8, step_tokens=256)
TINY, SHORT, LONG = 1 << 16, 1 << 20, 3 << 20
GROWTH_MB = 90
"""Three times the tokens are 151 MB more of ids; the short trace already fills every thread's batches."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("traces")
    return [write_long_trace(folder / f"{tokens}.parquet", SHAPE, tokens) for tokens in (TINY, SHORT, LONG)]


PLAN = ("plan", "--ranks", 8, "--slots-per-rank", 9, "--policy", "eplb", "--force", "-o", "plan.json")
REPLAY = ("replay", "--plan", "plan.json")


@pytest.mark.parametrize("command", [PLAN, pytest.param(REPLAY, marks=pytest.mark.slow)], ids=["plan", "replay"])
def test_plan_and_replay(command: tuple[str | int, ...], traces: list[Path], tmp_path: Path) -> None:
    """A first run compiles, which takes memory, too, and is not measured; `plan` replays as well."""
    tiny, *two = traces
    measured(*PLAN, tiny, cwd=tmp_path)
    short, long = (measured(*command, trace, cwd=tmp_path) for trace in two)
    assert {short.code, long.code} <= {0, 1}
    assert long.peak_mb - short.peak_mb < GROWTH_MB, f"{short.peak_mb} MB, then {long.peak_mb} MB"


def test_loads_of_every_step(traces: list[Path], tmp_path: Path) -> None:
    command = ("trace", "loads", "--ranks", 8, "-o", "loads.parquet")
    short, long = (measured(*command, trace, cwd=tmp_path) for trace in traces[1:])
    assert (short.code, long.code) == (0, 0)
    assert long.peak_mb - short.peak_mb < GROWTH_MB, f"{short.peak_mb} MB, then {long.peak_mb} MB"
