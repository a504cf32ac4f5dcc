"""A saved JSON report of any command as a page; one module per kind of report, named in `KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from easybalance_sim.errors import UsageError
from easybalance_sim.report.content import MadeBy, Page

KINDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("plan, replay", "plan", ("verdict", "baseline", "plan", "cost", "gain")),
    ("plan --per-phase", "phases", ("phases", "cross")),
    ("rebalance", "rebalance", ("offline_policy", "loops")),
    ("rebalance --by", "rebalance", ("by", "strata")),
    ("rebalance --sweep", "rebalance", ("offline_policy", "rows", "chosen")),
    ("sweep", "sweep", ("curves", "gain_by")),
    ("simulate", "simulate", ("scenario", "bracket", "even")),
    ("capacity", "capacity", ("highest_rate", "slo")),
    ("offload", "offload", ("answers", "batches")),
    ("offset", "offset", ("front", "judged")),
    ("offset --scenario", "claim", ("rungs", "assumptions")),
    ("rollout", "rollout", ("facts", "explored", "outcome")),
)
"""Commands, the module here whose `page(document, made_by)` makes their page, and the keys that tell their report."""


def page_of(document: Mapping[str, Any], made_by: MadeBy, of: str = "report") -> Page:
    """The page of a report. document: the object that a command prints with `--format json` · of: its file, for errors.

    Raises `UsageError` for an object that is no report, or one that a part is missing of.
    """
    module = import_module(f"{__name__}.{kind_of(document, of)}")
    try:
        # What an edited report makes of its numbers is shown as it is.
        with np.errstate(all="ignore"):
            page: Page = module.page(document, made_by)
    except KeyError as error:
        what = f"{error} is missing: the report was edited, or made by another version"
        raise UsageError(what, where=of, fix="make it again with this version") from error
    except (TypeError, IndexError, AttributeError, ValueError, ArithmeticError) as error:
        what = f"the report was edited, or made by another version ({type(error).__name__}: {error})"
        raise UsageError(what, where=of, fix="make it again with this version") from error
    return page


def kind_of(document: Mapping[str, Any], of: str = "report") -> str:
    """The module of the report's kind; raises `UsageError` where no kind has its keys."""
    for _, module, keys in KINDS:
        if all(key in document for key in keys):
            return module
    names = [name for commands, _, _ in KINDS for name in commands.partition(" -")[0].split(", ")]
    known = ", ".join(dict.fromkeys(names))
    raise UsageError("is no report of ebsim", where=of, fix=f"give what these print with --format json: {known}")
