"""`ebsim import` of single requests, loads and tables, as a user runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.reply_files import routing, sglang, store, vllm

SHAPE = ("--experts", "8", "--top-k", "2", "--layers", "2-4")


def test_replies_become_a_trace_that_can_be_planned_on(tmp_path: Path) -> None:
    store(tmp_path / "in.jsonl", *(sglang(routing(40, seed), id=f"r{seed}") for seed in range(30)))
    done = ebsim("import", "sglang-routed-experts", "in.jsonl", "-o", "t.parquet", *SHAPE, "--concurrency", "4",
                 cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote t.parquet: ") and "3 layers × 8 experts, top-2" in done.stdout
    planned = ebsim_here(
        "plan", "t.parquet", "--ranks", "2", "--ranks-per-node", "2", "--policy", "eplb", "-o", "p.json", cwd=tmp_path
    )
    assert planned.returncode in (0, 1, 3), planned.stderr


@pytest.mark.parametrize(
    ("kind", "reply", "says"),
    [
        ("sglang-routed-experts", vllm(routing()), "import it as vllm-routed-experts"),
        ("vllm-routed-experts", sglang(routing()), "import it as sglang-routed-experts"),
        ("request-json", {"experts": 5}, "holds no list of steps or tokens"),
    ],
)
def test_another_kind_is_refused_with_one_line(tmp_path: Path, kind: str, reply: object, says: str) -> None:
    source = store(tmp_path / "in.jsonl", reply)
    done = ebsim_here("import", kind, source, "-o", tmp_path / "t.parquet", *SHAPE)
    assert done.returncode == 2 and done.stdout == ""
    assert says in one_line(done)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_loads_and_tables(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.arange(24).reshape(3, 8) * 100)
    (tmp_path / "c.csv").write_text("layer," + ",".join(f"c{n}" for n in range(8)) + "\n2" + ",100" * 8 + "\n")
    for kind, name, layers in (("eplb-weight", "w.npy", "2-4"), ("csv-counts", "c.csv", "2")):
        done = ebsim_here("import", kind, tmp_path / name, "-o", tmp_path / "t.parquet", "--top-k", "2",
                          "--layers", layers)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert ebsim_here("trace", "check", tmp_path / "t.parquet").returncode == 0
