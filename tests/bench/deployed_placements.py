"""How placements that were deployed would fare on recorded DeepSeek-V3 traffic, beside a plan of ours with their slots.

`python -m tests.bench.deployed_placements` prints the tables, with reports/deployed_placements.md. The placements and
the counts are read from ../shared/data and are no part of the package.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.exports.adoption import adopt
from easybalance_sim.exports.deployment import deployment_of
from easybalance_sim.exports.engines.omni import read
from easybalance_sim.pipeline import make_plan
from easybalance_sim.plan.planfile import PlanDocument, read_plan, write_plan
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.verification import ReplayRequest, replay_plan
from tests.ebsim_process import DATA, ebsim_here
from tests.listeners import Heard

PLACEMENTS, COUNTS = DATA / "omni_placements", DATA / "deepseek_v3_counts"
REPORT = Path(__file__).parents[2] / "reports" / "deployed_placements.md"
MODEL, PROFILE = "deepseek-v3", "h200"
INTRO = """# Deployed placements on recorded traffic

The 14 placement patterns for DeepSeek-V3/R1 in Omni-Infer's repositories (omni-ai-npu/omni-infer, forks at 0d409dfc and
652b242f), adopted with `ebsim adopt omni` and replayed against the expert counts of DeepSeek-V3-0324 on MMLU in 8k
packing (Bobchenyx/CC-MoE 98b792d0, 1.6 M tokens, 58 MoE layers). Made by `python -m tests.bench.deployed_placements`.

`ours` is what `ebsim plan` makes of the 4k packing with the same ranks and the same slots in every layer, judged on the
8k packing. **Both packings hold the same questions**: `ours` was made from the traffic that it is judged on, cut in
another way, while the deployed patterns were made for other traffic. So the gain is an upper end of what planning
for one's own traffic brings, not what a plan keeps on tomorrow's, and not what is wrong with a pattern.

Four patterns are contiguous experts under another name: nobody had rearranged anything. They stand apart.

Counts know no steps: imbalance is that of the expected load over 58 layers (one window, so P99 is nearly the worst
layer), seconds come from drawn steps of 4,096 tokens per rank. No profile of the NPUs that the patterns ran on is
shipped: seconds are those of the profile `h200`, 8 ranks to a node; how far they can be trusted is in accuracy.md.
"""
_LONG = (
    ("placement_pattern_", ""),
    ("_58_rearrange_layers_58_layers", "_rearrange"),
    ("_58_redundant_layers_58_layers", "_redundant"),
    ("_58_MoELayers", ""),
    ("_58_MoE_Layers", ""),
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One pattern: its name, its size, and the figures of the three plans on the held-out packing."""

    name: str
    ranks: int
    slots: str
    most_replicas: int
    deployed: dict[str, Any]
    contiguous: dict[str, Any]
    ours: dict[str, Any]


