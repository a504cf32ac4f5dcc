"""One SGLang for all tests of the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.sglang_runtime import SGLang, running


@pytest.fixture(scope="session")
def sglang() -> Iterator[SGLang]:
    with running() as engine:
        yield engine
