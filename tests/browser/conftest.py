"""A real browser for the page: Chromium as the system has it, driven by Playwright; skipped where there is none."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """One browser window that notes every console message, error, dialog and request."""

    def __init__(self, context):
        self.page = context.new_page()
        self.shown: tuple[str, int, str] | None = None
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._note(f"console {message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self._note(f"error: {error} {error.stack}"))
        self.page.on("dialog", lambda dialog: (self._note(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _note(self, text: str) -> None:
        self.problems.append(text)

    def open(self, path: Path, *, width: int = 1280, height: int = 800, theme: str = "light"):
        """Opens a page afresh and waits until it has drawn itself."""
        if self.page.url.startswith("file:"):
            self.page.evaluate("localStorage.clear()")  # a theme that another test chose
        self.problems.clear()
        self.requests.clear()
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=theme)
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        self.page.wait_for_timeout(300)  # frames that the page asked for
        self.shown = (self.page.url, width, theme)
        return self.page

    def keep(self, path: Path):
        """The page as a test before left it, where it shows this one at the usual size: to draw it takes seconds."""
        if self.shown != (path.resolve().as_uri(), 1280, "light"):
            return self.open(path)
        self.problems.clear()
        self.requests.clear()
        return self.page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next((found for name in CHROMIUMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    with playwright.sync_playwright() as driver, tempfile.TemporaryDirectory() as profile:
        context = driver.chromium.launch_persistent_context(
            profile, headless=True, executable_path=program, args=list(FLAGS)
        )
        yield Browser(context)
        context.close()
