"""How an engine takes a new plan into service, and what serving loses meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Style:
    """chunk_layers: layers that change together, 0 = all at once · stops: serving waits while a chunk travels; else
    weights travel beside it and the old rows serve until theirs have arrived · chunk_steps: steps from one chunk to the
    next · fixed_s: that serving waits for every re-plan besides the transfer (planning, synchronising) ·
    measured_s: whole pause of a re-plan, instead of that and the transfer; None = not measured."""

    chunk_layers: int = 0
    stops: bool = True
    chunk_steps: int = 1
    fixed_s: float = 0.0
    measured_s: float | None = None


@dataclass(kw_only=True, eq=False)
class Change:
    """A plan on its way into service, its layers in order. layer_s: float[L] seconds of transfer of each layer · steps,
    seconds: served since it was decided · done: layers that serve with the new plan."""

    old: Plan
    new: Plan
    style: Style
    layer_s: tuple[float, ...]
    steps: float = 0.0
    seconds: float = 0.0
    done: int = 0

    @property
    def is_done(self) -> bool:
        """Whether every layer serves with the new plan."""
        return self.done >= self.new.layers

    def serving(self) -> Plan:
        """The plan that serves now: new rows as far as they have arrived, old slots until the last where slots differ
        in number."""
        if self.is_done:
            return self.new
        if self.done == 0 or self.old.slots != self.new.slots:
            return self.old
        rows = np.concatenate([self.new.expert_of_slot[: self.done], self.old.expert_of_slot[self.done :]])
        return replace(self.new, expert_of_slot=frozen(rows, np.int32))

    def steps_left(self, step_s: float) -> float:
        """Steps of `step_s` seconds until the last layer has arrived."""
        last = (self._chunks - 1 if self.style.stops else self._chunks) * self.style.chunk_steps
        waits = 0.0 if self.style.stops else (sum(self.layer_s) - self.seconds) / step_s
        return max(last - self.steps, waits, 0.0)

    def advance(self, steps: float, step_s: float) -> list[float]:
        """Steps of `step_s` seconds were served; returns the pauses that chunks made meanwhile.

        A chunk that stops serving is due every `chunk_steps` steps, the first at once, and pauses for the transfer of
        its layers. One that does not is due a `chunk_steps` later, or when the links have carried all up to its last
        layer since the decision.
        """
        finished = steps >= self.steps_left(step_s)
        self.steps += steps
        self.seconds += steps * step_s
        chunks = self._chunks if finished else self._due()
        pauses = [self._pause(chunk) for chunk in range(-(-self.done // self._size), chunks)]
        self.done = max(self.done, min(chunks * self._size, self.new.layers))
        return [pause for pause in pauses if pause > 0]

    @property
    def _size(self) -> int:
        return self.style.chunk_layers or self.new.layers

    @property
    def _chunks(self) -> int:
        return -(-self.new.layers // self._size)

    def _due(self) -> int:
        turns = int(self.steps // self.style.chunk_steps)
        if self.style.stops:
            return min(turns + 1, self._chunks)
        arrived = int(np.searchsorted(np.cumsum(self.layer_s), self.seconds, side="right"))
        return min(turns, arrived // self._size)

    def _pause(self, chunk: int) -> float:
        if not self.style.stops:
            return 0.0
        layers = self.layer_s[chunk * self._size : (chunk + 1) * self._size]
        if self.style.measured_s is not None:
            return self.style.measured_s * len(layers) / self.new.layers
        return sum(layers) + (self.style.fixed_s if chunk == 0 else 0.0)
