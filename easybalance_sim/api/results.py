"""What the functions give back: the documented JSON object with ways to look at it. Nothing is written unasked."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from easybalance_sim.api.inputs import PathLike
from easybalance_sim.errors import EbsimError, PlanError, UsageError
from easybalance_sim.files import write_text
from easybalance_sim.json_text import json_text

if TYPE_CHECKING:
    import pandas as pd

    from easybalance_sim.api.drawn import Drawn
    from easybalance_sim.report.content import Page


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """report: the object that the command prints with `--format json` · call: the call that made it."""

    report: dict[str, Any]
    call: str = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.line()}>"

    def _repr_html_(self) -> str:
        head = f"<p><code>{html.escape(repr(self))}</code></p>"
        try:
            table = self.table()
        except EbsimError:
            return head
        from easybalance_sim.api.tables import html_of

        return head + html_of(table)

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be known about how the run was set up."""
        return tuple(self.report.get("notes", ()))

    def line(self) -> str:
        """The answer in one line."""
        raise NotImplementedError

    def table(self) -> pd.DataFrame:
        """The figures that people compare."""
        raise NotImplementedError

    def to_json(self, path: PathLike) -> Path:
        """Write what the command prints with `--format json`, whole or not at all.

        `ebsim report` and, of plan and replay, `ebsim gate` read it.
        """
        return _write(path, f"{json_text(self.report)}\n")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PageResult(Result):
    """A result that has a page: it is shown in a notebook, and written as one HTML file or as figures."""

    def _repr_html_(self) -> str:
        from easybalance_sim.report.html.render import fragment_of

        try:
            return fragment_of(self.page)
        except UsageError:
            # Without evidence, as in what was adopted from an engine, there is no page.
            return super()._repr_html_()

    @cached_property
    def page(self) -> Page:
        """The page as values: headline, findings, sections of figures and tables."""
        from easybalance_sim.report.content import made_by
        from easybalance_sim.report.pages import page_of

        return page_of(self.report, made_by(self.call))

    @cached_property
    def figures(self) -> Mapping[str, Drawn]:
        """The figures of the page by name; each shows itself in a notebook and holds its data."""
        from easybalance_sim.api.drawn import Drawn

        return MappingProxyType({figure.name: Drawn(figure=figure) for figure in self.page.figures()})

    def to_html(self, path: PathLike) -> Path:
        """Write the page as one self-contained HTML file. Raises `UsageError` for another ending than .html."""
        from easybalance_sim.report.html import SUFFIXES
        from easybalance_sim.report.html.render import html_of

        target = Path(path)
        if target.suffix.lower() not in SUFFIXES:
            raise UsageError("a page is a .html file", where=str(target), fix=f"name it {target.stem}.html")
        return _write(target, html_of(self.page))

    def to_figures(self, folder: PathLike, kinds: Sequence[str] = ("svg", "png")) -> tuple[Path, ...]:
        """Write every figure into a folder."""
        from easybalance_sim.report.figure_files import write_figures

        return write_figures(self.page, Path(folder), tuple(kinds))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JudgedResult(PageResult):
    """A plan against a baseline, and what the gate says of it."""

    @property
    def verdict(self) -> str:
        """accepted, rejected or insufficient_evidence."""
        return str(self.report["verdict"].get("status", "not judged"))

    @property
    def accepted(self) -> bool:
        """Whether the gate accepts the plan."""
        return self.verdict == "accepted"

    @property
    def fingerprint(self) -> str:
        """sha256 over the content of the plan."""
        return str(self.report["fingerprint"])

    @property
    def _is_judged(self) -> bool:
        """Not so for what was adopted from an engine."""
        return {"baseline", "plan"} <= self.report.keys()

    def _require_evidence(self) -> None:
        if not self._is_judged:
            raise PlanError("the plan carries no evidence", where=self.fingerprint[:12], fix="replay it on a trace")

    def line(self) -> str:
        """Verdict, policy, and what becomes of imbalance and step."""
        word = self.verdict.replace("_", " ").upper()
        if not self._is_judged:
            return word
        before, after = self.report["baseline"], self.report["plan"]
        imbalance = [side["rank_imbalance"]["p99"] for side in (before, after)]
        step = [side["step_us"]["p50"] for side in (before, after)]
        return (
            f"{word}: {after['policy']} against {before['policy']}, P99 rank imbalance {imbalance[0]:.3f} → "
            f"{imbalance[1]:.3f}, median MoE step {step[0]:.0f} → {step[1]:.0f} µs"
        )

    def table(self) -> pd.DataFrame:
        """Baseline against plan on held-out traffic, one row per number of the report, and its relative change."""
        from easybalance_sim.api.tables import side_by_side

        self._require_evidence()
        return side_by_side({side: self.report[side] for side in ("baseline", "plan")})

    def findings(self) -> pd.DataFrame:
        """One row per criterion of the gate: limit, observed, ok, note."""
        from easybalance_sim.api.tables import rows_of

        self._require_evidence()
        return rows_of(self.report["verdict"].get("findings", ())).set_index("criterion")

    def to_metrics(self, path: PathLike) -> Path:
        """Write the figures as OpenMetrics text for Prometheus."""
        from easybalance_sim.report.metrics import write_metrics

        self._require_evidence()
        write_metrics(Path(path), self.report)
        return Path(path)


Shown = TypeVar("Shown", bound=Result)


def without_file(result: Shown, *place: str) -> Shown:
    """The same without the name of a file that is gone: of a plan that was handed over as a result."""
    *sections, key = place
    report = {**result.report}
    section = report
    for name in sections:
        section[name] = {**section[name]}
        section = section[name]
    section[key] = None
    return replace(result, report=report)


def _write(path: PathLike, text: str) -> Path:
    write_text(Path(path), text)
    return Path(path)
