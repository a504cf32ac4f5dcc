"""`ebsim offload` without its command line: what a request gives, and which ones are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import EbsimError
from easybalance_sim.offloading import prepare
from easybalance_sim.offloading.answer import answers
from easybalance_sim.offloading.request import OffloadRequest
from easybalance_sim.offloading.run import run_offload
from easybalance_sim.planning.session import Settings
from tests.listeners import Heard
from tests.offload_reports import example_report
from tests.skewed_traces import skewed_counts, skewed_trace
from tests.trace_files import random_columns, token_meta, write_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("offload") / "trace.parquet", 160)


def asked(trace: Path, **changes: Any) -> OffloadRequest:
    return replace(OffloadRequest(settings=Settings(traces=(trace,)), shares=(0.5, 1.0)), **changes)


def ran(trace: Path, **changes: Any) -> tuple[dict[str, Any], Heard]:
    heard = Heard()
    return run_offload(asked(trace, **changes), heard), heard


def curves(report: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(curve["policy"], curve["prefetch"]): curve for curve in report["batches"][0]["curves"]}


def test_every_policy_alone_and_every_predictor_with_lru(trace: Path) -> None:
    report, _ = ran(trace)
    assert list(curves(report)) == [
        ("belady", "none"), ("lfu", "none"), ("lru", "none"), ("static", "none"), ("lru", "history"),
        ("lru", "oracle"), ("lru", "previous-layer"),
    ]  # fmt: skip
    best = curves(report)["belady", "none"]["points"]
    for curve in curves(report).values():
        half, whole = curve["points"]
        assert (whole["share"], whole["hit_rate"], whole["slowdown"]) == (1, 1, 1)
        assert half["loads"] >= best[0]["loads"]
    assert report["batches"][0]["past_steps"] == report["batches"][0]["judged_steps"] == 80


def test_named_policies_and_predictors_are_combined(trace: Path) -> None:
    report, _ = ran(trace, policies=("lru", "static"), prefetch=("none", "oracle"))
    assert list(curves(report)) == [
        ("lru", "none"), ("lru", "oracle"), ("static", "none"), ("static", "oracle"),
    ]  # fmt: skip


def test_four_bits_are_fewer_bytes_and_the_same_hits(trace: Path) -> None:
    wide, _ = ran(trace, policies=("lru",), resident_dtype="bf16")
    narrow, heard = ran(trace, policies=("lru",), resident_dtype="bf16", offload_dtype="int4_g32")
    assert narrow["model"]["offload_bytes"] / wide["model"]["offload_bytes"] == 0.5625 / 2
    before, after = (curves(report)["lru", "none"]["points"][0] for report in (wide, narrow))
    assert (before["hit_rate"], before["gpu_bytes"]) == (after["hit_rate"], after["gpu_bytes"])
    assert after["link_bytes"] / before["link_bytes"] == 0.5625 / 2
    assert after["slowdown"] < before["slowdown"]
    assert any("what they cost in quality is not judged" in note for note in heard.notes)


def test_copies_that_are_no_smaller_are_said(trace: Path) -> None:
    _, heard = ran(trace, policies=("lru",), resident_dtype="int4_g32", offload_dtype="nvfp4")
    assert "copies in nvfp4 are no fewer bytes than in int4_g32" in heard.notes


def test_time_between_layers_is_added_and_attention_is_some(trace: Path) -> None:
    took = {
        between: ran(trace, policies=("static",), between_us=between)[0]["batches"][0]["all_resident"]["layer_us"]
        for between in (0.0, 50.0, None)
    }
    assert took[50.0] - took[0.0] == pytest.approx(50)
    assert took[None] > took[0.0]


def test_memory_decides_the_size_and_is_answered_for(trace: Path) -> None:
    shares, _ = ran(trace, policies=("lru",))
    half = curves(shares)["lru", "none"]["points"][0]
    report, _ = ran(trace, policies=("lru",), shares=(), gpu_gb=half["gpu_bytes"] / 1e9)
    (point,) = curves(report)["lru", "none"]["points"]
    assert point["experts"] == half["experts"]
    assert report["answers"][0].startswith("as recorded, 32 tokens a step: ")
    assert f"GB hold {point['share']:.0%} of the experts; with lru" in report["answers"][0]


def test_batches_are_queued_anew(trace: Path) -> None:
    report, _ = ran(trace, policies=("lru",), prefetch=("none",), batches=(1, 4))
    assert [(batch["batch"], batch["tokens_per_step"]) for batch in report["batches"]] == [(1, 1.0), (4, 4.0)]
    one, four = (batch["curves"][0]["points"][0]["hit_rate"] for batch in report["batches"])
    assert one > four


def test_long_traces_are_looked_at_around_the_boundary(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "MOST_USES", 40 * 2 * 16)
    report, heard = ran(trace, policies=("lru",), held_out=0.25)
    assert (report["batches"][0]["past_steps"], report["batches"][0]["judged_steps"]) == (30, 10)
    assert "40 of 160 steps are looked at, around the boundary of past and judged ones" in heard.notes
    monkeypatch.setattr(prepare, "MOST_WORK", 20 * 2 * 2 * 16)
    assert ran(trace, policies=("lru",), scope="model")[0]["batches"][0]["judged_steps"] == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ("mru",)}, "'mru' is not known — did you mean lru? choose belady, lfu, lru, static"),
        ({"prefetch": ("magic",)}, "--prefetch: 'magic' is not known"),
        ({"scope": "node"}, "--scope: 'node' is not known — did you mean model? choose layer, model"),
        ({"host": "pigeon"}, "--host: 'pigeon' is no link"),
        ({"offload_dtype": "int3"}, "--offload-dtype: 'int3' is not known"),
        ({"gpu_gb": 1.0}, "--gpu-gb and --cached-share exclude each other"),
        ({"shares": (1.5,)}, "--cached-share: 1.5 is no share of the experts"),
        ({"shares": (0.05,)}, "--cached-share: 1 of the experts are not one for each of 2 layers"),
        (
            {"shares": (), "gpu_gb": 1e-9},
            "--gpu-gb 1e-09: 0 of the experts are not one for each of 2 layers — give at least 0.0126 GB",
        ),
        ({"within": 0.0}, "--within: 0 is no positive number"),
        ({"between_us": -1.0}, "--between-us: -1 is no length of time"),
        ({"held_out": 1.0}, "--held-out: held-out share 1 is not between 0 and 1"),
        ({"ahead": 2}, "--ahead: no layer of 2 is 2 behind another"),
        ({"figure": Path("a.png")}, "--figure: a.png is not an .svg file"),
        ({"batches": (10_000,)}, "--batch 10000: the trace has"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_refused(trace: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EbsimError) as refused:
        ran(trace, **changes)
    assert message in str(refused.value)


def test_a_model_of_one_layer_is_looked_at_too(tmp_path: Path) -> None:
    """Step by step: what comes next is the same layer of the next step."""
    meta = token_meta((0,), 8, 2, hidden=512, intermediate=256, matrices=3, weight_dtype="bf16")
    columns = random_columns(np.random.default_rng(1), np.repeat(np.arange(40), 2).tolist(), meta)
    report, _ = ran(write_trace(tmp_path / "one.parquet", columns, meta), policies=("lru",))
    assert [curve["points"][1]["hit_rate"] for curve in curves(report).values()] == [1.0] * 4
    assert curves(report)["lru", "oracle"]["points"][0]["loads_ahead_used"] > 0


def test_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EbsimError, match="counts do not know steps"):
        ran(skewed_counts(tmp_path / "counts.parquet", 8))


def test_answers_prefer_the_least_memory_that_can_be_had() -> None:
    """A bound is no recommendation; where nothing but all will do, the reason is said."""
    report = example_report()
    one, eight = report["batches"]
    belady, lru, fetched = one["curves"]
    belady["within_from"] = {"share": 0.25, "experts": 2, "gpu_bytes": 4_000_000}
    lru["within_from"] = {"share": 0.75, "experts": 6, "gpu_bytes": 12_000_000}
    fetched["within_from"] = {"share": 0.5, "experts": 4, "gpu_bytes": 8_000_000}
    lru["claimed_hit_rate_from"] = {"share": 0.4, "experts": 3, "gpu_bytes": 6_000_000, "slowdown": 2.94}
    eight["curves"][1]["within_from"] = None
    assert answers(report) == [
        "1 request at once: 50% of the experts on the GPU (8 MB of 16 MB) keep the mean step within 10%, with lru + "
        "history",
        "1 request at once: LRU hits 80% of the experts that a layer needs from 40% of all experts in the cache on; "
        "steps are then 2.9 times as long",
        "8 requests at once: keep all experts on the GPU (16 MB): with any fewer, steps are more than 10% longer; a "
        "layer needs 2.5 experts, each takes 11 µs on the link, and the layer 50 µs",
        "8 requests at once: LRU does not hit 80% of the experts that a layer needs",
    ]
