"""Makes the documents of this folder, and what their pages say: what commands print with `--format json`, cut.

    ebsim simulate scenarios/steady-chat.toml --format json > simulate.json
    ebsim capacity scenarios/steady-chat.toml --plan window_search --duration 8 --tolerance 0.1 --replicas 0,1 \
        --fewest-gpus --rate 20 --parallel --format json > capacity.json
    ebsim offset traces/tinymoe_scores.parquet --past traces/tinymoe.parquet --past-steps 0:900 --warm-up 20 \
        --format json > offset.json (with --part admission: admission.json)
    ebsim offset --scenario scenarios/easybalance-8xa100.toml --format json > claim.json
    ebsim trace synthesise day -o day.parquet --hours 8 --window-seconds 120 --seed 107
    ebsim rebalance day.parquet --ranks 8 --slots-per-rank 9 --other-ms 10 --format json > rebalance.json
    ebsim rebalance traces/tinymoe.parquet --sweep --format json > settings.json
    ebsim plan traces/tinymoe.parquet -o plan.json
    ebsim rollout plan.json --faults checksum-mismatch,rank-restarts --walks 5 --format json > rollout.json
    ebsim rollout plan.json --faults checksum-mismatch --leave-out verify --walks 5 --format json > broken.json
    (pools.json is a run of tests/small_scenario.py with two pools)
    python -m tests.golden.report.documents.make_golden [DOCUMENT.json …]

Without documents, what the pages of those that are there say is written anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from easybalance_sim.report.content import MadeBy, Page
from easybalance_sim.report.pages import page_of

FOLDER = Path(__file__).parent
SAID = ".said.json"
LONG, KEPT = 60, 12
"""Lists longer than the one are cut to the other."""
UNREAD = {"by_layer", "by_workload", "estimates", "rank_imbalance_by_layer", "layers_counted", "heat"}


def shortened(content: Any) -> Any:
    """Numbers with six digits, long lists cut, without what no page reads."""
    if isinstance(content, dict):
        return {name: shortened(value) for name, value in content.items() if name not in UNREAD}
    if isinstance(content, list):
        return [shortened(value) for value in (content[:KEPT] if len(content) > LONG else content)]
    return float(f"{content:.6g}") if isinstance(content, float) else content


def documents() -> list[str]:
    """Their names."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if not path.name.endswith(SAID))


def page(name: str) -> Page:
    """Of one document."""
    return page_of(document(name), MadeBy(command="ebsim", versions={"ebsim": "any"}))


def document(name: str) -> dict[str, Any]:
    """As it was printed."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def said(found: Page) -> dict[str, Any]:
    """The headline, and of every figure what it concludes and the data that it draws."""
    headline = found.headline
    return {
        "headline": [headline.mood, headline.word, headline.text, *headline.lines],
        "figures": {one.name: [one.conclusion, *one.chart.table().csv().splitlines()] for one in found.figures()},
    }


def _write(path: Path, content: Any, indent: int | None) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for source in map(Path, sys.argv[1:]):
        _write(FOLDER / source.name, shortened(json.loads(source.read_text(encoding="utf-8"))), None)
    for name in documents():
        _write(FOLDER / f"{name}{SAID}", said(page(name)), 0)
