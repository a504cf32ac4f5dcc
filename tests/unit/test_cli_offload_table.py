"""Tables and lists of `ebsim offload`."""

from __future__ import annotations

import pytest

from easybalance_sim.cli import offload_options, offload_table
from easybalance_sim.errors import UsageError
from tests.offload_reports import example_report

TABLE = """\
1 request at once: keep half
8 requests at once: keep all

example: 2 layers × 4 experts of 2 MB bf16, int4_g32 on the link, 0.016 GB in
  all; a cache for every layer
link pcie5: 51.2 GB/s after 10 µs, 11 µs an expert
seconds: h100 · bf16

1 at once: 2,000 steps judged after 1,000, 1 tokens a step, 2.5 experts a layer
with all experts on the GPU a layer takes 50 µs, a step 100 µs (P99 120)

hit rate, % of the experts that a layer needs
  on the GPU  belady (bound)    lru  lru + history
   50 %                 95.0   90.0           85.0
  100 %                100.0  100.0          100.0

hit rate, % of tokens
  on the GPU  belady    lru  lru + history
   50 %         96.0   92.0           88.0
  100 %        100.0  100.0          100.0

mean step, times all-resident
  on the GPU  belady   lru  lru + history
   50 %         2.00  3.00           4.00
  100 %         1.00  1.00           1.00

P99 of what a step waits, ms
  on the GPU  belady   lru  lru + history
   50 %         0.20  0.40           0.60
  100 %         0.00  0.00           0.00

MB on the link per token
  on the GPU  belady (bound)   lru  lru + history
   50 %                0.562  1.12           1.69
  100 %                    0     0              0"""


def test_the_table_says_what_the_report_holds() -> None:
    report = example_report()
    report["batches"] = report["batches"][:1]
    assert offload_table.of(report) == TABLE


def test_one_cache_recorded_steps_and_a_figure_are_said() -> None:
    report = example_report()
    report["scope"], report["figure"], report["batches"][0]["batch"] = "model", "f.svg", None
    text = offload_table.of(report)
    for wanted in ("one cache for all layers", "\nas recorded: 2,000 steps", "drew f.svg"):
        assert wanted in text


def test_lists_are_read() -> None:
    assert offload_options.shares_of("0.25,1") == (0.25, 1.0)
    assert offload_options.batches_of("8,1,8") == (8, 1)
    assert (offload_options.shares_of(""), offload_options.batches_of("")) == ((), ())


@pytest.mark.parametrize("text", ["a", "1,,2", "0.5"])
def test_what_is_no_list_of_batches_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--batch: '.*' is no list of numbers of requests"):
        offload_options.batches_of(text)


def test_what_is_no_list_of_shares_is_refused() -> None:
    with pytest.raises(UsageError, match="--cached-share: '1,x' is no list of shares"):
        offload_options.shares_of("1,x")
