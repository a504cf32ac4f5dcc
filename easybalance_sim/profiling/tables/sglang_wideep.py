"""SGLang expert times behind DeepEP of aiconfigurator: `wideep_generation_moe_perf` and `wideep_context_moe_perf`.

`num_tokens` counts all ranks. Power-law rows are the mean of five draws. Generation times the masked kernel; context
the contiguous one, eagerly and with host launches inside, and passes the tokens of all ranks through its scatter and
gather.

Two properties of the generation tables are taken into account, both told by the times alone:

* the H200's was drawn by the collector's older recipe (`draws.Recipe.older_draws`). At 4 ranks and 1 token each, alpha
  0.6, 0.8, 1.01, 1.02 and 1.2, the times imply 31.4, 30.7, 22.3, 19.9 and 18.5 active slots; the older recipe gives
  32, 31, 21.5, 21.3 and 18.1, the present one 8, 8.4, 9.9, 9.9 and 10.2. The H100's and the GB200's fit the present
  one. Left open: at 8 ranks the times imply 15 to 18, the older recipe gives 21 to 24.
* the collector times graph replays, of one call in a uniform row, of five (its draws) in a power-law row, whose mean it
  reports: a whole gap between replays stands in the one, a fifth in the other. Six GB200 power-law rows whose draws all
  have the counts of the uniform row are 1.19, 1.02, 1.34, 1.47, 0.55 and 0.88 µs faster than it, on average 1.08 =
  4/5 of 1.35. The H100 has one such row only (0.46), the H200 none: no gap is taken off theirs.

Sources: aiconfigurator 095f58a51, tables; its collector/helper.py before ranks took turns, and its timing of replays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from easybalance_sim.profiling.rows import ExpertRow, Table, sift
from easybalance_sim.profiling.tables.columns import moe_row, parquet_rows

UNPADDED = "uniform counts under 128 per expert were not padded to 128, so the kernel skipped blocks"
CONTIGUOUS_BLOCK = 128
OLDER_DRAWS_DEVICE = "NVIDIA H200"
REPLAY_GAP_US = {"NVIDIA GB200": 1.35}
_CALLS_OF_A_REPLAY = 5
_COLUMNS = (
    "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_ep_size", "distribution", "latency",
    "kernel_source",
)  # fmt: skip


def read_generation(path: Path) -> Table[ExpertRow]:
    """Decode rows, all usable, those of H200 and GB200 as the module says, with notes.

    Raises `ProfileError` as `parquet_rows` does.
    """
    raws = list(parquet_rows(path, (*_COLUMNS, "device")))
    rows = tuple(map(_decode_row, raws))
    return Table(source=str(path), rows=rows, notes=_notes(raws, rows))


def _decode_row(raw: SimpleNamespace) -> ExpertRow:
    row = moe_row(raw, counts=_decode_counts(raw))
    drawn = row.distribution != "uniform"
    gap_us = REPLAY_GAP_US.get(raw.device, 0.0) / (_CALLS_OF_A_REPLAY if drawn else 1)
    return replace(row, us=row.us - gap_us, older_draws=drawn and raw.device == OLDER_DRAWS_DEVICE)


def _notes(raws: list[SimpleNamespace], rows: tuple[ExpertRow, ...]) -> tuple[str, ...]:
    """How many rows were taken otherwise than they stand, and how."""
    notes = []
    if older := sum(row.older_draws for row in rows):
        notes.append(f"{_rows(older)} of {OLDER_DRAWS_DEVICE} taken as drawn by the older recipe, as their times say")
    devices = Counter(raw.device for raw in raws)
    for device, gap_us in REPLAY_GAP_US.items():
        if devices[device]:
            notes.append(
                f"{_rows(devices[device])} of {device} taken without the gap between graph replays: "
                f"uniform {gap_us:.2f} µs less, the others {gap_us / _CALLS_OF_A_REPLAY:.2f} µs"
            )
    return tuple(notes)


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def read_context(path: Path) -> Table[ExpertRow]:
    """Prefill rows without the uniform ones that were not padded. Raises `ProfileError` as `parquet_rows` does."""
    rows = (moe_row(raw, counts=_prefill_counts(raw)) for raw in parquet_rows(path, _COLUMNS))
    return sift(str(path), ((row, UNPADDED if _unpadded(row) else "") for row in rows))


def _unpadded(row: ExpertRow) -> bool:
    return row.distribution == "uniform" and row.tokens * row.top_k < CONTIGUOUS_BLOCK * row.experts


def _decode_counts(raw: object) -> tuple[int, ...]:
    """Uniform rows: the same count everywhere, or one token on as many experts as the rank receives assignments."""
    local, each, arriving = _uniform(raw)
    if each:
        return (each,) * local
    return (1,) * min(local, arriving) + (0,) * (local - min(local, arriving))


def _prefill_counts(raw: object) -> tuple[int, ...]:
    local, each, _ = _uniform(raw)
    return (each,) * local


def _uniform(raw: object) -> tuple[int, int, int]:
    """Experts of a rank, assignments of each, assignments of the rank; no experts for rows that are not uniform."""
    value = vars(raw)
    experts, ranks, pairs = (
        int(number) for number in (value["num_experts"], value["moe_ep_size"], value["num_tokens"])
    )
    pairs *= int(value["topk"])
    local = experts // ranks if value["distribution"] == "uniform" else 0
    return local, pairs // experts, pairs // ranks
