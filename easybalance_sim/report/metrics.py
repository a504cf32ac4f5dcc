"""The figures of a report as gauges for Prometheus: what a team that runs the model watches, by name and label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from easybalance_sim import __version__
from easybalance_sim.files import write_text
from easybalance_sim.report.openmetrics import Family, Sample, text

SIDES = ("baseline", "plan")
GAINS = ("rank_imbalance.mean", "rank_imbalance.p99", "layer_us.p99", "step_us.p50", "step_us.p99")

Pair = tuple[dict[str, str], float | None]
Report = Mapping[str, Any]


def write_metrics(path: Path, report: Report) -> None:
    """Write the gauges of a report (of either phase, where it holds two) to `path`, whole or not at all."""
    write_text(path, text(families(list(report.get("phases", {"": report}).values()))))


def families(reports: Sequence[Report]) -> list[Family]:
    """The gauges of reports of `ebsim plan` or `ebsim replay`; numbers that are not known have no sample."""
    return [
        Family(
            name=name,
            help=about,
            samples=tuple(
                Sample(value=float(value), labels={**labels, **_of_run(report)})
                for report in reports
                for labels, value in read(report)
                if value is not None
            ),
        )
        for name, about, read in FAMILIES
    ]


def _of_run(report: Report) -> dict[str, str]:
    cost = report["cost"]
    phase = "mixed" if cost.get("mixed_phases") else str(cost["phase"])
    return {"phase": phase, "plan": str(report["fingerprint"])}


def _sides(report: Report) -> Iterator[tuple[dict[str, str], Report]]:
    """The labels and the section of the baseline and of the plan."""
    for side in SIDES:
        yield {"side": side, "policy": str(report[side]["policy"])}, report[side]


def _at(*path: str, scale: float = 1.0) -> Callable[[Report], Iterator[Pair]]:
    """One number of the report, without labels of its own."""
    return lambda report: iter([({}, _scaled(_dig(report, path), scale))])


def _of_sides(key: str) -> Callable[[Report], Iterator[Pair]]:
    """One number of either side."""
    return lambda report: ((labels, section[key]) for labels, section in _sides(report))


def _spread(key: str, scale: float = 1.0) -> Callable[[Report], Iterator[Pair]]:
    """The statistics of either side: mean, p50, ..."""

    def read(report: Report) -> Iterator[Pair]:
        for labels, section in _sides(report):
            for stat, value in section[key].items():
                yield {**labels, "stat": stat}, _scaled(value, scale)

    return read


def _experts(key: str) -> Callable[[Report], Iterator[Pair]]:
    """A list over layers that does not depend on the placement."""
    return lambda report: _by_layer({}, report["load"]["layers"], report["load"][key])


def _load(key: str) -> Callable[[Report], Iterator[Pair]]:
    """A list over layers of either side's `load`."""

    def read(report: Report) -> Iterator[Pair]:
        for labels, _ in _sides(report):
            yield from _by_layer(labels, report["load"]["layers"], report["load"][labels["side"]][key])

    return read


def _by_layer(labels: Mapping[str, str], layers: Iterable[int], values: Iterable[float | None]) -> Iterator[Pair]:
    for layer, value in zip(layers, values, strict=True):
        yield {**labels, "layer": str(layer)}, value


def _ranks_by_layer(report: Report) -> Iterator[Pair]:
    for labels, section in _sides(report):
        for stat, values in section["rank_imbalance_by_layer"].items():
            yield from _by_layer({**labels, "stat": stat}, report["load"]["layers"], values)


def _copies(report: Report) -> Iterator[Pair]:
    for labels, _ in _sides(report):
        for scope, value in report["load"][labels["side"]]["copies_per_token"].items():
            yield {**labels, "scope": scope}, value


def _time_share(report: Report) -> Iterator[Pair]:
    for labels, section in _sides(report):
        for part, value in section["time_share"].items():
            yield {**labels, "part": part}, value


def _gain(report: Report) -> Iterator[Pair]:
    for name in GAINS:
        before, after = (_dig(report[side], name.split(".")) for side in SIDES)
        yield {"of": name.replace("_us.", "_seconds.").replace(".", "_")}, 1 - after / before if before else None


def _gain_share(report: Report) -> Iterator[Pair]:
    for name, value in report["gain"].items():
        yield {"of": name.removeprefix("share_of_")}, value


def _verdict(report: Report) -> Iterator[Pair]:
    for status in ("accepted", "rejected", "insufficient_evidence"):
        yield {"status": status}, float(report["verdict"]["status"] == status)


