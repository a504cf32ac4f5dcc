from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.arrays import stream
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.arrivals import generate, patterns
from easybalance_sim.simulate.serving.arrivals.lengths import LIKE, OUTPUT, PROMPT, Lengths, draw
from easybalance_sim.simulate.serving.arrivals.streams import Stream

EXAMPLES: dict[str, dict[str, Any]] = {
    "burst": {"times_rate": 4, "burst_from_s": 100, "burst_s": 50},
    "diurnal": {"day_s": 250.0, "swing": 0.8},
    "even": {},
    "poisson": {},
}


def _stream(pattern: str, **fields: Any) -> Stream:
    said = (
        {"pattern": pattern, "rate_per_s": 20, "prompt_tokens": 100, "output_tokens": 10} | EXAMPLES[pattern] | fields
    )
    found: Stream = msgspec.convert(said, patterns.any_pattern())
    return found


def test_every_pattern_is_tried_here() -> None:
    assert set(patterns.names()) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pattern_is_named_as_its_module_and_stays_below_its_peak(name: str) -> None:
    one = _stream(name)
    assert type(one).__struct_config__.tag == name
    counts, _ = np.histogram(one.times(500.0, stream(1, name)), bins=np.arange(0, 501, 10))
    assert counts.mean() <= one.peak_per_s * 10 + 4 * np.sqrt(one.peak_per_s * 10)


def test_even_arrivals_are_evenly_spaced() -> None:
    found = generate([_stream("even", rate_per_s=4)], 1.1)
    assert found.arrival_s.tolist() == [0, 0.25, 0.5, 0.75, 1.0]


def test_gaps_between_poisson_arrivals_are_exponential() -> None:
    gaps = np.diff(generate([_stream("poisson", rate_per_s=50)], 2000.0).arrival_s) * 50
    # Mean 1, variance 1, a share exp(-1) above the mean; 100,000 gaps.
    assert gaps.mean() == pytest.approx(1, abs=0.02)
    assert gaps.var() == pytest.approx(1, abs=0.04)
    assert (gaps > 1).mean() == pytest.approx(np.exp(-1), abs=0.01)


def test_a_burst_has_its_rate_and_its_window() -> None:
    times = generate([_stream("burst", rate_per_s=100, from_s=10)], 400.0, seed=2).arrival_s
    counts = {span: np.count_nonzero((times >= span[0]) & (times < span[1])) for span in ((10, 110), (110, 160))}
    assert counts[10, 110] == pytest.approx(100 * 100, rel=0.05)
    assert counts[110, 160] == pytest.approx(400 * 50, rel=0.05)
    assert np.count_nonzero(times >= 160) == pytest.approx(100 * 240, rel=0.05)


def test_bursts_come_again() -> None:
    times = generate([_stream("burst", rate_per_s=10, times_rate=20, burst_s=5, every_s=50)], 400.0).arrival_s
    counts, _ = np.histogram(times, bins=np.arange(0, 401, 5))
    assert np.flatnonzero(counts > 400).tolist() == [20, 30, 40, 50, 60, 70]


def test_nights_are_quiet() -> None:
    times = generate([_stream("diurnal", rate_per_s=100, peak_at=0.25)], 500.0).arrival_s
    counts, _ = np.histogram(times % 250, bins=[0, 37.5, 87.5, 162.5, 212.5])
    peak, trough = counts[1] / 100, counts[3] / 100
    # Around the extremes, a fifth of the day wide, the cosine is 0.935 on average.
    assert peak == pytest.approx(100 * (1 + 0.8 * 0.935), rel=0.05)
    assert trough == pytest.approx(100 * (1 - 0.8 * 0.935), rel=0.2)


def test_a_tenant_may_come_late_and_leave_early() -> None:
    steady, guest = _stream("poisson", name="chat"), _stream("poisson", name="code", from_s=30, until_s=60)
    found = generate([steady, guest], 100.0)
    came = found.arrival_s[found.tenant == 1]
    assert found.tenants == ("chat", "code")
    assert came.min() >= 30 and came.max() < 60
    assert len(came) == pytest.approx(600, rel=0.2)
    assert found.source == "generated: chat poisson 20/s, code poisson 20/s from 30 s"


def test_streams_of_one_name_are_one_tenant() -> None:
    found = generate([_stream("even", name="chat"), _stream("even", name="chat", output_tokens=7)], 1.0)
    assert found.tenants == ("chat",)
    assert sorted(set(found.output_tokens.tolist())) == [7, 10]


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("part", [PROMPT, OUTPUT])
def test_lengths_like_a_trace_have_its_quantiles(like: str, part: str) -> None:
    drawn = draw(Lengths(like=like), part, 100_000, stream(3, like))
    known = LIKE[like][part]
    assert np.median(drawn) == pytest.approx(known[7], rel=0.03)
    assert np.quantile(drawn, 0.9) == pytest.approx(known[11], rel=0.03)
    assert drawn.min() >= known[0] and drawn.max() <= known[-1]


def test_lognormal_lengths_have_their_mean() -> None:
    drawn = draw(Lengths(mean=500, sigma=0.8), PROMPT, 200_000, stream(0, "lengths"))
    assert drawn.mean() == pytest.approx(500, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(0.8, abs=0.02)
    assert draw(Lengths(mean=500, sigma=2.0, most=600), PROMPT, 1000, stream(0, "lengths")).max() == 600


@pytest.mark.parametrize(
    ("pattern", "fields", "message"),
    [
        ("poisson", {"rate_per_s": 0}, "rate_per_s"),
        ("poisson", {"swing": 0.5}, "swing"),
        ("poisson", {"prompt_tokens": 0}, "prompt_tokens"),
        ("poisson", {"prompt_tokens": {"mean": 3.0, "like": "azure-conv"}}, "either mean"),
        ("poisson", {"output_tokens": {"like": "life"}}, "use one of azure-conv"),
        ("poisson", {"from_s": 9.0, "until_s": 9.0}, "not after from_s"),
        ("burst", {"every_s": 10.0}, "shorter than burst_s"),
        ("diurnal", {"swing": 1.5}, "swing"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(pattern: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        _stream(pattern, **fields)


def test_a_load_needs_requests_and_not_too_many() -> None:
    with pytest.raises(UsageError, match="no request in 5 s"):
        generate([_stream("poisson", from_s=5.0)], 5.0)
    with pytest.raises(UsageError, match="give a lower rate"):
        generate([_stream("burst", rate_per_s=1e6)], 1e4)
