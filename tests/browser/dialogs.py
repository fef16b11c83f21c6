"""The dialog in which people say why they do something."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, Route

READ = "READ_MS = 900"


def at_leisure(page: Page) -> None:
    """In pages that are opened from now on, the last words of a dialog stay until it is closed: a test may be a slow reader."""

    def patient(route: Route) -> None:
        answer = route.fetch()
        assert READ in answer.text()
        route.fulfill(response=answer, body=answer.text().replace(READ, "READ_MS = 600000"))

    page.route("**/static/*/dialog.js", patient)


def say_why(page: Page, why: str) -> Locator:
    """Do what the open dialog asks about, for this reason."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why?").fill(why)
    dialog.get_by_role("button", name="Do it").click()
    return dialog
