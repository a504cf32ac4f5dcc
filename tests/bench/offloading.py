"""How often a cache of experts hits on recorded routing, and what the rest costs.

`python -m tests.bench.offloading` prints the report and writes reports/offloading.md and its figure (some minutes).
The recording of gpt-oss-20b is read from ../shared/data and is no part of the package.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ebsim_process import DATA, ROOT, SAMPLE, ebsim_here

REPORT, FIGURE = ROOT / "reports" / "offloading.md", ROOT / "reports" / "offloading.svg"
GPT_OSS = DATA / "gptoss20b_routing" / "routing_tokens.parquet"
SHARES = "0.05,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1"
INTRO = """# Experts off the GPU

Made by `python -m tests.bench.offloading` from two recordings of routing: gpt-oss-20b (24 layers of 32 experts, top 4,
215,438 decoded tokens of 703 requests, queued by `ebsim trace convert --concurrency 8`) and `traces/tinymoe.parquet` (a
small model of 8 layers of 64 experts, top 6, 87,875 tokens). Caches fill and predictors learn on the first half of the
steps, the second is judged (of long runs the steps around the boundary that ask for six million experts). Seconds are
those of one H200 by the cost model, uncalibrated for both models, links nominal × 0.8: read the ratios. What the words
mean: docs/method.md, "Experts off the GPU".

![Hit rate and step time of gpt-oss-20b](offloading.svg)
"""
CLAIM = """## "LRU usually hits 80 % and more"

