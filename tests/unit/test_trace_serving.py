"""Recorded requests served anew: phases, steps, what is left out, what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import EbsimError
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.serving import PROMPT_TOKENS_PER_STEP, RequestList, id_spool, write_served
from tests.trace_files import Columns, random_ids, read_columns, token_meta, token_trace

META = token_meta(layers=(3, 5), experts=8, top_k=2)


def serve(folder: Path, lengths: list[int], prompts: list[int | None], **settings: Any) -> tuple[Converted, Columns]:
    known: dict[str, Any] = {"order": "file", "drain": True} | settings
    job = Conversion(source=folder / "in", output=folder / "o.parquet", **known)
    found = RequestList()
    with id_spool(job) as spool:
        for number, (length, prompt) in enumerate(zip(lengths, prompts, strict=True)):
            spool.append(random_ids(np.random.default_rng(number), length, META))
            found.add(number, np.arange(length), prompt, "law" if number % 2 else "code")
        written = write_served(job, META, found.requests(), spool.ids(META, "in"), found.notes())
    return written, read_columns(token_trace(job.output))


def test_prompts_take_a_step_per_chunk_and_tokens_one_each(tmp_path: Path) -> None:
    long = 2 * PROMPT_TOKENS_PER_STEP + 1
    _, columns = serve(tmp_path, [long + 2, 3], [long, 1], concurrency=1)
    assert np.bincount(columns["step"]).tolist() == [PROMPT_TOKENS_PER_STEP, PROMPT_TOKENS_PER_STEP, 1, 1, 1, 1, 1, 1]
    first = columns["request"] == 0
    assert columns["phase"][first].tolist() == ["prefill"] * long + ["decode"] * 2
    np.testing.assert_array_equal(columns["experts"][first], random_ids(np.random.default_rng(0), long + 2, META))


def test_requests_without_a_known_prompt_have_no_phase(tmp_path: Path) -> None:
    written, columns = serve(tmp_path, [3, 2], [None, 1], concurrency=2)
    assert columns["phase"].tolist() == ["unknown", "prefill", "unknown", "decode", "unknown"]
    assert columns["step"].tolist() == [0, 0, 1, 1, 2]
    assert columns["workload"].tolist() == ["code", "law", "code", "law", "code"]
    assert written.notes == (
        "1 of 2 requests do not say the length of their prompt: their tokens have no phase and run one per step",
    )


def test_a_recorded_part_of_a_prompt_is_a_shorter_prompt() -> None:
    found = RequestList()
    found.add(7, np.array([4, 5, 6, 7]), 6, "w")
    requests = found.requests()
    assert requests.prompt.tolist() == [2] and requests.position.tolist() == [4, 5, 6, 7]
    turn, turns = requests.turns()
    assert turn.tolist() == [0, 0, 1, 2] and turns.tolist() == [3]


def test_the_ramp_down_and_what_was_done_before_are_left_out_by_steps(tmp_path: Path) -> None:
    lengths, prompts = [10] * 40, [4] * 40
    written, columns = serve(tmp_path, lengths, list(prompts), concurrency=8, drain=False, midway=True, seed=5)
    running = {*zip(columns["step"].tolist(), columns["request"].tolist(), strict=True)}
    assert set(np.bincount([step for step, _ in running]).tolist()) == {8}
    left_out = sum(int(note.split(" of ")[0]) for note in written.notes)
    assert len(written.notes) == 2 and left_out + len(columns["step"]) == 400
    # Whoever is met midway has its earlier tokens behind it, whole steps of them: a prompt is seen whole or not at all.
    for one in np.unique(columns["request"]):
        first = int(columns["position"][columns["request"] == one].min())
        assert first == 0 or first >= 4


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ranks": 0}, "--ranks is 0 — give 1 to 32767"),
        ({"ranks": 40000}, "--ranks is 40000 — give 1 to 32767"),
        ({"concurrency": 0}, "--concurrency is 0 — give at least 1"),
    ],
)
def test_settings_that_serve_nobody(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(EbsimError) as caught:
        serve(tmp_path, [3], [1], **settings)
    assert str(caught.value) == says
    assert list(tmp_path.iterdir()) == []


def test_places_and_sources_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(EbsimError, match=r"absent/o\.parquet: cannot write here: No such file or directory"):
        serve(tmp_path / "absent", [3], [1])
    job = Conversion(source=tmp_path / "in", output=tmp_path / "o.parquet")
    with pytest.raises(EbsimError, match="in: holds no routed tokens"), id_spool(job) as spool:
        spool.ids(META, "in")
    assert list(tmp_path.iterdir()) == []
