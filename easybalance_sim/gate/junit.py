"""Checks as JUnit XML, in the fields that Jenkins and GitLab read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from easybalance_sim.gate.checks import ERROR, FAILED, SKIPPED, WARNED, Check

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def junit_xml(title: str, checks: Sequence[Check]) -> str:
    """A `testsuites` document, one `testsuite` per suite; no times or dates, so that the same gives the same bytes.

    What was not judged is `skipped`, a warning is a passed test that says so in its `system-out`. Source of the fields:
    Jenkins' junit-10.xsd and GitLab's page on unit test reports.
    """
    root = ElementTree.Element("testsuites", {"name": _clean(title), **_counts(checks)})
    for suite in dict.fromkeys(check.suite for check in checks):
        own = [check for check in checks if check.suite == suite]
        element = ElementTree.SubElement(root, "testsuite", {"name": _clean(f"ebsim {suite}"), **_counts(own)})
        for check in own:
            _add(element, check)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _counts(checks: Sequence[Check]) -> dict[str, str]:
    found = Counter(check.outcome for check in checks)
    counts = {"tests": len(checks), "failures": found[FAILED], "errors": found[ERROR], "skipped": found[SKIPPED]}
    return {name: str(count) for name, count in counts.items()}


def _add(suite: ElementTree.Element, check: Check) -> None:
    names = {"name": _clean(check.name), "classname": _clean(f"ebsim.{check.suite.replace('.', '_')}"), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", names)
    text = _clean(_text(check))
    if check.outcome in (FAILED, ERROR):
        tag = "failure" if check.outcome == FAILED else "error"
        ElementTree.SubElement(case, tag, {"message": _clean(check.message), "type": _clean(check.kind)}).text = text
    elif check.outcome == SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": _clean(check.message)})
    elif text:
        ElementTree.SubElement(case, "system-out").text = f"warning: {text}" if check.outcome == WARNED else text


def _text(check: Check) -> str:
    """Everything that is known of a check, a line each."""
    facts = (("", check.message), ("limit ", check.limit), ("observed ", check.observed), ("file ", check.file))
    return "\n".join(f"{name}{fact}" for name, fact in facts if fact)


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
