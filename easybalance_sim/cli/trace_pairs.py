"""Co-activation in `ebsim trace summary`: as JSON values and as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from easybalance_sim.load.coactivation import Coactivation
    from easybalance_sim.trace.schema import TraceMeta

LISTED = 5


def pair_facts(found: Coactivation | None, meta: TraceMeta) -> dict[str, Any] | None:
    """What `trace summary` says of experts chosen together; None where that is not known (counts, top-1)."""
    if found is None or meta.top_k < 2:
        return None
    ids = [meta.layers[row] for row in found.rows.tolist()]
    share, chance = found.strong_share()
    return {
        "tokens": found.tokens,
        "layers_counted": len(ids),
        "layers": [
            {"layer": layer, "strong_share": strong, "by_chance": round(lucky, 6)}
            for layer, strong, lucky in zip(ids, share.tolist(), chance.tolist(), strict=True)
        ],
        "strong_share": _mean(share.tolist()),
        "by_chance": round(_mean(chance.tolist()), 6),
        "strongest": [
            {"layer": meta.layers[pair.row], "experts": list(pair.experts), "lift": pair.lift, "tokens": pair.together}
            for pair in found.strongest(LISTED)
        ],
    }


def pair_lines(facts: dict[str, Any] | None, layers: int) -> list[str]:
    """`pair_facts` for people; layers: of the model."""
    if facts is None:
        return []
    counted = facts["layers_counted"]
    if not counted:
        return ["co-activation: not counted, a layer has too many pairs of experts"]
    known = [layer["strong_share"] for layer in facts["layers"] if layer["strong_share"] == layer["strong_share"]]
    if not known:
        return []
    where = "" if counted == layers else f" in {counted} of {layers} layers"
    pairs = ", ".join(
        f"L{pair['layer']}/E{pair['experts'][0]}+E{pair['experts'][1]} ({pair['lift']:.1f}×)"
        for pair in facts["strongest"]
    )
    return [
        f"co-activation{where}: {_percent(facts['strong_share'])} of a token's pairs of experts "
        f"({_percent(min(known))} to {_percent(max(known))} by layer) are chosen together at least twice as often as "
        f"independent choices would; noise alone: {_percent(facts['by_chance'])}",
        f"strongest pairs (times as often): {pairs or 'none'}",
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _mean(values: list[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
