"""`ebsim import` as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.trace import importers
from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.one_text import unbroken
from tests.plan_documents import LAYER_IDS, example_document
from tests.recordings import MAP, counts_at, load_line, write_statistic

LOAD = [[10, 1, 5, 2, 9, 1], [2, 8, 1, 3, 1, 2]]
LOGICAL = [[19, 2, 5, 2], [4, 1, 9, 3]]


@pytest.fixture
def statistic(tmp_path: Path) -> Path:
    """A folder of TensorRT-LLM recorded under the example plan: slots of its layers."""
    counts = {f"{i}_{layer}": row for i in (7, 8) for layer, row in zip(LAYER_IDS, LOAD, strict=True)}
    write_plan(tmp_path / "plan.json", example_document())
    return write_statistic(tmp_path / "stat", [counts], experts=6)


def test_an_import_is_a_trace_that_other_commands_take(tmp_path: Path) -> None:
    lines = [load_line(step, LOAD) for step in range(1, 9)]
    (tmp_path / "load.jsonl").write_text("\n".join(lines))
    done = ebsim("import", "vllm-eplb-load", "load.jsonl", "-o", "o.parquet", "--top-k", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = "wrote o.parquet: 112 tokens, 8 windows, 2 layers × 4 experts, top-2, model unknown"
    assert unbroken(done.stdout) == said
    assert ebsim_here("trace", "check", "o.parquet", cwd=tmp_path).returncode == 0


def test_the_plan_in_force_leads_slots_back(tmp_path: Path, statistic: Path) -> None:
    done = ebsim_here("import", "tensorrt-llm-statistic", statistic, "-o", "o.parquet", "--plan-in-force", "plan.json",
                 cwd=tmp_path)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    trace = counts_at(tmp_path / "o.parquet")
    assert (trace.meta.layers, trace.tokens.tolist()) == (LAYER_IDS, [LOGICAL, LOGICAL])


def test_the_plan_in_force_may_be_adopted_from_the_engine(tmp_path: Path, statistic: Path) -> None:
    rows = "".join(f"  {layer}: {row}\n" for layer, row in zip(LAYER_IDS, MAP.tolist(), strict=True))
    text = f"num_slots: 6\nlayer_updates_per_iter: 0\ninitial_global_assignments:\n{rows}"
    (tmp_path / "balancer.yaml").write_text(text)
    adopted = ebsim_here(
        "adopt", "tensorrt-llm", tmp_path / "balancer.yaml", "-o", tmp_path / "adopted.json", "--ranks", "2"
    )
    assert adopted.returncode == 0, adopted.stderr
    output = tmp_path / "o.parquet"
    done = ebsim_here("import", "tensorrt-llm-statistic", statistic, "-o", output, "--plan-in-force",
                      tmp_path / "adopted.json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert counts_at(output).tokens.tolist() == [LOGICAL, LOGICAL]


def test_slots_without_their_plan_are_refused_when_the_model_is_known(tmp_path: Path, statistic: Path) -> None:
    refused = one_line(
        ebsim_here("import", "tensorrt-llm-statistic", statistic, "-o", tmp_path / "o.parquet", "--experts", "4")
    )
    assert "holds 6 counts per layer, the model has 4 experts: slots of a load balancer — pass --plan-in-fo" in refused
    said = ebsim_here("import", "tensorrt-llm-statistic", statistic, "-o", tmp_path / "o.parquet")
    assert said.stderr.startswith("note: ids are taken for experts: with a load balancer on they are slots")


def test_bad_input_is_one_line_and_no_file(tmp_path: Path) -> None:
    source = tmp_path / "load.jsonl"
    source.write_text(load_line(1, LOAD))
    output = tmp_path / "o.parquet"
    for arguments, says in (
        (("vllm", source, "-o", output), "no kind 'vllm' — choose "),
        (("vllm-eplb-load", source, "-o", output), "the number of top-k is unknown"),
        (
            ("tensorrt-llm-statistic", source, "-o", output, "--plan-in-force", source),
            "load.jsonl: not a plan file — make one of the engine's file with `ebsim adopt`",
        ),
        (("vllm-eplb-load", source, "-o", source, "--top-k", "2"), "the run reads this file, it would be lost"),
        (("vllm-eplb-load", source, "-o", tmp_path / "none" / "o.parquet", "--top-k", "2"), "there is no folder"),
        (("vllm-eplb-load", tmp_path / "none", "-o", output, "--top-k", "2"), "none: cannot be read: No such file"),
        (("sglang-recorder", tmp_path / "none.pt", "-o", output), "none.pt: no such file or folder — check the path"),
        (("ascend-hotness", source, "-o", output), ".jsonl ending — give one of .npy, .npz, .pt, .safetensors"),
        (("vllm-eplb-load", source, "-o", output, "--plan-in-force", source), "not a plan"),
    ):
        done = ebsim_here("import", *arguments)
        assert done.returncode == 2
        assert says in one_line(done)
        assert list(tmp_path.iterdir()) == [source]


def test_help_has_a_line_for_every_kind() -> None:
    kinds = ebsim_here("import", "--help").stdout.partition("\nKinds:\n")[2]
    listed = re.findall(r"^  (\S+)(?:\n +|  +)(\S)", kinds, re.MULTILINE)
    assert [name for name, _ in listed] == [name.replace("_", "-") for name in importers.names()]
    titles = importers.titles()
    assert len(set(titles.values())) == len(titles) == len(listed)
    assert all(10 < len(title) <= 120 and title.endswith(".") for title in titles.values())
