"""A report as JSON text: indented, rows of numbers on one line each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# No text of JSON holds a line break, so this finds lists of numbers and nothing else.
_NUMBERS = re.compile(r"\[\n\s+((?:[-+.\deE]+|null)(?:,\n\s+(?:[-+.\deE]+|null))*)\n\s+\]")


def json_text(report: Mapping[str, Any]) -> str:
    """The text that `--format json` prints; raises `ValueError` for a number that is not finite."""
    text = json.dumps(report, indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
