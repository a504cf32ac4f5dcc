"""`run`: the capacity of a scenario, mechanism by mechanism, and under other assumptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim.cost.expert import expert_cost
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.capacity.report import Assumption, Plausibility, Report, Rung
from easybalance_sim.simulate.capacity.scenario import Scenario, load_scenario, require_possible
from easybalance_sim.simulate.capacity.speed import LOADS, Capacity, capacity
from easybalance_sim.simulate.capacity.times import cluster_of, flops_per_token
from easybalance_sim.simulate.capacity.variants import LOSSY, MECHANISMS, PERFECT, Variants

LITERAL_LAYERS, SLIGHT_PEAK = 8, 1.3
"""Hot experts "in seven or eight layers", each layer "only slightly high"."""
NOTHING: frozenset[str] = frozenset()
UNITS = 16
"""Most calls of `advance`."""


def run(scenario: Path | Scenario, advance: Callable[[int], None] = lambda done: None) -> Report:
    """All of a scenario, read from a file or given. `advance` is told of each mechanism and assumption done.

    Raises `UsageError` for a scenario that does not fit together or whose cluster serves nothing, `ProfileError` for a
    profile that cannot be read.
    """
    found = load_scenario(scenario) if isinstance(scenario, Path) else scenario
    require_possible(found)
    variants = Variants(cluster_of(found))
    baseline = capacity(variants, NOTHING)
    if not baseline.qps:
        raise UsageError(
            f"{baseline.limit} leaves no room for the smallest step, {LOADS[0]} tokens",
            where="scenario",
            fix="give a larger service.step_bound_ms, or more memory",
        )
    rungs = _climb(variants, baseline, advance)
    kernel = expert_cost(variants.cluster.profile, found.model.shape, "decode")
    seen = variants.in_force
    return Report(
        title=found.title,
        claimed_gain=found.claim.gain,
        parameters=found.model.params,
        active_parameters=found.model.active_params,
        gap=seen.gap,
        layer_peak=seen.layer_peak,
        heat=tuple(seen.heat.tolist()),
        baseline=baseline,
        perfect=capacity(variants, frozenset({PERFECT})),
        rungs=tuple(rungs),
        assumptions=tuple(_assumptions(found, variants, advance)),
        plausibility=_plausibility(variants, baseline),
        literal_layers=min(LITERAL_LAYERS, found.model.layers),
        literal_gap=most_gap(found.model.layers, min(LITERAL_LAYERS, found.model.layers), found.ranks),
        reasons=kernel.reasons,
        band_p90=kernel.band_p90,
    )


def most_gap(layers: int, hot_layers: int, ranks: int) -> float | None:
    """Heat of the hot rank over the cold one when the hot one gets all tokens of `hot_layers` layers and the others are
    even: (L - n + n·R) / (L - n). None when every layer is hot: the cold one gets nothing."""
    return (layers - hot_layers + hot_layers * ranks) / (layers - hot_layers) if hot_layers < layers else None


def _climb(variants: Variants, baseline: Capacity, advance: Callable[[int], None]) -> list[Rung]:
    """Every mechanism in turn; one that costs more than it brings is left out again."""
    rungs: list[Rung] = []
    active, before = NOTHING, baseline
    for name in MECHANISMS:
        alone, top = capacity(variants, frozenset({name})), capacity(variants, active | {name})
        offset = variants.offset(active).changed if "offset" in active | {name} else 0.0
        helps = top.qps > before.qps
        rungs.append(
            Rung(
                mechanism=name,
                alone=alone,
                stacked=top,
                alone_gain=_ratio(alone, baseline),
                total_gain=_ratio(top, baseline),
                added=_ratio(top, before),
                kept=helps,
                lossless=name not in LOSSY,
                alone_changed=alone.moved + (variants.offset(NOTHING).changed if name == "offset" else 0.0),
                changed=0.0 if name not in LOSSY else offset + top.moved,
            )
        )
        active, before = (active | {name}, top) if helps else (active, before)
        advance(1)
    return rungs


def _plausibility(variants: Variants, baseline: Capacity) -> Plausibility:
    found = variants.scenario
    length, peak = found.traffic.request_tokens, variants.cluster.peak_flops
    needed = found.claim.baseline_qps * length
    return Plausibility(
        request_tokens=length,
        needed_tokens_per_s=needed,
        needed_peak_share=needed * flops_per_token(found.model) / peak,
        fitting_request_tokens=baseline.tokens_per_s / found.claim.baseline_qps,
        most_qps=peak / flops_per_token(found.model) / length,
    )


def _assumptions(found: Scenario, variants: Variants, advance: Callable[[int], None]) -> list[Assumption]:
    rows = []
    for name, other in _others(found):
        like = variants if _same_routing(found, other) else None
        rows.append(_assumption(name, Variants(cluster_of(other), like)))
        advance(1)
    return rows


def _same_routing(one: Scenario, other: Scenario) -> bool:
    return (one.model, one.traffic, one.heat) == (other.model, other.traffic, other.heat)


def _assumption(name: str, variants: Variants) -> Assumption:
    baseline, claim = capacity(variants, NOTHING), variants.scenario.claim.gain
    active, best, free = NOTHING, baseline, 1.0
    for mechanism in MECHANISMS:
        # Where every layer ends in a barrier relabelled ranks change nothing, so they are not searched for.
        if mechanism == "staggering" and variants.scenario.service.sync == "layer":
            continue
        found = capacity(variants, active | {mechanism})
        if found.qps > best.qps:
            active, best = active | {mechanism}, found
        if mechanism not in LOSSY:
            free = _ratio(best, baseline)
    everything = _ratio(best, baseline)
    perfect = max(_ratio(capacity(variants, frozenset({PERFECT, *more})), baseline) for more in ((), ("layer_queue",)))
    return Assumption(
        name=name,
        gap=variants.in_force.gap,
        layer_peak=variants.in_force.layer_peak,
        baseline=baseline,
        lossless=free,
        everything=everything,
        perfect=perfect,
        holds_lossless=free >= claim,
        holds=everything >= claim,
        possible=perfect >= claim,
    )


def _others(found: Scenario) -> list[tuple[str, Scenario]]:
    """What the description leaves open, each the other way."""
    service, heat, traffic = found.service, found.heat, found.traffic
    hot = min(LITERAL_LAYERS, found.model.layers)
    rows = [
        ("ranks wait only at the end of a step", _with(found, service=_with(service, sync="step"))),
        ("steps a third as long", _with(found, service=_with(service, step_bound_ms=service.step_bound_ms / 3))),
        ("decode only, prompts elsewhere", _with(found, traffic=_with(traffic, prefill_elsewhere=True))),
        ("prefill only", _with(found, traffic=_with(traffic, output_tokens=0.0))),
        ("one cold card, the others alike", _with(found, heat=_with(heat, shape="one-cold"))),
        ("one hot card, the others alike", _with(found, heat=_with(heat, shape="one-hot"))),
        (
            f"hot experts in {hot} layers, each {SLIGHT_PEAK}x, whatever gap that makes",
            _with(found, heat=_with(heat, layers=hot, layer_peak=SLIGHT_PEAK)),
        ),
    ]
    if found.other_reading is not None:
        rows.append((found.other_reading.name, _with(found, model=found.other_reading)))
    return rows


def _with(part: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(part, **changes)


def _ratio(one: Capacity, other: Capacity) -> float:
    return one.qps / other.qps if other.qps else 0.0
