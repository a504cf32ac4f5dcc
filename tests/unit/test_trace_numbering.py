"""One numbering over files: what is moved up, and what no longer fits."""

from __future__ import annotations

import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.numbering import Base, Extent, bases


def extent(
    first: int, last: int, requests: tuple[int, int] = (0, 9), times: tuple[float, float] | None = None
) -> Extent:
    begins_s, ends_s = times or (None, None)
    return Extent(
        first_step=first, last_step=last, least_request=requests[0], most_request=requests[1], begins_s=begins_s,
        ends_s=ends_s,
    )  # fmt: skip


def found(*extents: Extent) -> list[tuple[int, int, float]]:
    names = [f"{number}.parquet" for number in range(len(extents))]
    return [(base.step, base.request, base.time_s) for base in bases(extents, names)]


def test_steps_that_go_on_are_left_alone() -> None:
    assert found(extent(0, 5), extent(5, 9), extent(12, 12)) == [(0, 0, 0.0)] * 3


def test_a_new_recording_begins_after_the_last_step_and_request() -> None:
    assert found(extent(3, 5, (2, 7)), extent(0, 4, (0, 3)), extent(4, 6, (0, 1))) == [
        (0, 0, 0.0), (6, 8, 0.0), (6, 8, 0.0),
    ]  # fmt: skip


def test_two_files_that_begin_alike_are_two_recordings() -> None:
    assert found(extent(7, 7), extent(7, 7), extent(7, 8))[1:] == [(1, 10, 0.0), (2, 20, 0.0)]


def test_a_step_over_many_files_is_one_step() -> None:
    assert found(extent(0, 11), extent(11, 11), extent(11, 11), extent(11, 12), extent(0, 3))[:4] == [(0, 0, 0.0)] * 4
    assert found(extent(0, 11), extent(11, 11), extent(11, 12), extent(0, 3))[3] == (13, 10, 0.0)


def test_files_know_where_their_recording_begins() -> None:
    made = bases([extent(0, 5), extent(6, 9), extent(0, 3), extent(3, 7)], ["a", "b", "c", "d"])
    assert [base.recording for base in made] == [0, 0, 2, 2]


def test_the_clock_goes_on_where_it_would_go_back() -> None:
    recordings = [extent(0, 1, times=(1.0, 4.0)), extent(0, 1, times=(0.5, 2.0)), extent(0, 1, times=(90.0, 91.0))]
    assert [base[2] for base in found(*recordings)] == [0.0, 3.5, 0.0]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (extent(0, 2**31 - 1), "column step: ids from 0 to 2147483647"),
        (extent(0, 1, (-1, 4)), "column request: ids from -1 to 4"),
        (extent(0, 1, (-5, -3)), "column request: ids from -5 to -3"),
        (extent(0, 1, (0, 2**63 - 1)), "column request: ids from 0 to 9223372036854775807"),
    ],
)
def test_what_does_not_fit(second: Extent, says: str) -> None:
    with pytest.raises(TraceError, match=f"^1.parquet: {says} cannot be numbered on"):
        bases([extent(0, 1), second], ["0.parquet", "1.parquet"])


def test_no_base_no_copy() -> None:
    assert Base() == Base(step=0, request=0, time_s=0.0)


def test_two_recordings_of_negative_requests_are_not_one() -> None:
    with pytest.raises(TraceError, match="column request: ids from -5 to -3 cannot be numbered on"):
        bases([extent(0, 1, (-5, -3)), extent(0, 1, (-5, -3))], ["a", "b"])
    assert len(bases([extent(0, 1, (-5, -3)), extent(2, 3, (-5, -3))], ["a", "b"])) == 2
