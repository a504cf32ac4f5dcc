"""Makes the documents of this folder: what a command says with `--format json`, cut to what its table reads.

    ebsim plan traces/tinymoe.parquet -o plan.json
    ebsim trace synthesise day -o day.parquet --hours 3 --seed 7
    ebsim offset traces/tinymoe_scores.parquet --past traces/tinymoe.parquet --format json > offset.json   (and so on)
    python -m tests.golden.printed.make_golden NAME DOCUMENT.json

NAME says what the document is, as in `tests/printed_documents.py`; numbers are cut to six digits. `plan` is of two
nodes with a plan in force and `--stress`, `offload` holds one batch size.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.printed_documents import FOLDER, cut


def shortened(content: Any) -> Any:
    """Floats with six digits."""
    if isinstance(content, dict):
        return {name: shortened(value) for name, value in content.items()}
    if isinstance(content, list):
        return [shortened(value) for value in content]
    return float(f"{content:.6g}") if isinstance(content, float) else content


if __name__ == "__main__":
    name, source = sys.argv[1:]
    found = json.loads(Path(source).read_text(encoding="utf-8"))
    if name == "offload":
        found["batches"] = found["batches"][:1]
    text = json.dumps(shortened(cut(name, found)), ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
