"""Numbers of a Hugging Face `config.json` under the names that different models give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.errors import ProfileError

Config = Mapping[str, Any]


class Keys:
    """Whole numbers looked up under the names that different models give them; null counts as absent."""

    def __init__(self, config: Config, where: str) -> None:
        self.config, self.where = config, where

    def number(self, *names: str) -> int:
        """The first of `names` that is there, also of a list of equal numbers. Raises `ProfileError` naming the key."""
        found = next((name for name in names if self.config.get(name) is not None), None)
        if found is None:
            raise ProfileError(f"key {' or '.join(names)} is missing", where=self.where, fix="is it an MoE model?")
        value = self.config[found]
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ProfileError(f"key {found} is {value!r}, expected a whole number", where=self.where)
        return value

    def optional(self, name: str, default: int) -> int:
        """`name`, or `default` where it is absent."""
        return self.number(name) if self.has(name) else default

    def has(self, name: str) -> bool:
        """Whether `name` is there and not null."""
        return self.config.get(name) is not None
