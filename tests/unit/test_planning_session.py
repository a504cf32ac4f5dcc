"""What a run knows before it plans: cluster, model, phase, source ranks, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.planning.session import STEP_TOKENS_PER_RANK, Session, Settings, open_session, selected_windows
from easybalance_sim.trace.schema import CountTrace
from tests.listeners import Heard
from tests.skewed_traces import EXPERTS, RANKS, SLOTS, skewed_columns, skewed_counts, skewed_meta, skewed_trace
from tests.trace_files import random_columns, token_meta, write_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("session") / "skewed.parquet", steps=64)


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_counts(tmp_path_factory.mktemp("session") / "counts.parquet", windows=8)


def opened(path: Path, **said: Any) -> tuple[Session, list[str]]:
    heard = Heard()
    return open_session(Settings(traces=(path,), **said), heard), heard.notes


def test_without_a_cluster_one_node_of_eight_with_a_spare_slot_each(trace: Path) -> None:
    session, notes = opened(trace)
    assert session.topology.slots_per_rank.tolist() == [EXPERTS // 8 + 1] * 8
    assert (session.topology.nodes, session.topology.profile) == (1, "h200")
    assert "no cluster given: one node of 8 ranks × 3 slots, profile h200" in notes


def test_flags_make_the_cluster_without_a_note(trace: Path) -> None:
    session, notes = opened(trace, ranks=4, ranks_per_node=2, slots_per_rank=6, profile="h100")
    assert session.topology.node_of_rank.tolist() == [0, 0, 1, 1]
    assert session.topology.slots_per_rank.tolist() == [6] * 4
    assert (session.topology.profile, notes) == ("h100", [])


def test_nodes_of_unequal_size_are_noted(trace: Path) -> None:
    _, notes = opened(trace, ranks=4, ranks_per_node=3, slots_per_rank=6)
    assert notes[0] == "nodes of unequal size: 1 to 3 of 4 ranks in one (ranks_per_node)"


def test_no_more_slots_than_experts_are_made_up(tmp_path: Path) -> None:
    session, _ = opened(skewed_trace(tmp_path / "t.parquet", steps=16), ranks=1)
    assert session.topology.slots_per_rank.tolist() == [EXPERTS]


def test_a_table_alone_is_put_on_the_h200_and_that_is_said(trace: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("tokens,us\n1,10\n9999,20\n")
    session, notes = opened(trace, ranks=4, slots_per_rank=6, profile=str(table))
    assert (session.hardware.name, session.hardware.expert_table is not None) == ("h200", True)
    assert [note for note in notes if "is put on the H200" in note and "h100+t.csv" in note]
    named, told = opened(trace, ranks=4, slots_per_rank=6, profile=f"b200+{table}")
    assert named.hardware.name == "b200"
    assert not [note for note in told if "put on" in note]


def test_a_cluster_file_and_its_profile(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text("ranks = 4\nranks_per_node = 4\nslots_per_rank = [4, 4, 4, 5]\nhbm_gib = 96\nprofile = 'h20'\n")
    session, notes = opened(trace, cluster=path)
    assert (session.topology.slots_per_rank.tolist(), session.hardware.name, notes) == ([4, 4, 4, 5], "h20", [])
    assert session.hbm_bytes == 96 * 2**30
    other, _ = opened(trace, cluster=path, profile="b200")
    assert (other.hardware.name, other.topology.slots_per_rank.tolist()) == ("b200", [4, 4, 4, 5])
    assert other.hbm_bytes == 96 * 2**30


def test_memory_of_the_hardware_when_the_cluster_does_not_say(trace: Path) -> None:
    session, _ = opened(trace, ranks=4)
    assert session.hbm_bytes == session.hardware.hbm_bytes > 0


def test_a_default_cluster_gives_way_to_flags(trace: Path) -> None:
    default = uniform(4, 4, 7)
    assert open_session(Settings(traces=(trace,)), Heard(), default).topology is default
    said = open_session(Settings(traces=(trace,), ranks=2), Heard(), default)
    assert said.topology.slots_per_rank.tolist() == [9, 9]


def test_widths_come_from_the_trace_the_name_or_nobody(tmp_path: Path) -> None:
    known, notes = opened(skewed_trace(tmp_path / "known.parquet", steps=8), ranks=4)
    assert (known.shape.hidden, known.shape.intermediate, known.shape.assumed, notes) == (1024, 512, False, [])
    unknown = skewed_trace(tmp_path / "unknown.parquet", steps=8, meta=skewed_meta(hidden=0, model="nobody-knows"))
    session, notes = opened(unknown, ranks=4)
    assert session.shape.assumed and any("'nobody-knows' is not known" in note for note in notes)
    with pytest.raises(UsageError, match="model mixtral-8x7b has experts 8, the trace 16"):
        opened(unknown, ranks=4, model="mixtral-8x7b")


def test_a_known_name_gives_its_widths_and_the_layers_of_the_trace(tmp_path: Path) -> None:
    meta = token_meta((4, 7), experts=32, top_k=4, model="gpt-oss-20b", ranks=4)
    wide = write_trace(tmp_path / "t.parquet", random_columns(np.random.default_rng(0), [0, 0, 1, 1], meta), meta)
    session, notes = opened(wide, ranks=4)
    assert (session.shape.name, session.shape.hidden, session.shape.layers) == ("gpt-oss-20b", 2880, (4, 7))
    assert not session.shape.assumed
    assert notes[0].startswith("the trace has 2 of the 24 MoE layers of gpt-oss-20b: memory, ")


def test_the_phase_of_most_tokens_decides_the_mode_unless_one_is_asked(tmp_path: Path) -> None:
    columns = skewed_columns(16)
    columns["phase"] = np.where(np.arange(16 * SLOTS) % 8 < 5, "prefill", "decode")
    path = write_trace(tmp_path / "mixed.parquet", columns, skewed_meta())
    session, notes = opened(path, ranks=4)
    assert (session.phase, session.bench.mode) == ("prefill", "normal")
    assert [note.partition(":")[0] for note in notes] == ["prefill (62 % of the tokens) and decode are mixed"]
    assert session.bench.step_tokens == STEP_TOKENS_PER_RANK["prefill"] * 4
    asked, notes = opened(path, ranks=4, phase="decode", step_tokens=77)
    assert notes == []
    assert (asked.phase, asked.bench.mode, asked.bench.step_tokens) == ("decode", "low_latency", 77)
    assert opened(path, ranks=4, phase="decode", all_to_all="normal")[0].bench.mode == "normal"


def test_source_ranks_that_do_not_fit_are_noted(trace: Path) -> None:
    assert opened(trace, ranks=RANKS)[1] == []
    session, notes = opened(trace, ranks=2, ranks_per_node=2)
    assert session.bench.recorded_ranks == RANKS
    assert notes == ["source ranks of the trace (4) do not fit 2 ranks: request mod R instead"]


def test_a_count_trace_says_that_its_figures_are_expectations(counts: Path) -> None:
    session, notes = opened(counts, ranks=4)
    assert isinstance(session.trace, CountTrace)
    assert notes[-1] == "count trace: rank loads are expected values under an even split, seconds come from drawn steps"


def test_selected_windows_of_a_count_trace(counts: Path) -> None:
    def kept(**said: Any) -> list[int]:
        session, _ = opened(counts, ranks=4, **said)
        assert isinstance(session.trace, CountTrace)
        return np.flatnonzero(selected_windows(session.trace, session.selection())).tolist()

    assert kept() == list(range(8))
    assert kept(phase="prefill") == [0, 1, 2, 3]
    assert kept(workloads=("right",)) == [1, 3, 5, 7]
    assert kept(phase="decode", workloads=("left",)) == [4, 6]
    assert kept(phase="unknown") == []


def test_warm_up_of_the_recorder_is_noted(tmp_path: Path) -> None:
    columns = skewed_columns(16)
    columns["experts"] = columns["experts"].copy()
    columns["experts"][: 2 * SLOTS] = columns["experts"][0]
    _, notes = opened(write_trace(tmp_path / "warm.parquet", columns, skewed_meta()), ranks=4)
    assert any(note.startswith(f"{2 * SLOTS} warm-up tokens") for note in notes)


def test_a_gpu_that_is_demanded_and_not_there_is_refused(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "gpu_fault", lambda: "cudaErrorNoDevice: no CUDA-capable device is detected")
    with pytest.raises(
        UsageError, match=r"--device: no GPU can be used: cudaErrorNoDevice.* — in a clone of ebsim pip"
    ):
        opened(trace, device="gpu")
    monkeypatch.setenv("EBSIM_DEVICE", "gpu")
    with pytest.raises(UsageError, match="EBSIM_DEVICE: no GPU can be used"):
        opened(trace)
    assert opened(trace, device="cpu", ranks=4)[1] == []
    monkeypatch.setenv("EBSIM_DEVICE", "tpu")
    with pytest.raises(UsageError, match="EBSIM_DEVICE: 'tpu' is not known — choose auto, cpu, gpu"):
        opened(trace)


@pytest.mark.parametrize(
    ("fault", "notes"),
    [
        (kernels.NO_CUPY, []),
        ("cudaErrorNoDevice: none", ["kernels run on the CPU, cupy cannot use a GPU: cudaErrorNoDevice: none"]),
    ],
)
def test_the_cpu_is_taken_with_a_note_only_where_cupy_does_not_work(
    fault: str, notes: list[str], trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "gpu_fault", lambda: fault)
    assert opened(trace, ranks=4)[1] == notes
    assert kernels.load().__name__.endswith("numba_cpu")


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"device": "nope"}, "--device: 'nope' is not known"),
        ({"dispatch": "nope"}, "--dispatch: 'nope' is not known"),
        ({"all_to_all": "nope"}, "--all-to-all: 'nope' is not known"),
        ({"phase": "nope"}, "--phase: 'nope' is not known"),
        ({"window_seconds": float("nan")}, "--window-seconds: nan is no length of time"),
        ({"window_seconds": -1.0}, "a window needs at least one step"),
        ({"window_steps": 0}, "a window needs at least one step"),
        ({"workloads": ("nope",)}, "the trace has no workload 'nope'"),
        ({"profile": "nope"}, "nope: unknown hardware profile"),
        ({"model": "nope"}, "nope: unknown model"),
        ({"cluster": Path("nope.toml")}, "nope.toml: cannot read"),
        ({"cluster": Path("nope.toml"), "ranks": 8}, "exclude each other"),
        ({"ranks": 8, "slots_per_rank": 1}, "8 slots cannot hold 16 experts"),
        ({"ranks": 1, "slots_per_rank": 17}, "a rank with 17 slots would hold an expert twice"),
    ],
)
def test_what_is_refused_is_refused_before_any_note(trace: Path, said: dict[str, Any], says: str) -> None:
    heard = Heard()
    with pytest.raises(EbsimError, match=says) as refused:
        open_session(Settings(traces=(trace,), **said), heard)
    assert refused.value.exit_code == 2
    assert heard.notes == []


def test_names_are_refused_before_the_trace_is_opened() -> None:
    with pytest.raises(UsageError, match="--dispatch"):
        open_session(Settings(traces=(Path("absent.parquet"),), dispatch="nope"), Heard())