So say articles about offloading, without cache size or batch. Smallest share of all experts in the cache from which LRU
hits 80 % of the experts that a layer needs, beside what others need for as many hits. `model`: one cache for all layers
instead of one for each; LRU throws out what the next layer is about to need as long as it holds less than all layers of
a step ask for. `step`: mean step at that size of LRU's cache for each layer, over that with all experts on the GPU
(PCIe 5; the small model's experts are tiny, 49 kB).
"""
CURVES = """## Hit rate by size of the cache

Share of the experts that a layer needs in a step and that are there, %, one cache for each layer. Belady knows the
future: nothing that loads on demand hits more.
"""
TIME = """## What it costs

Mean step time over that with all experts on the GPU; one expert of gpt-oss-20b (13.2 MB, MXFP4) takes 258 µs over
PCIe 5, the rest of its layer about 100 µs.
"""
LINKS = """## Links and formats

Slow-down of the mean step of gpt-oss-20b with half and with nine tenths of the experts on the GPU (LFU), and the least
share that keeps it within 10 %. `bf16` and `bf16, INT4 copies`: experts of two bytes a weight, sent whole or in four
bits (what four bits cost in quality is not judged).
"""
AHEAD = """## Fetching ahead

gpt-oss-20b over PCIe 5, half of the experts on the GPU, LRU: time that steps wait over that without fetching ahead.
A layer takes some 100 µs and an expert 258 µs on the link, so one layer ahead hides a part of one transfer at most;
the oracle, which makes no mistakes, shows what looking further could give. Predictors give little of it: what LRU has
not is what is hard to guess, they err more the further they look, and a wrong transfer holds up what is missing. With
eight at once the link is hardly ever idle.
"""


def offload(trace: Path, *flags: str) -> dict[str, Any]:
    """The JSON of one command."""
    done = ebsim_here("offload", trace, *flags, "--format", "json")
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def report(folder: Path) -> str:
    """The whole of it; the trace of gpt-oss-20b is written to `folder`."""
    gpt = folder / "gpt-oss-20b.parquet"
    done = ebsim_here("trace", "convert", GPT_OSS, "-o", gpt, "--model", "gpt-oss-20b", "--concurrency", "8")
    if done.returncode:
        sys.exit(done.stderr)
    all_sizes = ("--batch", "1,8,64", "--cached-share", SHARES)
    runs = {
        "gpt-oss-20b": offload(gpt, *all_sizes, "--figure", str(FIGURE)),
        "tinymoe, decode": offload(SAMPLE, "--phase", "decode", *all_sizes[:1], "1,8,32", *all_sizes[2:]),
        "tinymoe, as recorded": offload(SAMPLE, *all_sizes[2:]),
    }
    parts = [*_claim(gpt, runs), *_curves(runs), *_time(runs), *_links(gpt), *_ahead(gpt)]
    return "\n".join([INTRO, *parts])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def named(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Curves by "policy" or "policy + predictor"."""
    return {
        curve["policy"] + ("" if curve["prefetch"] == "none" else f" + {curve['prefetch']}"): curve
        for curve in batch["curves"]
    }


def at_once(batch: Mapping[str, Any]) -> str:
    """The batch in a word."""
    return "–" if batch["batch"] is None else str(batch["batch"])


def _claim(gpt: Path, runs: Mapping[str, Any]) -> Iterator[str]:
    yield CLAIM
    whole = {
        "gpt-oss-20b": offload(gpt, "--batch", "1,8,64", "--scope", "model", "--prefetch", "none"),
        "tinymoe, decode": offload(
            SAMPLE, "--phase", "decode", "--batch", "1,8,32", "--scope", "model", "--prefetch", "none"
        ),
        "tinymoe, as recorded": offload(SAMPLE, "--scope", "model", "--prefetch", "none"),
    }
    rows = []
    for name, run in runs.items():
        for batch, other in zip(run["batches"], whole[name]["batches"], strict=True):
            layer, model = named(batch), named(other)
            cells = [_from(one) for one in (layer["lru"], layer["lfu"], layer["static"], layer["belady"])]
            cells += [_from(one) for one in (model["lru"], model["lfu"], model["belady"])]
            cells.append(f"{layer['lru']['claimed_hit_rate_from']['slowdown']:.2g}x")
            rows.append([name, at_once(batch), f"{batch['tokens_per_step']:.3g}", _needed(batch, run), *cells])
    head = ["trace", "at once", "tokens a step", "needed by a layer", "LRU", "LFU", "static", "Belady"]
    yield from table([*head, "model: LRU", "LFU", "Belady", "step"], rows)


def _from(curve: Mapping[str, Any]) -> str:
    reach = curve["claimed_hit_rate_from"]
    return "never" if reach is None else f"{reach['share']:.0%}"


def _needed(batch: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    return f"{batch['experts_per_layer']:.3g} of {run['trace']['experts']}"


def _curves(runs: Mapping[str, Any]) -> Iterator[str]:
    yield CURVES
    for name, run in runs.items():
        for batch in run["batches"]:
            yield from _points(f"{name}, {at_once(batch)} at once", batch, "hit_rate", 100, ".1f", bounds=("belady",))


def _points(
    title: str, batch: Mapping[str, Any], key: str, unit: float, form: str, bounds: Sequence[str]
) -> Iterator[str]:
    """Policies alone by size."""
    curves = named(batch)
    shown = [*bounds, "lfu", "lru", "static"]
    head = [title, *(f"{point['share']:.0%}" for point in curves["lru"]["points"])]
    rows = [[name, *(format(unit * point[key], form) for point in curves[name]["points"])] for name in shown]
    yield from table(head, rows)


def _time(runs: Mapping[str, Any]) -> Iterator[str]:
    yield TIME
    for batch in runs["gpt-oss-20b"]["batches"]:
        title = f"gpt-oss-20b, {at_once(batch)} at once"
        yield from _points(title, batch, "slowdown", 1, ".2f", bounds=("belady", "lru + oracle"))
    rows = []
    for batch in runs["gpt-oss-20b"]["batches"]:
        for point in named(batch)["lru"]["points"][1::2]:
            added, sent = point["added_us"], point["link_bytes_per_token"] / 1e6
            waits = [f"{added['mean'] / 1e3:.2f}", f"{added['p99'] / 1e3:.2f}"]
            rows.append(
                [at_once(batch), f"{point['share']:.0%}", *waits, f"{sent:.3g}", f"{point['throughput_ratio']:.2f}"]
            )
    head = [
        "at once (LRU)",
        "cache",
        "a step waits, ms",
        "P99",
        "MB on the link per token",
        "tokens/s over all-resident",
    ]
    yield from table(head, rows)


def _links(gpt: Path) -> Iterator[str]:
    yield LINKS
    kinds: dict[str, tuple[str, ...]] = {
        "PCIe 4": ("--host", "pcie4"),
        "PCIe 5": ("--host", "pcie5"),
        "PCIe 6": ("--host", "pcie6"),
        "NVMe": ("--host", "nvme"),
        "PCIe 5, bf16": ("--resident-dtype", "bf16"),
        "PCIe 5, bf16, INT4 copies": ("--resident-dtype", "bf16", "--offload-dtype", "int4_g32"),
    }
    rows = []
    for name, flags in kinds.items():
        run = offload(
            gpt, *flags, "--batch", "1,8", "--cached-share", "0.5,0.9", "--policy", "lfu", "--prefetch", "none"
        )
        for batch in run["batches"]:
            curve = batch["curves"][0]
            reach = curve["within_from"]
            slower = [f"{point['slowdown']:.2f}" for point in curve["points"]]
            rows.append([name, at_once(batch), f"{run['host']['expert_us']:.0f}", *slower, f"{reach['share']:.0%}"])
    yield from table(["link", "at once", "an expert, µs", "50%", "90%", "within 10 % from"], rows)


def _ahead(gpt: Path) -> Iterator[str]:
    yield AHEAD
    rows = []
    for ahead in (1, 2, 4, 8):
        flags = ("--ahead", str(ahead), "--batch", "1,8", "--cached-share", "0.5", "--policy", "lru")
        run = offload(gpt, *flags, *(word for name in PREDICTORS for word in ("--prefetch", name)))
        for batch in run["batches"]:
            plain, *others = (curve["points"][0] for curve in batch["curves"])
            waits = [f"{one['added_us']['mean'] / plain['added_us']['mean']:.3f}" for one in others]
            useful = [f"{one['loads_ahead_used'] / max(one['loads_ahead'], 1):.0%}" for one in others[:-1]]
            rows.append([str(ahead), at_once(batch), *waits, *useful])
    head = [
        "layers ahead",
        "at once",
        *PREDICTORS[1:],
        *(f"{name}: used of what was fetched" for name in PREDICTORS[1:-1]),
    ]
    yield from table(head, rows)


PREDICTORS = ("none", "previous-layer", "history", "oracle")


def main() -> None:
    """Print and write it."""
    if not GPT_OSS.exists():
        sys.exit(f"needs {GPT_OSS}")
    with tempfile.TemporaryDirectory() as folder:
        text = report(Path(folder))
    print(text)
    REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
