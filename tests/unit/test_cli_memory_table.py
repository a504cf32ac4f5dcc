"""Memory as lines: units that can be read, what is not known, warnings."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cli.memory_table import of_memory

MEMORY: dict[str, Any] = {
    "kv_cache_loss_frac": 0.0312,
    "kv_tokens_lost": 36_348,
    "bytes_per_redundant_slot": 2_554_300_000,
    "staging_bytes": 88_100_000,
    "expert_memory_frac": 0.2,
    "dispatch_buffer": {"sent_per_rank": 1129, "tokens_per_rank": 4000, "tokens_per_expert": 77, "bytes": 32_700},
    "activation_bytes": 999,
    "warnings": [],
}


def test_every_number_has_its_unit() -> None:
    assert of_memory(MEMORY).splitlines() == [
        "memory of a GPU under the plan",
        "  KV cache lost to its additional slots  36,348 tokens (3.1 %)",
        "  one more slot in every layer           2.6 GB",
        "  staging of experts that arrive         88.1 MB",
        "  dispatch buffer of the fullest step    32.7 kB: up to 1,129 tokens sent by a",
        "                                         rank, 4,000 copies taken in, 77 for one",
        "                                         slot",
        "  activations of the fullest step        999 B",
    ]


def test_a_burst_that_overflows_is_a_line_of_its_own() -> None:
    lines = of_memory(MEMORY | {"warnings": ["one", "two"]}).splitlines()
    assert lines[-2:] == ["WARNING: one", "WARNING: two"]


def test_what_is_not_known_is_said() -> None:
    unknown = MEMORY | dict.fromkeys(("kv_tokens_lost", "staging_bytes", "activation_bytes"))
    assert of_memory(unknown).count("not known (say --model)") == 2
    assert "additional slots  3.1 % (tokens: say --model)\n" in of_memory(unknown)
    no_room = MEMORY | {"kv_cache_loss_frac": None}
    assert "  36,348 tokens\n" in of_memory(no_room)
    assert of_memory(unknown | no_room | {"kv_tokens_lost": None}).count("  not known (say --model)\n") == 1
