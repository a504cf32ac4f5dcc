"""How many requests per second deployments hold, what plans, replicas and tensor parallelism add, by `ebsim capacity`.

`python -m tests.bench.capacity` prints the report and writes reports/capacity.md (ten minutes on two cores). Names
after the command make only these cases and print them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ebsim_process import ROOT, ebsim_here

REPORT = ROOT / "reports" / "capacity.md"
FLAGS = ("--seeds", "3", "--duration", "60", "--tolerance", "0.04")
INTRO = """# What deployments hold

Made by `python -m tests.bench.capacity`: `ebsim capacity` on scenarios of the library and on one that resembles a
public run, `--seeds 3 --duration 60 --tolerance 0.04` (seeds 0, 1, 2; rates are found to within 4 %, smaller
differences are none). Rates are the highest that keep the SLO; seconds come from the cost model that is named, with its
band: ratios are worth more than figures. Plans are made from one half of the routing trace, requests draw from the
other. docs/method.md, "How much a deployment holds", says what is searched.
"""
PUBLIC = """
title = "Prompts of 8,192 tokens on 8 GPUs"
why = \"\"\"The set-up of a public run of expert against tensor parallelism.
DeepSeek-V3 stands for its model, H200 for its GPUs, and routing is drawn.\"\"\"

[model]
name = "deepseek-v3"

[cluster]
ranks = 8
ranks_per_node = 8
slots_per_rank = 40
profile = "h200"

[placement]
all_to_all = "normal"

[routing.recipe]
kind = "topic-mixture"
concentration = {concentration}

[[arrivals.tenants]]
pattern = "poisson"
rate_per_s = 4
prompt_tokens = 8192
output_tokens = 8

[slo]
ttft_s = 5.0
tpot_s = 2.0

[run]
duration_s = 60
warm_up_s = 10
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """title · scenario: a file of the library, empty = `PUBLIC` · flags: beyond `FLAGS` · teaches: below the tables,
    with the report's numbers filled in · concentration: of the routing of `PUBLIC`, less is more uneven."""

    title: str
    scenario: str
    flags: tuple[str, ...]
    teaches: str
    concentration: float = 0.0


CASES = {
    "claim": Case(
        title='"500 → 700 requests/s" on eight A100',
        scenario="easybalance-8xa100-serving.toml",
        flags=("--replicas", "0,1", "--parallel", "--fewest-gpus"),
        teaches="The claim is a gain of 40 %. The plan gains {gain}, ranks loaded alike by decree {even}, about the "
        "most that any plan could; tensor parallelism on the same GPUs, which cannot be uneven, gains {tp} without any "
        "plan.",
    ),
    "public": Case(
        title="Plain tensor parallelism against expert parallelism",
        scenario="",
        flags=("--replicas", "0,8", "--parallel"),
        concentration=0.3,
        teaches="The public run (ROCm/ATOM PR 1210: DeepSeek-V4-Pro, 8 MI355X, prompts of 8K): experts apart without "
        "balancing 6.48 requests/s, tensor-parallel experts 6.97 (+8 %), balanced without redundancy +17 %, with 64 "
        "redundant experts +24 to +34 %, all on data-parallel attention. Here, before any plan, tensor parallelism "
        "over all GPUs is {tp} against experts apart; a plan without replicas gains {spare0}, with 64 replicas "
        "{spare8}, ranks loaded alike by decree {even}. Routing is drawn, and more uneven than theirs can have been; "
        "data-parallel attention over tensor-parallel experts, as they had it, is not modelled: it saves one of two "
        "sums per layer.",
    ),
    "milder": Case(
        title="The same with milder routing",
        scenario="",
        flags=("--parallel",),
        concentration=1.0,
        teaches="Added after the case above was seen. Ranks loaded alike by decree gain {even}, the plan {gain}: about "
        "what balancing gained in the public run. Tensor parallelism over all GPUs is {tp} against experts apart "
        "before any plan, where they measured +8 % with attention apart: that layout is not modelled, and its rate not "
        "reproduced. What both cases say: whether tensor parallelism pays depends on how uneven the routing is, and on "
        "these GPUs a plan leaves it behind.",
    ),
    "nodes": Case(
        title="Two nodes: attention that waits for the longest prompt",
        scenario="hgx-2-nodes.toml",
        flags=("--parallel",),
        teaches="Data-parallel ranks step together: a prompt on one of them holds up the answers on all. What eight "
        "GPUs that share attention buy is {tp}; the plan buys {gain}, ranks loaded alike by decree {even}.",
    ),
}


