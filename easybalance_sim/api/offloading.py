"""`offload`: what `ebsim offload` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Names, Numbers, PathLike, Traces, names_of, numbers_of, settings_of
from easybalance_sim.api.results import PageResult
from easybalance_sim.offloading.request import OffloadRequest
from easybalance_sim.offloading.run import run_offload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OffloadResult(PageResult):
    """How many experts have to be on the GPU, and what the rest costs on its way there."""

    def line(self) -> str:
        """The answers."""
        return " ".join(self.report["answers"])

    def table(self) -> pd.DataFrame:
        """One row per size of the cache, for every batch size, policy and predictor."""
        from easybalance_sim.api.tables import rows_of

        return rows_of(
            {"batch": batch["batch"], "policy": curve["policy"], "prefetch": curve["prefetch"], **point}
            for batch in self.report["batches"]
            for curve in batch["curves"]
            for point in curve["points"]
        )


def offload(
    traces: Traces,
    *,
    model: PathLike = "",
    profile: PathLike = "",
    gpu_gb: float | None = None,
    cached_share: float | Sequence[float] = (),
    policy: Names = None,
    prefetch: Names = None,
    ahead: int = 1,
    scope: str = "layer",
    host: str = "pcie5",
    resident_dtype: str = "",
    offload_dtype: str = "",
    batch: Numbers = (),
    between_us: float | None = None,
    within: float = 0.1,
    held_out: float = 0.5,
    workload: Names = None,
    phase: str | None = None,
    progress: bool = False,
) -> OffloadResult:
    """Keep experts in host memory or on a drive: hit rates of caches, bytes on the link, and how much longer steps get.

    Options are the flags of `ebsim offload`; where those take lists, one number or several. Raises `EbsimError`
    subclasses for bad input.
    """
    said = locals()
    call, told = begun(offload, said)
    shares = (cached_share,) if isinstance(cached_share, int | float) else tuple(cached_share)
    request = OffloadRequest(
        settings=settings_of(said), shares=shares, gpu_gb=gpu_gb, policies=names_of(policy),
        prefetch=names_of(prefetch), scope=scope, host=host, resident_dtype=resident_dtype,
        offload_dtype=offload_dtype, batches=numbers_of(batch), ahead=ahead, between_us=between_us, within=within,
        held_out=held_out,
    )  # fmt: skip
    report = run_offload(request, told)
    return OffloadResult(report={**report, "figure": None, "notes": told.notes}, call=call)
