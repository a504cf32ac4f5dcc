from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from easybalance_sim.errors import CriteriaError
from easybalance_sim.gate.criteria import Criteria, load_criteria


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults() -> None:
    assert load_criteria() == Criteria(
        held_out_steps_min=64,
        held_out_windows_min=8,
        fit_windows_min=8,
        p99_imbalance_drop_min=0.05,
        p99_layer_time_growth_max=0.02,
        time_gain_over_band_min=0.0,
        cross_node_bytes_growth_max=0.10,
        cross_node_bytes_per_token_slack=64.0,
        kv_cache_loss_max=0.10,
        expert_memory_frac_max=0.9,
        migration_seconds_max=60.0,
        fit_gap_max=0.20,
        stress_p99_over_baseline_max=1.02,
        stress_p99_imbalance_over_baseline_max=1.1,
        stress_lost_experts_frac_max=1.0,
        stress_p99_over_baseline_max_of={"uniform": 1.15},
    )


def test_every_default_is_explained_above_it() -> None:
    text = resources.files("easybalance_sim.gate").joinpath("default.toml").read_text(encoding="utf-8")
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if "=" in line and not line.startswith("#"):
            assert lines[number - 1].startswith("# "), line


def test_a_file_replaces_only_what_it_names(tmp_path: Path) -> None:
    criteria = load_criteria(_file(tmp_path, "fit_gap_max = 0.3\nheld_out_steps_min = 1\n"))
    assert (criteria.fit_gap_max, criteria.held_out_steps_min) == (0.3, 1)
    assert criteria.kv_cache_loss_max == load_criteria().kv_cache_loss_max


def test_empty_file_is_the_default(tmp_path: Path) -> None:
    assert load_criteria(_file(tmp_path, "")) == load_criteria()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99_drop = 0.1", "unknown field `p99_drop` — the criteria are held_out_steps_min, "),
        ('fit_gap_max = "0.1"', r"Expected `float`, got `str` - at `\$\.fit_gap_max`"),
        ("held_out_steps_min = 1.5", r"Expected `int`, got `float` - at `\$\.held_out_steps_min`"),
        ("fit_gap_max = nan", "fit_gap_max is nan"),
        ("migration_seconds_max = inf", "migration_seconds_max is inf — give a finite number"),
        ("held_out_windows_min = -1", "held_out_windows_min is -1, expected 0 or more"),
        ("fit_gap_max 0.1", "not TOML"),
    ],
)
def test_bad_criteria_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(CriteriaError, match=message) as caught:
        load_criteria(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CriteriaError, match=r"none\.toml: cannot read"):
        load_criteria(tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(CriteriaError, match=r"binary\.toml: not TOML"):
        load_criteria(binary)
