"""What holds for every generated load: it is reproducible, in order, within its time, and of the rate asked for; and
for every request trace: what is written is read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.simulate.serving.arrivals import generate, load_arrivals, patterns
from easybalance_sim.simulate.serving.arrivals.prefix_cache import PrefixCache

LENGTHS = st.one_of(
    st.integers(1, 5000),
    st.fixed_dictionaries({"mean": st.floats(1, 5000), "sigma": st.floats(0, 2)}),
    st.fixed_dictionaries({"like": st.sampled_from(["azure-conv", "azure-code", "mooncake-conv"])}),
)
SHAPES = st.sampled_from(
    [
        {"pattern": "poisson"},
        {"pattern": "even"},
        {"pattern": "diurnal", "swing": 0.7, "day_s": 20.0},
        {"pattern": "burst", "times_rate": 3.0, "burst_from_s": 5.0, "burst_s": 5.0, "every_s": 10.0},
    ]
)
STREAMS = st.builds(
    lambda shape, rate, prompt, output, name: {
        **shape,
        "rate_per_s": rate,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "name": name,
    },
    SHAPES,
    st.floats(5, 80),
    LENGTHS,
    LENGTHS,
    st.sampled_from(["chat", "code", "night"]),
)
MEAN_OVER_RATE = {"burst": 2.0}
"""Of the shapes above, over 40 s: bursts take half of the time at three times the rate."""


@settings(max_examples=60, deadline=None)
@given(said=st.lists(STREAMS, min_size=1, max_size=3), seed=st.integers(0, 1000))
def test_a_load_is_in_order_reproducible_and_of_its_rate(said: list[dict[str, Any]], seed: int) -> None:
    streams = msgspec.convert(said, list[patterns.any_pattern()])  # type: ignore[misc]
    first, again = generate(streams, 40.0, seed), generate(streams, 40.0, seed)
    assert first.arrival_s.tobytes() == again.arrival_s.tobytes()
    assert first.prompt_tokens.tobytes() == again.prompt_tokens.tobytes()
    assert first.output_tokens.tobytes() == again.output_tokens.tobytes()
    assert first.arrival_s[0] >= 0 and first.span_s < 40.0
    assert min(first.prompt_tokens.min(), first.output_tokens.min()) >= 1
    expected = sum(40.0 * one["rate_per_s"] * MEAN_OVER_RATE.get(one["pattern"], 1.0) for one in said)
    assert abs(first.requests - expected) <= 5 * np.sqrt(expected) + len(said)


@settings(max_examples=30, deadline=None)
@given(one=STREAMS, other=STREAMS, seed=st.integers(0, 100))
def test_a_tenant_is_the_same_whoever_else_is_there(one: dict[str, Any], other: dict[str, Any], seed: int) -> None:
    streams = msgspec.convert([one | {"name": "a"}, other | {"name": "b"}], list[patterns.any_pattern()])  # type: ignore[misc]
    alone, together = generate(streams[:1], 20.0, seed), generate(streams, 20.0, seed)
    mine = together.take(together.tenant == 0)
    assert mine.arrival_s.tolist() == alone.arrival_s.tolist()
    assert mine.prompt_tokens.tolist() == alone.prompt_tokens.tolist()


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(1, 2**20), st.integers(1, 2**20), st.sampled_from("abc")),
        min_size=1,
        max_size=20,
    )
)
def test_a_plain_trace_reads_as_it_was_written(rows: list[tuple[float, int, int, str]]) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,tenant\n" + "".join(f"{a!r},{p},{o},{t}\n" for a, p, o, t in rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.csv"
        path.write_text(text, encoding="utf-8")
        found = load_arrivals(path)
    read = zip(found.arrival_s, found.prompt_tokens, found.output_tokens, found.tenant, strict=True)
    wanted = sorted(rows, key=lambda row: row[0])
    assert [(float(a), int(p), int(o), found.tenants[t]) for a, p, o, t in read] == wanted


@settings(max_examples=60, deadline=None)
@given(prompts=st.lists(st.lists(st.integers(0, 8), unique=True, max_size=5), max_size=30), capacity=st.integers(1, 12))
def test_a_larger_prefix_cache_never_finds_less(prompts: list[list[int]], capacity: int) -> None:
    small, large = PrefixCache(capacity), PrefixCache(capacity + 1)
    for prompt in prompts:
        assert small.visit(prompt, 99) <= large.visit(prompt, 99) <= len(prompt)
