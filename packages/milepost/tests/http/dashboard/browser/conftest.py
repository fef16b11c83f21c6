"""A real browser for each module, and a fresh window for every test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect, sync_playwright
from tests.http.live_server import LiveServer, running_server

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
QUIET += ["--disable-component-update", "--disable-sync"]

PATIENCE_MS = 60_000
FAILED = pytest.StashKey[bool]()
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer than a module: while it is open, nobody else in this process can run an event
    loop."""
    found = shutil.which("chromium")
    assert found is not None, (
        "there is no Chromium; tools/need-programs chromium says how to get it"
    )
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture
def live_server(tmp_path: Path) -> Iterator[LiveServer]:
    with running_server(tmp_path) as visitor:
        yield visitor


@pytest.fixture
def full(live_server: LiveServer) -> LiveServer:
    """Three that are with the partner, two that failed."""
    items = [{"id": f"P-{number}"} for number in (1, 2, 3)] + [
        {"id": f"F-{number}", "weigh": "reject"} for number in (1, 2)
    ]
    live_server.milepost.submit("parcels", *items)
    live_server.work()
    return live_server


@pytest.fixture
def window(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Page]]:
    """Opens windows; whatever a page complains of fails the test, unless it is opened with
    `trouble=True`. If the test fails, a picture of each is kept under build/pages; with --pictures
    always."""
    complaints: list[str] = []
    opened: list[Page] = []

    def complain(message: ConsoleMessage) -> None:
        # An act that is looked for before it has begun is not there yet.
        if message.type == "error" and "/api/v1/acts/page-" not in message.location["url"]:
            complaints.append(message.text)

    def open_one(*, trouble: bool = False, **options: Any) -> Page:
        page = (
            browser.new_context(viewport={"width": 1280, "height": 800}, **options).new_page()
            if "viewport" not in options
            else (browser.new_context(**options).new_page())
        )
        page.set_default_timeout(PATIENCE_MS)
        if not trouble:
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", complain)
        opened.append(page)
        return page

    yield open_one
    folder = Path(request.config.rootpath) / "build" / "pages"
    wanted = bool(
        request.config.getoption("--pictures")
        or request.node.stash.get(FAILED, False)
        or complaints
    )
    for number, page in enumerate(opened, 1):
        if wanted:
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(
                Error
            ):  # a picture is a help; a browser that is too busy for it has shown no fault of ours
                page.screenshot(
                    path=folder / f"{request.node.name.replace('/', '-')[:100]}-{number}.png"
                )
        # The page is left, so that it calls no server any more. Its context stays open until the
        # browser ends, which Playwright enforces: closing a context has no time limit, and has
        # hung.
        with suppress(Error):
            page.goto("about:blank")
    assert complaints == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has failed is known as such when its windows are closed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report
