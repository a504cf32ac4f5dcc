"""A capacity scenario: the cluster, model, traffic and mechanisms that a TOML file describes."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import msgspec

from easybalance_sim.cluster.model_shape import WEIGHT_BYTES, ModelShape
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.layer_queue.queue import RULES

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
_Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e15)]

SYNCS = ("layer", "step")
"""Where ranks wait for each other: after every layer, as an all-to-all makes them; or only at the end of a step."""

SHAPES = ("graded", "one-cold", "one-hot")
"""How heat lies between the hottest and the coldest rank: falling evenly; all but the coldest alike; all but the
hottest alike."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Claim(_Part, frozen=True, kw_only=True):
    """What is to be checked. baseline_qps, claimed_qps: requests per second before and after balancing · text: in
    words."""

    baseline_qps: _Positive
    claimed_qps: _Positive
    text: str = ""

    @property
    def gain(self) -> float:
        """claimed / baseline."""
        return self.claimed_qps / self.baseline_qps


class Model(_Part, frozen=True, kw_only=True):
    """An MoE model all of whose layers hold experts. experts: of one layer · dense_params: of attention and norms of
    all layers, which every rank holds · embedding_params: held by every rank, too."""

    name: str
    layers: _Count
    experts: _Count
    top_k: _Count
    hidden: _Count
    intermediate: _Count
    dtype: str = "bf16"
    dense_params: _Positive
    embedding_params: _NotNegative = 0.0
    kv_bytes_per_token: _Positive

    @property
    def shape(self) -> ModelShape:
        """For the cost model. Raises `ProfileError` for numbers that are no model."""
        return ModelShape(
            name=self.name,
            layers=tuple(range(self.layers)),
            hidden_layers=self.layers,
            experts=self.experts,
            top_k=self.top_k,
            hidden=self.hidden,
            intermediate=self.intermediate,
            dtype=self.dtype,
            kv_bytes_per_token=int(self.kv_bytes_per_token),
            source="capacity scenario",
        )

    @property
    def expert_params(self) -> float:
        """Of one expert in one layer."""
        return 3.0 * self.hidden * self.intermediate

    @property
    def params(self) -> float:
        """All of the model's."""
        return self.layers * self.experts * self.expert_params + self.dense_params + self.embedding_params

    @property
    def active_params(self) -> float:
        """Those that a token is multiplied with, embeddings left out."""
        return self.layers * self.top_k * self.expert_params + self.dense_params


class Topic(_Part, frozen=True, kw_only=True):
    """One kind of request. share: of all requests."""

    name: str
    share: _Share


class Traffic(_Part, frozen=True, kw_only=True):
    """prompt_tokens, output_tokens: mean of a request · topic_spread: 0 = all topics use the same experts, 1 = each its
    own · prefill_elsewhere: other machines compute the prompts, their tokens are in no step here, only in the cache."""

    prompt_tokens: _NotNegative
    output_tokens: _NotNegative
    topics: tuple[Topic, ...]
    topic_spread: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    prefill_elsewhere: bool = False

    @property
    def request_tokens(self) -> float:
        """Tokens of a request that go through steps here."""
        return self.output_tokens + (0.0 if self.prefill_elsewhere else self.prompt_tokens)

    @property
    def decode_share(self) -> float:
        """Of the tokens of steps."""
        return self.output_tokens / self.request_tokens

    @property
    def context_tokens(self) -> float:
        """Of a running request: its prompt and half of its answer."""
        return self.prompt_tokens + self.output_tokens / 2


class Heat(_Part, frozen=True, kw_only=True):
    """How unevenly the placement in force loads the ranks. gap: tokens of all layers on the hottest rank over those on
    the coldest · hot_card, cold_card: which these are, counted from 1 · shape: one of `SHAPES` · layers: in how many
    layers hot experts are stacked, 0 = all; the others are dealt evenly · layer_peak: instead of `gap`, max/mean rank
    load of a stacked layer, 0 = unused."""

    gap: Annotated[float, msgspec.Meta(ge=1, le=1e6)] = 4.0
    hot_card: _Count = 1
    cold_card: _Count = 2
    shape: str = "graded"
    layers: Annotated[int, msgspec.Meta(ge=0, le=2**16)] = 0
    layer_peak: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0


