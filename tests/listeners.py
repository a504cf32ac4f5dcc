"""A `Listener` that remembers."""

from __future__ import annotations

from collections.abc import Callable


class Heard:
    """Notes and the labels of stages, in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        self.stages.append(label)
        return lambda units: None
