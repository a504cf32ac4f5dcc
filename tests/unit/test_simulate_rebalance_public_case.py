from __future__ import annotations

from pathlib import Path

import pytest

from tests.kimi_k3 import PAUSE_S, outcome, prepared


def test_better_balance_that_made_serving_three_times_slower(tmp_path: Path) -> None:
    """vLLM PR #50647 with 4 of its 92 layers: the pause decides, not the balance."""
    ready = prepared(tmp_path / "k3.parquet", 4)
    case = outcome(ready, 0.6, PAUSE_S)
    assert case.before == pytest.approx(1.069, abs=0.007) and case.after == pytest.approx(1.008, abs=0.002)
    assert case.eplb["replans"] == 24 and case.eplb["pause_s"] == pytest.approx(1466.50 - 463.11)
    assert case.eplb["seconds"] / case.never["seconds"] == pytest.approx(3.17, abs=0.02)
    # A re-plan that rarely would have paid; by what four layers take over the links, more often.
    steps, by_links = case.eplb["break_even_steps"], outcome(ready, 0.6, None).eplb["break_even_steps"]
    assert steps > 100 * case.steps / 24 and 0 < by_links < steps / 100
