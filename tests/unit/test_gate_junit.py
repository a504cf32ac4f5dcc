"""JUnit XML: the golden file, and the fields that Jenkins' and GitLab's readers know, in their order."""

from __future__ import annotations

from xml.etree import ElementTree

from easybalance_sim.gate.checks import of_verdict
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.gate.junit import junit_xml
from tests.ci_checks import EVERY_OUTCOME
from tests.ebsim_process import ROOT
from tests.gate_reports import one_case, stressed_report

GOLDEN = ROOT / "tests" / "golden" / "ci" / "junit.xml"
COUNTS = {"tests", "failures", "errors", "skipped"}
FIELDS = {
    "testsuites": (COUNTS | {"name"}, {"testsuite"}),
    "testsuite": (COUNTS | {"name"}, {"testcase"}),
    "testcase": ({"name", "classname", "time"}, {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
    "system-out": (set(), set()),
}
"""By element of junit-10.xsd: the attributes that we write of those it allows, and the children."""


def require_schema(text: str) -> ElementTree.Element:
    """The document, whose every element is as the readers know it and whose counts are those of its cases."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = FIELDS[element.tag]
        assert set(element.attrib) == attributes
        assert {child.tag for child in element} <= children
        if element.tag in ("testsuites", "testsuite"):
            assert element.attrib["tests"] == str(len(list(element.iter("testcase"))))
            for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                assert element.attrib[count] == str(len(list(element.iter(tag))))
        if element.tag == "testcase":
            assert len(element) <= 1
    return root


def test_the_golden_file() -> None:
    text = junit_xml("ebsim gate: REJECTED", EVERY_OUTCOME)
    assert text == GOLDEN.read_text(encoding="utf-8")
    root = require_schema(text)
    failure = root.find(".//failure")
    assert failure is not None and failure.attrib["message"] == "worst: <a|b> & 50 %\nP99 \ufffd"


def test_stress_findings_are_test_cases_by_name() -> None:
    report = stressed_report(burst=[one_case("chinese", step_p99=1.5)])
    root = require_schema(junit_xml("any", of_verdict(judge(report, load_criteria()), "report.json")))
    cases = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
    under_stress = {name for name in cases if name.startswith("stress.")}
    assert under_stress == {
        "stress.mix-change", "stress.burst", "stress.uniform", "stress.node-loss", "stress.heterogeneous",
        "stress.imbalance", "stress.lost-experts",
    }  # fmt: skip
    assert [name for name, tags in cases.items() if tags == ["failure"]] == ["stress.burst"]
    assert cases["time_gain_over_band_min"] == ["skipped"]
