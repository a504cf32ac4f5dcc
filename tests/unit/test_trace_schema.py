"""Metadata of a trace, and the values of the format."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import (
    PHASES,
    UNKNOWN_PHASE,
    TokenBatch,
    TraceMeta,
    as_ids,
    decode_meta,
    id_dtype,
    phase_code,
)
from tests.trace_files import random_ids, token_meta


def raw(**changes: Any) -> bytes:
    """The metadata JSON; a change of None leaves a key out."""
    known: dict[str, Any] = {"kind": "tokens", "layers": [3, 5], "experts": 8, "top_k": 2} | changes
    return msgspec.json.encode({name: value for name, value in known.items() if value is not None})


def test_metadata_comes_back() -> None:
    meta = TraceMeta(
        kind="counts", layers=(0, 61), experts=384, top_k=8, dtype="uint16", groups=8, topk_group=4, origin={"seed": 3}
    )
    assert decode_meta(meta.encode(), "f") == meta
    assert meta.encode() == decode_meta(meta.encode(), "f").encode()


def test_the_least_metadata_and_unknown_keys() -> None:
    meta = decode_meta(raw(colour="blue"), "f")
    assert meta == TraceMeta(kind="tokens", layers=(3, 5), experts=8, top_k=2)
    assert (meta.groups, meta.dtype, meta.ids) == (1, "uint8", "logical")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "Expected `object`"),
        (raw(experts=None), "required field `experts`"),
        (raw(layers="3-60"), r"Expected `array`, got `str` - at `\$.layers`"),
        (raw(layers=[]), "layers must be distinct ids ≥ 0, at least one"),
        (raw(layers=[3, 3]), "layers must be distinct"),
        (raw(layers=[-1, 3]), "layers must be distinct ids ≥ 0"),
        (raw(layers=[2**80]), "layers must be distinct ids"),
        (raw(version=2), "trace format version 2, this ebsim reads version 1"),
        (raw(kind="gates"), "kind is 'gates', expected 'tokens' or 'counts'"),
        (raw(experts=0), "experts is 0"),
        (raw(experts=65537, dtype="uint16"), r"experts is 65537, expected 1\.\.65536"),
        (raw(top_k=0), "top_k is 0 with 8 experts"),
        (raw(top_k=9), "top_k is 9 with 8 experts"),
        (raw(dtype="int8"), "dtype 'int8' cannot hold 8 experts"),
        (raw(experts=257), "dtype 'uint8' cannot hold 257 experts"),
        (raw(groups=0), "8 experts do not fall into 0 groups"),
        (raw(groups=3), "8 experts do not fall into 3 groups"),
        (raw(groups=4, topk_group=5), "topk_group is 5 of 4 groups"),
        (raw(groups=4, topk_group=0), "topk_group is 0 of 4 groups"),
        (raw(ranks=-1), "ranks is -1"),
    ],
)
def test_broken_metadata(content: bytes, says: str) -> None:
    with pytest.raises(
        TraceError, match=rf"^t\.parquet: metadata key ebsim\.trace: .*{says}.* — rewrite with"
    ) as caught:
        decode_meta(content, "t.parquet")
    assert "\n" not in str(caught.value)


def test_narrowest_ids() -> None:
    assert (id_dtype(256), id_dtype(257)) == ("uint8", "uint16")
    assert as_ids([[255]], 256).dtype == np.uint8 and as_ids([[256]], 300).tolist() == [[256]]


def test_phases() -> None:
    assert [PHASES[phase_code(name)] for name in ("prefill", "decode", "unknown")] == list(PHASES)
    assert phase_code("Decode") == phase_code("") == UNKNOWN_PHASE


@pytest.mark.parametrize("rows", [np.array([True, False, True, False]), np.array([0, 2]), slice(0, 3, 2)])
def test_select_keeps_columns_together_and_read_only(rows: Any) -> None:
    ids = random_ids(np.random.default_rng(0), 4, token_meta())
    batch = TokenBatch(
        step=frozen([1, 1, 2, 2], np.int32),
        request=frozen([9, 8, 7, 6]),
        position=frozen([0, 1, 2, 3], np.int32),
        phase=frozen([0, 1, 0, 1], np.uint8),
        source_rank=frozen([4, 5, 6, 7], np.int16),
        workload=frozen([0, 0, 1, 1], np.int16),
        experts=frozen(ids),
        time_s=frozen([0.0, 0.1, 0.2, 0.3]),
    )
    kept = batch.select(rows)
    assert kept.tokens == 2 and kept.gates is None
    assert (kept.step.tolist(), kept.request.tolist(), kept.source_rank.tolist()) == ([1, 2], [9, 7], [4, 6])
    np.testing.assert_array_equal(kept.experts, ids[[0, 2]])
    assert not kept.experts.flags.writeable and not kept.step.flags.writeable
