"""Every case of the list on the compiled CPU kernels; integers are equal bit for bit, scores up to rounding."""

from __future__ import annotations

from collections.abc import Callable

from easybalance_sim import kernels
from tests.conftest import PARITY
from tests.parity.cases import differences


def test_every_case(record_property: Callable[[str, object], None]) -> None:
    found = dict(differences(kernels.load("numba")))
    assert [name for name, what in found.items() if what] == []
    assert len(found) > 0
    record_property(PARITY, f"1 numba: {len(found)} cases")