def made(case: Case) -> dict[str, Any]:
    """The JSON of a case."""
    with tempfile.TemporaryDirectory() as folder:
        path = ROOT / "scenarios" / case.scenario
        if not case.scenario:
            path = Path(folder) / "public.toml"
            path.write_text(PUBLIC.format(concentration=case.concentration), encoding="utf-8")
        done = ebsim_here("capacity", path, *FLAGS, *case.flags, "--format", "json")
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def section(case: Case, found: Mapping[str, Any]) -> str:
    """One case of the report."""
    flags = " ".join((*FLAGS, *case.flags))
    lines = [f"## {case.title}\n", *(f"{line}  " for line in found["scenario"]["why"].strip().splitlines()), ""]
    file = case.scenario or f"`PUBLIC` of the bench, concentration {case.concentration:g},"
    lines += [f"Of {file} `{flags}`.\n", *_rates(found)]
    lines += [line for one in found.get("fewest_gpus", ()) for line in _fewest(one)]
    lines += [line for one in found.get("replicas", ()) for line in _rows(one, ("spare_slots",))]
    lines += [line for one in found.get("parallelism", ()) for line in _rows(one, ("experts", "attention"))]
    return "\n".join([*lines, case.teaches.format(**_numbers(found)), ""])


def _rates(found: Mapping[str, Any]) -> Iterator[str]:
    slo, stated, bracket = found["slo"], found["highest_rate"]["stated"], found["highest_rate"]["bracket"]
    yield (
        f"{found['gpus']} GPUs, {100 * slo['share']:g} % inside TTFT {slo['ttft_ms']:g} ms and TPOT "
        f"{slo['tpot_ms']:g} ms. Seconds by {'; '.join(found['cost'])}.\n"
    )
    yield "| | requests/s | against before | inside, seeds | ends by |"
    yield "|---|---|---|---|---|"
    names = {key: f"{key}: {', '.join(found['plans'][key])}" for key in ("before", "after")}
    for key, name in {**names, "even": "after, ranks alike by decree"}.items():
        one = stated[key]
        seeds = "–" if one["at"] is None else "–".join(f"{100 * end:.1f}" for end in one["at"]["inside_slo_of_seeds"])
        ratio = _over(one["rate_per_s"], stated["before"]["rate_per_s"])
        yield f"| {name} | {one['rate_per_s']:.3g} | {ratio} | {seeds} % | {one['ends_by']} |"
    ends = ", ".join(
        f"{words} {one['before']['rate_per_s']:.3g} → {one['after']['rate_per_s']:.3g} "
        f"({_over(one['after']['rate_per_s'], one['before']['rate_per_s'])})"
        for words, one in (("no communication hidden", bracket["serial"]), ("all hidden", bracket["overlapped"]))
    )
    yield f"\nBefore → after with {ends}.\n"


def _fewest(one: Mapping[str, Any]) -> Iterator[str]:
    before, after = (one[key]["gpus"] or "none tried" for key in ("before", "after"))
    yield f"Fewest GPUs for {one['rate_per_s']:.3g} requests/s: {before} before, {after} after.\n"


def _rows(one: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    yield f"| {' | '.join(name.replace('_', ' ') for name in names)} | before | after | KV tokens | plan after |"
    yield "|---" * (len(names) + 4) + "|"
    for row in one["rows"]:
        head = " | ".join(str(row[name]) for name in names)
        if row["refused"] is not None:
            yield f"| {head} | – | – | – | {row['refused']} |"
        else:
            rates = " | ".join(f"{row[key]['rate_per_s']:.3g}" for key in ("before", "after"))
            yield f"| {head} | {rates} | {row['kv_tokens']:,} | {row['after']['policy']} |"
    yield ""


def _numbers(found: Mapping[str, Any]) -> dict[str, str]:
    """What the teaching of a case may name, against the plan before on the scenario's layout."""
    stated = found["highest_rate"]["stated"]
    before = stated["before"]["rate_per_s"]
    numbers = {
        "gain": _over(stated["after"]["rate_per_s"], before),
        "even": _over(stated["even"]["rate_per_s"], before),
    }
    for row in (row for one in found.get("replicas", ()) for row in one["rows"] if row["refused"] is None):
        numbers[f"spare{row['spare_slots']}"] = _over(row["after"]["rate_per_s"], before)
    rows = [row for one in found["parallelism"] for row in one["rows"] if row["refused"] is None]
    shared = [row for row in rows if row["attention"].endswith("TP8")]
    whole = [row for row in shared if row["experts"] == "TP8"] or [row for row in shared if row["expert_tensor"] == 1]
    numbers["tp"] = _over(whole[0]["before"]["rate_per_s"], before) if whole else "not possible"
    return numbers


def _over(one: float, other: float) -> str:
    return f"{100 * (one / other - 1):+.0f} %" if other else "–"


def main(names: list[str]) -> None:
    """Make the report, or print the cases that are named."""
    parts = [section(CASES[name], made(CASES[name])) for name in names or CASES]
    text = "\n".join(parts if names else [INTRO, *parts])
    sys.stdout.write(text)
    if not names:
        REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
