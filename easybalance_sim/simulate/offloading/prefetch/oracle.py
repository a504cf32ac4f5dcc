"""What the layer is going to need: the bound on every predictor that looks as far ahead."""

from __future__ import annotations

from collections.abc import Iterator

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.offloading.prefetch import View, presence

BOUND = True


def chances(view: View) -> Iterator[tuple[int, FloatArray]]:
    """Certainty."""
    for layer in range(view.judged.layers):
        yield layer, presence(view.judged, layer)
