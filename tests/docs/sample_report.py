"""Makes reports/sample_report.html, the sample's report, and docs/report.png, its top:

python -m tests.docs.sample_report
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from easybalance_sim.files import replacing
from tests.ebsim_process import ROOT, ebsim

PAGE = ROOT / "reports" / "sample_report.html"
PICTURE = ROOT / "docs" / "report.png"
COMMAND = ("plan", "traces/tinymoe.parquet", "-o", "plan.json", "--report", "sample_report.html")
WIDTH, HEIGHT = 1240, 1560
"""Of the picture, in pixels."""


def make_page(folder: Path) -> str:
    """The page as the command writes it in `folder`, where the repository's traces are."""
    (folder / "traces").symlink_to(ROOT / "traces")
    done = ebsim(*COMMAND, cwd=folder)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return (folder / "sample_report.html").read_text(encoding="utf-8")


def picture_of(page: Path) -> bytes:
    """A PNG of few colours of the page's top, as a window of that size shows it in daylight."""
    from PIL import Image

    from tests.browser_sessions import chromium, opened

    with chromium() as browser, opened(browser, page, width=WIDTH, height=HEIGHT) as found:
        shot = Image.open(io.BytesIO(found.page.screenshot()))
    out = io.BytesIO()
    shot.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(out, format="PNG", optimize=True)
    return out.getvalue()


def main() -> None:
    """Write both."""
    with tempfile.TemporaryDirectory() as folder, replacing(PAGE) as page:
        page.write_text(make_page(Path(folder)), encoding="utf-8")
    with replacing(PICTURE) as picture:
        picture.write_bytes(picture_of(PAGE))


if __name__ == "__main__":
    main()
