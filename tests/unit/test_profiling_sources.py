from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from easybalance_sim.cluster.hardware import load_profile, profile_names
from easybalance_sim.errors import ProfileError, UsageError
from easybalance_sim.profiling.profile_text import profile_text
from easybalance_sim.profiling.sources import EAGER_C0_US, import_table, kinds
from tests.measured_rows import write_grouped_gemm, write_table

H100 = load_profile("h100")
LOW_LATENCY: dict[str, Any] = {"device": "NVIDIA H100", "hidden_size": 7168, "num_topk": 8, "num_experts": 256}
WIDEEP: dict[str, Any] = {
    "kernel_source": "k", "hidden_size": 7168, "inter_size": 2048, "topk": 8, "num_experts": 256,
    "distribution": "uniform",
}  # fmt: skip


def _low_latency(path: Path, nodes: tuple[int, ...]) -> Path:
    rows = [
        {"node_num": n, "num_token": t, "dispatch_avg_t_us": 19 + 0.6 * t * n, "combine_avg_t_us": 20 + 1.3 * t * n}
        for n in nodes
        for t in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    ]
    return write_table(path / "ll.parquet", LOW_LATENCY, *rows)


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_survives_its_text(name: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(profile_text(load_profile(name)), encoding="utf-8")
    assert load_profile(str(tmp_path / "p.toml")) == load_profile(name)


def test_the_fitted_kernel_comes_first_and_replaces_its_own_kind(tmp_path: Path) -> None:
    found = import_table("infersim-decode", write_grouped_gemm(tmp_path / "g.csv"), H100)
    row, *others = found.profile.experts
    assert (row.kernel, row.dtype, row.hidden) == ("deepgemm_masked", "fp8_block", (7168, 7168))
    assert len(others) == len(H100.experts) - 1
    held_out = found.fits[0].held_out
    assert held_out is not None
    assert row.band_p90 == pytest.approx(held_out[2] / 100, abs=1e-3)
    assert found.fits[0].errors[0] <= 1.01 * held_out[0]
    assert found.profile.name == "h100 with g.csv"


def test_host_launches_of_an_eager_table_are_kept_apart(tmp_path: Path) -> None:
    rows = [
        {"moe_ep_size": ep, "num_tokens": tokens, "latency": 0.25 + 0.4 / ep + 3.2e-4 * tokens / ep}
        for ep in (4, 8, 16)
        for tokens in (4096, 8192, 16384, 32768)
    ]
    path = write_table(tmp_path / "context.parquet", WIDEEP, *rows)
    row = import_table("sglang-context", path, H100).profile.experts[0]
    assert row.c0_us == EAGER_C0_US
    assert row.host_launch_us > 50


def test_rows_that_are_taken_otherwise_than_they_stand_are_noted(tmp_path: Path) -> None:
    rows = [
        {"device": device, "moe_ep_size": ep, "num_tokens": tokens, "latency": 0.02 + 0.4 / ep + 3e-5 * tokens / ep}
        for device in ("NVIDIA H100", "NVIDIA GB200")
        for ep in (4, 8, 16)
        for tokens in (512, 1024, 4096)
    ]
    path = write_table(tmp_path / "generation.parquet", WIDEEP, *rows)
    found = import_table("sglang-generation", path, H100)
    assert found.dropped == ()
    assert found.fits[0].rows == 18
    assert found.notes == (
        "9 rows of NVIDIA GB200 taken without the gap between graph replays: uniform 1.35 µs less, the others 0.27 µs",
    )


def test_links_of_several_nodes_are_fitted_and_loadable(tmp_path: Path) -> None:
    found = import_table("deepep-low-latency", _low_latency(tmp_path, (1, 2, 4)), H100)
    assert [fit.name for fit in found.fits] == ["low_latency dispatch", "low_latency combine"]
    link = found.profile.links[0]
    assert link.nodes == (1, 4)
    assert link.rdma_bytes_per_s <= H100.inter_node_bytes_per_s
    (tmp_path / "p.toml").write_text(profile_text(found.profile), encoding="utf-8")
    assert load_profile(str(tmp_path / "p.toml")) == found.profile


def test_one_node_says_nothing_about_the_links_between_nodes(tmp_path: Path) -> None:
    link = import_table("deepep-low-latency", _low_latency(tmp_path, (1,)), H100).profile.links[0]
    known = next(row for row in H100.links if (row.mode, row.phase) == (link.mode, link.phase))
    assert (link.rdma_bytes_per_s, link.per_doubling_us) == (known.rdma_bytes_per_s, known.per_doubling_us)


def test_a_table_without_a_usable_row_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = write_table(tmp_path / "c.parquet", WIDEEP, {"moe_ep_size": 4, "num_tokens": 64, "latency": 0.4})
    with pytest.raises(ProfileError, match="no row can be fitted: 1 row dropped: uniform counts under 128"):
        import_table("sglang-context", path, H100)


def _bench(folder: Path, dispatch_us: float, combine_us: float) -> Path:
    path = folder / "bench.txt"
    path.write_text(
        f"[rank 0] Dispatch bandwidth: 1.00 GB/s, avg_t={dispatch_us:.2f} us | "
        f"Combine bandwidth: 1.00 GB/s, avg_t={combine_us:.2f} us\n"
    )
    return path


def test_a_benchmark_scales_the_known_rows_by_one_factor(tmp_path: Path) -> None:
    """H100, one node, 128 tokens: 15.1 + 128·8·7/8·7408 / 253 GB/s = 41.34 µs there; what was measured is 1.25 times as
    long. Combine's 13.0 + 896·14336 / 217 GB/s = 72.19 µs was measured as it is known."""
    found = import_table("deepep-bench", _bench(tmp_path, 1.25 * 41.336, 72.194), H100)
    dispatch, combine = (
        next(row for row in found.profile.links if (row.mode, row.phase) == ("low_latency", phase))
        for phase in ("dispatch", "combine")
    )
    known = next(row for row in H100.links if (row.mode, row.phase) == ("low_latency", "dispatch"))
    assert dispatch.base_us == pytest.approx(1.25 * 15.1, abs=0.01)
    assert dispatch.per_doubling_us == pytest.approx(1.25 * 4.6, abs=0.01)
    assert dispatch.rdma_bytes_per_s == pytest.approx(47.7e9 / 1.25, rel=1e-3)
    assert dispatch.nvlink_bytes_per_s == pytest.approx(253e9 / 1.25, rel=1e-3)
    assert (dispatch.nodes, dispatch.band_p90, dispatch.calibrated) == (known.nodes, known.band_p90, True)
    assert combine.base_us == pytest.approx(13.0, abs=0.01)
    assert [fit.numbers["factor"] for fit in found.fits] == pytest.approx([1.25, 1.0], abs=1e-3)
    assert [row for row in found.profile.links if row.mode == "normal"] == [
        row for row in H100.links if row.mode == "normal"
    ]


def test_a_benchmark_never_passes_the_nominal_bandwidth(tmp_path: Path) -> None:
    found = import_table("deepep-bench", _bench(tmp_path, 5.0, 72.194), H100)
    row = next(row for row in found.profile.links if (row.mode, row.phase) == ("low_latency", "dispatch"))
    assert (row.rdma_bytes_per_s, row.nvlink_bytes_per_s) == (H100.inter_node_bytes_per_s, H100.nvlink_bytes_per_s)
    assert found.fits[0].errors[0] > 1


def test_look_up_tables_take_the_place_of_those_of_their_mode(tmp_path: Path) -> None:
    base = {"op_name": "alltoall", "nccl_dtype": "bfloat16", "num_gpus": 8}
    path = write_table(
        tmp_path / "n.parquet", base, *({"message_size": 2**n, "latency": 0.01 * 2**n} for n in range(20, 26))
    )
    other = msgspec.structs.replace(H100.link_tables[0], mode="nvlink")
    found = import_table("nccl", path, msgspec.structs.replace(H100, link_tables=(*H100.link_tables, other)))
    assert [(table.mode, table.ranks) for table in found.profile.link_tables] == [("nccl", 8), ("nvlink", other.ranks)]
    (tmp_path / "p.toml").write_text(profile_text(found.profile), encoding="utf-8")
    assert load_profile(str(tmp_path / "p.toml")) == found.profile


def test_unknown_kinds_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=kinds()[0]):
        import_table("ncll", tmp_path, H100)


def test_a_fused_table_needs_the_kernel_and_gives_its_row(tmp_path: Path) -> None:
    base = WIDEEP | {"distribution": "balanced", "moe_dtype": "bfloat16", "moe_tp_size": 1, "moe_ep_size": 1}
    rows = [
        {"num_tokens": tokens, "hidden_size": hidden, "latency": 0.05 + hidden * (1e-6 + 1e-8 * tokens)}
        for hidden in (2048, 4096, 7168)
        for tokens in (1, 16, 256, 4096)
    ]
    path = write_table(tmp_path / "moe.parquet", base, *rows)
    row = import_table("moe-perf", path, H100, "bf16", "k").profile.experts[0]
    assert (row.kernel, row.dtype, row.hidden) == ("k", "bf16", (2048, 7168))
    with pytest.raises(UsageError, match="choose its kernel_source with --kernel"):
        import_table("moe-perf", path, H100, "bf16")
    with pytest.raises(ProfileError, match="12 rows dropped: another kernel or dtype"):
        import_table("moe-perf", path, H100, "fp8_block", "k")
