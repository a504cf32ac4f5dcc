"""Every case once under AddressSanitizer and UBSan: `python -m tests.cuda_on_cpu.check FOLDER SEED [OLD NEW]`.

libasan has to be preloaded. Prints how many cases ran; ends with 1 where one differs from the specification, and with a
report where a kernel leaves its arrays, which have no padding here. OLD, NEW: a text of the kernels to exchange.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cuda_on_cpu.compiled import SANITIZED
from tests.cuda_on_cpu.stand_in import StandIn, gpu_kernels
from tests.parity import search_cases
from tests.parity.cases import differences


def main(folder: str, seed: str, old: str = "", new: str = "") -> int:
    """The exit code."""
    stand_in = StandIn(Path(folder), seed=int(seed), padding=0, flags=SANITIZED)
    if old:
        stand_in.plant = lambda source: source.replace(old, new)
    # Barriers of a walk are many, and switching threads under AddressSanitizer is slow.
    search_cases.COLD, search_cases.PROPOSALS = 40, 40
    with gpu_kernels(stand_in) as module:
        found = dict(differences(module))
    differing = [name for name, what in found.items() if what]
    print(f"{len(found)} cases, {len(differing)} differ", *differing[:5])
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
