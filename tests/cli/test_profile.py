"""`ebsim profile` as a user runs it: tables in, a profile out that plans can be made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from easybalance_sim.cluster.hardware import load_profile
from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.measured_rows import write_grouped_gemm


def test_profiles_are_listed_and_shown_as_files_that_load(tmp_path: Path) -> None:
    assert "gb200  NVIDIA GB200" in ebsim_here("profile", "list").stdout
    shown = ebsim_here("profile", "show", "h100")
    assert shown.returncode == 0
    (tmp_path / "mine.toml").write_text(shown.stdout)
    assert load_profile(str(tmp_path / "mine.toml")) == load_profile("h100")


def test_a_table_becomes_a_profile_that_loads(tmp_path: Path) -> None:
    table, written = write_grouped_gemm(tmp_path / "g.csv"), tmp_path / "mine.toml"
    done = ebsim("profile", "import", "infersim-decode", table, "--profile", "h800", "-o", written)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fp8_block deepgemm_masked, 33 rows\nc0_us ")
    assert "held-out EP sizes" in done.stdout
    assert "at the bound of 1: not identified" in done.stdout
    row = load_profile(str(written)).experts[0]
    assert (row.kernel, row.phases, row.hidden, row.calibrated) == ("deepgemm_masked", ("decode",), (7168, 7168), True)
    assert row.band_p90 > 0


def test_fit_prints_the_same_and_writes_nothing(tmp_path: Path) -> None:
    table = write_grouped_gemm(tmp_path / "g.csv")
    fitted = ebsim_here("profile", "fit", "infersim-decode", table, "--profile", "h800")
    imported = ebsim_here(
        "profile", "import", "infersim-decode", table, "--profile", "h800", "-o", tmp_path / "mine.toml"
    )
    assert fitted.stdout == imported.stdout


def test_dropped_rows_are_noted_on_stderr(tmp_path: Path) -> None:
    table = write_grouped_gemm(tmp_path / "g.csv")
    with table.open("a") as stream:
        stream.write("256,1,256,8,7168,2048,1,1297.0,721.6\n")
    done = ebsim_here("profile", "fit", "infersim-decode", table, "--profile", "h800")
    assert done.stderr.startswith("note: 1 row dropped: 256 experts on one GPU")


def test_a_plain_table_is_kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("tokens,us\n1,10\n64,20\n")
    done = ebsim_here("profile", "import", "tokens-us", tmp_path / "t.csv", "-o", tmp_path / "mine.toml")
    table = load_profile(str(tmp_path / "mine.toml")).expert_table
    assert done.returncode == 0
    assert table is not None
    assert (table.tokens, table.us) == ((1, 64), (10, 20))


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("nccl", (), "unknown kind of table; there are trtllm-wideep, "),
        ("infersim-decode", ("--dtype", "fp9"), "unknown dtype; there are "),
        ("infersim-decode", ("--profile", "b9"), "unknown hardware profile"),
        ("deepep-normal", (), "cannot read"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, kind: str, options: tuple[str, ...], said: str) -> None:
    table = write_grouped_gemm(tmp_path / "g.csv")
    done = ebsim_here("profile", "fit", kind, table, *options)
    assert done.returncode == 2
    assert said in one_line(done)


def test_an_output_of_another_kind_is_refused(tmp_path: Path) -> None:
    table = write_grouped_gemm(tmp_path / "g.csv")
    done = ebsim_here("profile", "import", "infersim-decode", table, "-o", tmp_path / "mine.csv")
    assert "a profile is a .toml file" in one_line(done)
    assert not (tmp_path / "mine.csv").exists()
