"""Load that vLLM, TensorRT-LLM and vllm-ascend record: the same counts back, and every trap with its message."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from easybalance_sim.errors import EbsimError
from easybalance_sim.trace.slot_map import SlotMap
from tests.recordings import (
    IN_FORCE,
    MAP,
    counts_at,
    load_line,
    run,
    save_pt,
    torch_or_skip,
    write_statistic,
)

LOAD = [[10, 1, 5, 2, 9, 1], [2, 8, 1, 3, 1, 2]]
LOGICAL = [[19, 2, 5, 2], [4, 1, 9, 3]]
META_LINE = json.dumps({"record_type": "eplb_load_meta", "version": 1, "model": "m"})
SHUFFLED = [[3, 2, 1, 0, 0, 1], [0, 2, 1, 3, 2, 0]]


def refusal(kind: str, source: Path, **settings: Any) -> str:
    """The one line that refuses a recording; nothing is written beside it."""
    before = sorted(source.parent.rglob("*"))
    with pytest.raises(EbsimError) as refused:
        run(kind, source, source.parent / "trace.parquet", **({"top_k": 2} | settings))
    assert sorted(source.parent.rglob("*")) == before
    return str(refused.value).replace(str(source.parent), "…")


def load_file(folder: Path, *lines: str) -> Path:
    path = folder / "load.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_every_record_is_led_back_by_its_own_map(tmp_path: Path) -> None:
    lines = (META_LINE, load_line(100, LOAD), "", load_line(200, LOAD, SHUFFLED))
    written = run("vllm_eplb_load", load_file(tmp_path, *lines), tmp_path / "o.parquet", top_k=2, layers=(3, 4))
    trace = counts_at(written.path)
    assert trace.tokens.tolist() == [LOGICAL, [[11, 6, 1, 10], LOGICAL[1]]]
    assert (trace.meta.layers, trace.meta.engine, written.notes) == ((3, 4), "vLLM", ())
    assert trace.batch_tokens.tolist() == [14, 14]


def test_an_appended_second_run_is_said(tmp_path: Path) -> None:
    lines = (load_line(100, LOAD), load_line(200, LOAD), load_line(100, LOAD))
    written = run("vllm_eplb_load", load_file(tmp_path, *lines), tmp_path / "o.parquet", top_k=2)
    assert written.notes == ("step numbers go back 1 times: several runs follow each other",)


@pytest.mark.parametrize(
    ("line", "settings", "says"),
    [
        ("{", {}, "…/load.jsonl: line 2: no record of load: Input data was truncated — record it again"),
        ("[1]", {}, "…/load.jsonl: line 2: no eplb_load_stats record of version 1 — record it again"),
        (load_line(1, LOAD, version=2), {},
         "…/load.jsonl: line 2: no eplb_load_stats record of version 1 — record it again"),
        (json.dumps({"record_type": "eplb_initial_mapping", "version": 1}), {},
         "…/load.jsonl: line 2: a placement, no load — give the file of expert_load_stats_path"),
        (load_line(1, [[1.5] * 6] * 2), {},
         "…/load.jsonl: line 2: no record of load: Expected `int`, got `float` - at `$.expert_load[0][0]`"
         " — record it again"),
        (load_line(1, [[-1] * 6] * 2), {},
         "…/load.jsonl: line 2: expert_load[0, 0]: -1 is not a count — record it again"),
        (load_line(1, [[1] * 6, [1] * 5]), {},
         "…/load.jsonl: line 2: expert_load: no rows of one length — record it again"),
        (load_line(1, [[1] * 5] * 2), {},
         "…/load.jsonl: line 2, p2l_map: counts have shape (2, 5), the map (2, 6) — give the plan that was in force"),
        (load_line(1, LOAD, [[0, 1, 2, 3, 0, -1], MAP[1].tolist()]), {},
         "…/load.jsonl: line 2, p2l_map: layer row 0, slot 5: expert -1 is not in 0..3"
         " — give the plan that was in force"),
        (load_line(1, LOAD), {"experts": 3},
         "…/load.jsonl: line 1, p2l_map: layer row 0, slot 3: expert 3 is not in 0..2"
         " — give the plan that was in force"),
        (load_line(1, LOAD, [[2**33] * 6] * 2), {},
         "…/load.jsonl: line 2, p2l_map: 8589934593 experts — give the plan that was in force"),
        (load_line(1, [[1] * 6], [MAP[0].tolist()]), {},
         "…/load.jsonl: line 2: 1 layers, 2 before — give one model at a time"),
        (load_line(1, LOAD), {"layers": (3,)},
         "…/load.jsonl: holds 2 layers, 1 expected — correct --model or --layers"),
        (load_line(1, LOAD), {"slots": IN_FORCE},
         "…/load.jsonl: each record holds its own map of slots — leave --plan-in-force out"),
        (load_line(1, LOAD), {"top_k": None},
         "…/load.jsonl: the number of top-k is unknown — pass --model NAME, or --experts and --top-k (and --layers)"),
    ],
)  # fmt: skip
def test_traps_of_load_lines(tmp_path: Path, line: str, settings: dict[str, Any], says: str) -> None:
    source = load_file(tmp_path, load_line(0, LOAD), line)
    # Some releases of msgspec do not count inside lists.
    assert refusal("vllm_eplb_load", source, **settings).replace("[...]", "[0]") == says


def test_a_load_file_must_hold_load(tmp_path: Path) -> None:
    source = load_file(tmp_path, META_LINE)
    assert refusal("vllm_eplb_load", source) == "…/load.jsonl: holds no record of load — record it again"
    missing = tmp_path / "none.jsonl"
    assert (
        refusal("vllm_eplb_load", missing) == "…/none.jsonl: cannot be read: No such file or directory — check the path"
    )


RANKS = [
    {"100_3": [5, 2, 1, 4], "100_4": [1, 2, 3, 4], "101_3": [5, 2, 1, 5], "101_4": [5, 2, 1, 5]},
    {"100_3": [6, 2, 1, 4], "100_4": [1, 1, 1, 1], "101_3": [6, 2, 1, 5], "101_4": [0, 0, 0, 0]},
]
SUMS = [[[11, 4, 2, 8], [2, 3, 4, 5]], [[11, 4, 2, 10], [5, 2, 1, 5]]]
TAKEN = "ids are taken for experts: with a load balancer on they are slots, and --plan-in-force is needed"


def test_ranks_are_added_up_and_layers_keep_their_ids(tmp_path: Path) -> None:
    folder = write_statistic(tmp_path / "stat", RANKS)
    written = run("tensorrt_llm_statistic", folder, tmp_path / "o.parquet")
    trace = counts_at(written.path)
    assert trace.tokens.tolist() == SUMS
    assert (trace.meta.layers, trace.meta.top_k, trace.meta.engine) == ((3, 4), 2, "TensorRT-LLM")
    assert written.notes == (TAKEN,)


def test_counts_of_a_damaged_recording_do_not_wrap_around(tmp_path: Path) -> None:
    np.save(tmp_path / "load.npy", np.full((1, 6000), 2**45))
    assert refusal("ascend_hotness", tmp_path / "load.npy") == (
        "…/load.npy: counts add up to more than 2^53 — record it again"
    )


@pytest.mark.parametrize("key", ["100_03", "١٠٠_3", "100_3_", "1e2_3"])
def test_keys_are_written_as_tensorrt_llm_writes_them(key: str, tmp_path: Path) -> None:
    folder = write_statistic(tmp_path / "stat", [{**RANKS[0], key: [1, 1, 1, 1]}, RANKS[1]])
    says = refusal("tensorrt_llm_statistic", folder)
    assert says.endswith(f"rank0.safetensors: key {key!r} is not ITERATION_LAYER — copy the whole folder")


def test_raw_files_beside_them_are_left_and_said(tmp_path: Path) -> None:
    folder = write_statistic(tmp_path / "stat", RANKS)
    save_file({"100_3": np.zeros((9, 2), np.int32)}, folder / "rank0_raw.safetensors")
    written = run("tensorrt_llm_statistic", folder, tmp_path / "o.parquet")
    assert counts_at(written.path).tokens.tolist() == SUMS
    assert written.notes == (TAKEN, "1 files rank*_raw.safetensors are not read")


def test_slots_of_a_load_balancer_are_led_back_by_layer_id(tmp_path: Path) -> None:
    folder = write_statistic(tmp_path / "stat", [{"7_4": LOAD[1], "7_3": LOAD[0]}], experts=6)
    plan = SlotMap(expert_of_slot=MAP[[1, 0]], experts=4, name="plan.json", layers=(4, 3))
    written = run("tensorrt_llm_statistic", folder, tmp_path / "o.parquet", slots=plan, experts=4)
    assert counts_at(written.path).tokens.tolist() == [LOGICAL]
    assert written.notes == ()


def changed(number: int, **more: Any) -> list[dict[str, Any]]:
    ranks: list[dict[str, Any]] = [dict(rank) for rank in RANKS]
    ranks[number] = {key: row for key, row in {**ranks[number], **more}.items() if row is not None}
    return ranks


@pytest.mark.parametrize(
    ("ranks", "settings", "says"),
    [
        (RANKS, {"experts": 3},
         "…/stat: holds 4 counts per layer, the model has 3 experts: slots of a load balancer"
         " — pass --plan-in-force PLAN, the placement at that time"),
        (RANKS, {"slots": IN_FORCE},
         "…/stat: meta_info.json says 4, plan.json has 6 slots"
         " — give the plan that was in force, or leave --plan-in-force out when no load balancer was on"),
        (RANKS, {"slots": SlotMap(expert_of_slot=np.array([[0, 1, 2, 3]]), experts=4, name="plan.json", layers=(3,))},
         "plan.json: has no layer 4 — give the plan that was in force"),
        (RANKS, {"top_k": 1}, "…/stat: holds top-2, top-1 expected — correct --model or --top-k"),
        (RANKS, {"layers": (3, 4, 5)},
         "…/stat: layer 5 is not recorded, the model has an MoE layer of this id"
         " — pass --layers (an MTP layer counts, too), or correct --model"),
        (RANKS, {"layers": (3,)},
         "…/stat: layer 4 is recorded, the model has no MoE layer of this id"
         " — pass --layers (an MTP layer counts, too), or correct --model"),
        (changed(0, **{"100_4": None}), {},
         "…/stat/rank0.safetensors: iteration 100 has no layer 4 — copy the whole folder"),
        (changed(1, **{"100_4": None}), {},
         "…/stat/rank1.safetensors: iteration 100, layer 4 is not in all ranks' files — copy the whole folder"),
        ([{"100_3": [1] * 4, "102_3": [1] * 4}], {},
         "…/stat/rank0.safetensors: iteration 101 is missing — copy the whole folder"),
        (changed(1, **{"100_4": [1] * 5}), {},
         "…/stat/rank1.safetensors: 100_4 has shape [5], meta_info.json says 4 experts — copy the whole folder"),
        (changed(1, **{"100_4": [1, 1, -1, 1]}), {},
         "…/stat/rank1.safetensors: 100_4[2]: -1 is not a count — record it again"),
        (changed(1, step=[1] * 4), {},
         "…/stat/rank1.safetensors: key 'step' is not ITERATION_LAYER — copy the whole folder"),
        ([{"1_3": [0] * 4}], {}, "…/stat: no token was counted — record while requests are served"),
        ([{}], {}, "…/stat/rank0.safetensors: holds no iteration — record while requests are served"),
    ],
)  # fmt: skip
def test_traps_of_a_statistic(tmp_path: Path, ranks: Any, settings: dict[str, Any], says: str) -> None:
    assert refusal("tensorrt_llm_statistic", write_statistic(tmp_path / "stat", ranks), **settings) == says


def test_a_statistic_is_a_whole_folder(tmp_path: Path) -> None:
    folder = write_statistic(tmp_path / "stat", RANKS)
    (folder / "rank0.safetensors").rename(folder / "rank5.safetensors")
    assert refusal("tensorrt_llm_statistic", folder) == "…/stat: the file of rank 0 is missing — copy the whole folder"
    for path in folder.glob("rank*"):
        path.rename(path.with_name(path.name.replace(".", "_raw.")))
    assert refusal("tensorrt_llm_statistic", folder) == "…/stat: holds no rank*.safetensors — copy the whole folder"
    (folder / "meta_info.json").write_text('{"num_experts": 4}')
    assert refusal("tensorrt_llm_statistic", folder) == (
        "…/stat/meta_info.json: not the meta_info.json of a recording: Object missing required field "
        "`num_experts_per_token` — copy the whole folder"
    )
    (folder / "meta_info.json").unlink()
    assert refusal("tensorrt_llm_statistic", folder) == (
        "…/stat: holds no meta_info.json — give the folder of EXPERT_STATISTIC_PATH"
    )


def saved(folder: Path, values: Any) -> Path:
    path = folder / "hot.npy"
    np.save(path, np.array(values))
    return path


def test_hotness_of_slots_is_led_back_and_stages_are_windows(tmp_path: Path) -> None:
    by_rank = np.array(LOAD).reshape(2, 2, 3)
    one = run("ascend_hotness", saved(tmp_path, by_rank), tmp_path / "o.parquet", top_k=2, slots=IN_FORCE)
    assert counts_at(one.path).tokens.tolist() == [LOGICAL]
    stages = saved(tmp_path, np.stack([by_rank, 0 * by_rank, 2 * by_rank]).astype(np.float32))
    three = run("ascend_hotness", stages, tmp_path / "o.parquet", top_k=2, slots=IN_FORCE)
    assert counts_at(three.path).tokens.tolist() == [LOGICAL, (2 * np.array(LOGICAL)).tolist()]
    assert three.notes == ("1 of 3 stages hold no token: left out",)


def test_hotness_of_some_layers_takes_these_layers_of_the_plan(tmp_path: Path) -> None:
    plan = SlotMap(expert_of_slot=MAP, experts=4, name="plan.json", layers=(3, 4))
    source = saved(tmp_path, np.array(LOAD[1]).reshape(1, 2, 3))
    written = run("ascend_hotness", source, tmp_path / "o.parquet", top_k=2, slots=plan, layers=(4,))
    assert counts_at(written.path).tokens.tolist() == [[LOGICAL[1]]]
    both = run("ascend_hotness", saved(tmp_path, np.array(LOAD).reshape(2, 2, 3)), tmp_path / "o.parquet", top_k=2,
               slots=plan)  # fmt: skip
    assert (counts_at(both.path).meta.layers, counts_at(both.path).tokens.tolist()) == ((3, 4), [LOGICAL])


def test_hotness_of_experts_is_taken_as_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "hot.npz", moe_load=np.array(LOGICAL))
    written = run("ascend_hotness", tmp_path / "hot.npz", tmp_path / "o.parquet", top_k=2)
    assert counts_at(written.path).tokens.tolist() == [LOGICAL]


def test_what_vllm_ascend_records_itself_is_no_load(tmp_path: Path) -> None:
    assert refusal("ascend_hotness", tmp_path / "expert_map.json") == (
        "…/expert_map.json: an expert map is a placement, no load — save the gathered moe_load as .npy or .pt"
    )


@pytest.mark.engine_loader
def test_hotness_may_be_a_tensor(tmp_path: Path) -> None:
    torch_or_skip()
    path = save_pt(tmp_path / "hot.pt", np.array(LOGICAL))
    assert counts_at(run("ascend_hotness", path, tmp_path / "o.parquet", top_k=2).path).tokens.tolist() == [LOGICAL]


@pytest.mark.parametrize(
    ("values", "settings", "says"),
    [
        (np.ones((2, 2, 3)), {},
         "…/hot.npy: hotness is of slots, 3 on each of 2 ranks"
         " — pass --plan-in-force PLAN, the placement at that time"),
        (np.ones((2, 2, 4)), {"slots": IN_FORCE},
         "…/hot.npy: holds 8 slots, plan.json has 6 — give the plan that was in force"),
        (np.ones((3, 2, 3)), {"slots": IN_FORCE}, "plan.json: has no layer 2 — give the plan that was in force"),
        (LOGICAL, {"slots": IN_FORCE}, "…/hot.npy: [L, E] is of experts, not of slots — leave --plan-in-force out"),
        ([1, 2, 3], {}, "…/hot.npy: hotness has shape [3] — give [L, E], [L, R, S] or [stages, L, R, S]"),
        ([[1.5, 2.0]], {}, "…/hot.npy: hotness[0, 0]: 1.5 is not a count — record it again"),
        (np.zeros((2, 4)), {}, "…/hot.npy: no token was counted — record while requests are served"),
    ],
)  # fmt: skip
def test_traps_of_hotness(tmp_path: Path, values: Any, settings: dict[str, Any], says: str) -> None:
    assert refusal("ascend_hotness", saved(tmp_path, values), **settings) == says


def test_no_message_names_an_option_that_import_lacks() -> None:
    """Options in messages are written out; they must be those of the command."""
    from typer.main import get_command

    from easybalance_sim.cli.commands import app

    command: Any = get_command(app).get_command(None, "import")  # type: ignore[attr-defined]
    known = {name for option in command.params for name in option.opts}
    folder = Path(__file__).parents[2] / "easybalance_sim" / "trace"
    for path in [*folder.glob("importers/*.py"), *folder.glob("sglang_*.py"), folder / "count_windows.py"]:
        said = set(re.findall(r"(?<![\w-])--[a-z-]+[a-z]", path.read_text(encoding="utf-8")))
        assert {option for option in said - known if not option.startswith(("--enable-", "--expert-dis"))} == set()
