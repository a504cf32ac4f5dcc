from __future__ import annotations

from pathlib import Path

import pytest

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.tables import deepep_bench
from easybalance_sim.profiling.tables.deepep_bench import Bench

BENCH = Bench(nodes=2, tokens=128, hidden=7168, top_k=8, experts=256)


def _read(folder: Path, text: str, bench: Bench = BENCH) -> list[tuple[str, str, float, float]]:
    path = folder / "bench.txt"
    path.write_text(text)
    return [(row.mode, row.phase, row.us, row.notify_us) for row in deepep_bench.read(path, bench).rows]


def test_a_low_latency_phase_ends_with_its_slowest_rank(tmp_path: Path) -> None:
    line = "[rank {}] Dispatch bandwidth: 63.00 GB/s, avg_t={} us | Combine bandwidth: 74.0 GB/s, avg_t={} us\n"
    text = "Allocating buffer size: 2 MB ...\n" + line.format(0, "118.50", "195.00") + line.format(1, "121.00", 190)
    assert _read(tmp_path, text) == [("low_latency", "dispatch", 121, 0), ("low_latency", "combine", 195, 0)]


def test_the_three_ways_in_which_normal_mode_prints_a_time(tmp_path: Path) -> None:
    text = (
        "[tuning] SMs 24, NVL chunk 4: 1.0 GB/s (NVL), 9.00 us\n"
        "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 30, 352.43 GB/s (NVL), t: 453.49 us\n"
        "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 20, RDMA chunk 16: 45 + 1234 us, 43.2 GB/s (RDMA)\n"
        "[tuning] Best combine: SMs 24, NVL chunk 1, RDMA chunk 8, transmit: 99.50 us, notify: 12.00 us, BW: 4 GB/s\n"
    )
    assert _read(tmp_path, text) == [
        ("normal", "dispatch", 453.49, 0),
        ("normal", "dispatch", 1234, 45),
        ("normal", "combine", 99.5, 12),
    ]


def test_the_config_line_and_the_dtype_set_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "bench.txt"
    best = "[tuning] Best dispatch ({}): SMs 24, NVL chunk 30, 352.43 GB/s (NVL), t: 453.49 us\n"
    path.write_text("[config] num_tokens=4096, hidden=1024, num_topk=1\n" + best.format("FP8") + best.format("BF16"))
    fp8, bf16 = deepep_bench.read(path, BENCH).rows
    assert (fp8.size, fp8.rdma_bytes, bf16.rdma_bytes) == (4096, 2048 * 1056, 2048 * 2048)


def test_a_bandwidth_without_a_time_is_dropped_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "bench.txt"
    path.write_text("[tuning] Best combine: SMs 24, NVL chunk 16: 36.64 GB/s (NVL)\n")
    table = deepep_bench.read(path, BENCH)
    assert table.rows == ()
    assert [(note.rows, note.reason) for note in table.dropped] == [(1, deepep_bench.NO_TIME)]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no result of a DeepEP benchmark"):
        _read(tmp_path, "hello\n")
    with pytest.raises(ProfileError, match="cannot read"):
        deepep_bench.read(tmp_path / "absent.txt", BENCH)
