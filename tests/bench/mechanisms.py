"""What mechanisms against rank imbalance buy and cost on the recording of a small model, and how true a replay is.

`python -m tests.bench.mechanisms` prints the report and writes reports/mechanisms.md (a minute). The recording is read
from ../shared/data and is no part of the package; the sample in traces/ is a piece of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.ebsim_process import DATA, ROOT, ebsim_here
from tests.unit import test_evidence_offsets as offsets
from tests.unit import test_evidence_rerouting as rerouting

REPORT = ROOT / "reports" / "mechanisms.md"
RECORDING = DATA / "tinymoe_routing"
INTRO = """# Mechanisms against rank imbalance

Made by `python -m tests.bench.mechanisms` from the recording of which `traces/tinymoe_scores.parquet` is a piece: 8 MoE
layers of 64 experts, top 6, sigmoid router with bias in 8 groups, 106 tokens a step, every expert's score. Placements,
labels and replicas are made from steps 100–699, everything is judged on steps 700–1299; the 40 steps before those only
start sensors. Nothing was tuned on the judged steps, but where a row says that it has seen them. What the words mean:
docs/method.md, "What else would balance".
"""

FIDELITY = """The model was served again under each mechanism and its loss measured on 63,794 tokens; a replay only
chooses again from recorded scores. Largest differences over the runs of a kind. Unstable runs, which the replay
flags, are left out of the differences, and three on a plan that was not kept. `band`: runs whose measured loss
lies in the printed band; it was calibrated on these same runs, so that is no proof."""


def report() -> str:
    """The whole of it."""
    return "\n".join([INTRO, *_fidelity(), *_one_trace(), *_claim()])


def _fidelity() -> Iterator[str]:
    """How far replays on recorded scores are from the model served again."""
    yield "## Replay against the model itself\n"
    yield from FIDELITY.splitlines()
    yield ""
    yield "| runs | how many | flagged unstable | step mean | step P99 | window mean | band |"
    yield "|---|---|---|---|---|---|---|"
    kinds = {"router offsets": False, "re-routing, factors, diversion, rotation, window plans": True}
    for name, kind in kinds.items():
        yield _kind_row(
            name, [one for one in rerouting.names() if rerouting.is_rerouting(one) == kind and one != "none"]
        )
    yield ""


def _kind_row(title: str, names: list[str]) -> str:
    flagged = [name for name in names if rerouting.is_flagged(name)]
    apart = {"step_mean": 0.0, "step_p99": 0.0, "win300_mean": 0.0}
    known = {"step_mean": "step_mean", "step_p99": "step_p99", "win300_mean": "window_mean"}
    inside = 0
    for name in names:
        row, (found, _, loss) = rerouting.measured()[name], rerouting.replayed(name)
        inside += loss.low_nats * 1e3 <= float(row["loss_increase_mnat"]) <= loss.high_nats * 1e3
        if name not in flagged and row["placement"] != rerouting.BASE_UNKNOWN:
            for column, mine in known.items():
                apart[column] = max(apart[column], abs(found[mine] - float(row[column])))
    cells = [title, str(len(names)), str(len(flagged)), *(f"{value:.4f}" for value in apart.values())]
    return f"| {' | '.join(cells)} | {inside} of {len(names)} |"


def _one_trace() -> Iterator[str]:
    """The command on the recording."""
    yield "## Every mechanism on one trace\n"
    flags = ("--past", RECORDING / "tokens.parquet", "--past-steps", "100:700")
    yield from _printed("offset", RECORDING / offsets.ALL_SCORES.name, *flags)


def _claim() -> Iterator[str]:
    """The scenario."""
    yield "## A claim of capacity\n"
    yield from _printed("offset", "--scenario", ROOT / "scenarios" / "easybalance-8xa100.toml")


def _printed(*command: str | Path) -> Iterator[str]:
    """A command as one types it beside the data, and what it prints."""
    typed = " ".join(str(word) for word in ("ebsim", *command))
    for folder, short in ((RECORDING, ""), (ROOT, "")):
        typed = typed.replace(f"{folder}/", short)
    done = ebsim_here(*command)
    if done.returncode:
        sys.exit(done.stderr)
    text = re.sub(rf"{re.escape(str(RECORDING))}/", "", done.stdout)
    yield f"`{typed}`\n\n```text\n{text.rstrip()}\n```\n"


def main() -> None:
    """Print and write it."""
    if not offsets.ALL_SCORES.exists():
        sys.exit(f"needs {RECORDING}")
    text = report()
    print(text)
    REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
