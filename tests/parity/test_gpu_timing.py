"""What `ebsim profile measure` times, on a GPU: `pytest -m gpu`. That the times are right nothing here can say."""

from __future__ import annotations

from typing import Any

import pytest

from easybalance_sim.kernels.measurable import COPY_DEVICE, COPY_HOST, COPY_PEER, DTYPES
from easybalance_sim.kernels.timing import open_gpu
from tests.parity.timing_cases import layer_problems, unread

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.fixture(scope="module")
def gpu() -> Any:
    try:
        return open_gpu()
    except RuntimeError as error:
        pytest.fail(f"no GPU can be used: {error}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("matrices", [2, 3])
def test_a_layer_is_the_product_of_its_active_experts(dtype: str, matrices: int, gpu: Any) -> None:
    assert layer_problems(gpu, dtype, matrices) == []


@pytest.mark.parametrize("size", [8, 1000, (1 << 26) + 8])
def test_a_read_reads_every_word(size: int, gpu: Any) -> None:
    assert not unread(gpu, size)


def test_larger_reads_and_copies_take_longer(gpu: Any) -> None:
    small, large = 1 << 20, 1 << 29
    assert min(gpu.read(large, 5)) > max(gpu.read(small, 5))
    for what in (COPY_DEVICE, COPY_HOST, *[COPY_PEER] * (gpu.about.gpus > 1)):
        assert min(gpu.copy(what, large, 5, 1)) > max(gpu.copy(what, small, 5, 1))
