"""Stress traffic from held-out count windows: what counts can say of other mixes, bursts and uniform routing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, sealed, stream
from easybalance_sim.planning.stress.material import BURST, DOMINANT
from easybalance_sim.planning.stress.stretch import CountStretch
from easybalance_sim.replay.traffic import CountTraffic
from easybalance_sim.trace.schema import TraceMeta


@dataclass(frozen=True, kw_only=True, eq=False)
class CountMaterial:
    """Held-out windows. tokens: int64[W, L, E] · kind: int64[W] workload of each · kinds, why_alike: as in
    `Material`."""

    meta: TraceMeta
    tokens: IntArray
    kind: IntArray
    kinds: tuple[str, ...]
    why_alike: str
    seed: int

    @property
    def left_out(self) -> tuple[str, ...]:
        """None."""
        return ()

    def as_held_out(self) -> CountStretch:
        """See `Material`."""
        return CountStretch(meta=self.meta, tokens=self.tokens)

    def dominated(self, kind: int) -> CountStretch:
        """See `Material`; every window of the kind with the others' average beside it."""
        return CountStretch(meta=self.meta, tokens=self._mixed(kind, DOMINANT))

    def burst(self, kind: int | None) -> CountStretch:
        """See `Material`; windows have the shape that they had, steps drawn from them are larger."""
        if kind is None:
            return CountStretch(meta=self.meta, tokens=self.tokens, times=BURST)
        size = self.tokens.sum(axis=(1, 2))
        usual = float(size[self.kind == kind].sum() / size.sum())
        return CountStretch(meta=self.meta, tokens=self._mixed(kind, (BURST - 1 + usual) / BURST), times=BURST)

    def uniform(self) -> CountStretch:
        """See `Material`; as if every assignment were drawn by itself."""
        total = self.tokens.sum(axis=2)
        even = np.full(self.meta.experts, 1 / self.meta.experts)
        drawn = stream(self.seed, "uniform routing").multinomial(total, even)
        return CountStretch(meta=self.meta, tokens=sealed(drawn))

    def _mixed(self, kind: int, share: float) -> IntArray:
        """int64[w, L, E] windows of the kind, `share` of their tokens; the rest spread as all others are together."""
        mine = self.tokens[self.kind == kind]
        rest = _shares(self.tokens[self.kind != kind].sum(axis=0))
        total = mine.sum(axis=2, keepdims=True)
        mixed = share * mine + (1 - share) * total * np.where(rest.sum(axis=1, keepdims=True) > 0, rest, _shares(mine))
        return sealed(np.rint(mixed).astype(np.int64))


def count_material(traffic: CountTraffic, seed: int) -> CountMaterial:
    """The held-out windows of a count trace, at least one."""
    trace = traffic.trace
    held = traffic.held & (trace.tokens.sum(axis=(1, 2)) > 0)
    found, kind = np.unique(trace.workload[held], return_inverse=True)
    told = len(found) > 1
    return CountMaterial(
        meta=trace.meta,
        tokens=sealed(trace.tokens[held]),
        kind=sealed(kind.reshape(-1)),
        kinds=tuple(trace.workloads[code] for code in found) if told else (),
        why_alike="" if told else "counts know no requests, and the held-out windows are of one workload",
        seed=seed,
    )


def _shares(tokens: IntArray) -> FloatArray:
    total = tokens.sum(axis=-1, keepdims=True)
    shares: FloatArray = np.divide(tokens, total, out=np.zeros(tokens.shape), where=total > 0)
    return shares
