"""A serving scenario: the TOML file that says model, cluster, routing, requests and what is compared."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim.cluster.hardware import MODES
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.topology import topology_of
from easybalance_sim.deployment.fields import (
    KV_DTYPES,
    Arrivals,
    Part,
    Placement,
    Pool,
    Rebalance,
    Routing,
    Run,
    Slo,
    Transfer,
)
from easybalance_sim.deployment.model import model_of
from easybalance_sim.deployment.policy_names import require_plan_name
from easybalance_sim.deployment.routing import recipe_of
from easybalance_sim.errors import EbsimError, UsageError, did_you_mean
from easybalance_sim.replay.dispatch import RULES
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED, PREFILL_ONLY
from easybalance_sim.simulate.serving.workload import Workload

CLAIM = "claim"
_FIX = "see docs/formats.md, Scenario file"
_PATHS = ("trace", "config", "file")
_PLAN_OR_POLICY = ("before", "after")
_POOL_TABLES = ("cluster", "engine", "placement")
_TABLE_ENDINGS = (".toml", ".csv", ".parquet")


class Scenario(Part, frozen=True, kw_only=True, dict=True):
    """One set-up. why: two lines · pool: of one pool that does everything, or prefill and decode, which hand caches
    over by `transfer` · model: the table as it stands, `shape` is what it describes. All paths are absolute."""

    title: str
    why: str
    model: dict[str, Any]
    routing: Routing
    arrivals: Arrivals
    slo: Slo
    run: Run
    pool: Pool | None = None
    prefill: Pool | None = None
    decode: Pool | None = None
    transfer: Transfer = Transfer()
    rebalance: Rebalance | None = None

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The only one, or prefill and decode."""
        roles = {MIXED: self.pool, PREFILL_ONLY: self.prefill, DECODE_ONLY: self.decode}
        return tuple(msgspec.structs.replace(pool, role=role) for role, pool in roles.items() if pool is not None)

    @cached_property
    def shape(self) -> ModelShape:
        """The model. Raises `UsageError` for a table that describes none."""
        return model_of(self.model)

    @cached_property
    def tail_s(self) -> float:
        """Seconds for which requests go on after those that are scored: as long as an answer of mean length takes at
        the limits of the SLO. Were the deployment to run empty, the last that are scored would see shorter steps.
        Raises as `Arrivals.workload`."""
        answers = self.arrivals.workload(self.run.duration_s, self.run.seed).output_tokens
        return self.slo.ttft_s + float(answers.mean()) * self.slo.tpot_s

    def workload(self) -> Workload:
        """The requests of the run and its tail. Raises as `Arrivals.workload`."""
        return self.arrivals.workload(self.run.duration_s + self.tail_s, self.run.seed)


def is_claim(path: Path) -> bool:
    """Whether a scenario file describes a capacity claim, which `simulate.capacity` reads. Raises as
    `load_scenario`."""
    return CLAIM in _document(path)


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; paths in it count from its folder. Raises `UsageError` naming the file and the first field
    that does not fit."""
    document = _document(path)
    try:
        _lift_pool(document)
        _make_absolute(document, path.resolve().parent)
        _read_clusters(document)
        scenario = msgspec.convert(document, Scenario)
        _require_model(scenario)
        for place, pool in _named_pools(scenario):
            _require_pool(place, pool, scenario.shape)
    except msgspec.ValidationError as error:
        raise _refusal(error, path) from error
    except EbsimError as error:
        raise UsageError(error.what, where=f"{path}: {error.where}", fix=error.fix or _FIX) from error
    return scenario


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a scenario: {error}", where=str(path), fix=_FIX) from error


def _refusal(error: msgspec.ValidationError, path: Path) -> UsageError:
    """msgspec's `what - at $.field` as what, where; the one pool's tables stand at the top of the file."""
    what, _, at = str(error).partition(" - at ")
    field = at.strip("`").removeprefix("$").removeprefix(".pool").lstrip(".")
    return UsageError(what, where=f"{path}: {field}" if field else str(path), fix=_FIX)


def _lift_pool(document: dict[str, Any]) -> None:
    """[cluster], [engine] and [placement] at the top are the tables of the one pool. Raises `UsageError` unless there
    are one pool or two."""
    top = {name: document.pop(name) for name in _POOL_TABLES if name in document}
    two = [name for name in ("prefill", "decode") if name in document]
    if "pool" in document:
        raise UsageError("is no table of a scenario", where="pool", fix="give [cluster], [engine] and [placement]")
    if top and two:
        raise UsageError(
            f"stands beside [{two[0]}], of which pool is it?", where=next(iter(top)), fix=f"write [{two[0]}.cluster]"
        )
    if len(two) == 1:
        raise UsageError("is missing", where="decode" if two == ["prefill"] else "prefill", fix="give both pools")
    if not two:
        document["pool"] = top


def _make_absolute(table: dict[str, Any], folder: Path) -> None:
    """Every path below a table, from the scenario's folder."""
    for key, value in table.items():
        if key == "files" and isinstance(value, dict):
            table[key] = {name: _absolute(one, folder) for name, one in value.items()}
        elif isinstance(value, dict):
            _make_absolute(value, folder)
        elif key in _PATHS:
            table[key] = (
                [_absolute(one, folder) for one in value] if isinstance(value, list) else _absolute(value, folder)
            )
        elif key in _PLAN_OR_POLICY and str(value).endswith(".json"):
            table[key] = _absolute(value, folder)
        elif key == "profile" and str(value).endswith(_TABLE_ENDINGS):
            base, plus, own = str(value).rpartition("+")
            table[key] = f"{base}{plus}{_absolute(own, folder)}"


