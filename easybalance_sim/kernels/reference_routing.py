"""Choosing experts again from recorded scores, as naive loops: the specification of `numba_routing`.

Group-limited routing is DeepSeek-V3's (arXiv 2412.19437): a group is worth the sum of its best two scores, the best
`topk_group` groups stay, and of their experts the best K are chosen.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

NONE = -1
"""In place of an expert: this assignment is dropped."""

CHANGED, GATE_REPLACED, SCORE_LOST, TOP_LOST, DROPPED, GATE, SCORE, ASSIGNMENTS = range(8)
"""What `compare_routing` sums."""


def route(
    scores: Floats, recorded: Ints, head_start: Floats, offset: Floats, factor: Floats, allowed: Flags, groups: int,
    topk_group: int, out: Ints,
) -> None:  # fmt: skip
    """Choose experts by score · factor + head start - offset.

    In: scores float32[T, L, E], -inf = not known, never chosen · recorded int32[T, L, K] and head_start float32[T, L]:
    what recorded experts are given, so that ties of stored scores fall as they fell; inf = always keep them, in
    whatever groups · offset, factor float32[L, E] · allowed bool[L, E] · groups, topk_group (1, 1 = no groups).
    Out: out int32[T, L, K] by falling selection score, lower id first among equals. Experts outside of the chosen
    groups come after all inside; `NONE` where fewer than K experts are allowed.
    """
    for t, layer in np.ndindex(scores.shape[:2]):
        key = scores[t, layer] * factor[layer] - offset[layer]
        key[recorded[t, layer]] += head_start[t, layer]
        usable = [e for e in range(len(key)) if allowed[layer, e] and key[e] > -math.inf]
        most = groups if head_start[t, layer] == math.inf else topk_group
        kept = _kept_groups(key, usable, groups, most)
        size = len(key) // groups
        order = sorted(usable, key=lambda e: (e // size not in kept, -key[e], e))
        for k in range(out.shape[2]):
            out[t, layer, k] = order[k] if k < len(order) else NONE


def _kept_groups(key: Floats, usable: list[int], groups: int, topk_group: int) -> set[int]:
    size = len(key) // groups
    worth = {}
    for group in range(groups):
        best = sorted((key[e] for e in usable if e // size == group), reverse=True)[:2]
        if best:
            worth[group] = np.float32(sum(best, np.float32(0)))
    return set(sorted(worth, key=lambda group: (-worth[group], group))[:topk_group])


def compare_routing(
    experts: Ints, recorded: Ints, scores: Floats, bias: Floats, gates: Floats, workload: npt.NDArray[np.int16],
    out: Doubles,
) -> None:  # fmt: skip
    """What another choice of experts takes from each token.

    In: experts, recorded int32[T, L, K] · scores float32[T, L, E], bias float32[L, E] what of them is not the experts'
    own · gates float32[T, L, K] of the recorded experts · workload int16[T]. Out: out float64[workloads, L, 8], added
    to, in the order of the constants above: assignments whose expert was not recorded · gates of recorded experts that
    are gone · share lost of a token's own scores, summed over those of `SCORE` · tokens whose recorded expert of the
    largest gate is gone · assignments dropped · all gates · `SCORE`: tokens with own scores above 0, all known and none
    dropped · assignments.
    """
    for t, layer in np.ndindex(experts.shape[:2]):
        new, old = experts[t, layer].tolist(), recorded[t, layer].tolist()
        into, score, gate = out[workload[t], layer], scores[t, layer] - bias[layer], gates[t, layer]
        gone = [k for k, e in enumerate(old) if e not in new]
        dropped = new.count(NONE)
        into[CHANGED] += len(gone) - dropped
        into[GATE_REPLACED] += sum(float(gate[k]) for k in gone)
        into[TOP_LOST] += int(np.argmax(gate)) in gone
        into[DROPPED] += dropped
        into[GATE] += sum(float(g) for g in gate)
        into[ASSIGNMENTS] += len(new)
        before, after = (sum(float(score[e]) for e in ids) for ids in (old, new))
        if not dropped and before > 0 and after > -math.inf:
            into[SCORE] += 1
            into[SCORE_LOST] += 1 - after / before
