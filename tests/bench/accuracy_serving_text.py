"""The section of reports/accuracy.md on whole deployments."""

from __future__ import annotations

from textwrap import fill

from tests.bench.accuracy_serving import AVERAGE, BRACKET, SERIAL, Served

WIDTH = 120
PARTS = ("attention", "outside", "dispatch", "expert", "combine")
NOTES = """
What is measured where: SGLang's rows are LMSYS 2025-05-05 (96 H100; decode in one batch from its +25.5 % for
two-batch overlap at 256 requests), "DeepSeek profile" is deepseek-ai/profile-data (perfectly balanced by
construction), production is day 6 of its open-infra-index with the batch and the context of SGLang's table. Batches,
contexts, ranks and slots are those of the runs; that the cache has room for them is computed, not assumed. Of these
numbers only DeepSeek's attention on the H800 with 64 and 128 decoding requests, by way of InferSim, touched a
constant of the model (`cost.attention`), and DeepSeek's tables of its all-to-all those of the H800's links.

The bracket is what can be said of an absolute throughput: {width}. Full overlap takes no multiprocessors away from
computing, as DeepEP's prefill kernels do, and no weights are read twice: an upper end. Without overlap the simulated
step is {serial_error} than SGLang's own run without it: norms, rotary embedding, gating and quantisation are left
out, and real topics are more uneven than tokens drawn one by one. A decode step of SGLang takes {itl} ms without and
with overlap; its throughput says {measured_itl} ms, its text some 100 ms between tokens.

Outside, and why: DeepSeek's production prefill, {production:,.0f} tokens/s of a node without its 56.3 % cache hits
(73,700 with them), lies below even the serial end, {production_serial:,.0f}. It is the mean of a day over all nodes,
which are not always full, at DeepSeek's real imbalance, and half of DeepSeek's own profile. It bounds nothing and is
not counted. The production decode is such a mean, too: 20 to 22 tokens/s of a user at 1,850 of a GPU are some 88
requests, not 128, hence both rows.
"""


def served_section(found: list[Served]) -> list[str]:
    """Lines of the section."""
    head = [
        "## Whole deployments of DeepSeek-V3 through the serving simulator, tokens/s of a node",
        "",
        "A closed load on all ranks, from requests to tokens; serial: no communication hidden, full overlap: all that",
        "can be. Lost: seconds that uneven ranks cost, of the serial step. Cache: share of the KV cache in use.",
        "",
        "| run | routing | serial | full overlap | measured | compared with | | step ms | lost | cache |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    parts = [
        "",
        "Shares of the serial step:",
        "",
        f"| run | {' | '.join(PARTS)} |",
        f"|---|{'---|' * len(PARTS)}",
        *(f"| {one.run.name} | {' | '.join(f'{100 * one.parts[name]:.0f} %' for name in PARTS)} |" for one in found),
    ]
    return [*head, *map(_row, found), *parts, *_notes(found)]


def _row(one: Served) -> str:
    run, steps = one.run, f"{one.step_s[0] * 1e3:,.0f} / {one.step_s[1] * 1e3:,.0f}"
    return (
        f"| {run.name} | {run.routing} | {one.serial:,.0f} | {one.overlap:,.0f} | {run.per_node:,.0f} "
        f"| {_against(one)} | {steps} | {100 * one.lost:.0f} % | {100 * one.cache:.0f} % |"
    )


def _against(one: Served) -> str:
    if one.run.compare == SERIAL:
        return f"serial | {100 * (one.serial / one.run.per_node - 1):+.0f} %"
    if one.run.compare == AVERAGE:
        return f"nothing: a day's mean | {'inside' if one.holds else 'outside'}"
    return f"bracket | {'inside' if one.holds else 'OUTSIDE'}"


def _notes(found: list[Served]) -> list[str]:
    widths = [one.overlap / one.serial for one in found if one.run.compare == BRACKET]
    alone = next(one for one in found if one.run.compare == SERIAL)
    mean = next(one for one in found if one.run.compare == AVERAGE)
    both = next(one for one in found if one.run.name == "SGLang decode")
    error = alone.serial / alone.run.per_node - 1
    text = NOTES.format(
        width=f"its upper end is {min(widths):.2f} to {max(widths):.2f} times the lower one",
        serial_error=f"{100 * abs(error):.0f} % {'faster' if error > 0 else 'slower'}",
        itl=f"{both.step_s[0] * 1e3:.0f} and {both.step_s[1] * 1e3:.0f}",
        measured_itl=f"{both.run.batch * 8 / both.run.per_node * 1e3:.0f}",
        production=mean.run.per_node,
        production_serial=mean.serial,
    )
    paragraphs = [fill(part.replace("\n", " "), WIDTH) for part in text.strip().split("\n\n")]
    return ["", *"\n\n".join(paragraphs).split("\n")]
