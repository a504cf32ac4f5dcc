"""Times of a whole DeepSeek-V3 layer: measured linear parts and attention around the experts and their links.

The cost model leaves attention, shared experts and norms out, for no placement changes them. Published throughputs hold
them, so this is what lets the model be held against those. Linear parts are InferSim's measured FP8 GEMM curves
(f2293da, `bench_data/gemm`). Gating, rope, sampling, host gaps and the LM head are left out.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.errors import ProfileError

HIDDEN, INTERMEDIATE, TOP_K, HEADS = 7168, 2048, 8, 128
MOE_LAYERS, DENSE_LAYERS = 58, 3
ATTENTION = ((7168, 1536), (1536, 24576), (7168, 576), (16384, 512), (65536, 128), (16384, 7168))
"""k, n of query down and up, key/value down, query into and output out of the latent space, output projection."""
SHARED = ((7168, 4096), (2048, 7168))
DENSE = ((7168, 36864), (18432, 7168))

_CORE_SHARE = {"prefill": 0.735, "decode": 0.49}
"""Share of the BF16 peak that the attention core reaches on an H800 at a context of 4096 (InferSim f2293da: what its
DeepSeek-V3 times hold beside the linear parts)."""
_CAUSAL = 1.8
_CORE_WIDTH = {"prefill": 128 + 64 + 128, "decode": 512 + 64 + 512}


@dataclass(frozen=True, kw_only=True, eq=False)
class GemmCurves:
    """µs by tokens of GEMMs; by (k, n): float64[2, M] of tokens, increasing, and µs."""

    source: str
    by_shape: Mapping[tuple[int, int], FloatArray]

    @classmethod
    def read(cls, path: Path) -> GemmCurves:
        """Of a CSV with m, k, n, latency_us. Raises `ProfileError` with the file: unreadable, or not such a table."""
        points: dict[tuple[int, int], dict[int, float]] = {}
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                for row in csv.DictReader(stream):
                    m, k, n = (int(row[name]) for name in "mkn")
                    points.setdefault((k, n), {})[m] = float(row["latency_us"])
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"cannot read: {error}", where=str(path), fix="check the path") from error
        except (KeyError, TypeError, ValueError) as error:
            raise ProfileError(f"not a GEMM table: {error}", where=str(path), fix="give m,k,n,latency_us") from error
        curves = {shape: np.array(sorted(curve.items()), np.float64).T for shape, curve in points.items()}
        return cls(source=str(path), by_shape=curves)

    def us(self, tokens: int, shapes: tuple[tuple[int, int], ...]) -> float:
        """µs of GEMMs with these (k, n), one after the other: linear between measured tokens, flat below.

        Raises `ProfileError` for a shape that was not measured and for more tokens than were.
        """
        total = 0.0
        for shape in shapes:
            if shape not in self.by_shape or tokens > self.by_shape[shape][0, -1]:
                raise ProfileError(f"has no {tokens} tokens of k, n = {shape}", where=self.source)
            total += float(np.interp(tokens, *self.by_shape[shape]))
        return total


@dataclass(frozen=True, kw_only=True)
class Layer:
    """µs of the parts of one MoE layer, and of a dense layer.

    fixed_us: everything that no placement changes · slow_down: of overlapped compute, ≥ 1, for the SMs that
    communication takes.
    """

    fixed_us: float
    expert_us: float
    link_us: float
    dense_us: float
    slow_down: float = 1.0

    @property
    def serial_s(self) -> float:
        """Seconds through the whole model, nothing hidden."""
        return self._model_s(self.fixed_us + self.expert_us + self.link_us)

    @property
    def overlap_s(self) -> float:
        """Seconds through the whole model, the shorter of communication and compute hidden behind the longer."""
        return self._model_s(max((self.fixed_us + self.expert_us) * self.slow_down, self.link_us))

    def hidden(self, measured_s: float) -> float:
        """Share of what can be hidden that a measured time has hidden: 0 = `serial_s`, 1 = `overlap_s`."""
        return (self.serial_s - measured_s) / (self.serial_s - self.overlap_s)

    def skewed(self, imbalance: float, *, links: bool = True) -> Layer:
        """With the fullest rank at `imbalance` times the mean; links: dispatch and combine wait for it as well."""
        return replace(self, expert_us=self.expert_us * imbalance, link_us=self.link_us * (imbalance if links else 1.0))

    def imbalance_of(self, gain: float) -> float:
        """Imbalance on experts and links that costs `gain` of the serial time."""
        return 1 + gain * self.serial_s / (MOE_LAYERS * (self.expert_us + self.link_us) * 1e-6)

    def _model_s(self, layer_us: float) -> float:
        return (MOE_LAYERS * layer_us + DENSE_LAYERS * self.dense_us) * 1e-6


def core_us(tokens: int, context: int, phase: str, peak_flops: float) -> float:
    """µs of latent attention itself, on `tokens` queries with `context` keys before them (half of them in prefill).

    peak_flops: BF16 peak of the GPU. 2 · heads · width · context operations a query; width: 576 + 512 in decode, which
    works on the latent vectors, 192 + 128 in prefill.
    """
    operations = 2.0 * tokens * HEADS * _CORE_WIDTH[phase] * context / (_CAUSAL if phase == "prefill" else 1.0)
    return 1e6 * operations / (peak_flops * _CORE_SHARE[phase])


def rows_us(tokens: int, bytes_per_s: float) -> float:
    """µs of the passes over rows beside the GEMMs: each reads and writes memory once.

    A token: two norms (8H bytes), quantisation (3H). An assignment: into expert order in FP8 (2H), gated activation
    with FP8 out (5I), weighted sum back (4H).
    """
    return 1e6 * tokens * (11 * HIDDEN + TOP_K * (6 * HIDDEN + 5 * INTERMEDIATE)) / bytes_per_s
