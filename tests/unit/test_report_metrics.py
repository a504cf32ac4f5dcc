"""Every figure under its name, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim import __version__
from easybalance_sim.errors import UsageError
from easybalance_sim.report.metrics import FAMILIES, families, write_metrics
from easybalance_sim.report.openmetrics import text
from tests.ebsim_process import ROOT
from tests.exposition import Read, read
from tests.metric_reports import LAYERS, report

GOLDEN = ROOT / "tests" / "golden" / "metrics" / "report.prom"
DASHBOARD = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text(encoding="utf-8"))
UNITS = {"ebsim_migration_bytes": "bytes", "ebsim_expert_memory_bytes": "bytes"}
SECONDS = ("ebsim_layer_seconds", "ebsim_step_seconds", "ebsim_migration_seconds")


def exported(*reports: dict[str, Any]) -> Read:
    return read(text(families(reports)))


def value(found: Read, name: str, **labels: str) -> float:
    (one,) = [number for have, number in found.samples[name] if labels.items() <= have.items()]
    return one


def test_the_text_is_the_golden_one() -> None:
    found = text(families([report()])).replace(f'version="{__version__}"', 'version="VERSION"')
    assert found == GOLDEN.read_text(encoding="utf-8")


def test_figures_carry_their_labels() -> None:
    found = exported(report())
    assert value(found, "ebsim_rank_max_to_mean", side="plan", policy="eplb", stat="p99") == 3.75
    assert value(found, "ebsim_layer_rank_max_to_mean", side="baseline", stat="p99", layer="3") == 6
    assert value(found, "ebsim_expert_max_to_mean", layer="5") == 2.25
    assert value(found, "ebsim_predicted_gain_ratio", of="rank_imbalance_p99") == 1 - 3.75 / 6
    assert value(found, "ebsim_layer_seconds", side="plan", stat="p50") == 1.23e-05
    assert (
        value(found, "ebsim_verdict", status="rejected") == 1 and value(found, "ebsim_verdict", status="accepted") == 0
    )
    assert value(found, "ebsim_finding_ok", criterion="fit_gap_max") == 0
    assert value(found, "ebsim_run_info", model='odd "name"', profile="h200", ranks="8") == 1
    every = [labels for samples in found.samples.values() for labels, _ in samples]
    assert all((labels["phase"], labels["plan"]) == ("decode", "ab12") for labels in every)
    assert {labels["layer"] for labels in every if "layer" in labels} == {str(layer) for layer in LAYERS}
    assert found.unit == UNITS | dict.fromkeys(SECONDS, "seconds")


def test_what_is_not_known_has_no_sample() -> None:
    found = exported(report())
    assert "ebsim_kv_cache_loss_ratio" not in found.samples
    assert [labels["side"] for labels, _ in found.samples["ebsim_replica_split_ratio"]] == ["plan", "plan"]
    assert [labels["of"] for labels, _ in found.samples["ebsim_gain_share_ratio"]] == ["possible"]


def test_a_run_of_both_phases_bears_the_name_of_neither() -> None:
    mixed = report()
    mixed["cost"]["mixed_phases"] = True
    every = [labels for samples in exported(mixed).samples.values() for labels, _ in samples]
    assert {labels["phase"] for labels in every} == {"mixed"}


def test_two_phases_share_the_families(tmp_path: Path) -> None:
    both = {"prefill": report("prefill", "aa"), "decode": report("decode", "bb")}
    write_metrics(tmp_path / "out.prom", {"phases": both, "cross": None})
    found = read((tmp_path / "out.prom").read_text(encoding="utf-8"))
    assert [labels["plan"] for labels, _ in found.samples["ebsim_migration_moves"]] == ["aa", "bb"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    old = tmp_path / "out.prom"
    old.write_text("old")
    broken = report() | {"load": {}}
    with pytest.raises(KeyError):
        write_metrics(old, broken)
    with pytest.raises(UsageError, match="cannot write"):
        write_metrics(tmp_path / "absent" / "out.prom", report())
    assert (old.read_text(), [path.name for path in tmp_path.iterdir()]) == ("old", ["out.prom"])


def queries(node: Any) -> Iterator[str]:
    """Every query of the dashboard, variables included."""
    if isinstance(node, dict):
        yield from (node[key] for key in ("expr", "query") if isinstance(node.get(key), str))
        for inner in node.values():
            yield from queries(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from queries(inner)


def selectors() -> list[tuple[str, list[tuple[str, str]]]]:
    """Metric and label matchers of every selector in the dashboard."""
    found = []
    for query in queries(DASHBOARD):
        for name, inside in re.findall(r"(ebsim_\w+)(?:\{([^}]*)\})?", query):
            found.append((name, re.findall(r'(\w+)(?:=~?|!=|!~)"([^"]*)"', inside)))
    return found


def test_every_query_of_the_dashboard_finds_something() -> None:
    whole = report() | {"memory": {"kv_cache_loss_frac": 0.01}}
    found = exported(whole)
    assert len(selectors()) > 20
    for name, matchers in selectors():
        assert name in found.samples, name
        fixed = [(label, pattern) for label, pattern in matchers if not pattern.startswith("$")]
        labels = found.samples[name][0][0]
        assert {label for label, _ in matchers} <= set(labels), name
        assert any(
            all(re.fullmatch(pattern, have[label]) for label, pattern in fixed) for have, _ in found.samples[name]
        ), (name, fixed)


def test_labels_that_the_dashboard_shows_or_groups_by_are_exported() -> None:
    found = exported(report() | {"memory": {"kv_cache_loss_frac": 0.01}})
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            (name,) = re.findall(r"ebsim_\w+", target["expr"])
            labels = set(found.samples[name][0][0])
            named = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]) + re.findall(r"by \((\w+)\)", target["expr"])
            assert set(named) <= labels, target


def test_the_dashboard_shows_the_figures_that_it_should() -> None:
    shown = {name for name, _ in selectors()}
    assert {name for name, _, _ in FAMILIES} - shown == {
        "ebsim_judged_tokens",
        "ebsim_gain_share_ratio",
        "ebsim_time_share_ratio",
        "ebsim_expert_memory_bytes",
    }
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_gauge_is_in_the_docs() -> None:
    docs = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert [name for name, _, _ in FAMILIES if f"`{name}`" not in docs] == []
