"""Any plan survives the plan file; no damaged plan file passes for another one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import PlanError
from easybalance_sim.plan import canonical
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, TraceRecord, document, read_plan, write_plan
from tests.plan_documents import example_document

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    SCALARS | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
REPORTS = st.dictionaries(TEXT, JSON, max_size=3)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to 3 layers, 9 experts and 4 ranks of different size; every expert served."""
    slots_per_rank = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    slots = sum(slots_per_rank)
    experts = draw(st.integers(1, min(9, slots)))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        spare = draw(st.lists(st.integers(0, experts - 1), min_size=slots - experts, max_size=slots - experts))
        rows.append(draw(st.permutations([*range(experts), *spare])))
    return Plan(
        expert_of_slot=np.array(rows), slots_per_rank=np.array(slots_per_rank), experts=experts, policy=draw(TEXT)
    )


@st.composite
def documents(draw: st.DrawFn) -> PlanDocument:
    """A document around any plan, with any report inside."""
    plan = draw(plans())
    layer_ids = draw(st.lists(st.integers(0, 99), min_size=plan.layers, max_size=plan.layers, unique=True))
    topology = Topology(
        node_of_rank=np.arange(plan.ranks) // 2,
        slots_per_rank=plan.slots_per_rank + draw(st.integers(0, 1)),
        speed=np.full(plan.ranks, draw(st.floats(0.1, 10))),
    )
    report = draw(REPORTS)
    trace = TraceRecord(
        fingerprint=draw(TEXT),
        files=(draw(TEXT),),
        file_fingerprints=(draw(TEXT),),
        fit=report,
        held_out={},
        split=draw(REPORTS),
    )
    return document(
        plan,
        layer_ids=layer_ids,
        topology=topology,
        trace=trace,
        dispatch=draw(TEXT),
        evidence=report,
        verdict=draw(REPORTS),
        migration=draw(REPORTS),
        parent=draw(st.sampled_from([None, example_document()])),
    )


@given(documents())
@settings(max_examples=60, deadline=None)
def test_write_then_read_gives_the_same_document(doc: PlanDocument) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        fingerprint = write_plan(path, doc)
        back = read_plan(path)
    assert back == doc
    assert back.fingerprint() == fingerprint
    assert np.array_equal(back.plan().expert_of_slot, doc.plan().expert_of_slot)


@given(documents())
@settings(max_examples=40, deadline=None)
def test_equal_contents_give_equal_bytes(doc: PlanDocument) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "a.json"), Path(folder, "b.json")
        write_plan(first, doc)
        write_plan(second, read_plan(first))
        assert first.read_bytes() == second.read_bytes()


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_changed_bytes_are_refused_or_mean_the_same(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        write_plan(path, example_document())
        whole = path.read_bytes()
        start = data.draw(st.integers(0, len(whole) - 1))
        stop = data.draw(st.integers(start, min(len(whole), start + 4)))
        path.write_bytes(whole[:start] + data.draw(st.binary(max_size=3)) + whole[stop:])
        try:
            assert read_plan(path) == example_document()
        except PlanError as error:
            assert "\n" not in str(error)


@given(REPORTS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_key_order_does_not_change_the_bytes(report: dict[str, Any], random: Random) -> None:
    names = list(report)
    random.shuffle(names)
    shuffled = {name: report[name] for name in names}
    assert canonical.render(canonical.plain(report)) == canonical.render(canonical.plain(shuffled))