class Service(_Part, frozen=True, kw_only=True):
    """step_bound_ms: P99 of a step that must not be passed · sync: one of `SYNCS` · overhead_ms: of a step on the host
    and in sampling · dense_flop_frac, hbm_frac: shares of the nominal peak and bandwidth that dense layers reach ·
    steps: that each load is tried on."""

    step_bound_ms: _Positive
    sync: str = "layer"
    overhead_ms: _NotNegative = 2.0
    dense_flop_frac: _Share = 0.7
    hbm_frac: _Share = 0.8
    steps: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 48


class Mechanisms(_Part, frozen=True, kw_only=True):
    """lanes, rule: micro-batches in flight of the layer queue and the order in which ranks serve them ·
    spare_slots: per rank and layer, for replicas · offset_share:
    of the assignments that a router offset may change · cap: of a rank over the mean, for re-routing inside a step."""

    lanes: Annotated[int, msgspec.Meta(ge=2, le=8)] = 2
    rule: str = "heat"
    spare_slots: _Count = 1
    offset_share: _Share = 0.05
    cap: Annotated[float, msgspec.Meta(gt=1, le=8)] = 1.1


class Scenario(_Part, frozen=True, kw_only=True):
    """One set-up and a claim about it. other_reading: the model if the description is read differently, or None."""

    title: str
    profile: str
    ranks: Annotated[int, msgspec.Meta(ge=2, le=128)]
    claim: Claim
    model: Model
    other_reading: Model | None = None
    traffic: Traffic
    heat: Heat
    service: Service
    mechanisms: Mechanisms = Mechanisms()
    seed: int = 0


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises `UsageError` with the file and the field that does not fit."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Scenario)
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=str(path), fix="check --scenario") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"not a scenario: {error}", where=str(path), fix="see scenarios/ for one") from error
    require_possible(found, str(path))
    return found


def require_possible(scenario: Scenario, where: str = "scenario") -> None:
    """Raise `UsageError` naming the field of the first thing in it that cannot be."""
    for field, problem in _problems(scenario):
        if problem:
            raise UsageError(problem, where=f"{where}: {field}")


def _problems(scenario: Scenario) -> list[tuple[str, str]]:
    heat, traffic, ranks = scenario.heat, scenario.traffic, scenario.ranks
    shares = sum(topic.share for topic in traffic.topics)
    models = [("model", scenario.model), ("other_reading", scenario.other_reading)]
    found = [(name, _model_problem(model, ranks)) for name, model in models if model is not None]
    cards = heat.hot_card == heat.cold_card or max(heat.hot_card, heat.cold_card) > ranks
    return [
        *found,
        ("traffic.topics", "" if abs(shares - 1) < 1e-6 else f"shares sum to {shares:g}, not 1"),
        ("traffic", "" if traffic.request_tokens > 0 else "a request has no tokens"),
        ("heat.shape", _unknown(heat.shape, SHAPES)),
        ("heat.hot_card", f"hot and cold card must be two of 1..{ranks}" if cards else ""),
        (
            "heat.layer_peak",
            f"{heat.layer_peak:g} is no max/mean, which is 1 or more" if 0 < heat.layer_peak < 1 else "",
        ),
        ("service.step_bound_ms", _bound_problem(scenario.service)),
        (
            "heat.layers",
            ""
            if heat.layers <= scenario.model.layers
            else f"{heat.layers} layers, the model has {scenario.model.layers}",
        ),
        ("service.sync", _unknown(scenario.service.sync, SYNCS)),
        ("mechanisms.rule", _unknown(scenario.mechanisms.rule, RULES)),
        ("claim", "" if scenario.claim.gain >= 1 else "claimed_qps is below baseline_qps"),
    ]


def _unknown(value: str, known: Collection[str]) -> str:
    return "" if value in known else f"{value!r} is not one of {', '.join(known)}"


def _bound_problem(service: Service) -> str:
    late = service.step_bound_ms <= service.overhead_ms
    return f"{service.step_bound_ms:g} ms are gone with overhead_ms = {service.overhead_ms:g} alone" if late else ""


def _model_problem(model: Model, ranks: int) -> str:
    if model.experts % ranks:
        return f"{model.experts} experts do not divide over {ranks} ranks"
    if model.top_k > model.experts:
        return f"top_k is {model.top_k} with {model.experts} experts"
    return "" if model.dtype in WEIGHT_BYTES else f"dtype {model.dtype!r} is not one of {', '.join(WEIGHT_BYTES)}"
