"""From joined tables to a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.observed.judged import GOOD, RECALIBRATE, TOO_FEW, Compared, compare
from easybalance_sim.observed.tables import Observed

RNG = np.random.default_rng(100)
INDEX = np.indices((10, 2, 4)).reshape(3, -1)
KEYS = {"step": INDEX[0], "layer": INDEX[1], "rank": INDEX[2]}
TOKENS = RNG.integers(20, 200, INDEX.shape[1]).astype(float)


def compared(
    us: Any, seconds: Any = None, tokens: Any = TOKENS, measured_tokens: Any = None, rows: int = 80
) -> Compared:
    predicted = pd.DataFrame({**KEYS, "tokens": tokens})
    if seconds is not None:
        predicted["us"] = seconds
    frame = pd.DataFrame({**KEYS, "us": us})
    if measured_tokens is not None:
        frame["tokens"] = measured_tokens
    return compare(predicted, Observed(keys=("step", "layer", "rank"), frame=frame.iloc[:rows]))


def failed(found: Compared, model: str) -> list[str]:
    return [one["criterion"] for one in found.report["models"][model]["findings"] if not one["ok"]]


def test_proportional_times_are_good() -> None:
    found = compared(TOKENS * 0.5)
    assert (found.status, found.exit_code) == (GOOD, 0)
    assert found.report["answer"] == "token count is a good enough cost model"
    assert found.report["models"]["tokens"]["scale"] == pytest.approx(0.5)
    assert (found.report["observations"], found.report["groups"], found.report["not_predicted"]) == (80, 20, 0)


def test_times_that_tokens_do_not_tell() -> None:
    found = compared(RNG.uniform(20, 200, 80))
    assert (found.status, found.exit_code) == (RECALIBRATE, 1)
    assert failed(found, "tokens") == ["within_min", "busiest_time_min", "error_max"]
    assert "--trace" in found.report["answer"]


def test_seconds_decide_where_there_are_any() -> None:
    us = RNG.uniform(20, 200, 80)
    good = compared(us, seconds=us * 1.1)
    assert (good.status, failed(good, "seconds")) == (GOOD, [])
    assert "token count is not a good enough cost model" in good.report["answer"]
    biased = compared(TOKENS * 0.5, seconds=TOKENS * 0.5 * 1.3)
    assert (biased.status, failed(biased, "seconds")) == (RECALIBRATE, ["error_max", "bias_max"])
    low = compared(TOKENS * 0.5, seconds=TOKENS * 0.5 * 0.79)
    assert (low.status, failed(low, "seconds")) == (RECALIBRATE, ["bias_max"])


def test_even_ranks_are_not_asked_for_a_correlation() -> None:
    even = 100 + RNG.uniform(-1, 1, 80)
    found = compared(50 + RNG.uniform(-0.5, 0.5, 80), tokens=even)
    assert found.status == GOOD
    assert "within_min" not in [one["criterion"] for one in found.report["models"]["tokens"]["findings"]]


@pytest.mark.parametrize(("rows", "status"), [(28, TOO_FEW), (32, GOOD)])
def test_below_32_observations_nothing_is_decided(rows: int, status: str) -> None:
    found = compared(TOKENS * 0.5, rows=rows)
    assert (found.status, found.exit_code) == (status, 3 if status == TOO_FEW else 0)


def test_ranks_alone_in_their_group_do_not_count() -> None:
    frame = pd.DataFrame({"step": np.arange(40), "layer": 0, "rank": 0})
    observed = Observed(keys=("step", "layer", "rank"), frame=frame.assign(us=1.0))
    assert compare(frame.assign(tokens=2.0), observed).status == TOO_FEW


def test_measured_tokens_tell_another_routing() -> None:
    same = compared(TOKENS * 0.5, measured_tokens=TOKENS)
    assert (same.status, same.report["routing_error"]) == (GOOD, 0)
    other = compared(TOKENS * 0.5, measured_tokens=TOKENS * 1.1)
    assert other.status == RECALIBRATE and "another plan or trace" in other.report["answer"]


def test_nothing_in_common_is_refused() -> None:
    frame = pd.DataFrame({"rank": [0, 1], "us": [1.0, 2.0]})
    with pytest.raises(UsageError, match="no rank of the times"):
        compare(pd.DataFrame({"rank": [5, 6], "tokens": [1.0, 1.0]}), Observed(keys=("rank",), frame=frame))
