"""What the layer is going to need: the bound on every predictor that looks as far ahead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.offloading.prefetch import View

BOUND = True


def chances(view: View) -> Iterator[tuple[int, FloatArray]]:
    """Certainty."""
    for layer in range(view.judged.layers):
        yield layer, view.judged.presence[:, layer].astype(np.float64)
