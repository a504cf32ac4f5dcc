"""`ebsim trace …` as a user runs it: real processes, exit codes, stdout for results and stderr for notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.trace.schema import TraceMeta
from tests.ebsim_process import Done, ebsim, ebsim_here
from tests.one_text import unbroken

SAMPLE = Path(__file__).parents[2] / "traces" / "tinymoe.parquet"


def run(*arguments: str | Path) -> Done:
    return ebsim("trace", *arguments)


def run_here(*arguments: str | Path) -> Done:
    return ebsim_here("trace", *arguments)


def run_json(*arguments: str | Path) -> dict[str, Any]:
    done = run_here(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def refused(done: Done, says: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ebsim: error: ") and done.stderr.count("\n") == 1
    assert says in done.stderr


def test_check_of_the_sample() -> None:
    done = run("check", SAMPLE)
    assert done.returncode == 0
    assert "87,875 tokens, 2,255 steps, 683 requests, 8 layers × 64 experts, top-6" in unbroken(done.stdout)
    found = run_json("check", SAMPLE)
    assert found["ok"] is True
    assert found["phases"] == {"prefill": 57707, "decode": 30168}
    assert sum(found["workloads"].values()) == found["tokens"] == 87875
    assert set(found["workloads"]) == {
        "english", "chinese", "japanese", "european", "python", "c", "javascript", "manual"
    }  # fmt: skip


def test_check_says_which_what_ifs_a_trace_supports() -> None:
    scored = SAMPLE.with_name("tinymoe_scores.parquet")
    known = {path: {one["name"]: one for one in run_json("check", path)["what_ifs"]} for path in (SAMPLE, scored)}
    assert set(known[SAMPLE]) == set(known[scored]) >= {"placements", "router offsets", "stability of offsets"}
    assert all(one["supported"] for one in known[scored].values())
    assert {name for name, one in known[SAMPLE].items() if not one["supported"]} == {
        "router offsets", "stability of offsets", "re-routing"
    }  # fmt: skip
    table = unbroken(run_here("check", SAMPLE).stdout)
    assert "router offsets no the trace holds no scores to choose experts by: record with all_scores" in table


def test_the_sample_says_its_model() -> None:
    meta = json.loads(pq.read_schema(SAMPLE).metadata[b"ebsim.trace"])
    assert (meta["hidden"], meta["intermediate"], meta["matrices"]) == (128, 64, 3)
    assert (meta["weight_dtype"], meta["ranks"], meta["groups"]) == ("bf16", 8, 8)
    assert SAMPLE.stat().st_size <= 3_000_000


def test_summary_of_the_sample() -> None:
    found = run_json("summary", SAMPLE, "--ranks", "8", "--ranks-per-node", "4")
    assert len(found["layers"]) == 8
    assert found["cluster"] == {"ranks": 8, "nodes": 2, "placement": "contiguous"}
    everywhere = found["all_layers"]
    assert 1.0 < everywhere["node_imbalance"]["mean"] < everywhere["rank_imbalance"]["mean"] < 1.5
    assert everywhere["rank_imbalance"]["mean"] < everywhere["rank_imbalance"]["p99"]
    # Even over the whole mix, uneven inside a window: what the recording is known for.
    assert everywhere["max_over_mean"]["max"] < 1.4 and everywhere["over_dispersion"] > 5
    assert found["reading"].startswith("real")
    hot = found["hot_spots"]
    assert hot["suppressed_spikes"] > 0 and hot["staying"]["suppressed_spikes"] > 0
    assert (hot["staying"]["on"], hot["staying"]["off"], len(hot["staying"]["node_windows"])) == (1.2, 1.1, 2)
    # Hardly a rank stays hot over all layers, though many grow for a while.
    assert sum(hot["staying"]["rank_windows"]) < sum(hot["rank_windows"])
    table = run("summary", SAMPLE).stdout
    assert "over-dispersion" in table and table.count("ranks over all layers: ") == 2
    assert "the last three windows over 1.2 × the mean" in table and "the EasyBalance article's rule" in table


def test_summary_says_which_experts_go_together(tmp_path: Path) -> None:
    found = run_json("summary", SAMPLE)["coactivation"]
    assert (found["tokens"], found["layers_counted"]) == (87875, 8)
    assert [layer["layer"] for layer in found["layers"]] == list(range(8))
    assert 0.1 < found["strong_share"] < 0.3 and found["by_chance"] == 0
    lifts = [pair["lift"] for pair in found["strongest"]]
    assert len(lifts) == 5 and min(lifts) > 3
    best = found["strongest"][0]
    table = run_here("summary", SAMPLE).stdout
    assert f"L{best['layer']}/E{best['experts'][0]}+E{best['experts'][1]} ({best['lift']:.1f}×)" in table
    assert run_here("synthesise", "power-law", "-o", tmp_path / "noise.parquet", "--steps", "64").returncode == 0
    noise = run_json("summary", tmp_path / "noise.parquet")["coactivation"]
    assert noise["strong_share"] == pytest.approx(noise["by_chance"], abs=0.02)


def test_summary_tells_noise_from_drift(tmp_path: Path) -> None:
    readings = {}
    for kind in ("power-law", "tenant-shift"):
        out = tmp_path / f"{kind}.parquet"
        assert run_here("synthesise", kind, "-o", out, "--layers", "2", "--steps", "256").returncode == 0
        assert (tmp_path / f"{kind}.truth.json").exists()
        readings[kind] = run_json("summary", out)
    assert readings["power-law"]["all_layers"]["over_dispersion"] == pytest.approx(1, abs=0.15)
    assert readings["power-law"]["reading"].startswith("batch noise")
    assert readings["tenant-shift"]["all_layers"]["over_dispersion"] > 5
    assert set(readings["tenant-shift"]["workloads"]) == {"tenant-a", "tenant-b"}


def test_convert_routed_tokens_then_check(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    request = np.repeat(np.arange(40), 12)
    ids = np.argsort(rng.random((480, 2, 8)), axis=2)[:, :, :2].reshape(480, 4)
    columns = {"request_id": request, "token_pos": np.tile(np.arange(12), 40), "experts": pa.array(ids.tolist())}
    pq.write_table(pa.table(columns), tmp_path / "routed.parquet")
    flags = ("--experts", "8", "--top-k", "2", "--concurrency", "16")
    done = run("convert", tmp_path / "routed.parquet", "-o", tmp_path / "out.parquet", *flags)
    assert done.returncode == 0
    found = run_json("check", tmp_path / "out.parquet")
    assert (found["layers"], found["experts"], found["top_k"]) == (2, 8, 2)
    assert found["tokens"] == 16 * found["steps"] < 480
    assert found["phases"] == {"decode": found["tokens"]}
    assert f"note: {480 - found['tokens']} of 480 tokens left out" in done.stderr
    assert (
        run_here("convert", tmp_path / "routed.parquet", "-o", tmp_path / "all.parquet", "--drain", *flags).returncode
        == 0
    )
    assert run_json("check", tmp_path / "all.parquet")["tokens"] == 480


def test_convert_counts_prints_each_file(tmp_path: Path) -> None:
    table = pa.table({"seqlen": ["4k", "8k"], "layer": [0, 0], "counts": [[4, 2, 1, 1], [1, 1, 3, 3]]})
    pq.write_table(table, tmp_path / "counts.parquet")
    done = run_here("convert", tmp_path / "counts.parquet", "-o", tmp_path / "o.parquet", "--top-k", "2")
    assert done.returncode == 0
    assert f"wrote {tmp_path / 'o-4k.parquet'}: 4 tokens, 1 window, 1 layer × 4 experts" in unbroken(done.stdout)
    found = run_json("summary", tmp_path / "o-4k.parquet", tmp_path / "o-8k.parquet", "--ranks", "2")
    assert found["coactivation"] is None
    assert found["trace"]["kind"] == "counts" and found["windows"]["count"] == 2
    one = run_json("summary", tmp_path / "o-4k.parquet", "--ranks", "2")
    assert one["all_layers"]["correlation"] is None and one["reading"].startswith("unknown")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", "absent.parquet"), "no such file"),
        (("summary", SAMPLE, "--window-steps", "0"), "--window-steps"),
        (("summary", SAMPLE, "--ranks", "4", "--cluster", "x.toml"), "--cluster and --ranks"),
        (("synthesise", "zipf", "-o", "x.parquet"), "'zipf' is not one of"),
        (("synthesise", "uniform", "-o", "absent/x.parquet"), "cannot write here"),
        (("synthesise", "uniform", "-o", "x.parquet", "--top-k", "65"), "--top-k"),
        (("convert", SAMPLE, "-o", "x.parquet", "--model", "no-such-model"), "unknown model"),
        (("convert", SAMPLE, "-o", "x.parquet", "--layers", "3..5"), "--layers"),
        (("convert", SAMPLE), "Missing option"),
    ],
)
def test_bad_usage_is_one_line(arguments: tuple[str | Path, ...], says: str) -> None:
    refused(run_here(*arguments), says)
    assert not Path("x.parquet").exists()


def write_trace(path: Path, ids: list[list[int]], steps: list[int]) -> Path:
    meta = TraceMeta(kind="tokens", layers=(5, 9), experts=8, top_k=2)
    columns = {"step": steps, "request": [0] * len(steps), "experts": pa.array(ids, pa.list_(pa.uint8()))}
    pq.write_table(pa.table(columns).replace_schema_metadata({b"ebsim.trace": meta.encode()}), path)
    return path


@pytest.mark.parametrize(
    ("ids", "steps", "says"),
    [
        ([[0, 1, 2, 3], [0, 1, 2, 8]], [0, 1], "row 1, layer 9: id 8 is not in 0..7"),
        ([[0, 1, 2, 3], [4, 4, 2, 3]], [0, 1], "row 1, layer 5: expert 4 stands twice"),
        ([[0, 1, 2, 3], [4, 5, 2, 3]], [1, 0], "row 1: step goes back from 1 to 0"),
    ],
)
def test_check_and_convert_name_row_and_layer(
    tmp_path: Path, ids: list[list[int]], steps: list[int], says: str
) -> None:
    trace, out = write_trace(tmp_path / "bad.parquet", ids, steps), tmp_path / "out.parquet"
    refused(run_here("check", trace), says)
    out.write_text("old")
    refused(run_here("convert", trace, "-o", out), says)
    assert out.read_text() == "old"


def test_warm_up_steps_are_dropped_with_a_note(tmp_path: Path) -> None:
    ids = [[0, 1, 2, 3]] * 4 + [[4, 5, 6, 7], [1, 2, 3, 4]]
    trace = write_trace(tmp_path / "warm.parquet", ids, [0, 0, 1, 1, 2, 2])
    done = run_here("check", trace)
    assert done.returncode == 0 and "2 tokens, 1 step, 1 request" in done.stdout
    assert "note: 4 warm-up tokens" in done.stderr
    assert run_here("convert", trace, "-o", tmp_path / "out.parquet").returncode == 0
    assert run_json("check", tmp_path / "out.parquet")["notes"] == []


@pytest.mark.parametrize("command", ["convert", "synthesise", "check", "summary"])
def test_help_has_an_example(command: str) -> None:
    done = run_here(command, "--help")
    assert done.returncode == 0 and f"Example: ebsim trace {command}" in done.stdout
