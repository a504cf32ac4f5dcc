"""`ebsim history`: the generations of a deployment, kept so that none can change unnoticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easybalance_sim.cli import options
from easybalance_sim.cli.console import Format, emit, say_notes
from easybalance_sim.cli.layout import kept, noted
from easybalance_sim.report.words import amount

if TYPE_CHECKING:
    from easybalance_sim.plan.history import History
    from easybalance_sim.plan.history_log import Record

_HEAD = ("", "generation", "plan", "verdict", "P99 imbalance", "slots", "tokens")


def history(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the history.")],
    add: Annotated[
        Path | None, typer.Option("--add", metavar="PLAN", help="Add this plan file as the next generation.")
    ] = None,
    rollback: Annotated[
        int | None, typer.Option("--rollback", metavar="N", min=1, help="Write generation N out again.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PLAN", help="Where --rollback writes the plan file.")
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, to stand in the record.")] = "",
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """List the plans that were taken into service, add the next one, or go back to an earlier one.

    Plan files stay byte for byte as they were; each record of the log holds the sha256 of the one before. All of it is
    verified at every use. Exit 0; 2, and nothing changed, when a record or file was edited, cut, swapped or lost.

    \b
    Example: ebsim history generations --add plan.json --note "first plan"

    \b
    Example: ebsim history generations --rollback 1 -o again.json
    """
    from easybalance_sim.errors import UsageError
    from easybalance_sim.plan import history as kept

    if add is not None and rollback is not None:
        raise UsageError("--add and --rollback exclude each other", where="--add", fix="give one of them")
    if (rollback is None) != (output is None):
        raise UsageError("belong together", where="--rollback and -o", fix="give both, or neither")
    if note and add is None and rollback is None:
        raise UsageError("there is no record to put it in", where="--note", fix="give --add or --rollback too")
    notes: tuple[str, ...] = ()
    if add is not None:
        found, notes = kept.add(folder, add, note)
    elif rollback is not None and output is not None:
        found, notes = kept.roll_back(folder, rollback, output, note)
    else:
        found = kept.read_history(folder)
    say_notes(notes)
    content = {**found.to_dict(), "notes": list(notes)}
    emit(json.dumps(content, indent=2, ensure_ascii=False) if format is Format.JSON else table(found))


def table(found: History) -> str:
    """A row for each record, what it is made of beneath; the arrow marks the generation in force."""
    last = len(found.records)
    rows = [_HEAD, *(_row(record, "→" if record.record == last else "") for record in found.records)]
    return noted(rows, ["", *map(_made_of, found.records)], left=4)


def _row(record: Record, mark: str) -> tuple[str, ...]:
    p99, tokens = record.rank_imbalance_p99, record.trace["tokens"]
    return (
        mark,
        str(record.generation),
        record.plan_fingerprint[:12],
        record.verdict.replace("_", " "),
        "–" if p99 is None else f"{p99:.3f}",
        f"{record.slots:,}",
        "–" if tokens is None else amount(tokens),
    )


def _made_of(record: Record) -> str:
    """The policy, the trace and the note."""
    files = record.trace["files"]
    more = f" +{len(files) - 1}" if len(files) > 1 else ""
    back = "rolled back" if record.event == "rolled back" else ""
    made = f"{record.policy} from {kept(Path(files[0]).name)}{more}" if files else record.policy
    why = ": ".join(part for part in (back, " ".join(record.note.split())) if part)
    return " · ".join(part for part in (made, why) if part)
