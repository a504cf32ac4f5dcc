"""What the layer needed in its last steps: a moving average of presence, half-life `HALF_LIFE_STEPS`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.signal import lfilter

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.offloading.prefetch import View

HALF_LIFE_STEPS = 8.0


def chances(view: View) -> Iterator[tuple[int, FloatArray]]:
    """Of every layer, by the steps before: those of the past run on into the judged ones."""
    keep = 0.5 ** (1 / HALF_LIFE_STEPS)
    for layer in range(view.judged.layers):
        there = np.concatenate([side.presence[:, layer] for side in (view.past, view.judged)]).astype(np.float64)
        mean = lfilter([1 - keep], [1.0, -keep], there, axis=0)
        yield layer, mean[view.past.steps - 1 : -1]