def _absolute(value: Any, folder: Path) -> Any:
    return str(folder / value) if isinstance(value, str) and value else value


def _read_clusters(document: dict[str, Any]) -> None:
    """`file` in a cluster table brings the fields of a cluster file, of which the table may change some."""
    for place in ("pool", "prefill", "decode"):
        pool = document.get(place)
        cluster = pool.get("cluster") if isinstance(pool, dict) else None
        if isinstance(cluster, dict) and isinstance(cluster.get("file"), str):
            changes = {name: value for name, value in cluster.items() if name != "file"}
            document[place]["cluster"] = _document(Path(cluster["file"])) | changes


def _named_pools(scenario: Scenario) -> Iterator[tuple[str, Pool]]:
    names = {MIXED: "", PREFILL_ONLY: "prefill.", DECODE_ONLY: "decode."}
    for pool in scenario.pools:
        yield names[pool.role], pool


def _require_model(scenario: Scenario) -> None:
    shape = scenario.shape
    if scenario.routing.recipe is not None:
        recipe_of(scenario.routing, shape)


def _require_pool(place: str, pool: Pool, shape: ModelShape) -> None:
    """Raise `UsageError` naming the first field of a pool that does not fit the others."""
    try:
        topology_of(pool.cluster).require_room_for(shape.experts)
        pool.engine.limits(1)
    except UsageError as error:
        inside = error.where if error.where.startswith("engine") else "cluster"
        raise UsageError(error.what, where=place + inside, fix=error.fix) from error
    engine, placement, ranks = pool.engine, pool.placement, pool.cluster.ranks
    if ranks % pool.data_ranks:
        raise UsageError(f"{pool.data_ranks} do not divide {ranks} ranks", where=f"{place}engine.data_ranks")
    if shape.intermediate % engine.expert_tensor:
        raise UsageError(
            f"{engine.expert_tensor} GPUs do not divide experts of width {shape.intermediate}",
            where=f"{place}engine.expert_tensor",
        )
    if engine.kv_dtype not in KV_DTYPES:
        raise UsageError(f"is {engine.kv_dtype!r}", where=f"{place}engine.kv_dtype", fix=f"use {', '.join(KV_DTYPES)}")
    _require_placement(place, placement)


def _require_placement(place: str, placement: Placement) -> None:
    known = {
        "dispatch": tuple(RULES),
        "all_to_all": ("auto", *MODES),
    }
    for field, names in known.items():
        value = getattr(placement, field)
        if value not in names:
            fix = f"{did_you_mean(value, names)}use one of {', '.join(names)}"
            raise UsageError(f"is {value!r}", where=f"{place}placement.{field}", fix=fix)
    for field in _PLAN_OR_POLICY:
        require_plan_name(getattr(placement, field), f"{place}placement.{field}")
