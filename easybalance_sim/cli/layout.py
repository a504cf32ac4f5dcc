"""Text within 80 columns whatever stands in it: sentences are wrapped, tables narrowed, folded or cut in parts.

The width does not depend on the terminal, so that logs and diffs stay the same. Only a path may be wider: it is never
broken.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import PurePath

WIDTH = 80
LEAST_LABEL, LEAST_WORDS, LEAD = 12, 24, 8
_GAP = "  "
_KEPT = "\0"
_UNIT = re.compile(r"(%|×|x|[mµn]?s|[kMGT]?B(/s)?|[kMG])\W*")
_FIGURE = re.compile(r"\(\d[\d.,]*×?\)\W*")
_INSIDE = re.compile(r"(?<=[/-])(?=\w\w)")

Row = Sequence[str]


def shown(text: str) -> int:
    """Columns that a terminal gives to a text: two to a wide character, none to a combining one."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def wrapped(text: str, *, first: str = "", then: str = "  ", width: int = WIDTH) -> list[str]:
    """Lines of a text. first, then: what the first line and the others begin with, before the text's own indent.

    A number stays with its unit, a figure in brackets with its word. A word longer than a line is cut, unless it looks
    like a path: that makes its line longer.
    """
    first, then = first + _indent(text), then + _indent(text)
    lines, line, begun = [], first, False
    for word in _kept_together(text.split()):
        # A line of its own helps no path that is too long for it, or that has hardly anything before it.
        lead = LEAD if shown(line.strip()) <= LEAD else 0
        too_long = _is_path(word) and shown(then) + shown(word) > width - lead
        if begun and shown(line) + 1 + shown(word) > width and not too_long:
            lines.append(line)
            line, begun = then, False
        while not begun and shown(line) + shown(word) > width and not _is_path(word):
            taken = _cut(word, max(1, width - shown(line)))
            lines.append(line + word[:taken])
            line, word = then, word[taken:]
        line += f" {word}" if begun else word
        begun = True
    return [line.replace(_KEPT, " ").rstrip() for line in (*lines, line)]


def filled(text: str, *, first: str = "", then: str = "  ") -> str:
    """`wrapped` as one text."""
    return "\n".join(wrapped(text, first=first, then=then))


def inner(text: str) -> list[str]:
    """Lines of a text that belongs to the line above it: two columns in."""
    return wrapped(text, first="  ", then="    ")


def command(text: str, *, first: str = "", then: str = "    ") -> list[str]:
    """A shell command in lines that can be copied as they are: each flag with its value, \\ where it goes on."""
    *begun, last = wrapped(_glued(text), first=first, then=then, width=WIDTH - 2)
    return [*(f"{line} \\" for line in begun), last]


def flags(text: str) -> list[str]:
    """Flags for a command, each with its value, two columns in."""
    return wrapped(_glued(text), first="  ", then="  ")


def _glued(text: str) -> str:
    return re.sub(r" (?!-)", _KEPT, text)


def kept(text: object) -> str:
    """A text whose blanks no line ends at: a path, a name with its figure."""
    return str(text).replace(" ", _KEPT)


def aligned(rows: Sequence[Row], *, left: int = 1) -> str:
    """Rows of texts as columns, the first row as their heads; the first `left` columns to the left, the others right.

    Too wide a table gets heads of several lines, then a line of its own for each long label; a table whose figures
    alone are too wide comes in parts, each with its labels.
    """
    parts: list[str] = []
    start, end = left, len(rows[0])
    while start < end or not parts:
        stops = range(end, start, -1)
        stop = next((stop for stop in stops if _part(rows, left, start, stop).fits), min(start + 1, end))
        parts.append("\n".join(_part(rows, left, start, stop).all_lines()))
        start = max(stop, start + 1)
    return "\n\n".join(parts)


def worded(rows: Sequence[Row], *, left: int = 1) -> str:
    """As `aligned`, but the last column holds words: to the left, wrapped in the room beside the others."""
    figures = [row[:-1] for row in rows]
    table = _Table(figures, left, WIDTH - LEAST_WORDS - len(_GAP))
    if not table.fits:
        return noted(figures, ["", *(row[-1] for row in rows[1:])], left=left)
    beside = table.width + len(_GAP)
    lines = []
    for number, row in enumerate(rows):
        *before, last = table.lines(number)
        words = wrapped(row[-1], then="", width=WIDTH - beside)
        beginning = last + " " * (beside - shown(last))
        lines += [*before, beginning + words[0], *(" " * beside + line for line in words[1:])]
    return "\n".join(line.rstrip() for line in lines)


def noted(rows: Sequence[Row], notes: Sequence[str], *, left: int = 1) -> str:
    """As `aligned`, with a note under each row, "" for none; it begins two columns inside the label."""
    table = _Table(rows, left, WIDTH)
    labels = [row[table.label].strip() for row in rows]
    if not table.fits:
        below = [filled(f"{label}: {note}") for label, note in zip(labels, notes, strict=True) if note]
        return "\n".join([aligned(rows, left=left), *below])
    lines = []
    for number, note in enumerate(notes):
        indent = " " * (table.label_at + 2) + _indent(rows[number][table.label])
        lines += [*table.lines(number), *(wrapped(note, first=indent, then=indent) if note else ())]
    return "\n".join(lines)


