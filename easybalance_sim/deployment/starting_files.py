"""The three files of a first deployment: cluster, serving scenario and gate criteria, as commented TOML."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from easybalance_sim.deployment.starting import BATCH_TOKENS, BLOCK_TOKENS, CHUNK_TOKENS, Start
from easybalance_sim.errors import UsageError
from easybalance_sim.files import write_text

CLUSTER, SCENARIO, GATE = "cluster.toml", "scenario.toml", "gate.toml"
NAMES = (CLUSTER, SCENARIO, GATE)

_MANY_EXPERTS = 128


def texts_of(start: Start) -> dict[str, str]:
    """{file name: TOML}."""
    return {CLUSTER: _cluster(start), SCENARIO: _scenario(start), GATE: _gate(start)}


def write_files(folder: Path, start: Start, *, force: bool = False) -> tuple[Path, ...]:
    """Write all three into `folder`, which is made where it is missing. Raises `UsageError` when one is there already,
    unless `force`; nothing is written then."""
    there = [name for name in NAMES if (folder / name).exists()]
    if there and not force:
        raise UsageError(f"{', '.join(there)} would be lost", where=str(folder), fix="give another -o, or --force")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts_of(start).items():
        write_text(folder / name, text)
    return tuple(folder / name for name in NAMES)


def _title(start: Start) -> str:
    return f"{start.shape.name} on {start.ranks} {start.hardware.name.upper()}"


def _cluster(start: Start) -> str:
    memory, experts = start.memory, start.shape.experts
    each = -(-experts // start.ranks)
    return f"""# {_title(start)}: the expert-parallel group. ebsim plan TRACE --cluster {CLUSTER}

# One rank is one GPU.
ranks = {start.ranks}

# Consecutive ranks that share NVLink; what leaves them goes over the network.
ranks_per_node = {start.ranks_per_node}

# Expert slots of a rank in every MoE layer, a number or one per rank. {experts} experts take {each} each;
# {start.ranks} × {start.slots_per_rank} slots leave {_spare(start)}.
# Memory of a GPU: {memory.usable / 1e9:,.0f} GB usable, {memory.experts / 1e9:,.1f} GB experts, \
{(memory.weights - memory.experts) / 1e9:,.1f} GB other weights,
# {memory.buffers / 1e9:,.1f} GB buffers; what is left caches {memory.tokens:,} tokens. \
`ebsim sweep TRACE --ranks {start.ranks}` weighs more slots.
slots_per_rank = {start.slots_per_rank}

# GPU: one of `ebsim profile list`, or your own .toml (`ebsim profile measure`).
profile = "{start.hardware.name}"

# Relative speed, a number or one per rank: 0.8 is a slow GPU.
# speed = 1.0

# Memory of a GPU in GiB where it is not the profile's.
# hbm_gib = {start.hardware.hbm_bytes / 2**30:.0f}
"""


def _spare(start: Start) -> str:
    if not start.spare_slots:
        return "none for replicas: one more would cost more of the KV cache than the gate allows"
    lost = f", and cost {100 * start.kv_loss:.1f} % of the KV cache" if start.kv_loss else ""
    return f"{start.spare_slots} for replicas of hot experts{lost}"


def _scenario(start: Start) -> str:
    title = json.dumps(_title(start), ensure_ascii=False)
    return f"""# What requests get of it: ebsim simulate {SCENARIO}. The rate that it bears: ebsim capacity {SCENARIO}
title = {title}
why = \"\"\"
A first set-up, made by ebsim init: drawn routing and drawn requests.
Put your own trace under [routing] and your own rates under [arrivals] before you trust a number.\"\"\"

[model]
{_model(start)}

# Fields of the cluster file may be changed here, e.g. slots_per_rank.
[cluster]
file = "{CLUSTER}"

{_engine(start)}
[placement]
# The plan in service and the one that may follow it: a policy, "auto", or a plan file (.json).
before = "contiguous"
after = "auto"

{_routing(start)}
{_requests(start)}
# Seconds to the first token, and per further token.
[slo]
ttft_s = 2.0
tpot_s = 0.1

# Requests come for duration_s; those of the first warm_up_s are served and not scored.
[run]
duration_s = 60
warm_up_s = 15
"""


def _model(start: Start) -> str:
    path = Path(start.model)
    if path.suffix == ".json" or (path / "config.json").is_file():
        return f"config = {json.dumps(str(path.resolve()), ensure_ascii=False)}"
    return f"name = {json.dumps(start.model, ensure_ascii=False)}"


def _engine(start: Start) -> str:
    text = f"""# Of one data-parallel rank. A step takes up to batch_tokens, up to chunk_tokens of one prompt: small
# chunks, for every rank waits for the one with the longest.
[engine]
batch_tokens = {BATCH_TOKENS}
chunk_tokens = {CHUNK_TOKENS}
block_tokens = {BLOCK_TOKENS}
"""
    if start.tensor_ranks > 1:
        text += f"""# {start.tensor_ranks} GPUs share the attention of a request: alone they have no room for a cache.
data_ranks = {start.ranks // start.tensor_ranks}
"""
    if start.guessed:
        text += f"""# Blocks of KV cache, a guess ({"; ".join(start.guessed)}).
# Put your engine's number here.
kv_blocks = {start.memory.blocks(BLOCK_TOKENS)}
"""
    return text


def _routing(start: Start) -> str:
    concentration = 2.0 if start.shape.experts > _MANY_EXPERTS else 0.3
    return f"""# Better: [routing] with trace = "my-trace.parquet", of this model (`ebsim import --help`). Until then it
# is drawn, about as lopsided as recorded traffic; less concentration is more lopsided.
[routing.recipe]
kind = "topic-mixture"
concentration = {concentration}
"""


def _requests(start: Start) -> str:
    return f"""# Lengths of Azure's conversation trace. The rate is a guess to begin with. Your own requests instead:
# [arrivals] with file = "requests.csv".
[[arrivals.tenants]]
pattern = "poisson"
rate_per_s = {start.rate_per_s:g}
prompt_tokens = {{ like = "azure-conv" }}
output_tokens = {{ like = "azure-conv" }}
"""


def _gate(start: Start) -> str:
    defaults = resources.files("easybalance_sim.gate").joinpath("default.toml").read_text(encoding="utf-8")
    return f"# {_title(start)}. ebsim plan TRACE --cluster {CLUSTER} --criteria {GATE}\n{defaults}"
