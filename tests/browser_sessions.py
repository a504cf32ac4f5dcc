"""Pages opened in the distribution's Chromium: what they ask for, what they say, what axe finds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
REQUIRED = os.environ.get("EBSIM_REQUIRE_BROWSER") == "1"
SCREENSHOTS = os.environ.get("EBSIM_SCREENSHOTS")
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
"""Tags of axe's rules that a page must keep."""

Scheme = Literal["light", "dark"]


@dataclass(kw_only=True)
class Opened:
    """A page with all it asked for and said since it was opened. requests: their addresses · said: messages of the
    console, of every kind, and errors."""

    page: Page
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def look(self, width: int, scheme: Scheme, media: Literal["screen", "print"] = "screen") -> None:
        """Look at it in a window of that width, or as it would be printed."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme, media=media)

    def axe(self) -> list[str]:
        """Violations, one line each. What is inside a drawing is one image for everybody and is left out."""
        self.page.evaluate(axe_source())
        chosen = {"runOnly": {"type": "tag", "values": list(RULES)}, "resultTypes": ["violations"]}
        found: dict[str, Any] = self.page.evaluate("chosen => axe.run({exclude: [['svg > *']]}, chosen)", chosen)
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]

    def keep_screenshot(self, name: str) -> None:
        """Into the folder that EBSIM_SCREENSHOTS names, for people to look at."""
        if SCREENSHOTS:
            self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


@cache
def axe_source() -> str:
    """axe-core's script, from the package that carries it."""
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; the test is skipped where there is none, and fails where one is required."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        (pytest.fail if REQUIRED else pytest.skip)(f"no browser found among {', '.join(NAMES)}")
    # Chromium's sandbox refuses to run for root, as in containers.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Browser,
    path: Path,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: Scheme = "light",
    scripts: bool = True,
) -> Iterator[Opened]:
    """The file in a window of its own; any request but for the file itself is recorded and refused."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="light", java_script_enabled=scripts
    )
    try:
        yield _opened(context, path)
    finally:
        context.close()


def _opened(context: BrowserContext, path: Path) -> Opened:
    found = Opened(page=context.new_page())

    def judge(route: Route) -> None:
        address = route.request.url
        found.requests.append(address)
        if address == path.as_uri():
            route.continue_()
        else:
            route.abort()

    context.route("**/*", judge)
    found.page.on("console", lambda message: found.said.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.said.append(f"error: {error}"))
    found.page.goto(path.as_uri())
    return found
