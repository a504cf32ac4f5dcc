"""One SGLang for all tests of the process; without it they are skipped, or fail where engines are required."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.engines.sglang_runtime import VERSION, SGLang, missing, running

REQUIRED = "EBSIM_REQUIRE_ENGINES"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skipped here, not in the fixture: so that the run's summary has one line for all of them."""
    if "sglang" in getattr(item, "fixturenames", ()) and (absent := missing()):
        reason = f"needs torch, einops and, installed with --no-deps, sglang=={VERSION}: {absent} not installed"
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def sglang() -> Iterator[SGLang]:
    with running() as engine:
        yield engine
