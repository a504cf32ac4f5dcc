"""Traces as long as one likes, written block by block, and what a command on them takes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easybalance_sim.trace.schema import TraceMeta
from easybalance_sim.trace.writer import token_trace_writer
from tests.ebsim_process import environment
from tests.replay_cases import batch_of, random_ids

BLOCK_TOKENS = 1 << 15
LIFE_STEPS = 64

MEASURED = """
import json, sys, time
from pathlib import Path
from easybalance_sim.cli.app import main
begin, code = time.monotonic(), 0
try:
    main()
except SystemExit as stop:
    code = stop.code
# Not ru_maxrss: it begins with what the process that started this one took.
status = Path("/proc/self/status").read_text()
peak_mb = int(status.partition("VmHWM:")[2].split()[0]) // 1024
sys.stderr.write(json.dumps({"peak_mb": peak_mb, "seconds": time.monotonic() - begin, "code": code}) + "\\n")
"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Layers, experts, top-k, ranks, and tokens of a step."""

    layers: int
    experts: int
    top_k: int
    ranks: int
    step_tokens: int

    @property
    def token_bytes(self) -> int:
        """Of the ids of one token."""
        return self.layers * self.top_k


@dataclass(frozen=True, kw_only=True)
class Taken:
    """peak_mb: largest resident memory · seconds: wall clock · code: exit code · output: of the command."""

    peak_mb: int
    seconds: float
    code: int
    output: str


def write_long_trace(path: Path, shape: Shape, tokens: int) -> Path:
    """Requests of `LIFE_STEPS` tokens, random ids that repeat block by block in another order of the tokens."""
    meta = TraceMeta(
        kind="tokens", layers=tuple(range(shape.layers)), experts=shape.experts, top_k=shape.top_k, ranks=shape.ranks
    )
    by_layer = [random_ids(layer, BLOCK_TOKENS, 1, shape.experts, shape.top_k) for layer in range(shape.layers)]
    ids = np.concatenate(by_layer, axis=1)
    with token_trace_writer(path, meta, ("(none)",), level=1) as writer:
        for number, first in enumerate(range(0, tokens, BLOCK_TOKENS)):
            rows = np.arange(first, first + BLOCK_TOKENS)
            step, place = rows // shape.step_tokens, rows % shape.step_tokens
            request = step // LIFE_STEPS * shape.step_tokens + place
            writer.append(batch_of(step, rows % shape.ranks, np.roll(ids, 7919 * number, axis=0), request=request))
    return path


def measured(*arguments: object, cwd: Path, timeout_s: float = 3600.0) -> Taken:
    """Run `ebsim` in a process of its own and see what it took."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, arguments)],
        capture_output=True, text=True, check=True, timeout=timeout_s, cwd=cwd, env=environment(),
    )  # fmt: skip
    return Taken(**json.loads(done.stderr.splitlines()[-1]), output=done.stdout)
