"""The limits of the gate, from TOML."""

from __future__ import annotations

import math
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim.errors import CriteriaError

MIX_CHANGE, BURST, UNIFORM = "mix-change", "burst", "uniform"
NODE_LOSS, HETEROGENEOUS = "node-loss", "heterogeneous"
SCENARIOS = (MIX_CHANGE, BURST, UNIFORM, NODE_LOSS, HETEROGENEOUS)
"""Of `--stress`, in the order of reports."""

_BY_SCENARIO = "stress_p99_over_baseline_max_of"


class Criteria(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One limit per criterion; `gate/default.toml` says what each means and holds the defaults.

    stress_p99_over_baseline_max_of: by scenario, in place of the limit for all.
    """

    held_out_steps_min: int
    held_out_windows_min: int
    fit_windows_min: int
    p99_imbalance_drop_min: float
    p99_layer_time_growth_max: float
    time_gain_over_band_min: float
    cross_node_bytes_growth_max: float
    cross_node_bytes_per_token_slack: float
    kv_cache_loss_max: float
    expert_memory_frac_max: float
    migration_seconds_max: float
    fit_gap_max: float
    stress_p99_over_baseline_max: float
    stress_p99_imbalance_over_baseline_max: float
    stress_lost_experts_frac_max: float
    stress_p99_over_baseline_max_of: dict[str, float]


def load_criteria(path: Path | None = None) -> Criteria:
    """The package's criteria, with those that the TOML file at `path` names replaced.

    Raises `CriteriaError` with the file and the field for unreadable TOML, an unknown name or a value of another type.
    """
    defaults = tomllib.loads(resources.files(__package__).joinpath("default.toml").read_text(encoding="utf-8"))
    if path is None:
        return msgspec.convert(defaults, Criteria)
    changed = _read(path)
    if isinstance(changed.get(_BY_SCENARIO), dict):
        changed[_BY_SCENARIO] = {**defaults[_BY_SCENARIO], **changed[_BY_SCENARIO]}
    try:
        criteria = msgspec.convert({**defaults, **changed}, Criteria)
    except msgspec.ValidationError as error:
        names = ", ".join(Criteria.__struct_fields__)
        raise CriteriaError(f"{error}", where=str(path), fix=f"the criteria are {names}") from error
    _require_sound(criteria, str(path))
    return criteria


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CriteriaError(f"cannot read: {error.strerror}", where=str(path), fix="check --criteria") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CriteriaError(f"not TOML: {error}", where=str(path), fix="start from the default criteria") from error


def _require_sound(criteria: Criteria, where: str) -> None:
    for name, limit in _limits(criteria).items():
        if not math.isfinite(limit):
            raise CriteriaError(f"{name} is {limit}", where=where, fix="give a finite number, a large one for no limit")
        if name.endswith(("steps_min", "windows_min", "band_min", "slack", "seconds_max")) and limit < 0:
            raise CriteriaError(f"{name} is {limit}, expected 0 or more", where=where)
    for scenario in criteria.stress_p99_over_baseline_max_of:
        if scenario not in SCENARIOS:
            raise CriteriaError(
                f"{_BY_SCENARIO} has no scenario {scenario!r}", where=where, fix=f"they are {', '.join(SCENARIOS)}"
            )


def _limits(criteria: Criteria) -> dict[str, float]:
    """Every number, those by scenario as name.scenario."""
    plain = {name: getattr(criteria, name) for name in criteria.__struct_fields__ if name != _BY_SCENARIO}
    return plain | {f"{_BY_SCENARIO}.{name}": limit for name, limit in criteria.stress_p99_over_baseline_max_of.items()}
