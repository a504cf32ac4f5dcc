"""`adopt`: what `ebsim adopt` does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Numbers, PathLike, numbers_of, path_of
from easybalance_sim.api.plan_files import PlanResult, unjudged
from easybalance_sim.errors import PlanError
from easybalance_sim.exports.adoption import adopt_file
from easybalance_sim.exports.deployment import deployment_of
from easybalance_sim.exports.linting import Report
from easybalance_sim.plan.lint import ERROR
from easybalance_sim.report.placement_words import shape
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AdoptResult(PlanResult):
    """What an engine runs with, as a plan that nobody has judged: for `replay` to judge and `plan(current=…)` to
    improve."""

    def line(self) -> str:
        """The shape of the placement."""
        return f"{shape(self.document)}, not judged"

    def table(self) -> pd.DataFrame:
        """Whose file it was, and the shape of the placement."""
        import pandas as pd

        plan, told = self.plan, self.document.evidence["adopted"]
        facts = {"engine": told["engine"], "file": told["file"], "layers": plan.layers, "experts": plan.experts,
                 "ranks": plan.ranks, "slots": plan.slots, "redundant_slots": plan.redundant_slots}  # fmt: skip
        return pd.DataFrame(facts.items(), columns=["what", "value"]).set_index("what")

    def save(self, path: PathLike, *, force: bool = True) -> Path:
        """Write the plan file, whole or not at all; there is no verdict to refuse it for."""
        return super().save(path, force=force)


def adopt(
    engine: str,
    file: PathLike,
    *,
    output: PathLike | None = None,
    ranks: int | None = None,
    ranks_per_node: int | None = None,
    model: PathLike = "",
    layers: Numbers = (),
    experts: int | None = None,
    schema: str = "",
) -> AdoptResult:
    """Turn a placement that is deployed into a plan; a plan file is written only to `output`.

    engine: sglang, tensorrt-llm, vllm, vllm-ascend or omni · layers: ids of the MoE layers, as in `range(3, 61)`.
    Raises `PlanError` for a file that cannot be read or in which `lint` finds an error, `UsageError` for bad options.
    """
    call, _ = begun(adopt, locals())
    ids = numbers_of(layers) or None
    deployment = deployment_of(os.fspath(model), ranks=ranks, experts=experts, layers=ids, schema=schema)
    target = path_of(output)
    found = adopt_file(Path(file), engine, deployment, ranks_per_node=ranks_per_node, output=target)
    if isinstance(found, Report):
        raise _faulty(found)
    report = unjudged(found.document, target, found.notes)
    return AdoptResult(report=report, document=found.document, call=call)


def _faulty(report: Report) -> PlanError:
    """The first error of a file, as one line."""
    first = next(one for one in report.findings if one.level == ERROR)
    places = [f"{name} {at}" for name, at in (("layer", first.layer), ("slot", first.slot)) if at is not None]
    more = f" ({many(report.errors - 1, 'more error')})" if report.errors > 1 else ""
    where = ": ".join([str(report.path), *([" ".join(places)] if places else [])])
    return PlanError(f"{first.message}{more}", where=where, fix="lint the file for all that is wrong")
