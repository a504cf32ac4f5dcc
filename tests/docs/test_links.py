"""Every link between documents leads to a file and a heading that are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.shown_commands import DOCUMENTS
from tests.ebsim_process import ROOT

FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"""(?:\]\(|(?:href|src)=")(?!https?://|mailto:)([^)\s"]*)[)"]""")


@cache
def anchors(document: Path) -> frozenset[str]:
    """What can be linked to, as GitHub names headings: a second one of the same words gets -1."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+)$", FENCED.sub("", document.read_text("utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.append(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return frozenset(name if not found[:at].count(name) else f"{name}-{found[:at].count(name)}"
                     for at, name in enumerate(found))  # fmt: skip


def fault(document: Path, link: str) -> str:
    """What is wrong with a link, or nothing."""
    name, _, anchor = link.partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.exists():
        return f"{document.name}: {link}: no such file"
    if anchor and anchor not in anchors(target):
        return f"{document.name}: {link}: no such heading"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    links = LINK.findall(FENCED.sub("", document.read_text("utf-8")))
    assert [said for link in links if (said := fault(document, link))] == []


def test_every_document_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = set(LINK.findall(index.read_text("utf-8")))
    assert {document.name for document in DOCUMENTS if document.parent == index.parent} - {index.name} <= linked


def test_documents_are_short() -> None:
    """A page is read in one sitting; where one looks things up may be long."""
    long = {document.name for document in DOCUMENTS if len(document.read_text("utf-8").splitlines()) > 150}
    assert long <= {"README.md", "cli.md", "formats.md", "method.md"}
