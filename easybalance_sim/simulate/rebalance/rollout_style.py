"""How an engine takes a new plan into service, and what serving loses meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Style:
    """chunk_layers: layers that change together, 0 = all at once · stops: serving waits while a chunk travels; else
    weights travel beside it and the old rows serve until theirs have arrived · chunk_steps: steps between two chunks ·
    fixed_s: that serving waits for every re-plan besides the transfer (planning, synchronising)."""

    chunk_layers: int = 0
    stops: bool = True
    chunk_steps: int = 1
    fixed_s: float = 0.0


@dataclass(kw_only=True, eq=False)
class Change:
    """A plan on its way into service. moves: experts that travel in each layer · transfer_s: of all of them · steps:
    since it was decided · layers: rows in the order in which they change."""

    old: Plan
    new: Plan
    style: Style
    moves: tuple[int, ...]
    transfer_s: float
    steps: float = 0.0
    done: int = 0

    @property
    def is_done(self) -> bool:
        """Whether every layer serves with the new plan."""
        return self.done >= self.new.layers

    def serving(self) -> Plan:
        """The plan that serves now: new rows as far as they have arrived."""
        if self.done == 0 or self.is_done:
            return self.new if self.is_done else self.old
        rows = np.concatenate([self.new.expert_of_slot[: self.done], self.old.expert_of_slot[self.done :]])
        return replace(self.new, expert_of_slot=frozen(rows, np.int32))

    def advance(self, steps: float, seconds: float) -> list[float]:
        """Time has passed: `steps` steps that took `seconds`; returns the pauses that the chunks made meanwhile.

        A chunk that stops serving takes its share of the transfer as a pause. One that does not waits for its weights:
        the links give it the time that has passed since the decision.
        """
        self.steps += steps
        size = self.style.chunk_layers or self.new.layers
        due = size * (1 + int(self.steps // max(self.style.chunk_steps, 1)))
        if not self.style.stops and self.transfer_s > 0:
            passed = self.steps / max(steps, 1e-9) * seconds
            due = min(due, int(self.new.layers * passed / self.transfer_s))
        pauses = []
        while self.done < min(due, self.new.layers):
            chunk = self.moves[self.done : self.done + size]
            share = sum(chunk) / max(sum(self.moves), 1)
            first = self.style.fixed_s if self.done == 0 else 0.0
            pauses.append(first + (share * self.transfer_s if self.style.stops else 0.0))
            self.done = min(self.done + size, self.new.layers)
        return [pause for pause in pauses if pause > 0]
