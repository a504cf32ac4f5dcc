"""`ebsim profile measure` as a user runs it: refused without a GPU, and whole runs with numpy in the GPU's place."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from easybalance_sim import kernels
from easybalance_sim.cluster.hardware import load_profile
from tests.cuda_on_cpu import compiled
from tests.ebsim_process import ROOT, ebsim, ebsim_here, environment, hear_interrupts, one_line
from tests.one_text import unbroken

# Whatever imports cupy gets the stand-in.
CUPY = """
import sys
from pathlib import Path
from tests.cuda_on_cpu.stand_in_timing import TimingStandIn
sys.modules["cupy"] = TimingStandIn(Path({folder!r}), gpus=2)
"""
SMALL = ("--hidden", "32", "--intermediate", "16", "--slots", "4", "--tokens", "1,8", "--repeats", "2")
WITHOUT_GPU = pytest.mark.skipif(not kernels.gpu_fault(), reason="there is a GPU: tests/bench/gpu.sh measures it")


@pytest.fixture
def gpu(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a machine whose two GPUs are numpy."""
    if compiled.compiler() is None:
        pytest.skip("g++ is not installed: the CUDA sources cannot be run on the CPU (apt-get install g++)")
    (tmp_path / "gpu").mkdir()
    folder = tmp_path_factory.getbasetemp().parent / "cuda_on_cpu"
    (tmp_path / "gpu" / "cupy.py").write_text(CUPY.format(folder=str(folder)))
    return {"PYTHONPATH": f"{ROOT}:{tmp_path / 'gpu'}"}


@WITHOUT_GPU
def test_without_a_gpu_one_line_says_what_would_help(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("old")
    done = ebsim("profile", "measure", "--model", "gpt-oss-20b", "-o", tmp_path / "rows.csv")
    assert done.returncode == 2
    line = one_line(done)
    assert line.startswith("ebsim: error: profile measure: no GPU can be measured: ")
    assert line.endswith(
        "run it where an NVIDIA GPU is; in a clone of ebsim pip install '.[cuda12]' or '.[cuda13]' (by driver)\n"
    )
    assert (tmp_path / "rows.csv").read_text() == "old"


def test_a_run_prints_tables_and_writes_one(tmp_path: Path, gpu: Mapping[str, str]) -> None:
    done = ebsim("profile", "measure", *SMALL, "-o", "rows.csv", cwd=tmp_path, env=gpu)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "a CPU: bf16 experts (32×16, 4 in memory), median of 2 runs"
    assert [line.split("  ")[0] for line in lines if line.startswith(("read", "copy"))] == [
        "read of memory", "read of memory", "read of memory", *["copy within the GPU"] * 3, *["copy from the host"] * 3,
        *["copy to GPU 1"] * 3,
    ]  # fmt: skip
    at = lines.index("µs of both GEMMs, by active experts")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["tokens", "1", "8"]
    assert lines[at + 1].split() == ["tokens", "per", "expert", "1", "2", "4"]
    assert unbroken(done.stdout).endswith(
        "18 rows written to rows.csv; next: ebsim profile import ebsim-measured rows.csv --profile GPU -o mine.toml"
    )
    with (tmp_path / "rows.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    grid = [(row["tokens_per_expert"], row["active"]) for row in rows if row["what"] == "experts"]
    assert grid == [(tokens, active) for tokens in ("1", "8") for active in ("1", "2", "4")]


def test_measured_fitted_planned_with_is_one_path(tmp_path: Path, gpu: Mapping[str, str]) -> None:
    """The times of numpy mean nothing, but every command takes what the last one wrote."""
    measured = ebsim("profile", "measure", *SMALL, "-o", "rows.csv", cwd=tmp_path, env=gpu)
    assert measured.returncode == 0, measured.stderr
    done = ebsim("profile", "import", "ebsim-measured", "rows.csv", "-o", "mine.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bf16 cublas_batched, 6 rows\nc0_us ")
    assert "held-out numbers of active experts" in done.stdout
    assert done.stderr.startswith("note: measured on a CPU, put into the profile of NVIDIA H200 SXM 141 GB\n")
    row = load_profile(str(tmp_path / "mine.toml")).experts[0]
    assert (row.kernel, row.hidden, row.source) == (
        "cublas_batched",
        (32, 32),
        "ebsim profile measure on a CPU, 6 rows",
    )
    sample = ROOT / "traces" / "tinymoe.parquet"
    planned = ebsim("plan", sample, "--profile", "mine.toml", "--policy", "eplb", "--force", cwd=tmp_path)
    assert "bf16 cublas_batched" in planned.stdout


def test_json_holds_the_rows_and_the_device(tmp_path: Path, gpu: Mapping[str, str]) -> None:
    done = ebsim("profile", "measure", *SMALL, "--active", "2", "--dtype", "fp16", "--format", "json", env=gpu)
    found = json.loads(done.stdout)
    assert (found["device"]["name"], found["device"]["gpus"], found["table_file"]) == ("a CPU", 2, None)
    assert found["request"]["tokens"] == [1, 8]
    (first, second) = (row for row in found["rows"] if row["what"] == "experts")
    assert (first["active"], first["tokens_per_expert"], second["tokens_per_expert"]) == (2, 1, 8)
    assert first["us"] > 0 and first["dtype"] == "fp16" and "peer" not in first


def test_a_budget_without_time_writes_nothing(tmp_path: Path, gpu: Mapping[str, str]) -> None:
    (tmp_path / "rows.csv").write_text("old")
    done = ebsim("profile", "measure", *SMALL, "--budget-s", "0", "-o", "rows.csv", cwd=tmp_path, env=gpu)
    assert done.returncode == 2
    assert "nothing was measured: the budget of 0 s was used up after 0 of 18 points" in one_line(done)
    assert (tmp_path / "rows.csv").read_text() == "old"


def test_an_interrupt_leaves_the_old_table_whole(tmp_path: Path, gpu: Mapping[str, str]) -> None:
    (tmp_path / "rows.csv").write_text("old")
    command = [sys.executable, "-m", "easybalance_sim", "profile", "measure", *SMALL, "-o", "rows.csv"]
    process = subprocess.Popen(
        [*command, "--repeats", "400"], cwd=tmp_path, env=environment(gpu), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline().startswith("measuring bf16 experts on a CPU: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert "interrupted; no file was left half-written" in err
    assert (tmp_path / "rows.csv").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"gpu", "rows.csv"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "which experts? — say --model, or --hidden and --intermediate"),
        (("--hidden", "64"), "which experts? — say --model, or --hidden and --intermediate"),
        (("--model", "mixtral-8x7b", "--hidden", "64"), "which experts?"),
        (("--model", "gpt-9"), "gpt-9"),
        (
            (*SMALL, "--dtype", "fp8_block"),
            "cuBLAS through cupy multiplies bf16 and fp16 only — measure bf16, or import",
        ),
        ((*SMALL, "--active", "1,5"), "--active: 5 is not between 1 and 4"),
        ((*SMALL, "--tokens", "some"), "--tokens: 'some' is not a list of whole numbers"),
        ((*SMALL, "--repeats", "0"), "0 is not in the range"),
        ((*SMALL, "-o", "no/such/folder.csv"), "there is no folder no/such"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], said: str) -> None:
    done = ebsim_here("profile", "measure", *options)
    assert done.returncode == 2
    assert said in one_line(done)