def main() -> int:
    """Print the tables and write the report; a line and success where the data is absent."""
    if not PLACEMENTS.is_dir() or not COUNTS.is_dir():
        sys.stdout.write(f"deployed placements: skipped, no patterns or counts at {DATA}\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        judged = all_judged(Path(folder))
    text = "\n".join([INTRO, *_balance(judged), "", *_seconds(judged), ""])
    REPORT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


def all_judged(folder: Path) -> list[Judged]:
    """Every pattern, the fewest ranks first."""
    converted = ebsim_here("trace", "convert", COUNTS, "-o", folder / "dsv3.parquet")
    if converted.returncode:
        raise RuntimeError(converted.stderr)
    judged = [_judge(path, folder) for path in sorted(PLACEMENTS.glob("*.npz"))]
    return sorted(judged, key=lambda one: (one.ranks, one.slots, one.name))


def _judge(path: Path, folder: Path) -> Judged:
    known = deployment_of(MODEL)
    deployed = adopt(path, "omni", known).document
    ours = _ours(path, deployed, folder)
    before, after = (_replayed(document, folder) for document in (deployed, ours))
    file = read(path)
    widths = sorted({len(row) for row in file.rows})
    return Judged(
        name=path.stem,
        ranks=deployed.topology.ranks,
        slots=" or ".join(str(width) for width in widths),
        most_replicas=max(row.count(expert) for row in file.rows for expert in set(row)),
        deployed=before["plan"],
        contiguous=before["baseline"],
        ours=after["plan"],
    )


def _ours(path: Path, deployed: PlanDocument, folder: Path) -> PlanDocument:
    """Our plan with the pattern's slots on every rank of every layer, as a pattern that is adopted like the other."""
    file = read(path)
    sizes = file.ranks_of_rows or ()
    made = {one: _made(one, folder) for one in sorted(set(sizes))}
    pattern = np.zeros((deployed.topology.ranks, len(sizes), deployed.experts), np.int8)
    for layer, one in enumerate(sizes):
        plan = made[one].plan()
        pattern[plan.rank_of_slot, layer, plan.expert_of_slot[layer]] = 1
    own = folder / "ours.npy"
    np.save(own, pattern)
    return adopt(own, "omni", deployment_of(MODEL)).document


def _made(slots_per_rank: tuple[int, ...], folder: Path) -> PlanDocument:
    cluster, output = folder / "cluster.toml", folder / "made.json"
    ranks = len(slots_per_rank)
    cluster.write_text(
        f"ranks = {ranks}\nranks_per_node = {min(8, ranks)}\nslots_per_rank = {list(slots_per_rank)}\n"
        f'profile = "{PROFILE}"\n'
    )
    settings = Settings(traces=(folder / "dsv3-4k.parquet",), cluster=cluster)
    make_plan(PlanRequest(settings=settings, output=output, force=True), Heard())
    return read_plan(output)


def _replayed(document: PlanDocument, folder: Path) -> dict[str, Any]:
    plan = folder / "plan.json"
    write_plan(plan, document)
    settings = Settings(traces=(folder / "dsv3-8k.parquet",), profile=PROFILE)
    return replay_plan(ReplayRequest(settings=settings, plan=plan), Heard())[0]


def _balance(judged: list[Judged]) -> list[str]:
    head = "| pattern | ranks | slots | most replicas | contiguous | deployed | ours | saved of the excess over 1 |"
    return ["## Imbalance of ranks, mean / P99 over layers", *_apart(judged, head, _balance_row)]


def _balance_row(one: Judged) -> str:
    return (
        f"| {_short(one.name)} | {one.ranks} | {one.slots} | {one.most_replicas} | {_ratios(one.contiguous)} "
        f"| {_ratios(one.deployed)} | {_ratios(one.ours)} | {_saved(one)} |"
    )


def _seconds(judged: list[Judged]) -> list[str]:
    head = "| pattern | ranks | contiguous | deployed | ours | P50 of ours against deployed | P99 |"
    return ["## Time of a layer, P50 / P99 in µs", *_apart(judged, head, _seconds_row)]


def _seconds_row(one: Judged) -> str:
    return (
        f"| {_short(one.name)} | {one.ranks} | {_times(one.contiguous)} | {_times(one.deployed)} | {_times(one.ours)} "
        f"| {_change(one, 'p50')} | {_change(one, 'p99')} |"
    )


def _apart(judged: list[Judged], head: str, row: Callable[[Judged], str]) -> Iterator[str]:
    """Patterns that were rearranged, then those that are contiguous experts: two tables with one head."""
    for title, contiguous in (("Rearranged:", False), ("Contiguous experts:", True)):
        yield from ("", title, "", head, "|---" * (head.count("|") - 1) + "|")
        yield from (row(one) for one in judged if _is_contiguous(one) == contiguous)


def _is_contiguous(one: Judged) -> bool:
    figures = ("rank_imbalance", "rank_imbalance_by_layer", "layer_us")
    return all(one.deployed[name] == one.contiguous[name] for name in figures)


def _short(name: str) -> str:
    for words, instead in _LONG:
        name = name.replace(words, instead)
    return f"`{name}`"


def _ratios(section: dict[str, Any]) -> str:
    return f"{section['rank_imbalance']['mean']:.2f} / {section['rank_imbalance']['p99']:.2f}"


def _times(section: dict[str, Any]) -> str:
    return f"{section['layer_us']['p50']:,.0f} / {section['layer_us']['p99']:,.0f}"


def _saved(one: Judged) -> str:
    before, after = (section["rank_imbalance"]["mean"] - 1 for section in (one.deployed, one.ours))
    return f"{100 * (1 - after / before):.0f} %"


def _change(one: Judged, figure: str) -> str:
    return f"{100 * (one.ours['layer_us'][figure] / one.deployed['layer_us'][figure] - 1):+.0f} %"


if __name__ == "__main__":
    sys.exit(main())
