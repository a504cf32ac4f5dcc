"""Looked-up all-to-alls against times worked out by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from easybalance_sim.cluster.hardware import HardwareProfile, LinkTable, load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.cost.link_tables import TableLink, table_link
from easybalance_sim.cost.network import dispatch_bytes
from easybalance_sim.errors import ProfileError, UsageError

DSV3 = load_shape("deepseek-v3")
TABLE = LinkTable(
    mode="nccl", phases=("dispatch", "combine"), dtype="bf16", ranks=8, sent_bytes=(14336, 1433600, 2867200),
    us=(10, 30, 50), band_p90=0.09, calibrated=True, source="mine.parquet",
)  # fmt: skip


def _profile(*tables: LinkTable) -> HardwareProfile:
    return msgspec.structs.replace(load_profile("h100"), link_tables=tables)


def _us(link: TableLink, *copies: int) -> float:
    sent = np.array([[copies]], np.int32)
    return 1e6 * float(link.seconds(0 * sent, sent)[0, 0])


def _link(*tables: LinkTable, ranks: int = 8, phase: str = "dispatch") -> TableLink:
    return table_link(_profile(*tables), DSV3, 1, ranks, "nccl", phase)


def test_copies_become_bytes_and_are_read_off_the_table() -> None:
    """A copy of DeepSeek-V3 is 2 × 7168 bytes, so the rows are at 1, 100 and 200 copies."""
    link = _link(TABLE)
    assert link.copy_bytes == 14336
    assert [round(_us(link, copies), 9) for copies in (1, 100, 150, 200)] == [10, 30, 40, 50]


def test_the_busiest_rank_decides_and_nothing_sent_costs_nothing() -> None:
    assert _us(_link(TABLE), 3, 150, 0) == pytest.approx(40)
    assert _us(_link(TABLE), 0, 0) == 0


def test_beyond_the_table_by_its_tail_up_to_four_times() -> None:
    """Least squares through (1, 10), (100, 30), (200, 50) rises by 3979 / 19801 µs a copy."""
    assert _us(_link(TABLE), 800) == pytest.approx(50 + 600 * 0.20097, rel=1e-3)
    assert _link(TABLE).nvlink_bytes_per_s == pytest.approx(14336 / 0.20097e-6, rel=1e-3)
    with pytest.raises(ProfileError, match=r"mine\.parquet: .* bytes that a rank sends are more than 4 times"):
        _us(_link(TABLE), 801)


def test_the_table_of_the_nearest_ranks_is_taken_and_said() -> None:
    four = msgspec.structs.replace(TABLE, ranks=4)
    assert _link(four, TABLE).table.ranks == 8
    assert _link(four, TABLE).reasons == ()
    assert _link(four, TABLE, ranks=5).reasons == ("no nccl table of 5 ranks: that of 4",)
    assert _link(four, TABLE, ranks=64).reasons == ("no nccl table of 64 ranks: that of 8",)
    doubted = msgspec.structs.replace(TABLE, calibrated=False, why="another fabric")
    assert _link(doubted).reasons == ("another fabric",)


def test_the_phase_and_the_dtype_that_is_sent_choose_the_table() -> None:
    rows = [("dispatch", "fp8"), ("dispatch", "nvfp4"), ("dispatch", "bf16"), ("combine", "bf16")]
    tables = [
        msgspec.structs.replace(TABLE, mode="nvlink", phases=(phase,), dtype=dtype, source=f"{phase} {dtype}")
        for phase, dtype in rows
    ]
    for model, phase, source, copy_bytes in (
        ("deepseek-v3", "dispatch", "dispatch fp8", 7168),
        ("deepseek-v3-nvfp4", "dispatch", "dispatch nvfp4", 7168 * 9 / 16),
        ("deepseek-v3-bf16", "dispatch", "dispatch bf16", 14336),
        ("deepseek-v3", "combine", "combine bf16", 14336),
    ):
        found = table_link(_profile(*tables), load_shape(model), 1, 8, "nvlink", phase)
        assert (found.table.source, found.copy_bytes) == (source, copy_bytes)
        if phase == "dispatch":
            assert dispatch_bytes(load_shape(model), "nvlink") == copy_bytes


def test_one_domain_only() -> None:
    with pytest.raises(UsageError, match="nccl was measured inside one NVLink domain only, the cluster has 2"):
        table_link(_profile(TABLE), DSV3, 2, 16, "nccl", "dispatch")


def test_a_profile_without_the_table_says_what_would_help() -> None:
    with pytest.raises(ProfileError, match="profile h100: has no table of the nccl all-to-all — import one"):
        _link()


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "gb200"])
def test_shipped_tables_give_a_layer_with_their_name_and_band(gpu: str) -> None:
    topology = uniform(4, 8, 64)
    cost = layer_cost(load_profile(gpu), DSV3, topology, topology.slots_per_rank, "nccl", "decode")
    assert " · nccl table of 4 ranks · band ±" in cost.label
    assert 0 < cost.dispatch.band_p90 < 0.15
    assert 1e11 < cost.dispatch.nvlink_bytes_per_s < 1e12


def test_nvlink_of_a_rack_of_gb200() -> None:
    """1024 tokens on each of 64 ranks were measured at 123 + 22 µs there (with prepare) and 249 µs back."""
    topology = uniform(64, 64, 4)
    cost = layer_cost(load_profile("gb200"), DSV3, topology, topology.slots_per_rank, "nvlink", "decode")
    sent = np.full((1, 1, 64), round(1024 * 7.575 * 63 / 64), np.int32)
    assert cost.dispatch.seconds(0 * sent, sent)[0, 0] * 1e6 == pytest.approx(145, rel=0.05)
    assert cost.combine.seconds(0 * sent, sent)[0, 0] * 1e6 == pytest.approx(249, rel=0.05)


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "gb200"])
def test_more_bytes_never_take_less_in_a_shipped_table(gpu: str) -> None:
    for table in load_profile(gpu).link_tables:
        assert list(table.us) == sorted(table.us)
