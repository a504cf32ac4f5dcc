from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from easybalance_sim.cluster.topology import ClusterFile
from easybalance_sim.deployment.fields import Arrivals, Run, Slo
from easybalance_sim.deployment.scenario import Scenario, is_claim, load_scenario
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.arrivals.patterns import any_pattern
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY
from easybalance_sim.simulate.serving.workload import Workload

LIBRARY = Path(__file__).parents[2] / "scenarios"
SERVED = sorted(path.name for path in LIBRARY.glob("*.toml") if not is_claim(path))
SMALL = """
title = "small"
why = "a test"
[model]
name = "deepseek-v2-lite"
[cluster]
ranks = 8
ranks_per_node = 8
slots_per_rank = 9
[routing]
trace = "routing.parquet"
[[arrivals.tenants]]
pattern = "even"
rate_per_s = 10
prompt_tokens = 100
output_tokens = 10
[slo]
ttft_s = 1
tpot_s = 0.05
[run]
duration_s = 10
"""


def _load(folder: Path, text: str) -> Scenario:
    path = folder / "one.toml"
    path.write_text(text, encoding="utf-8")
    return load_scenario(path)


def _with(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


@pytest.mark.parametrize("name", SERVED)
def test_every_scenario_of_the_library_is_sound(name: str) -> None:
    scenario = load_scenario(LIBRARY / name)
    workload = scenario.workload()
    assert len(scenario.why.strip().splitlines()) == 2
    assert workload.span_s < scenario.run.duration_s + scenario.tail_s < 2 * scenario.run.duration_s
    assert all(path.is_file() for path in scenario.routing.traces)
    assert sum(pool.gpus for pool in scenario.pools) >= 8


def test_the_library_has_what_it_promises() -> None:
    wanted = """steady-chat code-tenant-arrives day-and-night burst uniform-routing all-to-one prefill-heavy hgx-2-nodes
    decode-heavy-wide-ep nvl72 heterogeneous-gpus non-power-of-two easybalance-8xa100-serving dynamic-redundancy"""
    assert {f"{name}.toml" for name in wanted.split()} <= set(SERVED)
    assert is_claim(LIBRARY / "easybalance-8xa100.toml")


def test_one_pool_with_defaults(tmp_path: Path) -> None:
    scenario = _load(tmp_path, SMALL)
    (pool,) = scenario.pools
    assert (pool.role, pool.data_ranks, pool.gpus) == (MIXED, 8, 8)
    assert (scenario.shape.experts, scenario.shape.top_k, len(scenario.shape.layers)) == (64, 6, 26)
    assert pool.engine.limits(500).kv_blocks == 500
    (stream,) = scenario.arrivals.tenants
    assert stream.output_tokens == 10
    assert scenario.tail_s == pytest.approx(scenario.slo.ttft_s + 10 * scenario.slo.tpot_s)
    assert scenario.workload().requests == int(10 * (10.0 + scenario.tail_s))


def test_paths_count_from_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "cluster.toml").write_text("ranks = 4\nranks_per_node = 4\nslots_per_rank = 16\n")
    (tmp_path / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n3,5,6\n4,7,8\n30,9,10\n")
    text = _with("ranks = 8\nranks_per_node = 8\nslots_per_rank = 9", 'file = "sub/cluster.toml"\nprofile = "h100"')
    head, _, tail = text.partition("[[arrivals.tenants]]")
    arrivals = '[arrivals]\nfile = "requests.csv"\nskip_s = 2\n[placement]\nafter = "plan.json"\n'
    scenario = _load(tmp_path, head + arrivals + tail[tail.index("[slo]") :])
    assert (scenario.pools[0].cluster.ranks, scenario.pools[0].cluster.profile) == (4, "h100")
    assert scenario.routing.traces == (tmp_path / "routing.parquet",)
    assert scenario.pools[0].placement.after == str(tmp_path / "plan.json")
    assert scenario.workload().arrival_s.tolist() == [1, 2]


def test_files_of_tenants_at_another_rate(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("arrival_s,prompt_tokens,output_tokens\n5,5,6\n10,7,8\n")
    head, _, tail = SMALL.partition("[[arrivals.tenants]]")
    arrivals = '[arrivals]\nrate_per_s = 0.8\n[arrivals.files]\nchat = "a.csv"\ncode = "b.csv"\n'
    workload = _load(tmp_path, head + arrivals + tail[tail.index("[slo]") :]).workload()
    assert workload.tenants == ("chat", "code")
    np.testing.assert_allclose(workload.arrival_s, [2.5, 2.5, 5, 5])
    assert workload.source.endswith("there are none after 5 s")


def _quiet_then_busy(folder: Path, rate_per_s: float, skip_s: float = 0.0, duration_s: float = 120.0) -> Workload:
    """Requests of a file with 1 request in 2 s for ten minutes, then 5 a second for 50; the n-th has n tokens."""
    times = np.concatenate([np.arange(300) * 2.0, 600 + np.arange(15_000) * 0.2])
    rows = "".join(f"{at:g},{number + 1},10\n" for number, at in enumerate(times))
    (folder / "requests.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    arrivals = Arrivals(file=str(folder / "requests.csv"), rate_per_s=rate_per_s, skip_s=skip_s)
    return arrivals.workload(duration_s, 0)


@pytest.mark.parametrize("rate_per_s", [0.25, 2.0, 8.0, 32.0])
@pytest.mark.parametrize("skip_s", [0.0, 100.0, 1000.0])
def test_a_file_comes_at_the_rate_that_is_asked_for(tmp_path: Path, rate_per_s: float, skip_s: float) -> None:
    """Whatever its beginning is like: so much of it as is needed, from the moment that is said."""
    load = _quiet_then_busy(tmp_path, rate_per_s, skip_s)
    assert load.requests == 120 * rate_per_s and load.span_s < 120
    assert load.rate_per_s == pytest.approx(rate_per_s, rel=0.05)
    assert load.prompt_tokens[0] == {0.0: 1, 100.0: 51, 1000.0: 2301}[skip_s]
    assert "none after" not in load.source


def test_a_file_that_is_too_short_says_so(tmp_path: Path) -> None:
    fast = _quiet_then_busy(tmp_path, 200.0)
    assert fast.requests == 15_300 and fast.rate_per_s == pytest.approx(200.0)
    assert fast.source.endswith("there are none after 76.5 s")
    assert _quiet_then_busy(tmp_path, 0.0).requests == 60
    assert _quiet_then_busy(tmp_path, 0.0, duration_s=4000.0).source.endswith("there are none after 3,600 s")
    with pytest.raises(UsageError, match="no request after 9000 s"):
        _quiet_then_busy(tmp_path, 1.0, skip_s=9000.0)


def test_requests_that_come_at_once_cannot_be_stretched(tmp_path: Path) -> None:
    (tmp_path / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "0,5,6\n" * 50)
    for rate_per_s, requests in ((2.0, 20), (20.0, 50)):
        arrivals = Arrivals(file=str(tmp_path / "requests.csv"), rate_per_s=rate_per_s, spread_ticks=False)
        load = arrivals.workload(10.0, 0)
        assert load.requests == requests and load.span_s == 0


def test_two_pools(tmp_path: Path) -> None:
    text = _with("[cluster]", "[prefill.cluster]")
    decode = "[decode.cluster]\nranks = 16\nranks_per_node = 8\nslots_per_rank = 5\n[decode.engine]\ndata_ranks = 4\n"
    scenario = _load(tmp_path, text + decode)
    assert [(pool.role, pool.data_ranks) for pool in scenario.pools] == [(PREFILL_ONLY, 8), (DECODE_ONLY, 4)]


def test_a_model_may_be_written_out_or_changed(tmp_path: Path) -> None:
    written = 'name = "own"\nlayers = 4\nexperts = 64\ntop_k = 6\nhidden = 1024\nintermediate = 512\ndtype = "bf16"\n'
    attention = 'attention = { kind = "gqa", heads = 8, kv_heads = 2, head_dim = 128 }'
    own = _load(tmp_path, _with('name = "deepseek-v2-lite"', written + attention)).shape
    assert (own.layers, own.hidden_layers, own.name) == ((0, 1, 2, 3), 4, "own")
    assert own.attention is not None and own.attention.heads == 8
    changed = _load(tmp_path, _with('name = "deepseek-v2-lite"', 'like = "deepseek-v2-lite"\nlayers = [3, 5]')).shape
    assert (changed.layers, changed.hidden_layers, changed.hidden) == ((3, 5), 27, 2048)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ranks = 8\n", "ranks = 0\n", r"cluster\.ranks: Expected `int` >= 1"),
        ("slots_per_rank = 9", "slots_per_rank = 7", "cluster: 56 slots cannot hold 64 experts"),
        ("slots_per_rank = 9", "slots_per_rank = [9, 9]", "cluster: slots_per_rank has 2 entries for 8 ranks"),
        ("rate_per_s = 10", "rate_per_s = -1", r"arrivals\.tenants\[0\]\.rate_per_s: Expected `float` > 0"),
        ('pattern = "even"', 'pattern = "tide"', r"arrivals\.tenants\[0\]\.pattern: Invalid value 'tide'"),
        ("prompt_tokens = 100", "prompt_tokens = { like = 'x' }", r"prompt_tokens: like = 'x', use one of azure"),
        ("ttft_s = 1\n", "", "slo: Object missing required field `ttft_s`"),
        ("tpot_s = 0.05", "tpot_s = 0.05\nttfb_s = 1", "slo: Object contains unknown field `ttfb_s`"),
        ('name = "deepseek-v2-lite"', 'name = "deepsick"', "model: deepsick: unknown model"),
        ('name = "deepseek-v2-lite"', 'name = "own"\nhidden = 9', "model: lacks 'layers', 'experts'"),
        ('name = "deepseek-v2-lite"', 'like = "deepseek-v3"\nhidden = "x"', r"model\.hidden: Expected `int`"),
        (
            'name = "deepseek-v2-lite"',
            'like = "deepseek-v3"\nwidth = 3',
            "model: Object contains unknown field `width`",
        ),
        ('name = "deepseek-v2-lite"', 'like = "kimi-k2"\nconfig = "c.json"', "exclude each other"),
        ('trace = "routing.parquet"', "", "routing: give either trace or recipe"),
        ('trace = "routing.parquet"', "recipe = { kind = 'tides' }", r"routing\.recipe\.kind: no kind 'tides'"),
        ('trace = "routing.parquet"', "recipe = { kind = 'burst', skew = 9 }", r"routing\.recipe\.skew: is 9"),
        ("[slo]", "[engine]\nrouter = 'x'\n[slo]", r"engine\.router: is 'x'"),
        ("[slo]", "[engine]\ndata_ranks = 3\n[slo]", r"engine\.data_ranks: 3 do not divide 8 ranks"),
        ("[slo]", "[engine]\nexpert_tensor = 3\n[slo]", r"engine\.expert_tensor: 3 GPUs do not divide"),
        ("[slo]", "[engine]\nkv_dtype = 'x'\n[slo]", r"engine\.kv_dtype: is 'x' — use bf16, fp8"),
        ("[slo]", "[placement]\nafter = 'x'\n[slo]", r"placement\.after: no policy 'x' — use one of auto, contiguous"),
        ("[slo]", "[placement]\nbefore = 'contigous'\n[slo]", r"placement\.before: .* did you mean contiguous\?"),
        ("[slo]", "[placement]\ndispatch = 'x'\n[slo]", r"placement\.dispatch: is 'x'"),
        ("[slo]", "[rebalance]\nstatistics_window_s = 60\ninterval_s = 0\n[slo]", r"rebalance\.interval_s: Expected"),
        ("[cluster]", "[prefill.cluster]", "decode: is missing — give both pools"),
        ("[slo]", "[decode]\n[slo]", r"cluster: stands beside \[decode\], of which pool is it\?"),
        ("[cluster]", "[pool.cluster]", "pool: is no table of a scenario"),
        ("[cluster]\n", "[cluster]\nfile = 'none.toml'\n", "none.toml: cannot read: No such file"),
        ("duration_s = 10", "duration_s = 10\nwarm_up_s = 10", "run: warm_up_s = 10 takes all of duration_s = 10"),
        ("duration_s = 10", "duration_s = 10\noverlap = 'half'", "run: overlap = 'half', use one of none, full"),
        ("title", "titel", "unknown field `titel`|missing required field `title`"),
        ("title =", "title", "not a scenario: "),
    ],
)
def test_what_cannot_be_is_named_with_file_and_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _load(tmp_path, _with(old, new))
    assert "one.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read: No such file"):
        load_scenario(tmp_path / "none.toml")


def test_what_a_scenario_needs_is_documented() -> None:
    """Fields without a default, as docs/formats.md lists them."""
    section = (LIBRARY.parent / "docs" / "formats.md").read_text().partition("## Scenario file (TOML)")[2]
    needed = section.partition("Needed: ")[2].partition("All else")[0].replace("[", "").replace("]", "")
    required = [
        field.name
        for table in (Scenario, Slo, Run, ClusterFile, *get_args(any_pattern()))
        for field in msgspec.structs.fields(table)
        if field.required
    ]
    assert {"why", "ttft_s", "duration_s", "ranks", "rate_per_s"} <= set(required)
    assert [name for name in dict.fromkeys(required) if f"`{name}`" not in needed] == []
