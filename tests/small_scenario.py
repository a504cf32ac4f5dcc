"""A small serving scenario on the sample trace: two seconds of chat on four ranks."""

from __future__ import annotations

from pathlib import Path

from tests.ebsim_process import SAMPLE

ONE_POOL = """
[cluster]
ranks = 4
ranks_per_node = 4
slots_per_rank = 18
profile = "h100"

[engine]
batch_tokens = 256
chunk_tokens = 128
running = 32
kv_blocks = 400
block_tokens = 16

[placement]
after = "window_search"
"""
TWO_POOLS = """
[prefill.cluster]
ranks = 2
ranks_per_node = 2
slots_per_rank = 36

[prefill.engine]
kv_blocks = 400

[prefill.placement]
after = "eplb"

[decode.cluster]
ranks = 4
ranks_per_node = 4
slots_per_rank = 18

[decode.engine]
kv_blocks = 400

[decode.placement]
after = "eplb"
"""
HEAD = """
title = "small"
why = \"\"\"A sample trace on four ranks,
small enough for tests.\"\"\"

[model]
layers = 8
experts = 64
top_k = 6
hidden = 128
intermediate = 64
dtype = "bf16"
name = "tinymoe"

[routing]
trace = "{trace}"

[[arrivals.tenants]]
pattern = "poisson"
name = "python"
rate_per_s = 40.0
prompt_tokens = {{ mean = 60, sigma = 0.5 }}
output_tokens = 12

[[arrivals.tenants]]
pattern = "poisson"
name = "chinese"
rate_per_s = 40.0
prompt_tokens = 40
output_tokens = {{ mean = 20, sigma = 0.5 }}

[slo]
ttft_s = 0.05
tpot_s = 0.01

[run]
duration_s = 2.0
warm_up_s = 0.2
"""


def small_scenario(folder: Path, pools: str = ONE_POOL) -> Path:
    """The scenario's file."""
    path = folder / "small.toml"
    path.write_text(HEAD.format(trace=SAMPLE) + pools, encoding="utf-8")
    return path
