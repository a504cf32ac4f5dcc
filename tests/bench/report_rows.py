"""Puts rows of benchmarks into their places in a report: between `<!-- rows: NAME -->` and `<!-- end of rows -->`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

END = "<!-- end of rows -->"


def with_rows(report: str, rows: Mapping[str, Sequence[str]]) -> str:
    """The report with the rows of each name in its place. Raises ValueError for a name that has none.

    Rows of a table stay one, its head is taken once; anything else stands as it was printed.
    """
    for name, texts in rows.items():
        begin = f"<!-- rows: {name} -->\n"
        before, found, rest = report.partition(begin)
        if not found:
            raise ValueError(f"the report has no place for the rows of {name}")
        _, found, after = rest.partition(END)
        if not found:
            raise ValueError(f"the place for the rows of {name} has no end")
        report = f"{before}{begin}{_shown(texts)}\n{END}{after}"
    return report


def _shown(texts: Sequence[str]) -> str:
    lines = [line for text in texts for line in text.strip("\n").splitlines()]
    if lines[0].startswith("|"):
        return "\n".join(dict.fromkeys(lines))
    return "\n".join(["```text", *lines, "```"])