def _findings(report: Report) -> Iterator[Pair]:
    for finding in report["verdict"]["findings"]:
        yield {"criterion": finding["criterion"]}, float(finding["ok"])


def _run(report: Report) -> Iterator[Pair]:
    labels = {
        "model": report["model"]["name"],
        "trace": report["trace"]["fingerprint"],
        "profile": report["cluster"]["profile"],
        "dispatch": report["dispatch"],
        "policy": report["plan"]["policy"],
        "ranks": report["cluster"]["ranks"],
        "nodes": report["cluster"]["nodes"],
        "version": __version__,
    }
    yield {name: str(value) for name, value in labels.items()}, 1.0


def _dig(report: Report, path: Iterable[str]) -> Any:
    found: Any = report
    for key in path:
        found = found[key]
    return found


def _scaled(value: float | None, scale: float) -> float | None:
    # Rounding takes away what the factor adds: 12.3 µs are 1.23e-05 s and not 1.2299999999999999e-05 s.
    return value if value is None or scale == 1.0 else float(f"{value * scale:.12g}")


FAMILIES: tuple[tuple[str, str, Callable[[Report], Iterator[Pair]]], ...] = (
    ("ebsim_run_info", "What was judged, and with what. Always 1.", _run),
    ("ebsim_verdict", "1 for what the gate said, 0 for the rest.", _verdict),
    ("ebsim_finding_ok", "1 where the criterion holds, else 0.", _findings),
    ("ebsim_judged_tokens", "Held-out tokens that the figures come from.", _at("split", "held_out_tokens")),
    ("ebsim_predicted_gain_ratio", "1 - plan / baseline on held-out traffic.", _gain),
    ("ebsim_gain_share_ratio", "Mean imbalance saved, of what the bound or the floor would save.", _gain_share),
    (
        "ebsim_expert_max_to_mean",
        "Tokens of the busiest expert over the mean expert, all held-out traffic.",
        _experts("expert_imbalance"),
    ),
    (
        "ebsim_expert_entropy_ratio",
        "Entropy of the experts' shares over that of even ones: 1 = even.",
        _experts("expert_entropy"),
    ),
    (
        "ebsim_rank_max_to_mean",
        "Tokens of the busiest rank over the mean rank, over windows and layers.",
        _spread("rank_imbalance"),
    ),
    (
        "ebsim_layer_rank_max_to_mean",
        "Tokens of the busiest rank over the mean rank, over windows of a layer.",
        _ranks_by_layer,
    ),
    (
        "ebsim_node_max_to_mean",
        "Tokens per rank of the busiest node over the mean node, all held-out traffic.",
        _load("node_imbalance"),
    ),
    (
        "ebsim_replica_max_to_mean",
        "Tokens of the busiest slot over the mean slot, all held-out traffic.",
        _load("replica_imbalance"),
    ),
    ("ebsim_replicated_experts", "Experts with more than one replica.", _load("replicated_experts")),
    (
        "ebsim_replica_split_ratio",
        "Tokens of an expert's busiest replica over those of its mean replica: 1 = even.",
        _load("replica_split"),
    ),
    ("ebsim_copies_per_token", "Copies of a token over all layers, by where they go.", _copies),
    (
        "ebsim_cross_node_bytes_per_token",
        "Bytes of a token that leave an NVLink domain, over all layers.",
        _of_sides("cross_node_bytes_per_token"),
    ),
    ("ebsim_layer_seconds", "Predicted time of an MoE layer.", _spread("layer_us", 1e-6)),
    ("ebsim_step_seconds", "Predicted time of all MoE layers of a step.", _spread("step_us", 1e-6)),
    ("ebsim_time_share_ratio", "Share of dispatch, expert and combine in the predicted time.", _time_share),
    ("ebsim_expert_memory_bytes", "Expert weights of the fullest rank.", _of_sides("memory_bytes_per_rank")),
    ("ebsim_redundant_slots", "Slots of a layer that hold a second or later replica.", _of_sides("redundant_slots")),
    ("ebsim_kv_cache_loss_ratio", "Share of the KV cache that replicas take.", _at("memory", "kv_cache_loss_frac")),
    ("ebsim_migration_bytes", "Expert weights that going to the plan moves.", _at("migration", "bytes")),
    ("ebsim_migration_moves", "Experts that going to the plan moves.", _at("migration", "moves")),
    (
        "ebsim_migration_cross_node_moves",
        "Experts that going to the plan moves between nodes.",
        _at("migration", "cross_node_moves"),
    ),
    ("ebsim_migration_seconds", "Predicted time of the moves, copying alone.", _at("migration", "seconds")),
)
"""Name, help and how to read it off a report."""
