"""What a measured table holds: one value per measurement, and a note for every row that is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertRow:
    """The measured expert part of one layer on its busiest rank.

    us: µs · hidden, intermediate: widths · experts, top_k: of the model · ep: ranks · slots: physical, over all ranks ·
    tokens: over all ranks · distribution: `uniform`, or `power_law_A` with the exponent A · eplb: whether EPLB placed
    the experts · arrived: distinct tokens recorded at the rank, -1 = not recorded · counts: assignments of every slot
    of the rank where the table fixes them, empty = one draw of `draws` · kernel: source of the kernel · matrices: of an
    expert, 3 gated · older_draws: whether `draws.Recipe.older_draws` made its load.
    """

    us: float
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    ep: int
    slots: int
    tokens: int
    distribution: str
    eplb: bool = False
    arrived: int = -1
    counts: tuple[int, ...] = ()
    kernel: str = ""
    matrices: int = 3
    older_draws: bool = False

    @property
    def alpha(self) -> float:
        """Exponent of the power law; 0 for any other distribution."""
        law = self.distribution.removeprefix("power_law_")
        return 0.0 if law == self.distribution else float(law)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(hidden, intermediate, experts)."""
        return self.hidden, self.intermediate, self.experts


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkRow:
    """One measured communication phase with every rank equally loaded.

    us: µs · curve: what the row's curve over `size` is (operation, dtype, ranks, …) · size: tokens per rank, or bytes ·
    phase: `dispatch`, `combine` or `prepare`, empty for a collective · mode: `normal`, `low_latency` or the operation's
    name · nodes: NVLink domains · ranks: GPUs · rdma_bytes, nvlink_bytes: bytes of a rank's busier direction over each
    link · notify_us: layout exchange that was timed apart · dtype: of the rows sent, one of `hardware.SENT_DTYPES`,
    empty where none is sent or another · kernel: source of the kernel.
    """

    us: float
    curve: str
    size: int
    phase: str = ""
    mode: str
    nodes: int
    ranks: int
    rdma_bytes: float = 0.0
    nvlink_bytes: float = 0.0
    notify_us: float = 0.0
    dtype: str = ""
    kernel: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """Rows left out of a table: how many, and why they must not be fitted."""

    rows: int
    reason: str

    def __str__(self) -> str:
        return f"{self.rows:,} row{'s' * (self.rows != 1)} dropped: {self.reason}"


Row = TypeVar("Row", ExpertRow, LinkRow)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table(Generic[Row]):
    """The rows of one file that can be used, notes on those that cannot, and other notes on how rows were taken."""

    source: str
    rows: tuple[Row, ...]
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()


def sift(source: str, judged: Iterable[tuple[Row, str]]) -> Table[Row]:
    """The table of the rows whose reason is empty; the others are counted by reason."""
    kept: list[Row] = []
    counts: dict[str, int] = {}
    for row, reason in judged:
        if reason:
            counts[reason] = counts.get(reason, 0) + 1
        else:
            kept.append(row)
    notes = tuple(Dropped(rows=rows, reason=reason) for reason, rows in counts.items())
    return Table(source=source, rows=tuple(kept), dropped=notes)
