"""Whatever the labels and numbers are, the text says them."""

from __future__ import annotations

import math

import hypothesis.strategies as st
from hypothesis import given, settings

from easybalance_sim.report.openmetrics import Family, Sample, text
from tests.exposition import read

LABELS = st.dictionaries(st.sampled_from(["layer", "policy", "a", "_b9"]), st.text(), max_size=3)
SAMPLES = st.lists(st.tuples(LABELS, st.floats()), max_size=5, unique_by=lambda pair: tuple(sorted(pair[0].items())))


@settings(max_examples=150, deadline=None)
@given(helps=st.text(), first=SAMPLES, second=SAMPLES)
def test_labels_help_and_values_come_back(
    helps: str, first: list[tuple[dict[str, str], float]], second: list[tuple[dict[str, str], float]]
) -> None:
    given_ = {"ebsim_first_bytes": first, "ebsim_second": second}
    families = [
        Family(name=name, help=helps, samples=tuple(Sample(value=value, labels=labels) for labels, value in samples))
        for name, samples in given_.items()
    ]
    found = read(text(families))
    assert list(found.samples) == [name for name, samples in given_.items() if samples]
    for name, samples in found.samples.items():
        assert found.help[name] == helps
        assert [labels for labels, _ in samples] == [labels for labels, _ in given_[name]]
        for (_, value), (_, meant) in zip(samples, given_[name], strict=True):
            assert value == meant or (math.isnan(value) and math.isnan(meant))
