from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.simulate.serving.arrivals import Reading, load_arrivals, load_tenants, named_sources, readers
from easybalance_sim.simulate.serving.arrivals.prefix_cache import PrefixCache

DATA = Path(__file__).parents[3] / "shared" / "data"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PLAIN = "arrival_s,prompt_tokens,output_tokens\n"
REAL = {
    "azure_llm_trace/AzureLLMInferenceTrace_conv.csv": (19_366, 3_502, 1_020, 129),
    "azure_llm_trace/AzureLLMInferenceTrace_code.csv": (8_819, 3_436, 1_469, 13),
    "mooncake_trace/conversation_trace.jsonl": (12_031, 3_540, 6_909, 350),
}
"""File → requests, span in seconds, medians of prompt and answer; as the data sets' publishers say."""


def _file(tmp_path: Path, text: str, name: str = "requests.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def _line(timestamp: int, prompt: int, ids: list[int], output: int = 5) -> str:
    return f'{{"timestamp": {timestamp}, "input_length": {prompt}, "output_length": {output}, "hash_ids": {ids}}}\n'


def _real(name: str) -> Path:
    if not (DATA / name).is_file():
        pytest.skip(f"{name} lies beside the repository only where the data sets were fetched")
    return DATA / name


@pytest.mark.parametrize("name", REAL)
def test_published_traces_read_whole(name: str) -> None:
    found = load_arrivals(_real(name))
    requests, span, prompt, output = REAL[name]
    assert found.requests == requests
    assert found.arrival_s[0] == 0.0
    assert found.span_s == pytest.approx(span, abs=1)
    assert [int(np.median(found.prompt_tokens)), int(np.median(found.output_tokens))] == [prompt, output]


def test_prefix_cache_of_the_published_trace_saves_what_its_paper_says() -> None:
    # Table 2 of the FAST 2025 paper: 40 % of the conversation's cache blocks are found again, with room for all.
    path = _real("mooncake_trace/conversation_trace.jsonl")
    shares = []
    for blocks in (0, 1_000, 50_000, 10**7):
        found = load_arrivals(path, reading=Reading(prefix_blocks=blocks))
        shares.append(found.cached_tokens.sum() / found.prompt_tokens.sum())
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert 0.35 < shares[-1] < 0.42


@pytest.mark.parametrize(
    "stamps",
    [
        ["2023-11-16 18:15:46.6805900", "2023-11-16 18:15:47.6805900", "2023-11-16 18:15:49.1805900"],
        ["2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01.009930+00:00", "2024-05-10 00:00:02.509930+00:00"],
        ["2024-05-12 00:00:00+00:00", "2024-05-12 00:00:01+00:00", "2024-05-12 00:00:02.5+00:00"],
        ["2024-05-12T00:00:00", "2024-05-12T00:00:01", "2024-05-12T00:00:02.500"],
    ],
)
def test_azure_stamps_of_both_years(tmp_path: Path, stamps: list[str]) -> None:
    rows = "".join(f"{stamp},100,20\n" for stamp in stamps)
    found = load_arrivals(_file(tmp_path, AZURE + rows, "chat.csv"))
    np.testing.assert_allclose(found.arrival_s, [0, 1, 2.5], atol=1e-6)
    assert found.tenants == ("chat",)


def test_what_was_mended_is_said(tmp_path: Path) -> None:
    rows = "2023-11-16 18:00:02,10,3\n2023-11-16 18:00:01,11,0\n2023-11-16 18:00:03,0,4\n\n"
    found = load_arrivals(_file(tmp_path, AZURE + rows))
    assert found.arrival_s.tolist() == [0, 1, 2]
    assert found.prompt_tokens.tolist() == [11, 10, 1]
    assert found.output_tokens.tolist() == [1, 3, 4]
    for said in ("1 with no prompt", "1 with no output", "1 rows out of order were sorted", "3 requests"):
        assert said in found.source


def test_plain_csv_keeps_times_tenants_and_caches(tmp_path: Path) -> None:
    header = "\ufefftenant, prompt_tokens ,arrival_s,output_tokens,cached_tokens,note\n"
    found = load_arrivals(_file(tmp_path, header + "b,9,5,1,9,x\n,8,1.5,2,0,y\nb,7,5,3,2,\n"))
    assert found.arrival_s.tolist() == [1.5, 5, 5]
    assert [found.tenants[one] for one in found.tenant] == ["all", "b", "b"]
    # The last token of a prompt is always computed: it gives the first token of the answer.
    assert found.cached_tokens.tolist() == [0, 8, 2]


def test_limit_counts_rows_from_the_top(tmp_path: Path) -> None:
    plain = _file(tmp_path, PLAIN + "1,2,3\n2,3,4\n3,4,x\n")
    lines = _file(tmp_path, _line(0, 9, []) + "\n" + _line(1, 8, []) + "{broken", "trace.jsonl")
    assert load_arrivals(plain, reading=Reading(limit=2)).requests == 2
    assert load_arrivals(lines, reading=Reading(limit=2)).prompt_tokens.tolist() == [9, 8]


def test_prefix_of_a_prompt_is_found_and_its_last_block_is_computed(tmp_path: Path) -> None:
    text = _line(0, 1400, [0, 1, 2]) + _line(1000, 1600, [0, 1, 7, 8]) + _line(2000, 1024, [0, 1])
    found = load_arrivals(_file(tmp_path, text, "trace.jsonl"), reading=Reading(prefix_blocks=10))
    assert found.cached_tokens.tolist() == [0, 1024, 512]


def test_prefix_cache_sees_requests_in_time(tmp_path: Path) -> None:
    text = _line(5000, 1400, [0, 1, 2]) + _line(0, 1400, [0, 1, 3])
    found = load_arrivals(_file(tmp_path, text, "trace.jsonl"), reading=Reading(prefix_blocks=10))
    assert found.arrival_s.tolist() == [0, 5]
    assert found.cached_tokens.tolist() == [0, 1024]


def test_blocks_used_longest_ago_leave_the_prefix_cache_and_ends_leave_before_fronts() -> None:
    cache = PrefixCache(4)
    assert cache.visit([1, 2, 3], 9) == 0
    assert cache.visit([9], 9) == 0
    assert cache.visit([1, 2, 3], 9) == 3
    assert cache.visit([7, 8], 9) == 0
    assert cache.visit([1, 2, 3], 9) == 2
    assert PrefixCache(0).visit([1], 9) == 0


def test_requests_of_a_coarse_clock_come_evenly(tmp_path: Path) -> None:
    stamps = [0, 0, 0, 3000, 3000, 3000, 3000, 12000]
    path = _file(tmp_path, "".join(_line(stamp, 9, []) for stamp in stamps), "trace.jsonl")
    spread = load_arrivals(path)
    # Its ticks are 6 s long (median of 3 and 9): requests of the second come within these.
    np.testing.assert_allclose(spread.arrival_s, [0, 1, 2, 3, 4.5, 6, 7.5, 12])
    assert "tick every" in spread.source
    assert load_arrivals(path, reading=Reading(spread_ticks=False)).arrival_s.tolist() == [0] * 3 + [3] * 4 + [12]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no request trace"),
        ("a,b,c\n1,2,3\n", "no request trace: it begins with 'a,b,c'"),
        (PLAIN, "holds no requests"),
        (PLAIN + "1,2,3\n2,-4,3\n", "row 3: prompt_tokens: is '-4' — give a whole number"),
        (PLAIN + "1,2,3\n2,4.5,3\n", "row 3: prompt_tokens: is '4.5'"),
        (PLAIN + "1,2,3\n\n2,4,x\n", "row 4: output_tokens: is 'x'"),
        (PLAIN + "nan,2,3\n", "row 2: arrival_s: is 'nan' — give a number"),
        (PLAIN + "-1,2,3\n", "row 2: arrival_s: is '-1' — give seconds from 0 on"),
        (PLAIN + "1,2\n", "row 2: output_tokens: is"),
        (PLAIN + "1,2,3\n1,2,3,4,5\n", "no table"),
        ("arrival_s,prompt_tokens,output_tokens,cached_tokens\n1,2,3,9\n", "row 2: cached_tokens: is '9'"),
        (AZURE + "yesterday,2,3\n", "row 2: TIMESTAMP: is 'yesterday' — give a time such as"),
        (AZURE + "2023-11-16 18:00:01,2,99999999999\n", "row 2: GeneratedTokens: is '99999999999'"),
        (_line(0, 5, []) + '{"timestamp": 1, "input_length": -2, "output_length": 3}', r"line 2: .*input_length"),
        (_line(0, 5, []) + '{"timestamp": 1, "input_length": 2}', "line 2: .*output_length"),
        (_line(0, 5, []) + "{", "line 2: "),
    ],
)
def test_the_first_fault_is_named_with_file_row_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        load_arrivals(_file(tmp_path, text))
    assert "requests.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_become_tenants(tmp_path: Path) -> None:
    chat = _file(tmp_path, PLAIN + "0,10,1\n2,11,1\n", "chat.csv")
    code = _file(tmp_path, AZURE + "2023-11-16 18:00:00,20,1\n2023-11-16 18:00:01,21,1\n", "code.csv")
    found = load_tenants(named_sources([str(chat), f"programmers={code}"]))
    assert found.tenants == ("chat", "programmers")
    assert found.prompt_tokens.tolist() == [10, 20, 21, 11]
    assert found.tenant.tolist() == [0, 1, 1, 0]
    assert "chat.csv" in found.source and "code.csv" in found.source


@pytest.mark.parametrize("words", [["a=x.csv", "a=y.csv"], ["=x.csv"], ["x.csv", "d/x.csv"]])
def test_every_tenant_has_one_name(words: list[str]) -> None:
    with pytest.raises(UsageError, match="give tenant=path"):
        named_sources(words)


def test_there_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load_arrivals(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="no request trace"):
        load_tenants({})


def test_no_two_readers_take_the_same_file() -> None:
    heads = {"azure": AZURE, "plain_csv": PLAIN, "mooncake": _line(0, 5, [])}
    assert set(readers.names()) == set(heads)
    for name, head in heads.items():
        assert [other for other in readers.names() if readers.load(other).matches(head.strip())] == [name]
