"""OpenMetrics text: families of gauges, in the part of the format that Prometheus' own text parser reads, too.

Format: OpenMetrics 1.0 (RFC draft of the OpenMetrics project, "Text format"). Only gauges are written: node_exporter's
textfile collector refuses the types `info` and `stateset`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_NAME, _LABEL = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*"), re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
UNITS = ("seconds", "bytes")
"""A family whose name ends in one of them says so in a line of its own."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One number. Raises `ValueError` for a label name that the format does not have."""

    value: float
    labels: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in self.labels:
            if not _LABEL.fullmatch(name):
                raise ValueError(f"{name!r} is no label name")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Gauges of one name. Raises `ValueError` for a name that the format does not have, or two samples with the same
    labels."""

    name: str
    help: str
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no metric name")
        keys = [tuple(sorted(sample.labels.items())) for sample in self.samples]
        if len(set(keys)) < len(keys):
            raise ValueError(f"two samples of {self.name} have the same labels")


def text(families: Iterable[Family]) -> str:
    """The exposition, `# EOF` at its end; families without a sample are left out."""
    lines = [line for family in families if family.samples for line in _lines(family)]
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def _lines(family: Family) -> list[str]:
    unit = family.name.rpartition("_")[2]
    return [
        f"# TYPE {family.name} gauge",
        *([f"# UNIT {family.name} {unit}"] if unit in UNITS else []),
        f"# HELP {family.name} {family.help.translate(_ESCAPES)}",
        *(f"{family.name}{_labels(sample.labels)} {number(sample.value)}" for sample in family.samples),
    ]


def _labels(labels: Mapping[str, str]) -> str:
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def number(value: float) -> str:
    """The shortest decimal that reads back as the same float."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