class _Table:
    """Columns as narrow as they have to be."""

    def __init__(self, rows: Sequence[Row], left: int, room: int) -> None:
        self.rows, self.left, self.room = rows, left, room
        self.heads = [[head] for head in rows[0]]
        self.figures = [max((shown(row[column]) for row in rows[1:]), default=0) for column in range(len(rows[0]))]
        self.label = max(range(left), key=lambda column: self.widths[column], default=0)
        self._narrow_heads()
        if not self.fits:
            self._fold_labels()

    @property
    def widths(self) -> list[int]:
        """Of every column."""
        both = zip(self.heads, self.figures, strict=True)
        return [max(figures, *map(shown, head)) for head, figures in both]

    @property
    def width(self) -> int:
        """Of the whole table."""
        return sum(self.widths) + len(_GAP) * (len(self.heads) - 1)

    @property
    def fits(self) -> bool:
        """Whether no line is too wide."""
        return self.width <= self.room

    @property
    def label_at(self) -> int:
        """Where the label column begins."""
        return sum(width + len(_GAP) for width in self.widths[: self.label])

    def all_lines(self) -> list[str]:
        """The whole table."""
        return [line for number in range(len(self.rows)) for line in self.lines(number)]

    def lines(self, number: int) -> list[str]:
        """Of one row: several for heads and for a long label."""
        row = self.rows[number]
        if number == 0:
            most = max(map(len, self.heads))
            stacked = [[""] * (most - len(head)) + head for head in self.heads]
            return [self._line(cells) for cells in zip(*stacked, strict=True)]
        if shown(row[self.label]) <= self.widths[self.label]:
            return [self._line(row)]
        before = self._line(row[: self.label])
        indent = " " * self.label_at
        first = before + indent[shown(before) :]
        others = ["" if column <= self.label else text for column, text in enumerate(row)]
        return [*wrapped(row[self.label], first=first, then=indent), self._line(others)]

    def _line(self, cells: Row) -> str:
        texts = []
        for column, (text, width) in enumerate(zip(cells, self.widths, strict=False)):
            blanks = " " * (width - shown(text))
            texts.append(text + blanks if column < self.left else blanks + text)
        return _GAP.join(texts).rstrip()

    def _narrow_heads(self) -> None:
        """Break heads, the one that would save most first, until the table fits or none can be broken further."""
        least = [_narrowed(head, 1) for head in self.rows[0]]
        while not self.fits:
            widths = self.widths
            gains = [
                width - max(figures, *map(shown, head))
                for width, figures, head in zip(widths, self.figures, least, strict=True)
            ]
            column = max(range(len(gains)), key=gains.__getitem__)
            if not gains[column]:
                return
            self.heads[column] = _narrowed(self.rows[0][column], widths[column] - 1)

    def _fold_labels(self) -> None:
        """Give the label column what the others leave, if that is enough for short labels."""
        left = self.room - (self.width - self.widths[self.label])
        if left >= LEAST_LABEL:
            labels = [shown(row[self.label]) for row in self.rows[1:]]
            self.heads[self.label] = _narrowed(self.rows[0][self.label], left)
            self.figures[self.label] = max((width for width in labels if width <= left), default=0)
            # Short labels may leave room that heads can have back.
            self.heads = [
                self.heads[self.label] if at == self.label else [head] for at, head in enumerate(self.rows[0])
            ]
            self._narrow_heads()


def _part(rows: Sequence[Row], left: int, start: int, stop: int) -> _Table:
    """The labels and some of the other columns."""
    return _Table([(*row[:left], *row[start:stop]) for row in rows], left, WIDTH)


def _narrowed(head: str, width: int) -> list[str]:
    """A head in lines of at most `width` columns where it can be broken: at blanks, else behind / and -."""
    indent = _indent(head)
    lines = [indent]
    for word in head.split():
        whole = shown(indent) + shown(word) <= width
        for number, piece in enumerate([word] if whole else _INSIDE.split(word)):
            joined = lines[-1] + (" " if lines[-1].strip() and not number else "") + piece
            if lines[-1].strip() and shown(joined) > width:
                lines.append(indent + piece)
            else:
                lines[-1] = joined
    return [line.rstrip() for line in lines]


def _indent(text: str) -> str:
    """The blanks that a text begins with."""
    return text[: len(text) - len(text.lstrip())]


def _kept_together(words: Sequence[str]) -> Iterator[str]:
    """Words, a unit in one with its number, a figure in brackets in one with what it is of."""
    held = ""
    for word in words:
        unit = held[-1:].isdigit() and _UNIT.fullmatch(word)
        if held and (unit or _FIGURE.fullmatch(word)):
            held += f" {word}"
        else:
            yield from [held] * bool(held)
            held = word
    yield from [held] * bool(held)


def _is_path(word: str) -> bool:
    return "/" in word or "\\" in word or bool(PurePath(word).suffix)


def _cut(word: str, room: int) -> int:
    """Characters of a word that fit into so many columns, one at least."""
    taken, used = 0, 0
    for character in word:
        used += _cells(character)
        if used > room:
            break
        taken += 1
    return max(1, taken)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
