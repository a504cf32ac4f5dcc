"""A prefix cache that keeps the blocks used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Least recently used blocks leave first; a block is only of use with all in front of it. capacity: blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._blocks = capacity, OrderedDict[int, None]()

    def visit(self, blocks: Sequence[int], most: int) -> int:
        """Blocks at the front of a prompt that are there, `most` at most; then all of the prompt's are."""
        if not self._capacity:
            return 0
        found = next((place for place, block in enumerate(blocks) if block not in self._blocks), len(blocks))
        # The front of a prompt is of use to more prompts than its end: it is the last to be touched.
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return min(found, most)
