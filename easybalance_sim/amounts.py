"""Numbers that know what they count."""

from __future__ import annotations


class Amount(int):
    """The total of a stage that tells of its progress, as `unit` (plural: tokens, windows, bytes) it is rated in."""

    unit: str

    def __new__(cls, number: int, unit: str) -> Amount:
        """An integer like any other; what is computed from it is a plain one."""
        amount = super().__new__(cls, number)
        amount.unit = unit
        return amount
