from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import ProfileError, UsageError
from easybalance_sim.profiling.measure import Request, active_counts, measure, points, spread
from easybalance_sim.profiling.tables import measured
from tests.measured_gpu import FakeExperts, FakeGpu, quiet

MEGABYTE = 1 << 20


def request(**changes: Any) -> Request:
    """Experts of 2048 × 768, 8 slots."""
    values: dict[str, Any] = {
        "hidden": 2048, "intermediate": 768, "matrices": 3, "slots": 8, "dtype": "bf16", "tokens": (1, 16, 256),
        "active": (1, 4, 8), "repeats": 9, "budget_s": 60.0,
    }  # fmt: skip
    return Request(**(values | changes))


def test_every_number_of_tokens_meets_every_number_of_active_experts() -> None:
    gpu = FakeGpu(noise=0.0)
    rows, notes = measure(request(), gpu, quiet)
    grid = [(row.tokens_per_expert, row.active) for row in rows if row.what == measured.EXPERTS]
    assert grid == [(tokens, active) for tokens in (1, 16, 256) for active in (1, 4, 8)]
    assert notes == ()
    (row,) = [row for row in rows if (row.tokens_per_expert, row.active) == (16, 4)]
    experts = gpu.experts(2048, 768, 3, 8, "bf16")
    assert row.us == pytest.approx(experts.us(4, 16))
    assert (row.up_us, row.down_us) == pytest.approx((row.us * 2 / 3, row.us / 3))
    assert (row.bytes, row.slots, row.runs, row.dtype) == (4 * 2 * 3 * 2048 * 768, 8, 9, "bf16")


def test_the_median_of_the_runs_and_their_spread_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGpu, "noisy", lambda _, us, repeats: us * np.arange(1.0, repeats + 1))
    rows, notes = measure(request(), FakeGpu(), quiet)
    assert all(row.us / row.us_low == pytest.approx(5 / 1.8) for row in rows)
    assert all(row.us_high / row.us_low == pytest.approx(8.2 / 1.8) for row in rows)
    assert notes == ("18 points more than 20% apart from run to run: is the GPU in use, or its clock low?",)


def test_reads_and_copies_are_larger_than_the_cache_and_as_large_as_an_expert() -> None:
    wanted = points(request(), FakeGpu(gpus=3).about)
    expert = 2 * 3 * 2048 * 768
    sizes = sorted({expert, 4 * expert, 800 * MEGABYTE})
    assert [point.bytes for point in wanted if point.what == "read"] == [m * 50 * MEGABYTE for m in (4, 8, 16)]
    for what in ("copy-device", "copy-host"):
        assert [point.bytes for point in wanted if point.what == what] == sizes
    assert [(p.peer, p.bytes) for p in wanted if p.what == "copy-peer"] == [(peer, s) for peer in (1, 2) for s in sizes]
    assert {point.what for point in points(request(), FakeGpu().about)} == {*measured.WHAT} - {"copy-peer"}


def test_gpus_without_direct_access_are_named() -> None:
    _, notes = measure(request(), FakeGpu(gpus=4), quiet)
    assert notes == ("copies to GPU 2, 3 go through the host: no direct access",)


def test_a_budget_leaves_points_all_over_the_grid() -> None:
    gpu, seconds = FakeGpu(), iter(range(1000))
    wide = request(tokens=tuple(2**power for power in range(8)), active=(1, 2, 4, 8), budget_s=17.5)
    rows, notes = measure(wide, gpu, quiet, clock=lambda: float(next(seconds)))
    assert notes == ("the budget of 17.5 s was used up after 17 of 41 points",)
    grid = [(row.tokens_per_expert, row.active) for row in rows if row.what == measured.EXPERTS]
    assert grid == sorted(grid) and len(grid) == 8
    assert {tokens for tokens, _ in grid} == {2**power for power in range(8)}
    assert [asked for asked in gpu.asked if asked[0] == "experts"][:2] == [("experts", 1, 1), ("experts", 1, 16)]


def test_points_without_memory_are_left_out_with_a_note() -> None:
    rows, notes = measure(request(), FakeGpu(room=(1e18, 1024)), quiet)
    assert notes == ("1 point left out: the GPU has no memory for more",)
    assert max(row.active * row.tokens_per_expert for row in rows if row.what == measured.EXPERTS) == 1024


def test_weights_without_memory_are_an_error() -> None:
    with pytest.raises(ProfileError, match=r"NVIDIA H200: no memory for the weights of 8 experts \(0.1 GB\)"):
        measure(request(), FakeGpu(room=(1e6, 1)), quiet)


def test_a_gpu_that_fails_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nsomewhere")

    monkeypatch.setattr(FakeExperts, "times", fail)
    with pytest.raises(ProfileError, match="NVIDIA H200: experts cannot be measured: CUBLAS_STATUS_NOT_SUPPORTED some"):
        measure(request(), FakeGpu(), quiet)


def test_progress_counts_every_point() -> None:
    said: list[Any] = []

    def progress(label: str, total: int) -> Callable[[int], None]:
        said.append((label, total))
        return said.append

    measure(request(), FakeGpu(), progress)
    assert said == [("measuring bf16 experts on NVIDIA H200", 18), *[1] * 18]


@pytest.mark.parametrize(("slots", "counts"), [(1, (1,)), (2, (1, 2)), (8, (1, 2, 4, 8)), (33, (1, 2, 4, 8, 16, 33))])
def test_active_experts_double_up_to_all(slots: int, counts: tuple[int, ...]) -> None:
    assert active_counts(slots) == counts


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 13])
def test_a_spread_is_every_number_once_the_gaps_halved(count: int) -> None:
    order = spread(count)
    assert sorted(order) == list(range(count))
    assert order[:4] == {8: [0, 4, 2, 6], 13: [0, 8, 4, 12]}.get(count, order[:4])


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(UsageError, match="dtype fp8_block: cannot be measured: cuBLAS through cupy multiplies bf16"):
        request(dtype="fp8_block")
    with pytest.raises(UsageError, match="--active: active experts are 1 to 8, as many as there are slots"):
        request(active=(1, 9))
