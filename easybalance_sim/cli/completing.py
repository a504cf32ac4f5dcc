"""Names that the shell completes: of folders where there is one file to a name, else written out.

A shell asks at every key: nothing here may import NumPy, Arrow or numba. Tests hold the written lists against the code.
Options that also take a file offer names only; where none fits, the shell offers files.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def offered(names: str) -> Callable[[], list[str]]:
    """What completes the words of `names`."""

    def complete() -> list[str]:
        return names.split()

    return complete


def policies() -> list[str]:
    """Policies of the package and the installed ones."""
    return _modules("policies")


def engines() -> list[str]:
    """Serving engines, as the command line writes them."""
    return [name.replace("_", "-") for name in _modules("exports", "engines")]


def profiles() -> list[str]:
    """Hardware profiles of the package."""
    return sorted(path.stem for path in (_PACKAGE / "cluster" / "profiles").glob("*.toml"))


def models() -> list[str]:
    """Known models, their other names left out."""
    known = tomllib.loads((_PACKAGE / "cluster" / "models.toml").read_text(encoding="utf-8"))
    return sorted(str(model["name"]) for model in known["model"])


def recordings() -> list[tuple[str, str]]:
    """Kinds of `ebsim import`, each with what it is."""
    from easybalance_sim.trace.importers import titles

    return list(titles().items())


def placements() -> list[str]:
    """What `simulate` and `capacity` serve under, beside a plan file."""
    return ["auto", *policies()]


devices = offered("auto cpu gpu")
dispatch_rules = offered("even sglang-static sglang-dynamic vllm vllm-legacy tensorrt-llm ascend-v1 ascend-v2")
splits = offered("time request workload")
forecasts = offered("mean last ema-fast ema-slow")
objectives = offered("auto tokens seconds")
all_to_all = offered("auto normal low_latency nccl nvlink")
overlaps = offered("none two-batch full")
served_overlaps = offered("none full")
phases = offered("prefill decode unknown")
baselines = offered("contiguous round_robin")
kv_dtypes = offered("bf16 fp8")
loops = offered("never static sglang sglang-chunked vllm vllm-sync tensorrt-llm vllm-ascend guarded")
strata = offered("phase workload model-revision")
controllers = offered(
    "layer-P layer-I layer-PI layer-sign layer-max heat-P heat-I heat-PI heat-sign heat-max "
    "expert-P expert-I expert-PI expert-sign expert-max"
)
parts = offered("sensing feedback rerouting replicas staggering queue admission")
cache_policies = offered("belady lfu lru static")
prefetches = offered("history none oracle previous-layer")
scopes = offered("layer model")
hosts = offered("pcie4 pcie5 pcie6 nvme")
weight_dtypes = offered("bf16 fp8_block nvfp4 mxfp4 int4_g32")
schemas = offered("plugin pr41141 pr49572 pr53022")
protocol_parts = offered("verify checksum dtype revision promise stamps fence drain")
faults = offered(
    "pairs all none load-fails checksum-mismatch dtype-mismatch revision-mismatch staging-too-small late-proposal "
    "late-publish rank-dies-before-publish rank-dies-after-publish rank-restarts coordinator-dies coordinator-is-late"
)
tables = offered(
    "trtllm-wideep sglang-generation sglang-context infersim-decode infersim-prefill moe-perf deepep-low-latency "
    "deepep-normal deepep-bench nccl trtllm-alltoall tokens-us ebsim-measured"
)


def _modules(*folders: str) -> list[str]:
    """Names of the modules of a package, and of what other packages register under its name."""
    own = {path.stem for path in _PACKAGE.joinpath(*folders).glob("*.py") if not path.stem.startswith("_")}
    return sorted({*own, *(point.name for point in entry_points(group=f"easybalance_sim.{folders[0]}"))})
