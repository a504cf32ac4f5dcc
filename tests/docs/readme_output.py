"""The output that README.md shows, made anew: `python -m tests.docs.readme_output`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.ebsim_process import ROOT, ebsim

README = ROOT / "README.md"
OUTPUT, EXCERPT = "<!-- output: ebsim plan traces/tinymoe.parquet -o plan.json -->", "<!-- excerpt -->"
FIRST_ROW, ROWS = "rank imbalance, mean", 5


def block_after(marker: str, text: str) -> str:
    """The first fenced block after a comment."""
    found = re.search(re.escape(marker) + r"\n```[a-z]*\n(.*?)```", text, re.DOTALL)
    if not found:
        raise ValueError(f"README.md has no block after {marker}")
    return found.group(1)


def excerpt(output: str) -> str:
    """The verdict, what it is worth, and the first rows of the table with their heads."""
    lines = output.splitlines()
    row = next(at for at, line in enumerate(lines) if line.startswith(FIRST_ROW))
    said = lines[: next(at for at, line in enumerate(lines) if " ranks × " in line)]
    return "\n".join([*said, "…", *lines[row - 1 : row + ROWS], ""])


def with_output(text: str, output: str) -> str:
    """README's text with this output in its two places."""
    for marker, block in ((OUTPUT, output), (EXCERPT, excerpt(output))):
        text = text.replace(f"{marker}\n```\n{block_after(marker, text)}```", f"{marker}\n```\n{block}```")
    return text


def main() -> None:
    """Plan on the sample trace and write what came out."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "traces").symlink_to(ROOT / "traces")
        done = ebsim("plan", "traces/tinymoe.parquet", "-o", "plan.json", cwd=Path(folder))
    done.check_returncode()
    README.write_text(with_output(README.read_text("utf-8"), done.stdout), encoding="utf-8")


if __name__ == "__main__":
    main()
