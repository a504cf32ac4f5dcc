"""Known routing, fed to SGLang's own recorder the way its MoE layers feed it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.plan.plan import Plan
from tests.engines.engine_plans import Case, exported
from tests.engines.sglang_runtime import ForwardBatch, SGLang
from tests.replay_cases import random_ids

EXTEND, DECODE = 1, 2
"""SGLang's numbers of the two forward modes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Traffic:
    """Routed tokens. experts: int64[T, L, K] logical · step, rank: int64[T] forward pass and source rank; pass 0 is a
    prefill, the others are decode."""

    experts: AnyArray
    step: IntArray
    rank: IntArray

    @classmethod
    def random(cls, case: Case, *, steps: int, tokens: int, top_k: int, seed: int = 0) -> Traffic:
        """Every rank has a token in every step."""
        rng = np.random.default_rng([seed, 3])
        every = np.stack(np.meshgrid(np.arange(steps), np.arange(case.ranks), indexing="ij"), -1).reshape(-1, 2)
        drawn = rng.integers(0, [steps, case.ranks], (tokens - len(every), 2))
        place = np.concatenate([every, drawn])
        place = place[np.lexsort((place[:, 1], place[:, 0]))]
        return cls(experts=random_ids(seed, tokens, case.moe, case.experts, top_k), step=place[:, 0], rank=place[:, 1])

    def counts(self, experts: int) -> IntArray:
        """int64[steps, L, E] assignments."""
        steps, layers = int(self.step.max()) + 1, self.experts.shape[1]
        found = np.zeros((steps, layers, experts), np.int64)
        np.add.at(found, (self.step[:, None, None], np.arange(layers)[None, :, None], self.experts), 1)
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """A deployment that records. mode: of the recorder · buffer: its passes, -1 = all · world: ranks that record; where
    it is 1, rank 0 is fed the tokens of all."""

    case: Case
    plan: Plan
    mode: str
    buffer: int = -1

    def dump(self, sglang: SGLang, traffic: Traffic, folder: Path, ranks: list[int]) -> None:
        """One dump of each of `ranks`; each is fed its own tokens, the last the rest too."""
        case, plan = self.case, self.plan
        serving = replace(case.serving, recorder=self.mode, buffer=self.buffer)
        file = exported(case, plan, folder.parent / "location.json")
        for rank in ranks:
            metadata = sglang.load(file, serving, rank)
            recorder = sglang.recorder(metadata, serving, rank, folder)
            mine = np.flatnonzero(traffic.rank == rank if rank != ranks[-1] else traffic.rank >= rank)
            self._feed(sglang, recorder, traffic, mine)
            recorder.stop_record()
            recorder.dump_record()

    def _feed(self, sglang: SGLang, recorder: Any, traffic: Traffic, mine: IntArray) -> None:
        table = self.case.dispatch_table(self.plan)
        torch = sglang.torch
        for step in range(int(traffic.step.max()) + 1):
            rows = mine[traffic.step[mine] == step]
            layers = np.arange(self.case.moe)[None, :, None]
            slots = table[traffic.rank[rows][:, None, None], layers, traffic.experts[rows]]
            batch = ForwardBatch(
                input_ids=torch.from_numpy(rows),
                positions=torch.from_numpy(np.arange(len(rows))),
                extend_seq_lens_cpu=[len(rows)] if step == 0 else None,
                forward_mode=SimpleNamespace(value=EXTEND if step == 0 else DECODE),
            )
            with recorder.with_forward_pass(step, batch):
                for layer in range(self.case.moe):
                    with recorder.with_current_layer(self.case.dense + layer):
                        # The engine pads its batches with -1.
                        padded = np.concatenate([slots[:, layer], np.full((2, slots.shape[2]), -1)]).astype(np.int32)
                        recorder.on_select_experts(topk_ids=torch.from_numpy(padded))


@contextmanager
def one_process(sglang: SGLang, folder: Path) -> Iterator[None]:
    """A process group of this process alone: the recorder of totals sums over the group."""
    distributed = sglang.torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()
