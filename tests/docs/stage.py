"""A folder as a reader of the documentation has it: a clone's own files, and those that the text takes for granted."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from easybalance_sim.arrays import IntArray
from tests.ebsim_process import ROOT, SAMPLE, Done, ebsim_here
from tests.measured_gpu import FakeGpu
from tests.rank_times import write_times
from tests.recordings import dumps_in, one_pass, records

CLONED = ("traces", "scenarios", "docs", "reports")
RUNS = re.compile(r"<!-- runs -->\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
WRITES = ("-o", "--output")


class Stage:
    """The folder, and how commands run in it; without PyTorch, and with a GPU that
    is made up."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        for name in CLONED:
            (folder / name).symlink_to(ROOT / name)
        patch.setattr("easybalance_sim.kernels.timing.open_gpu", FakeGpu)

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """The folder as working directory."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            yield

    def run(self, *arguments: str) -> Done:
        """Run `ebsim` in the folder, after what its arguments name and nothing has made so far."""
        with self.here():
            for before, name in pairwise(("", *arguments)):
                if name in TAKEN_FOR_GRANTED and before not in WRITES and not Path(name).exists():
                    TAKEN_FOR_GRANTED[name](self)
            return ebsim_here(*arguments)

    def require(self, *arguments: str) -> None:
        """Run what makes a file that other commands read."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)


def run_block(document: str) -> None:
    """Run the blocks of Python that a document marks with `<!-- runs -->`, here."""
    found = RUNS.findall((ROOT / "docs" / document).read_text("utf-8"))
    if not found:
        raise ValueError(f"{document} has no block that runs")
    for code in found:
        exec(compile(code, document, "exec"), {})


def _dumps(stage: Stage) -> None:
    """SGLang's per_pass dumps of DeepSeek-V3: 61 layers, the first three dense, 256 experts in their own slots."""
    rng = np.random.default_rng(100)
    hot = rng.gamma(1.0, size=(61, 256))
    hot[:3] = 0
    slots: IntArray = np.tile(np.arange(256), (61, 1))
    passes = [one_pass(number, 0, rng.poisson(40 * hot)) for number in range(40)]
    dumps_in(Path("dumps"), stage.patch)("rank0.pt", records(*passes, slots=slots))


def _tomorrow(_: Stage) -> None:
    """Other traffic of the same kind: every second request of the sample."""
    table = pq.read_table(SAMPLE)
    chosen = table["request"].to_numpy() % 2 == 1
    pq.write_table(table.filter(chosen), "tomorrow.parquet", row_group_size=32_768)


def _rank_times(stage: Stage) -> None:
    """Times that a cluster would measure on that traffic under the plan."""
    stage.require("trace", "loads", "tomorrow.parquet", "--plan", "plan.json", "-o", "loads.parquet")
    write_times(pd.read_parquet("loads.parquet"), Path("rank_times.csv"), noise=0.05)


def _report(stage: Stage) -> None:
    done = stage.run("replay", "traces/tinymoe.parquet", "--plan", "plan.json", "--format", "json")
    Path("report.json").write_text(done.stdout)


TAKEN_FOR_GRANTED: Mapping[str, Callable[[Stage], object]] = {
    "dumps/": _dumps,
    "my-trace.parquet": lambda stage: stage.require(
        "import", "sglang-recorder", "dumps/", "-o", "my-trace.parquet", "--model", "deepseek-v3"
    ),
    "tomorrow.parquet": _tomorrow,
    "rank_times.csv": _rank_times,
    "report.json": _report,
    "plan.json": lambda stage: stage.require("plan", "traces/tinymoe.parquet", "-o", "plan.json"),
    # Made by one of the long commands, where those run.
    "new.json": lambda _: Path("new.json").write_bytes(Path("plan.json").read_bytes()),
    "lists.parquet": lambda _: run_block("trace-format.md"),
    "trace.parquet": lambda _: Path("trace.parquet").symlink_to(SAMPLE),
}
"""What commands read that no command before them has written, by name; made with the folder as working directory."""
