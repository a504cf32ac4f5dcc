"""What stress traffic is made from: held-out traffic, and nothing else."""

from __future__ import annotations

from typing import Protocol

from easybalance_sim.planning.stress.stretch import Stretch

DOMINANT = 0.8
"""Share of the tokens that one kind of traffic has when it dominates the mix."""

BURST = 4
"""Tokens of a step in a burst, in usual steps; all but one of these come from one kind of traffic."""


class Material(Protocol):
    """Held-out traffic, told apart into kinds."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds: workloads, or topics where there are no labels; none with `why_alike`."""

    @property
    def why_alike(self) -> str:
        """Why there are no kinds, "" when there are."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of kinds that no mix is made of: too few requests, or beyond the largest."""

    def as_held_out(self) -> Stretch:
        """The traffic as it came."""

    def dominated(self, kind: int) -> Stretch:
        """Steps of the usual size in which a kind makes `DOMINANT` of the tokens."""

    def burst(self, kind: int | None) -> Stretch:
        """Steps of `BURST` times the usual size, the excess all of one kind; None = of the usual mix."""

    def uniform(self) -> Stretch:
        """Steps of the usual size in which every token chooses its experts at random."""
