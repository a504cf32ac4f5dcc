"""Measured collectives become look-up tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.collectives import nccl_tables, nvlink_tables
from tests.measured_rows import write_table

NCCL: dict[str, Any] = {"op_name": "alltoall", "nccl_dtype": "half", "num_gpus": 4}
TRTLLM: dict[str, Any] = {
    "op_name": "alltoall_dispatch", "kernel_source": "NVLinkTwoSided", "moe_dtype": "fp8", "moe_ep_size": 2,
    "hidden_size": 64, "topk": 1, "num_experts": 8, "num_tokens": 100, "latency": 0.05,
}  # fmt: skip


def test_nccl_counts_elements_and_keeps_the_own_share_at_home(tmp_path: Path) -> None:
    """A message of 1000 elements is 2000 bytes, a fourth of which stays on the rank."""
    path = write_table(
        tmp_path / "n.parquet", NCCL, {"message_size": 1000, "latency": 0.01}, {"message_size": 4000, "latency": 0.02},
        {"message_size": 4000, "latency": 0.9, "nccl_dtype": "int8"},
        {"message_size": 4000, "latency": 0.9, "op_name": "all_reduce"},
    )  # fmt: skip
    (found,) = nccl_tables(path)
    assert found.name == "nccl dispatch and combine, bf16, 4 ranks"
    assert (found.table.sent_bytes, found.table.us) == ((1500, 6000), (10, 20))
    assert (found.table.ranks, found.table.dtype, found.table.phases) == (4, "bf16", ("dispatch", "combine"))
    assert found.table.source == f"{path}, 2 rows"


def test_the_error_is_that_of_rows_looked_up_between_the_others(tmp_path: Path) -> None:
    """Of 256 KiB, 512 KiB, … the second and fourth lie on the line between their neighbours but for 10 %."""
    sizes = [2**17 * n for n in (1, 2, 3, 4, 5)]
    path = write_table(
        tmp_path / "n.parquet",
        NCCL,
        *({"message_size": size, "latency": (1.0 if n % 2 == 0 else 1.1) * size} for n, size in enumerate(sizes)),
    )
    (found,) = nccl_tables(path)
    assert found.held_out == pytest.approx((100 / 11, 100 / 11))
    assert found.table.band_p90 == pytest.approx(0.091)


def test_small_messages_of_nccl_do_not_count_for_the_error(tmp_path: Path) -> None:
    small = ({"message_size": 2**n, "latency": 0.01 * (1 + n % 2)} for n in range(5, 15))
    (found,) = nccl_tables(write_table(tmp_path / "n.parquet", NCCL, *small))
    assert (found.held_out, found.table.band_p90) == ((), 0.0)


def test_prepare_counts_into_dispatch_and_combine_is_bf16(tmp_path: Path) -> None:
    """On 2 ranks half of the top-1 choices leave: 100 tokens × 64 bytes of FP8 × 1/2, and twice that back."""
    path = write_table(
        tmp_path / "t.parquet", TRTLLM, {}, {"num_tokens": 200, "latency": 0.07},
        {"op_name": "alltoall_prepare", "latency": 0.01},
        {"op_name": "alltoall_combine", "latency": 0.04}, {"op_name": "alltoall_combine", "num_tokens": 200},
        {"op_name": "alltoall_combine_low_precision", "latency": 0.9},
        {"kernel_source": "NVLinkOneSided", "latency": 0.03}, {"kernel_source": "NVLinkOneSided", "num_tokens": 200},
    )  # fmt: skip
    dispatch, combine = nvlink_tables(path)
    assert (dispatch.table.sent_bytes, dispatch.table.us) == ((3200, 6400), (60, 70))
    assert (combine.table.sent_bytes, combine.table.us) == ((6400, 12800), (40, 50))
    assert (dispatch.table.dtype, combine.table.dtype) == ("fp8", "bf16")
    with pytest.raises(ProfileError, match="holds no row of combine of NVLinkOneSided"):
        nvlink_tables(path, "NVLinkOneSided")


def test_a_table_without_the_operation_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "n.parquet", NCCL, {"op_name": "all_gather", "message_size": 1, "latency": 1.0})
    with pytest.raises(ProfileError, match=r"n\.parquet: holds no row of alltoall"):
        nccl_tables(path)
