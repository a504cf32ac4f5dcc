"""Compiling without numba's runtime, for inner loops."""

from __future__ import annotations

from typing import Any

from numba import njit


def bare_njit(**options: Any) -> Any:
    """`njit` for a function that allocates nothing.

    Without the runtime no references to views are counted, which in loops over small rows costs 2 to 5 times the work
    itself, and LLVM has less to compile. Such a function cannot make arrays, lists or tuples of them; it works in
    arrays that it is given.
    """
    return njit(cache=True, nogil=True, **{"_nrt": False, **options})
