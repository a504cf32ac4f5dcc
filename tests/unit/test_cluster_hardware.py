"""Profiles of the package load, validate and refuse what cannot be."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from easybalance_sim.cluster.hardware import load_profile, profile_names
from easybalance_sim.errors import ProfileError

H100 = resources.files("easybalance_sim.cluster").joinpath("profiles", "h100.toml").read_text(encoding="utf-8")


def test_the_promised_gpus_are_there() -> None:
    assert {"a100", "b200", "gb200", "h100", "h200", "h20"} <= set(profile_names())


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_loads_and_every_row_says_where_it_comes_from(name: str) -> None:
    profile = load_profile(name.upper())
    assert profile.name == name
    for row in (*profile.experts, *profile.links, profile.migration):
        assert row.source
        assert row.calibrated or row.why
    assert all(row.band_p90 > 0 for row in (*profile.experts, *profile.links))


@pytest.mark.parametrize("name", ["a100", "b200"])
def test_transferred_kernels_are_uncalibrated_with_a_wider_band(name: str) -> None:
    rows = [row for source in ("h200", "gb200") for row in load_profile(source).experts if row.calibrated]
    measured = {(row.source, row.dtype): row.band_p90 for row in rows}
    for row in load_profile(name).experts:
        assert not row.calibrated
        assert row.band_p90 >= measured[row.source, row.dtype] + 0.12 - 1e-9


def test_fitted_constants_of_the_h200() -> None:
    row = next(row for row in load_profile("h200").experts if row.kernel == "deepgemm_masked")
    assert (row.c0_us, row.eff_bw, row.eff_flop, row.q, row.block) == (19.2, 0.882, 0.78, 1.37, 64)
    contiguous = next(row for row in load_profile("h200").experts if row.kernel == "deepgemm_contig")
    assert contiguous.c0_us + contiguous.host_launch_us == pytest.approx(245.7)


def test_unknown_name_lists_the_profiles() -> None:
    with pytest.raises(ProfileError) as caught:
        load_profile("h900")
    assert str(caught.value).startswith("h900: unknown hardware profile; there are a100, b200, gb200, h100")
    assert "\n" not in str(caught.value)


def test_own_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(H100.replace('name = "h100"', 'name = "mine"'))
    assert load_profile(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("eff_bw = 0.865", "eff_bw = 1.2", "eff_bw and eff_flop must be > 0 and ≤ 1"),
        ("eff_bw = 0.865", "eff_bw = nan", "experts.0.eff_bw is nan"),
        ("eff_bw = 0.865", "eff_bw = inf", "experts.0.eff_bw is inf"),
        ("q = 1.52", "q = 0.5", "q must be ≥ 1"),
        ("block = 64", "block = 48", "power of two"),
        ("hbm_bytes = ", "hbm_bites = ", "hbm_bites"),
        ("hbm_bytes_per_s = 3.35e12", "hbm_bytes_per_s = 0.0", "hbm_bytes_per_s must be > 0"),
        ("rdma_bytes_per_s = 4.77e10", "rdma_bytes_per_s = 9e10", "at most the nominal 5e"),
        ("nvlink_bytes_per_s = 2.53e11", "nvlink_bytes_per_s = -1.0", "nvlink_bytes_per_s must be > 0"),
        ('mode = "low_latency"', 'mode = "fast"', "mode is one of normal, low_latency"),
        ('dtype = "fp8_block"', 'dtype = "fp9"', "dtype is not one of"),
        ('phases = ["decode"]', 'phases = ["sleep"]', "phases are prefill, decode"),
        ("[4, 60.0]", "[4, 6.0]", "notify_us must rise"),
        ("calibrated = true", "calibrated = false", "needs the reason in why"),
        ("int4_g32 = ", "int5 = ", "peak_flops needs one value"),
        ("[peak_flops]", "[peak_flops", "not a hardware profile"),
        ("nodes = [1, 8]", "nodes = [8, 1]", "fewest, most"),
        ("band_p90 = 0.09", "band_p90 = -0.1", "band_p90 must be ≥ 0"),
    ],
)
def test_impossible_values_are_refused_with_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in H100
    path = tmp_path / "mine.toml"
    path.write_text(H100.replace(old, new))
    with pytest.raises(ProfileError, match=words.replace("[", r"\[")) as caught:
        load_profile(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("tokens = [1.0]\nus = [1.0]", "same number of values, at least two"),
        ("tokens = [1.0, 2.0]\nus = [1.0]", "same number of values"),
        ("tokens = [2.0, 1.0]\nus = [1.0, 1.0]", "rise strictly"),
        ("tokens = [0.0, 1.0]\nus = [1.0, 1.0]", "tokens must be > 0"),
        ("tokens = [1.0, 2.0]\nus = [1.0, 0.0]", "us be > 0"),
        ("tokens = [1.0, 2.0]\nus = [1.0, 1.0]\nslots = -1", "slots must be ≥ 0"),
    ],
)
def test_an_impossible_table_in_a_profile_is_refused(tmp_path: Path, table: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'{H100}\n[expert_table]\nsource = "t.csv"\ncalibrated = true\n{table}\n')
    with pytest.raises(ProfileError, match=f"expert_table: .*{words}"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('mode = "nccl"', 'mode = "normal"', "mode is one of nccl, nvlink"),
        ('phases = ["dispatch", "combine"]\ndtype', "phases = []\ndtype", "phases are dispatch, combine"),
        ('dtype = "bf16"\nranks', 'dtype = "fp32"\nranks', "dtype is one of bf16, fp8, nvfp4"),
        ("ranks = 2", "ranks = 1", "ranks at least 2"),
        ("sent_bytes = [4096.0,", "sent_bytes = [1e9,", "sent_bytes must be > 0 and rise strictly"),
        ("us = [6.8,", "us = [0.0,", "us be > 0"),
        ("us = [6.8,", "us = [6.8, 7.0,", "sent_bytes and us need the same number"),
    ],
)
def test_an_impossible_link_table_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in H100
    path = tmp_path / "mine.toml"
    path.write_text(H100.replace(old, new, 1))
    with pytest.raises(ProfileError, match=f"link_tables .*{words}"):
        load_profile(str(path))


def test_a_missing_all_to_all_phase_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(H100[: H100.rindex("[[links]]")] + H100[H100.index("[[link_tables]]") :])
    with pytest.raises(ProfileError, match="links lack normal combine"):
        load_profile(str(path))


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot read"):
        load_profile(str(tmp_path / "none.toml"))
