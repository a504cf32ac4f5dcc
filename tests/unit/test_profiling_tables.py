from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.tables import (
    deepep,
    infersim,
    moe_perf,
    nvlink_collectives,
    sglang_wideep,
    trtllm_wideep,
)
from tests.measured_rows import write_table

MOE: dict[str, Any] = {
    "device": "NVIDIA H100", "kernel_source": "k", "num_tokens": 64, "hidden_size": 7168, "inter_size": 2048, "topk": 8,
    "num_experts": 256, "moe_ep_size": 32, "moe_tp_size": 1, "moe_dtype": "fp8_block", "distribution": "power_law_1.2",
    "latency": 0.25,
}  # fmt: skip
TRTLLM = MOE | {"op_name": "wideep_moe", "rank0_num_tokens": 20, "num_slots": 256}
DEEPEP: dict[str, Any] = {
    "device": "NVIDIA H100", "node_num": 2, "hidden_size": 7168, "num_token": 128, "num_topk": 8, "num_experts": 256,
}  # fmt: skip
LOW_LATENCY = DEEPEP | {"dispatch_avg_t_us": 101.0, "combine_avg_t_us": 202.0}
NORMAL = DEEPEP | {
    "dispatch_sms": 24, "combine_sms": 24, "dispatch_transmit_us": 100.0, "dispatch_notify_us": 30.0,
    "combine_transmit_us": 200.0,
}  # fmt: skip
INFERSIM = "num_experts,num_gpus,num_local_experts,topk,hidden_size,intermediate_size,tokens_per_expert,"
INFERSIM += "up_proj_us,down_proj_us"


def _file(folder: Path, base: dict[str, Any], *changes: dict[str, Any]) -> Path:
    return write_table(folder / "t.parquet", base, *changes)


def test_trtllm_rows_know_their_placement_and_recorded_tokens(tmp_path: Path) -> None:
    eplb = {"op_name": "wideep_moe_eplb", "distribution": "power_law_1.01_eplb", "num_slots": 288}
    table = trtllm_wideep.read(_file(tmp_path, TRTLLM, {}, eplb))
    plain, placed = table.rows
    assert (plain.us, plain.arrived, plain.eplb, plain.alpha) == (250, 20, False, 1.2)
    assert (placed.slots, placed.eplb, placed.alpha, placed.shape) == (288, True, 1.01, (7168, 2048, 256))
    assert table.dropped == ()


def test_trtllm_rows_of_the_old_recipe_and_the_bad_set_are_dropped_with_a_note(tmp_path: Path) -> None:
    few, placed = {"num_tokens": 16}, {"num_tokens": 16, "op_name": "wideep_moe_eplb"}
    bad = {"device": "NVIDIA GB200", "op_name": "wideep_moe_eplb", "num_slots": 288}
    table = trtllm_wideep.read(_file(tmp_path, TRTLLM, {}, few, few, placed, bad, bad | {"hidden_size": 6144}))
    assert len(table.rows) == 3
    assert [(note.rows, note.reason) for note in table.dropped] == [
        (2, trtllm_wideep.OLD_RECIPE),
        (1, trtllm_wideep.BAD_SET),
    ]
    assert str(table.dropped[0]).startswith("2 rows dropped: without EPLB")


def test_uniform_decode_rows_spread_their_tokens_over_the_experts(tmp_path: Path) -> None:
    sparse, dense = {"num_tokens": 16}, {"num_tokens": 128}
    rows = sglang_wideep.read_generation(_file(tmp_path, MOE | {"distribution": "uniform"}, sparse, dense)).rows
    assert rows[0].counts == (1, 1, 1, 1, 0, 0, 0, 0)
    assert rows[1].counts == (4,) * 8


@pytest.mark.parametrize(
    ("device", "us", "older", "notes"),
    [
        ("NVIDIA H100 80GB HBM3", (250, 250), False, ()),
        ("NVIDIA H200", (250, 250), True, ("1 row of NVIDIA H200 taken as drawn by the older recipe",)),
        (
            "NVIDIA GB200",
            (248.65, 249.73),
            False,
            (
                "2 rows of NVIDIA GB200 taken without the gap between graph replays: uniform 1.35 µs less, the others "
                "0.27 µs",
            ),
        ),
    ],
)
def test_decode_rows_are_taken_as_their_gpu_was_measured(
    tmp_path: Path, device: str, us: tuple[float, float], older: bool, notes: tuple[str, ...]
) -> None:
    table = sglang_wideep.read_generation(_file(tmp_path, MOE | {"device": device}, {"distribution": "uniform"}, {}))
    uniform, skewed = table.rows
    assert (uniform.us, skewed.us) == pytest.approx(us)
    assert (uniform.older_draws, skewed.older_draws) == (False, older)
    assert [note.startswith(start) for note, start in zip(table.notes, notes, strict=True)] == [True] * len(notes)
    assert table.dropped == ()


def test_drawn_rows_have_no_counts(tmp_path: Path) -> None:
    path = _file(tmp_path, MOE, {})
    assert sglang_wideep.read_generation(path).rows[0].counts == ()
    assert sglang_wideep.read_context(path).rows[0].counts == ()


