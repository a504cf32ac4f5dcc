"""Who works on the parts of a trace: threads of this process, or the workers of a Dask cluster.

Either gives the results in the order of the parts, so what is made of them does not depend on who worked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


class Workers(Protocol):
    """Something that maps work over parts."""

    @property
    def here(self) -> bool:
        """Whether work runs in this process and may so share objects with its caller."""

    def parts(self, state_bytes: int) -> int:
        """Into how many parts to cut: enough to keep all busy, few where each holds `state_bytes` of its own."""

    def run(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> Iterator[Result]:
        """work(part) for every part, in order. Raises what the first of them raised."""
