"""What commands print fits 80 columns, whatever the names and the numbers are; only a path may be wider."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from easybalance_sim.cli import diff, history, lint, report_table
from easybalance_sim.cli.layout import WIDTH, shown
from easybalance_sim.cli.memory_table import of_memory
from easybalance_sim.cli.stress_table import of_stress
from easybalance_sim.exports.linting import Report
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.plan.history import read_history
from easybalance_sim.plan.lint import ERROR, WARNING, Finding
from tests.ebsim_process import ROOT
from tests.gate_reports import one_case, stressed_report
from tests.histories import write_history
from tests.plan_documents import example_document
from tests.printed_documents import PRINTED, document, stretched
from tests.unit.test_plan_difference import compared, made

LONG = "a_policy_of_somebody_else_with_a_name_that_never_ends_and_then_goes_on_for_good_and_all"
SENTENCE = "what is wrong with the slot and what the engine would do with it, " * 4


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if shown(line) > WIDTH]


@pytest.mark.parametrize("name", PRINTED)
def test_reports_of_real_runs_and_with_long_names_and_huge_numbers(name: str) -> None:
    found = document(name)
    assert too_wide(PRINTED[name](found)) == []
    assert too_wide(PRINTED[name](stretched(found))) == []


def test_wide_characters_count_twice() -> None:
    found = document("trace-summary")
    found["workloads"] = {"工作负载" * 8: 12345, "e\u0301" * 40: 1, "b" * 120: 2}
    found["trace"]["model"] = "模型" * 60
    text = PRINTED["trace-summary"](found)
    assert too_wide(text) == [] and "模型" * 19 in text and "模型" * 20 not in text


def test_findings_of_the_gate_under_stress() -> None:
    case = {**one_case(f"{LONG} {LONG}"), "plan": {"rank_imbalance": {"mean": 12345.678, "p99": 12345.678}}}
    case["plan"] |= {
        "step_us": {"p99": 1.2e9},
        "experts_lost": 12_345_678,
        "experts_lost_frac": 0.9,
        "mend_bytes": 1e15,
    }
    report = stressed_report(mix_change=[case], node_loss=[case])
    report["stress"]["burst"] |= {"not_judged": SENTENCE, "cases": []}
    report["stress"]["mix-change"]["left_out"] = [LONG, LONG]
    report["verdict"] = judge(report, load_criteria()).to_dict()
    for finding in report["verdict"]["findings"]:
        finding |= {"limit": 1.23456e-300, "observed": -1.23456e-300, "note": SENTENCE}
    assert too_wide("\n".join((*of_stress(report), report_table.of_findings(report["verdict"])))) == []


def test_memory_of_a_large_model() -> None:
    most = 10**15
    buffer = dict.fromkeys(("bytes", "sent_per_rank", "tokens_per_rank", "tokens_per_expert"), most)
    names = ("bytes_per_redundant_slot", "staging_bytes", "activation_bytes", "kv_tokens_lost")
    memory = {"dispatch_buffer": buffer, "kv_cache_loss_frac": 0.123, "warnings": [SENTENCE]}
    assert too_wide(of_memory(memory | dict.fromkeys(names, most))) == []


def test_findings_of_lint_stand_beside_their_place() -> None:
    levels = ((ERROR, 12345, 12345678), (WARNING, None, None))
    findings = [
        Finding(level=level, message=SENTENCE, layer=layer, slot=slot, rule="r") for level, layer, slot in levels
    ]
    report = Report(path=Path("a folder/" + "b" * 90), title="SGLang 0.5.23", layers=1, findings=tuple(findings))
    wide = too_wide(lint.table(report))
    assert [str(report.path) in line for line in wide] == [True]


def test_a_history_and_a_difference_of_plans_with_long_names(tmp_path: Path) -> None:
    write_history(tmp_path)
    found = read_history(tmp_path / "history")
    changes = {"policy": LONG, "verdict": "insufficient_evidence", "note": SENTENCE, "generation": 123, "slots": 99999}
    records = [
        msgspec.structs.replace(one, trace={"files": ["t"] * 9, "tokens": 10**12}, **changes) for one in found.records
    ]
    text = history.table(replace(found, records=tuple(records)))
    assert too_wide(text) == [] and "insufficient evidence" in text and "1,000 G" in text
    new = msgspec.structs.replace(made([[0, 1, 2, 3, 0, 1]] * 2, [3, 3]), policy=LONG)
    assert too_wide(diff._table(compared(example_document(), new), steps=True)) == []


def test_what_is_shown_in_the_readme() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- output: ")[2].split("```")[1]
    assert "ACCEPTED" in lines and too_wide(lines) == []