def test_uniform_prefill_rows_that_were_not_padded_are_dropped(tmp_path: Path) -> None:
    rows = {"num_tokens": 4095}, {"num_tokens": 4096}, {"num_tokens": 32, "distribution": "power_law_1.2"}
    table = sglang_wideep.read_context(_file(tmp_path, MOE | {"distribution": "uniform"}, *rows))
    assert [row.tokens for row in table.rows] == [4096, 32]
    assert table.rows[0].counts == (128,) * 8
    assert [(note.rows, note.reason) for note in table.dropped] == [(1, sglang_wideep.UNPADDED)]


def test_fused_rows_of_one_kernel_without_shards_and_many_ranks(tmp_path: Path) -> None:
    base = MOE | {"distribution": "balanced", "moe_ep_size": 8, "num_tokens": 5}
    path = _file(tmp_path, base, {}, {"kernel_source": "other"}, {"moe_tp_size": 2}, {"moe_ep_size": 16})
    table = moe_perf.read(path, "k", "fp8_block")
    assert table.rows[0].counts == (1,) * 5 + (0,) * 27
    assert [note.reason for note in table.dropped] == [moe_perf.OTHER, moe_perf.SHARDED, moe_perf.MANY_RANKS]


def test_low_latency_rows_count_one_copy_per_assignment(tmp_path: Path) -> None:
    there, back = deepep.read_low_latency(_file(tmp_path, LOW_LATENCY, {})).rows
    assert (there.us, back.us, there.ranks) == (101, 202, 16)
    assert there.rdma_bytes == 128 * 4 * 7408
    assert there.nvlink_bytes == 128 * 3.5 * 7408
    assert back.rdma_bytes == 128 * 4 * 14336


def test_normal_rows_count_one_copy_per_distinct_node_and_rank() -> None:
    remote, ranks = deepep.normal_copies(4, 256, 8)
    assert remote == pytest.approx(2.71, abs=0.005)
    assert ranks == pytest.approx(6.36, abs=0.005)
    assert deepep.normal_copies(1, 256, 8)[0] == 0


def test_normal_rows_measured_on_a_bad_run_are_dropped(tmp_path: Path) -> None:
    eight = {"node_num": 8}
    path = _file(tmp_path, NORMAL, {}, {"dispatch_sms": 4}, eight, eight | {"num_token": 16384})
    table = deepep.read_normal(path)
    assert [(row.phase, row.nodes) for row in table.rows] == [
        ("dispatch", 2),
        ("combine", 2),
        ("combine", 2),
        ("combine", 8),
    ]
    assert table.rows[0].notify_us == 30
    assert [(note.rows, note.reason) for note in table.dropped] == [
        (1, deepep.FEW_SMS),
        (2, deepep.SLOW_FABRIC),
        (1, deepep.CONGESTED),
    ]


@pytest.mark.parametrize("base", [LOW_LATENCY, NORMAL])
def test_multi_node_rows_copied_from_another_gpu_are_dropped(tmp_path: Path, base: dict[str, Any]) -> None:
    path = _file(tmp_path, base, {"node_num": 1}, {"device": "NVIDIA H200"})
    table = (deepep.read_normal if base is NORMAL else deepep.read_low_latency)(path)
    assert table.rows == ()
    assert [note.reason for note in table.dropped] == [deepep.COPIED]


def test_nccl_messages_are_elements(tmp_path: Path) -> None:
    base = {"op_name": "alltoall", "nccl_dtype": "half", "num_gpus": 8, "message_size": 1000, "latency": 0.02}
    row = nvlink_collectives.read_nccl(_file(tmp_path, base, {})).rows[0]
    assert (row.size, row.us, row.nvlink_bytes) == (2000, 20, 1750)


def test_trtllm_all_to_all_has_one_curve_per_setting(tmp_path: Path) -> None:
    base = {
        "op_name": "alltoall_dispatch", "kernel_source": "NVLinkOneSided", "moe_dtype": "fp8", "moe_ep_size": 8,
        "num_tokens": 16, "hidden_size": 7168, "topk": 8, "num_experts": 256, "latency": 0.01,
    }  # fmt: skip
    rows = nvlink_collectives.read_trtllm(_file(tmp_path, base, {}, {"num_tokens": 32}, {"moe_ep_size": 16})).rows
    assert [row.phase for row in rows] == ["dispatch"] * 3
    assert [rows[0].curve == row.curve for row in rows] == [True, True, False]


def test_infersim_adds_the_two_gemms_and_drops_the_half_empty_row(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"{INFERSIM}\n256,1,256,8,7168,2048,1,1297.0,721.6\n256,8,32,8,7168,2048,16,100.5,49.5\n")
    table = infersim.read(path)
    assert (table.rows[0].us, table.rows[0].counts, table.rows[0].ep) == (150, (16,) * 32, 8)
    assert [(note.rows, note.reason) for note in table.dropped] == [(1, infersim.HALF_EMPTY)]


def test_broken_files_are_refused_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="column op_name is missing"):
        trtllm_wideep.read(_file(tmp_path, MOE, {}))
    with pytest.raises(ProfileError, match="cannot read"):
        deepep.read_normal(tmp_path / "absent.parquet")
    path = tmp_path / "data.csv"
    path.write_text(f"{INFERSIM}\n256,8,32,8,7168,2048,16,fast,49.5\n")
    with pytest.raises(ProfileError, match="row 1: not a number"):
        infersim.read(path)
    path.write_text("a,b\n")
    with pytest.raises(ProfileError, match="column num_experts is missing"):
        infersim.read(path)
    with pytest.raises(ProfileError, match="cannot read"):
        infersim.read(tmp_path / "absent.csv")
