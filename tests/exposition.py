"""A small strict reader of OpenMetrics text: gauges only, as the writer writes them."""

from __future__ import annotations

import re
from typing import NamedTuple

META = re.compile(r"# (TYPE|UNIT|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
MEANT = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Read(NamedTuple):
    """help, unit: by family · samples: labels and value by family."""

    help: dict[str, str]
    unit: dict[str, str]
    samples: dict[str, list[tuple[dict[str, str], float]]]


def read(text: str) -> Read:
    """What an exposition says; fails on anything the format does not allow, families that interleave among it."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], "ends with # EOF and one line feed"
    found = Read({}, {}, {})
    current = ""
    for line in lines[:-2]:
        if meta := META.fullmatch(line):
            kind, name, rest = meta.groups()
            if kind == "TYPE":
                assert rest == "gauge" and name not in found.samples
                current, found.samples[name] = name, []
            assert name == current and not found.samples[name], "metadata comes before the samples"
            if kind == "HELP":
                found.help[name] = unescaped(rest)
            elif kind == "UNIT":
                assert name.endswith(f"_{rest}")
                found.unit[name] = rest
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None and sample[1] == current, line
        labels = labels_of(sample[2] or "")
        assert all(labels != other for other, _ in found.samples[current]), "labels are distinct"
        found.samples[current].append((labels, float(sample[3])))
    return found


def labels_of(text: str) -> dict[str, str]:
    """The label set between the braces."""
    labels, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match is not None and match[1] not in labels, text
        labels[match[1]], at = unescaped(match[2]), match.end()
    return labels


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return re.sub(r'\\[\\"n]', lambda match: MEANT[match[0]], text)
