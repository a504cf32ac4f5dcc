"""The one error tree. A message says what is wrong, where, and what would fix it."""

from __future__ import annotations

from collections.abc import Iterable

NEAR = 0.6
"""Share of two names that has to be alike for one to be taken for a slip of the other (as difflib counts)."""


class EbsimError(Exception):
    """Anything `ebsim` refuses with one clear line.

    `exit_code` is what the command line ends with: 2 for usage or bad input.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(self._line())

    def _line(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" — {self.fix}" if self.fix else ""
        return f"{place}{self.what}{hint}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`did you mean NAME? ` where one of `known` is nearest to what was given, else nothing: what a `fix` begins with.

    Case and the kind of dash do not matter; between names that are equally near nothing is guessed.
    """
    from difflib import SequenceMatcher

    said = SequenceMatcher(b=_folded(given))
    near: dict[float, list[str]] = {}
    for name in known:
        said.set_seq1(_folded(name))
        near.setdefault(said.ratio(), []).append(name)
    nearest = max(near, default=0.0)
    meant = near[nearest] if nearest >= NEAR else []
    return f"did you mean {meant[0]}? " if len(meant) == 1 else ""


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")


class UsageError(EbsimError):
    """Flags or settings that do not fit together."""


class TraceError(EbsimError):
    """A trace file that cannot be used as it is."""


class PlanError(EbsimError):
    """A placement or plan file that breaks an invariant."""


class ProfileError(EbsimError):
    """A hardware profile, model shape or cost table that cannot be used."""


class CriteriaError(EbsimError):
    """Gate criteria or a report that cannot be judged."""
