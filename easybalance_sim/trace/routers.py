"""The routers of a PyTorch MoE model: where they are, and what they decide in a forward pass.

A router is found by its name or class (gate, router) and by its shape: as many rows as the `experts` beside it has.
That is how Hugging Face lays out Qwen2/3-MoE, Mixtral, OLMoE, DeepSeek-V2/V3 and GPT-OSS.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from easybalance_sim.errors import UsageError

_NAMES, _CLASSES = ("gate", "router", "wg"), ("router", "gate")
_TOP_K = ("top_k", "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")
_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts")
_GROUPS = ("n_group", "num_group")
FIX = "name them: record(model, path, routers=['layers.0.mlp.gate', …], top_k=…)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Router:
    """One MoE layer's router.

    name: of the module · layer: absolute id · module: the router · beside: the module of its experts, None = unknown ·
    experts: E · top_k: K · bias: [E] tensor that is added to scores for the choice only, or None · grouped: whether a
    token may use some groups of experts only.
    """

    name: str
    layer: int
    module: Any
    beside: Any
    experts: int
    top_k: int
    bias: Any
    grouped: bool

    @property
    def by_scores(self) -> bool:
        """Whether the choice is simply the K largest logits."""
        return self.bias is None and not self.grouped


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """What a router decided for N tokens: ids [N, K], gate weights [N, K] or None, logits [N, E] or None; tensors."""

    ids: Any
    gates: Any
    logits: Any


def find_routers(
    model: Any, names: Sequence[str] | None = None, top_k: int | None = None, layers: Sequence[int] | None = None
) -> tuple[Router, ...]:
    """The routers of a model by layer. names: of modules, found unless said · layers: their ids, those in the names
    unless said. Raises `UsageError` when there is none, one is unlike the others, or K or the layers are unknown."""
    found = list(_found(model)) if names is None else [(name, _submodule(model, name)) for name in names]
    if not found:
        raise UsageError("no router found in this model", fix=FIX)
    ids = list(layers) if layers is not None else [_layer(name, place) for place, (name, _) in enumerate(found)]
    if len(ids) != len(found) or len(set(ids)) != len(ids) or min(ids) < 0:
        raise UsageError(
            f"{len(found)} routers ({found[0][0]}, …) in layers {ids}", fix="pass layers=[…], one for each"
        )
    routers = [_router(model, name, module, layer, top_k) for (name, module), layer in zip(found, ids, strict=True)]
    for router in routers:
        if (router.experts, router.top_k) != (routers[0].experts, routers[0].top_k):
            raise UsageError(
                f"router {router.name} chooses {router.top_k} of {router.experts} experts, {routers[0].name} "
                f"{routers[0].top_k} of {routers[0].experts}",
                fix="record layers of one kind: " + FIX,
            )
    return tuple(sorted(routers, key=lambda router: router.layer))


def choice_of(router: Router, output: Any, passed: Any) -> Choice:
    """What a call decided. output: what the router returned, tensors in any order · passed: what the experts were
    called with, or None. Raises `UsageError` when the ids cannot be told from it."""
    returned, given = list(_tensors(output)), list(_tensors(passed))
    ids = next((t for t in (*given, *returned) if _is_ids(t, router.top_k)), None)
    wide = [t for t in returned if t.is_floating_point() and t.shape[-1] == router.experts]
    # Some routers give the weights of the chosen experts as a row over all of them, zero elsewhere.
    scattered = next((t for t in wide if router.top_k < router.experts and _scattered(t, router.top_k)), None)
    logits = next((t for t in wide if t is not scattered), None)
    if ids is None and logits is not None and router.by_scores:
        ids = logits.topk(router.top_k, dim=-1).indices
    if ids is None:
        what = "returns no ids" if logits is None else "returns scores of all experts, but chooses by groups or a bias"
        raise UsageError(f"router {router.name} {what}", fix="name the modules that return the ids with routers=[…]")
    gates = next((t for t in (*given, *returned) if t.is_floating_point() and t.shape == ids.shape), None)
    if gates is None and scattered is not None:
        gates = _flat(scattered).gather(1, _flat(ids))
    if gates is None and logits is not None:
        gates = _flat(logits).float().softmax(dim=-1).gather(1, _flat(ids))
    return Choice(
        ids=_flat(ids), gates=None if gates is None else _flat(gates), logits=None if logits is None else _flat(logits)
    )


def joined_choices(found: Sequence[Choice]) -> Choice:
    """Those of several calls of one router, one after the other."""
    if len(found) == 1:
        return found[0]

    def all_of(name: str) -> Any:
        tensors = [getattr(one, name) for one in found]
        return None if any(one is None for one in tensors) else importlib.import_module("torch").cat(tensors)

    return Choice(ids=all_of("ids"), gates=all_of("gates"), logits=all_of("logits"))


def selection_scores(router: Router, logits: Any) -> Any:
    """[N, E] the scores by which experts are chosen: sigmoid + bias where the router has a bias (DeepSeek-V3,
    arXiv 2412.19437), else the softmax."""
    if router.bias is None:
        return logits.float().softmax(dim=-1)
    return logits.float().sigmoid() + router.bias.float()


def config_value(owner: Any, names: Sequence[str]) -> int:
    """The first of these whole numbers that an object (or its text part) has, else 0."""
    for one in (owner, getattr(owner, "text_config", None)):
        for name in names:
            value = getattr(one, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def _found(model: Any) -> Iterator[tuple[str, Any]]:
    taken: list[str] = []
    for name, module in model.named_modules():
        parent, _, last = name.rpartition(".")
        kind = type(module).__name__.lower()
        looks = last in _NAMES or kind.endswith(_CLASSES)
        if not looks or any(name.startswith(f"{one}.") for one in taken):
            continue
        beside = getattr(model.get_submodule(parent), "experts", None)
        if beside is not None and _rows(module) == _count(beside):
            taken.append(name)
            yield name, module


def _router(model: Any, name: str, module: Any, layer: int, top_k: int | None) -> Router:
    parent = _submodule(model, name.rpartition(".")[0])
    rows, beside = _rows(module), getattr(parent, "experts", None)
    config = getattr(model, "config", None)
    k = top_k or next((n for n in (config_value(one, _TOP_K) for one in (module, parent, config)) if n), 0)
    if not rows or not 1 <= k <= rows:
        raise UsageError(f"router {name} chooses {k or 'an unknown number'} of {rows or 'unknown'} experts", fix=FIX)
    biases = [getattr(one, "e_score_correction_bias", None) for one in (module, parent)]
    bias = next((one for one in biases if one is not None), None)
    grouped = max(config_value(one, _GROUPS) for one in (module, parent, config)) > 1
    single = beside if beside is not None and not hasattr(beside, "__len__") else None
    return Router(
        name=name,
        layer=layer,
        module=module,
        beside=single,
        experts=rows,
        top_k=k,
        bias=bias,
        grouped=grouped,
    )


def _submodule(model: Any, name: str) -> Any:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise UsageError(f"the model has no module {name}", fix="see model.named_modules()") from error


def _rows(module: Any) -> int:
    """Rows of a module's weight, or of the only matrix in it; 0 when there is none or more than one."""
    own: Any = getattr(module, "weight", None)
    matrices = [own] if own is not None and own.ndim == 2 else [p for p in module.parameters() if p.ndim == 2]
    return int(matrices[0].shape[0]) if len(matrices) == 1 else 0


def _count(experts: Any) -> int:
    if hasattr(experts, "__len__"):
        return len(experts)
    said = config_value(experts, _COUNTS)
    return said or next((int(p.shape[0]) for p in experts.parameters() if p.ndim == 3), 0)


def _layer(name: str, place: int) -> int:
    number = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
    return int(number[1]) if number else place


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "is_floating_point"):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _is_ids(tensor: Any, top_k: int) -> bool:
    whole = not tensor.is_floating_point() and str(tensor.dtype) != "torch.bool"
    return bool(whole and tensor.ndim >= 2 and tensor.shape[-1] == top_k)


def _scattered(tensor: Any, top_k: int) -> bool:
    return bool(((tensor != 0).sum(dim=-1) <= top_k).all())


def _flat(tensor: Any) -> Any:
    return tensor.detach().reshape(-1, tensor.shape[-1])
