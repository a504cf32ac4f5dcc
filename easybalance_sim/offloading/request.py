"""What `ebsim offload` is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from easybalance_sim.cluster.model_shape import WEIGHT_BYTES
from easybalance_sim.errors import UsageError
from easybalance_sim.files import require_place
from easybalance_sim.planning.session import Settings, require_choice
from easybalance_sim.simulate.offloading import policies, prefetch
from easybalance_sim.simulate.offloading.cache import SCOPES
from easybalance_sim.simulate.offloading.link import link_of

USUAL_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class OffloadRequest:
    """settings: trace, model, profile · shares: of all experts that the cache holds, empty = `USUAL_SHARES` · gpu_gb:
    GB of GPU memory for experts, instead of shares · policies, prefetch: names, empty = all; without a named
    predictor only LRU is run with them · scope: one of `SCOPES` · host: see `link.link_of` · resident_dtype,
    offload_dtype: keys of `WEIGHT_BYTES`, empty = the model's · batches: requests at once, empty = as recorded · ahead:
    layers that a predictor looks ahead · between_us: of a layer outside its experts · within: by how much a step may be
    longer · held_out: share of the steps that are judged · figure: an SVG."""

    settings: Settings
    shares: tuple[float, ...] = ()
    gpu_gb: float | None = None
    policies: tuple[str, ...] = ()
    prefetch: tuple[str, ...] = ()
    scope: str = "layer"
    host: str = "pcie5"
    resident_dtype: str = ""
    offload_dtype: str = ""
    batches: tuple[int, ...] = ()
    ahead: int = 1
    between_us: float | None = None
    within: float = 0.1
    held_out: float = 0.5
    figure: Path | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """(policy, predictor) of every curve."""
        chosen = tuple(dict.fromkeys(self.policies)) or policies.names()
        if self.prefetch:
            return [(policy, fetch) for policy in chosen for fetch in dict.fromkeys(self.prefetch)]
        fetched = [(policy, fetch) for policy in chosen if policy == "lru" for fetch in prefetch.names()[1:]]
        return [*((policy, prefetch.NONE) for policy in chosen), *fetched]


def require_sound(request: OffloadRequest) -> None:
    """Raise `UsageError` for what would only be noticed after a long run."""
    for policy in request.policies:
        require_choice("--policy", policy, policies.names())
    for fetch in request.prefetch:
        require_choice("--prefetch", fetch, prefetch.names())
    require_choice("--scope", request.scope, SCOPES)
    for flag, dtype in (("--resident-dtype", request.resident_dtype), ("--offload-dtype", request.offload_dtype)):
        if dtype:
            require_choice(flag, dtype, tuple(WEIGHT_BYTES))
    link_of(request.host)
    if request.shares and request.gpu_gb is not None:
        raise UsageError("--gpu-gb and --cached-share exclude each other", where="offload")
    for share in request.shares:
        if not 0 < share <= 1:
            raise UsageError(f"{share:g} is no share of the experts", where="--cached-share", fix="give 0.05 to 1")
    for flag, value in (("--gpu-gb", request.gpu_gb), ("--within", request.within)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"{value:g} is no positive number", where=flag)
    if request.between_us is not None and not (math.isfinite(request.between_us) and request.between_us >= 0):
        raise UsageError(f"{request.between_us:g} is no length of time", where="--between-us")
    if not 0 < request.held_out < 1:
        raise UsageError(f"held-out share {request.held_out:g} is not between 0 and 1", where="--held-out")
    if request.figure is not None:
        if request.figure.suffix != ".svg":
            raise UsageError(f"{request.figure} is not an .svg file", where="--figure")
        profile = Path(request.settings.profile) if request.settings.profile else None
        require_place(request.figure, keep=[*request.settings.traces, *([profile] if profile else [])])
