"""`ebsim profile` as a user runs it: tables in, a profile out that plans can be made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.cluster.hardware import load_profile
from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.measured_rows import write_grouped_gemm, write_table

SAMPLE = Path(__file__).parents[2] / "traces" / "tinymoe.parquet"


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


def test_rows_of_an_older_recipe_are_noted_on_stderr(tmp_path: Path) -> None:
    base = {
        "device": "NVIDIA H200", "kernel_source": "k", "hidden_size": 7168, "inter_size": 2048, "topk": 8,
        "num_experts": 256, "distribution": "power_law_1.2",
    }  # fmt: skip
    rows = [
        {"moe_ep_size": ep, "num_tokens": tokens, "latency": 0.02 + 0.4 / ep + 3e-5 * tokens / ep}
        for ep in (4, 8, 16)
        for tokens in (64, 512, 1024)
    ]
    done = ebsim_here("profile", "fit", "sglang-generation", write_table(tmp_path / "t.parquet", base, *rows))
    assert done.returncode == 0
    assert done.stderr == "note: 9 rows of NVIDIA H200 taken as drawn by the older recipe, as their times say\n"


def test_a_plain_table_is_kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("tokens,us\n1,10\n64,20\n")
    done = ebsim_here("profile", "import", "tokens-us", tmp_path / "t.csv", "-o", tmp_path / "mine.toml")
    table = load_profile(str(tmp_path / "mine.toml")).expert_table
    assert done.returncode == 0
    assert table is not None
    assert (table.tokens, table.us) == ((1, 64), (10, 20))


def test_profiles_as_json() -> None:
    listed = json.loads(ebsim_here("profile", "list", "--format", "json").stdout)
    assert {"name": "h100", "title": "NVIDIA H100 SXM 80 GB"} in listed["profiles"]
    shown = json.loads(ebsim_here("profile", "show", "h100", "--format", "json").stdout)
    assert (shown["name"], shown["nvlink_domain"]) == ("h100", 8)
    assert "expert_table" not in shown


def test_an_import_as_json(tmp_path: Path) -> None:
    table, written = write_grouped_gemm(tmp_path / "g.csv"), tmp_path / "mine.toml"
    with table.open("a") as stream:
        stream.write("256,1,256,8,7168,2048,1,1297.0,721.6\n")
    options = ("infersim-decode", table, "--profile", "h800", "--format", "json")
    found = json.loads(ebsim_here("profile", "import", *options, "-o", written).stdout)
    (fit,) = found["fits"]
    assert (found["profile"], found["profile_file"], found["tables"]) == ("h800 with g.csv", str(written), [])
    assert (fit["name"], fit["rows"], fit["held_out"]) == ("fp8_block deepgemm_masked", 33, "EP sizes")
    assert set(fit["numbers"]) == {"c0_us", "eff_bw", "eff_flop", "q", "tok"}
    assert set(fit["at_bound"]) <= {"eff_bw", "eff_flop"}
    assert 0 < fit["error"]["mean"] < fit["error"]["p90"] < 1
    assert 0 < fit["held_out_error"]["median"] < 1
    assert [note["rows"] for note in found["dropped"]] == [1]
    assert json.loads(ebsim_here("profile", "fit", *options).stdout) == found | {"profile_file": None}


def test_nccl_and_the_output_of_deepep_become_profiles_that_plans_are_made_with(tmp_path: Path) -> None:
    nccl = write_table(
        tmp_path / "n.parquet",
        {"op_name": "alltoall", "nccl_dtype": "half", "num_gpus": 8},
        *({"message_size": 2**n, "latency": 1e-7 * 2**n} for n in range(8, 26)),
    )
    done = ebsim_here("profile", "import", "nccl", nccl, "--profile", "h20", "-o", tmp_path / "nccl.toml")
    assert "nccl dispatch and combine, bf16, 8 ranks  0.0 %" in done.stdout
    bench = tmp_path / "bench.txt"
    bench.write_text(
        "[rank 0] Dispatch bandwidth: 63.00 GB/s, avg_t=118.50 us | Combine bandwidth: 74.0 GB/s, avg_t=195.00 us\n"
    )
    options = ("deepep-bench", bench, "--profile", tmp_path / "nccl.toml", "--nodes", "2")
    done = ebsim_here("profile", "import", *options, "-o", tmp_path / "both.toml")
    assert done.stdout.startswith("low_latency dispatch, 1 row\nfactor ")
    made = ebsim_here(
        "plan",
        SAMPLE,
        "--profile",
        tmp_path / "both.toml",
        "--all-to-all",
        "nccl",
        "--policy",
        "eplb",
        "--format",
        "json",
    )
    report = json.loads(made.stdout)
    assert report["cost"]["all_to_all"] == "nccl"
    assert " · nccl table of 8 ranks · " in report["cost"]["label"]


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("ncll", (), "unknown kind of table; there are trtllm-wideep, "),
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
