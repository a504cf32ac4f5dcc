"""How a command ends that has no answer."""

from __future__ import annotations

INTERNAL = 70
INTERRUPTED = 130
