"""Measured rows become a table, and the table a fit that finds the numbers behind them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cost.expert import expert_cost
from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.measure import TOKENS, Request, active_counts, measure
from easybalance_sim.profiling.profile_text import profile_text
from easybalance_sim.profiling.rows import ExpertRow
from easybalance_sim.profiling.sources import MEASURED, import_table
from easybalance_sim.profiling.tables.measured import KERNEL, WHAT, Measurement, _rows, read, table_text
from tests.measured_gpu import FakeGpu, quiet

H200 = load_profile("h200")
EXPERT = Measurement(
    what="experts", device="NVIDIA H200", us=30.0, us_low=29.0, us_high=31.5, runs=20, bytes=4096, dtype="bf16",
    hidden=32, intermediate=16, matrices=3, slots=4, active=2, tokens_per_expert=8, up_us=20.0, down_us=10.0,
)  # fmt: skip
READ = Measurement(what="read", device="NVIDIA H200", us=50.0, us_low=49.0, us_high=51.0, runs=20, bytes=1 << 27)


def table(path: Path, *rows: Measurement) -> Path:
    path.write_text(table_text(rows), encoding="utf-8")
    return path


def measured_table(path: Path, gpu: FakeGpu, **changes: Any) -> Path:
    """The default grid for experts of 4096 × 1536."""
    values: dict[str, Any] = {
        "hidden": 4096, "intermediate": 1536, "matrices": 3, "slots": 17, "dtype": "bf16", "tokens": TOKENS,
        "active": active_counts(17), "repeats": 5, "budget_s": 1e9,
    }  # fmt: skip
    return table(path, *measure(Request(**(values | changes)), gpu, quiet).rows)


names = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1).map(str.strip).filter(bool)
sizes, times = st.integers(1, 1 << 40), st.floats(0.01, 1e6).map(lambda value: round(value, 3))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rows = [
        replace(
            EXPERT if what == "experts" else READ,
            what=what, device=data.draw(names), us=data.draw(times), us_high=data.draw(times), bytes=data.draw(sizes),
            peer=data.draw(st.integers(1, 7)) if what == "copy-peer" else -1,
        )
        for what in data.draw(st.lists(st.sampled_from(WHAT), max_size=6))
    ]  # fmt: skip
    assert list(_rows(table(tmp_path_factory.mktemp("t") / "t.csv", *rows))) == rows


def test_the_layout_stays() -> None:
    head, first, second = table_text([EXPERT, READ]).splitlines()
    assert head == (
        "ebsim_measured,what,device,us,us_low,us_high,runs,bytes,peer,dtype,hidden,intermediate,matrices,slots,active,"
        "tokens_per_expert,up_us,down_us"
    )
    assert first == "1,experts,NVIDIA H200,30.000,29.000,31.500,20,4096,,bf16,32,16,3,4,2,8,20.000,10.000"
    assert second == "1,read,NVIDIA H200,50.000,49.000,51.000,20,134217728,,,,,,,,,,"


def test_rows_become_rows_to_fit(tmp_path: Path) -> None:
    peers = [replace(READ, what="copy-peer", peer=peer, bytes=size, us=us) for peer, size, us in (
        (1, 1000, 1.0), (1, 2000, 1.0), (2, 1000, 1.0), (2, 2000, 4.0),
    )]  # fmt: skip
    found = read(table(tmp_path / "t.csv", EXPERT, replace(READ, bytes=1), READ, *peers))
    assert found.experts.rows == (
        ExpertRow(
            us=30.0, hidden=32, intermediate=16, experts=4, top_k=1, ep=1, slots=4, tokens=16, distribution="balanced",
            counts=(8, 8, 0, 0), kernel=KERNEL, matrices=3,
        ),
    )  # fmt: skip
    assert found.experts.source == "ebsim profile measure on NVIDIA H200"
    assert found.read_bytes_per_s == pytest.approx((1 << 27) / 50e-6)
    assert found.peer_bytes_per_s == pytest.approx(2000 / 4e-6)


def test_half_precision_is_fitted_as_the_dtype_of_its_size(tmp_path: Path) -> None:
    found = read(table(tmp_path / "t.csv", replace(EXPERT, dtype="fp16")))
    assert (found.dtype, found.experts.source) == ("bf16", "ebsim profile measure on NVIDIA H200 in fp16")


def test_columns_in_any_order_and_more_of_them(tmp_path: Path) -> None:
    lines = table_text([EXPERT]).splitlines()
    mixed = [",".join([*reversed(line.split(",")), more]) for line, more in zip(lines, ("mine", "7"), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(mixed))
    assert list(_rows(tmp_path / "t.csv")) == [EXPERT]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("1,experts", "2,experts"), "row 1: layout '2', expected 1"),
        (("1,experts", "1,gemm"), "row 1: what is 'gemm', not one of experts, read"),
        (("30.000", "fast"), "row 1: not a measurement: could not convert string to float: 'fast'"),
        (("30.000", "nan"), "row 1: us and bytes must be finite and > 0"),
        (("30.000", ""), "row 1: us is empty"),
        (("NVIDIA H200", ""), "row 1: device is empty"),
        ((",3,4,2,", ",3,99999999999,2,"), "row 1: widths and tokens end at 16,777,216, slots at 65,536"),
        (("bf16", "\x00"), "row 1: dtype '\\x00' is not one of"),
        (("bf16", "b" * 200_000), "cannot read: field larger than field limit"),
        (("4096", "0"), "row 1: us and bytes must be finite and > 0"),
        (("bf16", "fp8"), "row 1: dtype 'fp8' is not one of bf16, fp16"),
        (("bf16", ""), "row 1: experts need dtype"),
        ((",8,20.0", ",,20.0"), "row 1: experts need tokens_per_expert"),
        ((",3,4,2,", ",5,4,2,"), "row 1: widths and tokens must be > 0, matrices 2 or 3"),
        ((",3,4,2,", ",3,4,5,"), "row 1: 5 active of 4 slots"),
        ((",3,4,2,", ",3,4,0,"), "row 1: 0 active of 4 slots"),
        (("ebsim_measured", "version"), "column ebsim_measured is missing"),
        (("tokens_per_expert", "\udcff"), "cannot read"),
    ],
)
def test_faults_are_named_with_their_row(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    text = table_text([EXPERT])
    assert text.count(change[0]) == 1
    (tmp_path / "t.csv").write_bytes(text.replace(*change).encode("utf-8", "surrogateescape"))
    with pytest.raises(ProfileError) as refused:
        read(tmp_path / "t.csv")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (replace(EXPERT, device="NVIDIA H100"), "rows of several GPUs: NVIDIA H100, NVIDIA H200"),
        (replace(EXPERT, dtype="fp16"), "rows of several dtypes: bf16, fp16"),
    ],
)
def test_tables_of_several_gpus_or_dtypes_are_refused(tmp_path: Path, row: Measurement, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        read(table(tmp_path / "t.csv", EXPERT, row))


@pytest.mark.parametrize("matrices", [2, 3])
@pytest.mark.parametrize(("numbers", "block"), [((12.0, 0.8, 0.7, 2.0), 64), ((30.0, 0.9, 0.5, 1.3), 128)])
def test_the_fit_finds_the_numbers_behind_noisy_rows(
    numbers: tuple[float, float, float, float], block: int, matrices: int, tmp_path: Path
) -> None:
    gpu = FakeGpu(numbers=numbers, block=block, noise=0.02)
    found = import_table(MEASURED, measured_table(tmp_path / "t.csv", gpu, matrices=matrices), H200)
    row = found.profile.experts[0]
    assert (row.kernel, row.dtype, row.phases, row.block) == (KERNEL, "bf16", ("prefill", "decode"), block)
    assert row.c0_us == pytest.approx(numbers[0], rel=0.05)
    assert (row.eff_bw, row.eff_flop) == pytest.approx(numbers[1:3], rel=0.03)
    assert row.q == pytest.approx(numbers[3], rel=0.1)
    assert (row.tok, row.hidden, row.intermediate) == (0.0, (4096, 4096), (1536, 1536))
    assert row.source == "ebsim profile measure on NVIDIA H200, 80 rows"
    (fit,) = found.fits
    assert (fit.group, fit.rows) == ("numbers of active experts", 80)
    assert fit.numbers["block"] == block
    assert fit.held_out is not None and fit.held_out[0] < 3


def test_plans_for_the_measured_widths_take_the_measured_row(tmp_path: Path) -> None:
    found = import_table(MEASURED, measured_table(tmp_path / "t.csv", FakeGpu()), H200)
    (tmp_path / "p.toml").write_text(profile_text(found.profile), encoding="utf-8")
    shape = ModelShape(
        name="m", layers=(0,), experts=128, top_k=8, hidden=4096, intermediate=1536, dtype="bf16", source="s"
    )
    for phase in ("prefill", "decode"):
        cost = expert_cost(load_profile(str(tmp_path / "p.toml")), shape, phase)
        assert (cost.kernel.kernel, cost.reasons) == (KERNEL, ())


def test_one_number_of_active_experts_holds_out_token_counts(tmp_path: Path) -> None:
    path = measured_table(tmp_path / "t.csv", FakeGpu(), active=(8,))
    assert import_table(MEASURED, path, H200).fits[0].group == "token counts"


def test_copies_between_gpus_become_the_link_of_a_migration(tmp_path: Path) -> None:
    found = import_table(MEASURED, measured_table(tmp_path / "t.csv", FakeGpu(gpus=2, noise=0.0)), H200)
    link = found.profile.migration
    assert link.nvlink_bytes_per_s == pytest.approx(3.8e11, rel=0.01)
    assert link.cross_node_bytes_per_s == H200.migration.cross_node_bytes_per_s
    assert link.source.startswith("within a node ebsim profile measure on NVIDIA H200; between nodes vidur")
    assert found.notes[-1] == "copies between GPUs go at 379 GB/s, as migration will be costed"


def test_without_copies_between_gpus_the_migration_stays(tmp_path: Path) -> None:
    found = import_table(MEASURED, measured_table(tmp_path / "t.csv", FakeGpu(noise=0.0)), H200)
    assert found.profile.migration == H200.migration
    assert found.notes == (
        "measured on NVIDIA H200, put into the profile of NVIDIA H200 SXM 141 GB",
        "memory is read at 4.19 TB/s, 87% of the nominal",
    )


def test_memory_faster_than_the_profile_says_is_another_gpu(tmp_path: Path) -> None:
    path = measured_table(tmp_path / "t.csv", FakeGpu())
    with pytest.raises(
        ProfileError, match=r"NVIDIA H200 read 4.[12]\d TB/s, more than the nominal 3.35 TB/s of NVIDIA"
    ):
        import_table(MEASURED, path, load_profile("h100"))


def test_a_table_without_experts_cannot_be_fitted(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no row can be fitted"):
        import_table(MEASURED, table(tmp_path / "t.csv", READ), H200)
