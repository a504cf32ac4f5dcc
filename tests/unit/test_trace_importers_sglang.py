"""Dumps of SGLang's recorder: what every mode holds, and every trap in them, with its message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import EbsimError, TraceError, UsageError
from easybalance_sim.trace.conversion import Converted
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import DECODE, PREFILL, UNKNOWN_PHASE, TokenBatch
from tests.recordings import (
    IN_FORCE,
    MAP,
    Dump,
    counts_at,
    dumps_in,
    one_pass,
    records,
    run,
    save_pt,
    stat,
    token_pass,
    torch_or_skip,
)

KIND = "sglang_recorder"
NAME = "expert_distribution_recorder_1700000000.5"
# Layer 0 is dense; three passes, the second without a token.
STAT = np.array([[[0] * 4, [3, 1, 2, 0]], [[0] * 4, [0] * 4], [[0] * 4, [1, 2, 2, 1]]], np.int32)
SLOTS = [[[0, 1], [1, 5]], [[5, 3], [3, 2]], [[4, 2], [4, 2]]]
EXPERTS = [[[0, 1], [2, 0]], [[1, 3], [3, 1]], [[0, 2], [2, 1]]]
"""Three tokens, two layers, top-2: slots under `MAP`, and the experts in them."""


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dump:
    return dumps_in(tmp_path / "run", monkeypatch)


def imported(path: Path, **settings: Any) -> Converted:
    output = path.parents[0].parent / "trace.parquet" if path.suffix else path.parent / "trace.parquet"
    return run(KIND, path, output, **({"top_k": 2} | settings))


def batch_of(path: Path) -> TokenBatch:
    trace = open_trace([path])
    assert isinstance(trace, TokenTrace)
    (batch,) = trace.batches()
    return batch


def refusal(path: Path, **settings: Any) -> str:
    """The one line that refuses a dump; nothing is written."""
    with pytest.raises(EbsimError) as refused:
        imported(path, **settings)
    left = [p.name for p in path.parent.parent.iterdir() if p.suffix in (".parquet", ".part")]
    assert left == []
    return str(refused.value).replace(str(path.parent.parent), "…")


def test_stat_drops_empty_passes_and_dense_layers(put: Dump) -> None:
    written = imported(put(f"{NAME}.pt", stat(STAT)))
    trace = counts_at(written.path)
    assert (trace.meta.layers, trace.meta.engine, trace.meta.top_k) == ((1,), "SGLang", 2)
    assert trace.meta.recorder == "expert_distribution_recorder stat"
    assert trace.tokens.tolist() == [[[3, 1, 2, 0]], [[1, 2, 2, 1]]]
    assert trace.batch_tokens.tolist() == [3, 3]
    assert written.notes[1:] == (
        "1 of 2 layers hold no token and are taken for dense ones",
        "1 of 3 passes hold no token: left out",
    )


def test_a_wrapped_buffer_has_lost_its_order(put: Dump) -> None:
    full = imported(put("full.pt", stat(STAT)))
    assert full.notes[0].startswith("passes may be rotated, since a circular buffer does not say where it began")
    partly = imported(put("partly.pt", stat(np.concatenate([STAT, STAT[1:2]]))))
    assert partly.notes[0] == "the buffer was not full: passes stand in the order of their time"


def test_several_stat_dumps_follow_each_other_by_time(put: Dump) -> None:
    path = put("expert_distribution_recorder_1700000009.5.pt", stat(STAT[:1]))
    put("expert_distribution_recorder_1700000010.25.pt", stat(STAT[2:]))
    assert counts_at(imported(path.parent).path).tokens[:, 0, 0].tolist() == [3, 1]


def test_a_sum_over_all_passes_is_one_window(put: Dump) -> None:
    written = imported(put("a.pt", stat(STAT.sum(axis=0))))
    assert counts_at(written.path).tokens.tolist() == [[[4, 3, 4, 1]]]
    assert written.notes == ("1 of 2 layers hold no token and are taken for dense ones",)


def test_counts_of_many_ranks_without_all_to_all_are_told_and_divided(put: Dump) -> None:
    counts = np.arange(1, 41, dtype=np.int32).reshape(1, 10, 4)
    path = put("a.pt", stat(counts * 8))
    written = imported(path)
    assert written.notes == (
        "all counts are multiples of 8, as where 8 ranks record the same tokens (no all-to-all): "
        "--divide-counts 8 undoes it",
    )
    divided = imported(path, divide_counts=8)
    assert counts_at(divided.path).tokens.tolist() == counts.tolist()
    assert divided.notes == ()
    put("a.pt", stat(counts))
    assert imported(path).notes == ()


def test_a_divisor_that_does_not_fit_is_refused(put: Dump) -> None:
    assert refusal(put("a.pt", stat(STAT)), divide_counts=2) == (
        "…/run/a.pt: not all counts are multiples of 2 — correct --divide-counts"
    )


def test_the_model_says_which_layers_are_moe(put: Dump) -> None:
    path = put("a.pt", stat(STAT))
    assert counts_at(imported(path, layers=(0, 1)).path).tokens[0].tolist() == [[0, 0, 0, 0], [3, 1, 2, 0]]
    assert refusal_without_output(path, layers=(0,)) == (
        "…/run/a.pt: layer 1 has tokens, the recording has 2 layers, 1 of them with tokens"
        " — correct --model or --layers"
    )
    assert "there is no layer 2, the recording has 2 layers" in refusal_without_output(path, layers=(1, 2))


def refusal_without_output(path: Path, **settings: Any) -> str:
    (path.parent.parent / "trace.parquet").unlink(missing_ok=True)
    return refusal(path, **settings)


def test_passes_of_all_ranks_are_added_up_and_led_back(put: Dump) -> None:
    path = put("a_0.pt", records(one_pass(7, 0, [[1, 4, 1, 3, 0, 1], [0] * 6]), one_pass(9, 0, [[2] + [0] * 5] * 2)))
    put("a_1.pt", records(one_pass(7, 1, [[0, 0, 0, 0, 5, 1], [1, 0, 0, 0, 2, 3]]), one_pass(9, 1, [[0] * 6] * 2)))
    written = imported(path.parent)
    trace = counts_at(written.path)
    assert trace.tokens.tolist() == [[[6, 6, 1, 3], [4, 0, 2, 0]], [[2, 0, 0, 0], [2, 0, 0, 0]]]
    assert trace.meta.recorder == "expert_distribution_recorder per_pass"
    assert written.notes == (
        "slots are led back by the map at the end of the recording: passes before a rebalance would be led wrongly",
    )


def test_ranks_that_all_recorded_the_same_count_once(put: Dump) -> None:
    for rank in range(3):
        path = put(f"a_{rank}.pt", records(one_pass(7, rank, [[1, 4, 1, 3, 0, 1], [3, 0, 3, 2, 1, 1]])))
    written = imported(path.parent)
    assert counts_at(written.path).tokens.tolist() == [[[1, 5, 1, 3], [4, 3, 1, 2]]]
    assert written.notes[0] == ("all 3 ranks recorded the same tokens, as without an all-to-all backend: counted once")


def test_what_a_run_may_lack_is_said(put: Dump) -> None:
    path = put("a_0.pt", records(one_pass(7, 0, [[2, 0, 0, 0, 0, 0]] * 2), slots=np.array([[0, 1, 2, 3, 4, 5]] * 2)))
    assert imported(path).notes == ("holds rank 0 only: other ranks' files of the run belong into the same folder",)
    put("a_1.pt", records(one_pass(7, 1, [[0, 2, 0, 0, 0, 0]] * 2), one_pass(8, 1, [[0, 2, 0, 0, 0, 0]] * 2),
                          slots=np.array([[0, 1, 2, 3, 4, 5]] * 2)))  # fmt: skip
    assert imported(path.parent).notes == ("some passes lack a rank: they hold fewer tokens than were served",)


COUNT = [[1, 4, 1, 3, 0, 1], [3, 0, 3, 2, 1, 1]]
OTHER_MAP = np.array([[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 2, 0]])


@pytest.mark.parametrize(
    ("dumps", "says"),
    [
        (
            {"a_0.pt": records(one_pass(7, 0, COUNT)), "b_0.pt": records(one_pass(7, 0, COUNT))},
            "…/run: pass 7 of rank 0 stands twice: …/run/a_0.pt: record 0 and …/run/b_0.pt: record 0"
            " — give each run a folder of its own",
        ),
        (
            {"a_0.pt": records(one_pass(7, 0, COUNT)), "a_1.pt": records(one_pass(7, 1, COUNT), slots=OTHER_MAP)},
            "…/run/a_1.pt: last_physical_to_logical_map differs from that of a_0.pt"
            " — give the files of one run, dumped between two rebalances",
        ),
        (
            {"a_0.pt": records(one_pass(7, 0, COUNT)), "a_2.pt": records(one_pass(7, 2, COUNT))},
            "…/run: the dump of rank 1 is missing — put all ranks in one folder",
        ),
        (
            {"a_0.pt": records(one_pass(7, 0, COUNT)), "b.pt": stat(STAT)},
            "…/run: dumps of several modes (per_pass, stat) — give the files of one run",
        ),
        (
            {"a_0.pt": {"physical_to_logical_map": MAP}},
            "…/run/a_0.pt: a placement, no recording — give a dump of the recorder",
        ),
        ({"a_0.pt": {"weights": MAP}}, "…/run/a_0.pt: no dump of SGLang's recorder (keys: weights) — dump it again"),
        ({"a_0.pt": MAP}, "…/run/a_0.pt: no dump of SGLang's recorder: holds no dictionary — dump it again"),
        ({"a_0.pt": records()}, "…/run: no pass was recorded — record while requests are served"),
        (
            {"a_0.pt": records(one_pass(7, 0, np.zeros((2, 6))))},
            "…/run: no token was counted — record while requests are served",
        ),
        (
            {"a_0.pt": records(one_pass(7, 0, np.ones((2, 5))))},
            "…/run/a_0.pt: record 0: global_physical_count has shape [2, 5], the map [2, 6] — dump it again",
        ),
        (
            {"a_0.pt": records(one_pass(-1, 0, COUNT))},
            "…/run/a_0.pt: record 0: forward_pass_id is -1, expected 0..2147483647 — dump it again",
        ),
        (
            {"a_0.pt": records(one_pass(7, 0, np.full((2, 6), -3)))},
            "…/run/a_0.pt: record 0: global_physical_count[0, 0]: -3 is not a count — record it again",
        ),
        (
            {"a_0.pt": records(one_pass(7, 0, COUNT), slots=np.array([[0, -1, 2, 3, 0, 1]] * 2))},
            "…/run/a_0.pt: last_physical_to_logical_map: layer row 0, slot 1: expert -1 is not in 0..3"
            " — give the plan that was in force",
        ),
        ({"a.pt": stat(STAT[0, 0])}, "…/run/a.pt: logical_count has shape [4], expected passes × layers × experts"
         " as in every dump — dump it again"),
        ({}, "…/run: folder holds no .pt file — name the recorder's folder"),
    ],
)  # fmt: skip
def test_traps_of_a_folder(put: Dump, tmp_path: Path, dumps: dict[str, Any], says: str) -> None:
    for name, content in dumps.items():
        put(name, content)
    assert refusal_of_folder(tmp_path / "run") == says


def refusal_of_folder(folder: Path) -> str:
    with pytest.raises(EbsimError) as refused:
        imported(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["run"]
    return str(refused.value).replace(str(folder.parent), "…")


def test_what_only_the_user_can_say(put: Dump) -> None:
    path = put("a.pt", stat(STAT))
    assert "the number of top-k is unknown — pass --model NAME" in refusal(path, top_k=None)
    assert refusal(path, top_k=5) == "…/run/a.pt: top-5 of 4 experts — correct --experts or --top-k"
    assert refusal(path, experts=8) == "…/run/a.pt: holds 4 experts, 8 expected — correct --model or --experts"
    with pytest.raises(UsageError, match="a dump holds its own map of slots — leave --plan-in-force out"):
        imported(path, slots=IN_FORCE)


def test_experts_in_no_slot_are_there_when_they_are_said(put: Dump) -> None:
    path = put("a_0.pt", records(one_pass(7, 0, COUNT)))
    assert counts_at(imported(path, experts=6).path).tokens[0, 0].tolist() == [1, 5, 1, 3, 0, 0]


PREFILL_PASS = {"forward_mode": 1, "extend_seq_lens": [2, 1]}


def test_tokens_of_all_ranks_with_their_experts(put: Dump) -> None:
    path = put("a_0.pt", records(token_pass(7, 0, SLOTS, [0, 1, 5], **PREFILL_PASS)))
    put("a_1.pt", records(token_pass(7, 1, SLOTS[1:2], [9]), token_pass(8, 1, SLOTS[:1], [10])))
    written = imported(path.parent, top_k=None)
    batch = batch_of(written.path)
    assert batch.experts.tolist() == [*EXPERTS, EXPERTS[1], EXPERTS[0]]
    assert (batch.step.tolist(), batch.source_rank.tolist()) == ([7, 7, 7, 7, 8], [0, 0, 0, 1, 1])
    assert batch.position.tolist() == [0, 1, 5, 9, 10]
    assert batch.phase.tolist() == [PREFILL] * 3 + [DECODE] * 2
    assert batch.request.tolist() == [0, 0, 1, 2, 2]
    assert (written.kind, written.tokens, written.steps, written.top_k) == ("tokens", 5, 2, 2)
    assert written.notes[-1] == "request ids are not recorded: requests are told by their positions"


def test_tokens_that_every_rank_recorded_count_once_and_have_no_rank(put: Dump) -> None:
    for rank in (0, 1):
        path = put(f"a_{rank}.pt", records(token_pass(7, rank, SLOTS, [0, 1, 5])))
    written = imported(path.parent)
    assert batch_of(written.path).source_rank.tolist() == [-1] * 3
    assert open_trace([written.path]).meta.ranks == 0
    assert written.notes[0].startswith("all 2 ranks recorded the same tokens")


def test_padding_dense_layers_and_idle_passes_are_left_out(put: Dump) -> None:
    slots = np.array([[[-1, -1], row[1]] for row in [*SLOTS, [[-1, -1]] * 2]])
    idle = token_pass(8, 0, np.zeros((0, 2, 2), np.int32), [], forward_mode=4, extend_seq_lens=None)
    written = imported(put("a_0.pt", records(token_pass(7, 0, slots, [0, 1, 5, 0]), idle)))
    trace, batch = open_trace([written.path]), batch_of(written.path)
    assert trace.meta.layers == (1,)
    assert batch.experts[:, 0].tolist() == [token[1] for token in EXPERTS]
    assert batch.position.tolist() == [0, 1, 5]
    assert "1 of 2 layers hold no token and are taken for dense ones" in written.notes


def test_chunks_and_mixed_passes_carry_on_requests(put: Dump) -> None:
    chunk = token_pass(1, 0, SLOTS, [0, 1, 0], forward_mode=1, extend_seq_lens=[2, 1])
    mixed = token_pass(2, 0, SLOTS, [2, 3, 1], forward_mode=3, extend_seq_lens=[2, 1])
    decode = token_pass(3, 0, SLOTS[:2], [4, 2])
    only_one = token_pass(4, 0, SLOTS[:1], [5])
    again = token_pass(5, 0, SLOTS[:2], [6, 3])
    batch = batch_of(imported(put("a_0.pt", records(chunk, mixed, decode, only_one, again))).path)
    # The last token is at the position after that of request 1, which was gone from the decode pass before.
    assert batch.request.tolist() == [0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 2]
    assert batch.phase.tolist() == [PREFILL] * 5 + [DECODE] * 6


def test_tokens_as_wide_as_the_table_may_be_cut(put: Dump) -> None:
    table = np.tile(np.arange(8, dtype=np.int32), (2, 3, 1))
    counts = np.full((2, 8), 3)
    record = token_pass(7, 0, SLOTS, [4, 5, 5]) | {"topk_ids_of_layer": table, "global_physical_count": counts}
    path = put("a_0.pt", {"records": [record], "last_physical_to_logical_map": np.tile(np.arange(8), (2, 1))})
    said = "tokens have 8 experts, as many as the recorder keeps: say --top-k or --model, the model may choose more"
    assert said in imported(path, top_k=None).notes
    assert said not in imported(path, top_k=8).notes


def test_speculative_passes_have_no_phase(put: Dump) -> None:
    written = imported(put("a_0.pt", records(token_pass(7, 0, SLOTS, [4, 5, 5], forward_mode=5))))
    assert batch_of(written.path).phase.tolist() == [UNKNOWN_PHASE] * 3
    assert "passes of forward mode 5 have no known phase" in written.notes


def test_counts_beside_the_tokens_can_be_imported_alone(put: Dump) -> None:
    path = put("a_0.pt", records(token_pass(7, 0, [[[1, 1], [0, 3]]], [0])))
    assert refusal(path) == (
        "…/run/a_0.pt: record 0: token 0, layer 0: one of the experts [1, 1] stands twice"
        " — --counts-only imports the counts"
    )
    assert counts_at(imported(path, counts_only=True).path).tokens.tolist() == [[[0, 2, 0, 0], [1, 0, 0, 1]]]


def token_with(**changes: Any) -> dict[str, Any]:
    return records({**token_pass(7, 0, SLOTS, [0, 1, 5], **PREFILL_PASS), **changes})


@pytest.mark.parametrize(
    ("content", "settings", "says"),
    [
        (
            token_with(), {"top_k": 10, "experts": 16},
            "…/run/a_0.pt: the recorder keeps 8 experts of a token, the model chooses 10"
            " — --counts-only imports the counts",
        ),
        (token_with(), {"top_k": 1}, "…/run/a_0.pt: holds top-2, top-1 expected — correct --model or --top-k"),
        (
            records(token_pass(7, 0, [SLOTS[0], [[5, -1], [3, 2]]], [0, 1])), {},
            "…/run/a_0.pt: record 0: token 1, layer 0: 1 experts, elsewhere 2 — --counts-only imports the counts",
        ),
        (
            token_with(topk_ids_of_layer=np.full((2, 3, 8), 6, np.int32)), {"top_k": 8, "experts": 8},
            "…/run/a_0.pt: last_physical_to_logical_map: layer row 0: slot 6 is not in 0..5"
            " — give the plan that was in force",
        ),
        (
            token_with(positions=[0, 1]), {},
            "…/run/a_0.pt: record 0: topk_ids_of_layer is [2, 3, 8], expected whole numbers [2, 2, 8] — dump it again",
        ),
        (
            token_with(positions=None), {},
            "…/run/a_0.pt: record 0: positions is no list of whole numbers — dump it again",
        ),
        (
            token_with(extend_seq_lens=[2, 2]), {},
            "…/run/a_0.pt: record 0: extend_seq_lens adds up to 4, not 3 — dump it again",
        ),
        (
            token_with(forward_mode=None), {},
            "…/run/a_0.pt: record 0: forward_mode is None, expected 0..2147483647 — dump it again",
        ),
        (token_with(topk_ids_of_layer=np.full((2, 3, 8), -1, np.int32)), {},
         "…/run/a_0.pt: holds no token — record while requests are served"),
        (
            {**token_with(), "records": [*token_with()["records"], one_pass(8, 0, COUNT)]}, {},
            "…/run/a_0.pt: only some records hold tokens — dump it again",
        ),
    ],
)  # fmt: skip
def test_traps_of_tokens(put: Dump, content: Any, settings: dict[str, Any], says: str) -> None:
    assert refusal(put("a_0.pt", content), **({"top_k": None} | settings)) == says


@pytest.mark.engine_loader
def test_files_of_torch_are_read_as_they_are(tmp_path: Path) -> None:
    torch_or_skip()
    folder = tmp_path / "run"
    folder.mkdir()
    path = save_pt(folder / f"{NAME}.pt", stat(STAT))
    assert counts_at(imported(path).path).tokens.tolist() == [[[3, 1, 2, 0]], [[1, 2, 2, 1]]]
    path = save_pt(folder / f"{NAME}.pt", records(token_pass(7, 0, SLOTS, [0, 1, 5], **PREFILL_PASS)))
    assert batch_of(imported(path).path).experts.tolist() == EXPERTS
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(TraceError, match="not a PyTorch file of tensors and plain values, or damaged"):
        imported(path)
