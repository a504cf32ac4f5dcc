"""Functions of the package: the reports are those of the commands, results are values, nothing is written unasked."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import pkgutil
import pydoc
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import easybalance_sim as ebs
import easybalance_sim.plan.planfile as plan_part
from easybalance_sim import api
from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.report.html import render
from tests.ebsim_process import ebsim_here, python
from tests.exposition import read
from tests.plan_documents import example_document
from tests.rank_times import write_times
from tests.skewed_traces import EXPERTS, skewed_columns, skewed_meta, skewed_trace
from tests.trace_files import write_trace

CLUSTER: dict[str, Any] = {"ranks": 4, "slots_per_rank": 5}
FLAGS = ("--ranks", "4", "--slots-per-rank", "5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def trace(folder: Path) -> Path:
    return skewed_trace(folder / "skewed.parquet")


@pytest.fixture(scope="module")
def made(trace: Path) -> ebs.PlanResult:
    return ebs.plan(trace, policy="eplb", split="request", **CLUSTER)


@pytest.fixture(scope="module")
def refused(trace: Path, folder: Path) -> ebs.PlanResult:
    """A plan under criteria that no plan meets."""
    harsh = folder / "harsh.toml"
    harsh.write_text("p99_imbalance_drop_min = 0.999\n")
    return ebs.plan(trace, policy="eplb", criteria=harsh, **CLUSTER)


def printed(*arguments: str | Path) -> dict[str, Any]:
    """What the command prints as JSON."""
    found: dict[str, Any] = json.loads(ebsim_here(*arguments, "--format", "json").stdout)
    return found


def timeless(report: dict[str, Any]) -> Any:
    """As JSON has it, without what differs from run to run."""
    return {name: value for name, value in json.loads(json.dumps(report)).items() if name != "timing_s"}


def without_times(text: str) -> str:
    """JSON as it is printed, but for the seconds of the run."""
    shorter, found = re.subn(r'"timing_s": {[^}]*}', '"timing_s": {}', text)
    assert found == 1
    return shorter


def test_a_plan_is_a_value_with_its_verdict(made: ebs.PlanResult, trace: Path) -> None:
    assert (made.accepted, made.verdict, made.report["plan"]["policy"]) == (True, "accepted", "eplb")
    assert made.fingerprint == made.document.fingerprint() == made.report["fingerprint"]
    assert made.plan.expert_of_slot.shape == (made.report["trace"]["layers"], 20)
    assert repr(made).startswith("<PlanResult: ACCEPTED: eplb against contiguous, P99 rank imbalance")
    assert "\n" not in repr(made)
    text = f"easybalance_sim.plan({str(trace)!r}, ranks=4, slots_per_rank=5, policy='eplb', split='request')"
    assert made.call == text


def test_tables_hold_the_numbers_of_the_report(made: ebs.PlanResult) -> None:
    table: Any = made.table()
    report = made.report
    assert list(table.columns) == ["baseline", "plan", "change"]
    before, after = (report[side]["rank_imbalance"]["p99"] for side in ("baseline", "plan"))
    assert table.loc["rank_imbalance.p99"].tolist() == [before, after, after / before - 1]
    assert set(made.candidates().index) == {row["policy"] for row in report["candidates"]}
    assert made.findings()["ok"].all() and made.findings().loc["p99_imbalance_drop_min", "limit"] == 0.05
    assert np.isnan(table.loc["redundant_slots", "change"])


def test_the_report_is_that_of_the_command(made: ebs.PlanResult, trace: Path, folder: Path) -> None:
    shown = ebsim_here("plan", trace, *FLAGS, "--policy", "eplb", "--split", "request", "--format", "json").stdout
    assert timeless(made.report) == timeless(json.loads(shown))
    assert without_times(made.to_json(folder / "same.json").read_text("utf-8")) == without_times(shown)


def test_a_replay_takes_a_result_or_a_file(made: ebs.PlanResult, trace: Path, folder: Path) -> None:
    file = made.save(folder / "plan.json")
    of_file, of_result = (ebs.replay([trace], plan=plan, baseline="round_robin") for plan in (file, made))
    assert timeless(of_file.report) == timeless(printed("replay", trace, "--plan", file, "--baseline", "round_robin"))
    assert timeless(of_result.report) == timeless({**of_file.report, "plan_file": None})
    assert of_result.call.endswith(f"plan=<plan {made.fingerprint[:12]}>, baseline='round_robin')")
    assert ebs.replay(trace, plan=made, baseline=made).table()["change"].dropna().eq(0).all()


def test_other_reports_are_those_of_their_commands(made: ebs.PlanResult, trace: Path, folder: Path) -> None:
    file = made.save(folder / "plan.json")
    swept = ebs.sweep(trace, ranks=4, redundancy=[0, 1], policy="eplb", window_steps=())
    flags = ("--ranks", "4", "--redundancy", "0,1", "--policy", "eplb")
    assert timeless(swept.report) == timeless(printed("sweep", trace, *flags))
    assert swept.table()["extra_slots_per_rank"].tolist() == [0, 1]
    explained = ebs.explain(file, layer=made.document.layer_ids[0], expert=0, trace=trace)
    layer = str(made.document.layer_ids[0])
    shown = ebsim_here("explain", file, "--layer", layer, "--expert", "0", "--trace", trace, "--format", "json").stdout
    assert explained.report == json.loads(shown)
    assert explained.to_json(folder / "explained.json").read_text("utf-8") == shown
    served = ebs.rebalance(trace, loop=["static"], current=file, **CLUSTER)
    assert timeless(served.report) == timeless(
        printed("rebalance", trace, *FLAGS, "--loop", "static", "--current", file)
    )
    assert len(served.table()) == len(served.report["loops"])


def test_a_comparison_is_that_of_the_command(made: ebs.PlanResult, trace: Path, folder: Path) -> None:
    file, loads = made.save(folder / "plan.json"), folder / "loads.csv"
    assert ebsim_here("trace", "loads", trace, "--plan", file, "-o", loads).returncode == 0
    times = write_times(pd.read_csv(loads), folder / "times.csv")
    told = ebs.compare(made, times, trace=trace)
    assert told.report == printed("compare", file, times, "--trace", trace)
    assert list(told.table().columns) == ["tokens", "seconds"] and told.status == "recalibrate" and not told.good
    by_tokens = ebs.compare(loads, times)
    assert by_tokens.good and by_tokens.line() == "GOOD: token count is a good enough cost model"


def test_what_ifs_are_those_of_their_commands(trace: Path) -> None:
    cached = ebs.offload(trace, cached_share=[0.5, 1], policy="lru", prefetch="none")
    flags = ("--cached-share", "0.5,1", "--policy", "lru", "--prefetch", "none")
    assert cached.report == printed("offload", trace, *flags)
    assert cached.table()["share"].tolist() == [0.5, 1.0]
    offered = ebs.offset(trace, ranks=4, part=["sensing"], past=trace, past_steps=(0, 100), steps=(100, None))
    assert offered.report["past"]["last_step"] == 99
    for result in (cached, offered):
        assert result.figures and len(result.table()) > 1 and "\n" not in repr(result)


def test_a_result_shows_itself_with_and_without_a_page(
    made: ebs.PlanResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "fragment_of", lambda page: page.title)
    assert "instead of contiguous" in made._repr_html_()
    assert ebs.gate(made)._repr_html_().count("<tr") == len(made.findings()) + 2
    write_plan(tmp_path / "bare.json", example_document())
    bare = ebs.load_plan(tmp_path / "bare.json")
    assert bare._repr_html_() == "<p><code>&lt;PlanResult: ACCEPTED&gt;</code></p>"


def test_figures_are_saved_by_their_ending(made: ebs.PlanResult, tmp_path: Path) -> None:
    figure = made.figures["rank_imbalance"]
    assert figure.conclusion in repr(figure) and figure.title
    assert figure.save(tmp_path / "one.svg").read_text("utf-8") == figure._repr_svg_()
    assert figure.save(tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(figure.save(tmp_path / "one.csv")).equals(figure.table())
    with pytest.raises(ebs.UsageError, match="no kind 'pdf' of figure files"):
        figure.save(tmp_path / "one.pdf")
    with pytest.raises(TypeError):
        made.figures["more"] = figure  # type: ignore[index]


def test_a_page_is_written_as_html_only(made: ebs.PlanResult, tmp_path: Path) -> None:
    assert made.to_html(tmp_path / "page.htm").read_text("utf-8").lower().startswith("<!doctype html>")
    with pytest.raises(ebs.UsageError, match=r"page.txt: a page is a .html file — name it page.html"):
        made.to_html(tmp_path / "page.txt")


def test_all_figures_are_written_at_once(made: ebs.PlanResult, tmp_path: Path) -> None:
    written = made.to_figures(tmp_path / "figures", kinds=("svg",))
    assert {path.name for path in written} == {f"{name}.{kind}" for name in made.figures for kind in ("svg", "csv")}
    assert sorted(written) == sorted((tmp_path / "figures").iterdir())
    for name in ("rank_imbalance", list(made.figures)[-1]):
        assert (tmp_path / "figures" / f"{name}.svg").read_text("utf-8") == made.figures[name]._repr_svg_()
    with pytest.raises(ebs.UsageError, match="'pdf'"):
        made.to_figures(tmp_path, kinds=("pdf",))


def test_numbers_are_written_for_prometheus(made: ebs.PlanResult, tmp_path: Path) -> None:
    found = read(made.to_metrics(tmp_path / "plan.prom").read_text("utf-8"))
    for side in ("baseline", "plan"):
        (p99,) = [
            number
            for labels, number in found.samples["ebsim_rank_max_to_mean"]
            if {"side": side, "stat": "p99"}.items() <= labels.items()
        ]
        assert p99 == made.report[side]["rank_imbalance"]["p99"]


def test_plans_of_both_phases(tmp_path: Path) -> None:
    columns = skewed_columns(160)
    columns["phase"] = np.where(columns["step"] % 2, "prefill", "decode")
    trace = write_trace(tmp_path / "phases.parquet", columns, skewed_meta())
    both = ebs.plan_phases(trace, policy="eplb", **CLUSTER)
    assert list(both.phases) == ["prefill", "decode"] and both.report["cross"]["differing_experts"] > 0
    assert both.accepted == all(one.accepted for one in both.phases.values())
    for phase, one in both.phases.items():
        assert timeless({**one.report, "notes": []}) == timeless({**both.report["phases"][phase], "notes": []})
    assert set(both.table().index.get_level_values(0)) == set(both.phases)
    with pytest.raises(TypeError, match="nothing"):
        ebs.plan_phases(trace, nothing=1)


def test_the_gate_takes_results_reports_and_files(made: ebs.PlanResult, folder: Path) -> None:
    strict = folder / "strict.toml"
    strict.write_text("p99_imbalance_drop_min = 0.999\n")
    file = made.to_json(folder / "report.json")
    for report in (made, made.report, file):
        assert ebs.gate(report).accepted
        judged = ebs.gate(report, criteria=strict)
        assert (judged.verdict, judged.line()) == ("rejected", "REJECTED (p99_imbalance_drop_min)")
    assert not judged.table().loc["p99_imbalance_drop_min", "ok"]


def test_a_plan_that_is_not_accepted_is_not_saved(refused: ebs.PlanResult, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    assert not refused.accepted
    with pytest.raises(ebs.PlanError, match="the plan's verdict is rejected — force=True writes it"):
        refused.save(target)
    with pytest.raises(ebs.PlanError, match="force=True exports it"):
        ebs.export(refused, engine="sglang", output=tmp_path / "map.json", hidden_layers=9)
    assert list(tmp_path.iterdir()) == []
    assert ebs.load_plan(refused.save(target, force=True)).verdict == "rejected"


def test_output_is_written_only_when_accepted_or_forced(
    made: ebs.PlanResult, refused: ebs.PlanResult, trace: Path, folder: Path, tmp_path: Path
) -> None:
    harsh, target = folder / "harsh.toml", tmp_path / "plan.json"
    assert ebs.plan(trace, policy="eplb", criteria=harsh, output=target, **CLUSTER).report["plan_file"] is None
    assert not target.exists()
    ebs.plan(trace, policy="eplb", criteria=harsh, output=target, force=True, **CLUSTER)
    assert ebs.load_plan(target).fingerprint == refused.fingerprint


def test_a_loaded_plan_has_its_evidence(made: ebs.PlanResult, tmp_path: Path) -> None:
    loaded = ebs.load_plan(str(made.save(tmp_path / "plan.json")))
    assert (repr(loaded), loaded.fingerprint) == (repr(made), made.fingerprint)
    assert loaded.table().sort_index().equals(made.table().sort_index())
    assert set(loaded.candidates().index) == set(made.candidates().index)
    assert loaded.report["plan_file"] == str(tmp_path / "plan.json")
    bare = example_document()
    write_plan(tmp_path / "bare.json", bare)
    adopted = ebs.load_plan(tmp_path / "bare.json")
    assert repr(adopted) == "<PlanResult: ACCEPTED>"
    with pytest.raises(ebs.PlanError, match="carries no evidence — replay it on a trace"):
        adopted.table()


def test_an_export_says_how_to_start_the_engine(made: ebs.PlanResult, tmp_path: Path) -> None:
    written = ebs.export(made, engine="sglang", output=tmp_path / "map.json", hidden_layers=9)
    assert written.files[0] == tmp_path / "map.json" and written.files[0].exists()
    assert any("--init-expert-location" in line for line in written.launch)
    assert len(written.table()) == len(written.files) + len(written.launch)


def test_nothing_is_written_unasked(trace: Path, made: ebs.PlanResult, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(trace.parent.iterdir())
    ebs.replay(trace, plan=made)
    assert (sorted(trace.parent.iterdir()), capsys.readouterr()) == (before, ("", ""))
    assert "the plan was fitted on this trace" in " ".join(ebs.replay(trace, plan=made).notes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ranks": 0}, "ranks: 0 is no whole number of 1 to 1024"),
        ({"ranks": [4, 8]}, "ranks: [4, 8] is no whole number"),
        ({"seed": True}, "seed: True is no whole number"),
        ({"half_life": float("nan")}, "half_life: nan is no number of 0 or more"),
        ({"window_steps": 2.5}, "window_steps: 2.5 is no whole number"),
        ({"split": "odd"}, "--split: 'odd' is not known"),
        ({"lost_ranks": [1]}, "--lost-ranks: without a plan in force there is nothing to lose"),
    ],
)
def test_bad_options_are_errors_of_the_package(trace: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ebs.UsageError) as refusal:
        ebs.plan(trace, **options)
    assert str(refusal.value).startswith(says)


def test_other_bad_input_is_an_error_of_the_package(trace: Path, made: ebs.PlanResult, tmp_path: Path) -> None:
    with pytest.raises(ebs.TraceError, match="no such file"):
        ebs.plan([tmp_path / "nothing.parquet"])
    with pytest.raises(ebs.PlanError, match="cannot read"):
        ebs.replay(trace, plan=tmp_path / "nothing.json")
    with pytest.raises(ebs.UsageError, match="no engine 'none'"):
        ebs.export(made, engine="none", output=tmp_path / "x")
    with pytest.raises(ebs.UsageError, match="exclude each other"):
        ebs.rebalance(trace, sweep=True, by="phase")
    with pytest.raises(ebs.UsageError, match="the plan has no expert"):
        ebs.explain(made, layer=made.document.layer_ids[0], expert=EXPERTS)
    with pytest.raises(ebs.UsageError, match="says no loads of ranks"):
        ebs.compare(made, tmp_path / "times.csv")


def test_two_threads_get_what_one_gets(made: ebs.PlanResult, trace: Path) -> None:
    def again(seed: int) -> ebs.PlanResult:
        return ebs.plan(trace, policy="eplb", split="request", seed=0, device="cpu", **CLUSTER)

    with ThreadPoolExecutor(2) as pool:
        assert {one.fingerprint for one in pool.map(again, range(2))} == {made.fingerprint}


def test_a_part_of_the_package_is_also_its_function() -> None:
    part: Any = ebs.plan
    assert inspect.ismodule(part) and callable(part)
    assert plan_part.read_plan is not None
    assert inspect.signature(part) == inspect.signature(api.plan)
    assert str(inspect.getdoc(api.plan)) in str(part.__doc__)
    assert part.__name__ == "easybalance_sim.plan"


CALLED = ["gate", "plan", "replay", "simulate", "sweep"]


def test_no_function_hides_a_part_nor_a_part_a_function() -> None:
    functions = {name for name in ebs.__all__ if name.islower()}
    parts = {one.name for one in pkgutil.iter_modules(ebs.__path__)}
    assert sorted(functions & parts) == CALLED
    assert functions.isdisjoint(one.name for one in pkgutil.iter_modules(api.__path__))


def test_functions_stay_so_beside_inner_parts_of_their_name() -> None:
    script = """
        import inspect
        import easybalance_sim as ebs
        import easybalance_sim.plan.lint as house_rules
        import easybalance_sim.exports.adoption as adoption
        from easybalance_sim.cli import adopt, diff, lint
        for name in ("lint", "adopt", "diff"):
            assert inspect.isfunction(getattr(ebs, name)), name
        print(ebs.plan.lint is house_rules, inspect.ismodule(house_rules), inspect.ismodule(lint), adoption.STATUS)
    """
    done = python("-W", "error", "-c", inspect.cleandoc(script))
    assert (done.stdout, done.stderr) == ("True True True not judged\n", "")


@pytest.mark.parametrize("name", CALLED)
def test_a_called_part_goes_where_functions_go(name: str) -> None:
    part: Any = getattr(ebs, name)
    assert copy.copy(part) is copy.deepcopy([part])[0] is part
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(part, protocol)) is part
    text = pydoc.plain(pydoc.render_doc(part))
    first = text.split(f"{name}(", 1)[1]
    assert all(parameter in first for parameter in inspect.signature(part).parameters)
    assert str(inspect.getdoc(getattr(api, name))).splitlines()[-1] in first


def test_a_called_part_is_sent_to_workers() -> None:
    cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed")
    part: Any = ebs.plan
    assert cloudpickle.loads(cloudpickle.dumps({"task": part}))["task"] is part


def test_called_parts_stay_so_without_a_warning_and_after_a_reload() -> None:
    script = """
        import copy, importlib, inspect, pickle
        import easybalance_sim as ebs
        from easybalance_sim.plan import plan as plan_module
        import easybalance_sim.plan.planfile as planfile
        import easybalance_sim.plan.planfile
        for again in (ebs.plan, ebs):
            importlib.reload(again)
            assert pickle.loads(pickle.dumps(ebs.plan)) is copy.deepcopy(ebs.plan) is ebs.plan
            assert "traces" in inspect.signature(ebs.plan).parameters and callable(ebs.plan)
        print(plan_module.Plan.__name__, planfile is easybalance_sim.plan.planfile)
    """
    done = python("-W", "error", "-c", inspect.cleandoc(script))
    assert (done.stdout, done.stderr) == ("Plan True\n", "")


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "('numpy', 'pandas', 'pyarrow', 'numba', 'matplotlib', 'scipy', 'msgspec', 'inspect')"
    script = f"import sys, easybalance_sim; dir(easybalance_sim); print([m for m in {heavy} if m in sys.modules])"
    assert python("-c", script).stdout == "[]\n"
