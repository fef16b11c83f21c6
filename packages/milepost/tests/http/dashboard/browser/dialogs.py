"""The dialog that asks for the reason of an act."""

from __future__ import annotations

from contextlib import suppress

from playwright.sync_api import Error, Locator, Page, Route

from milepost.http.dashboard.static_files import FILES

QUICK = FILES["dialog.js"].decode()
PATIENT = QUICK.replace("READ_MS = 900", "READ_MS = 600000")


def at_leisure(page: Page) -> None:
    """In pages that are opened from now on, the last words of a dialog stay until it is closed: a
    test may be a slow reader."""
    assert PATIENT != QUICK

    def patient(route: Route) -> None:
        with suppress(Error):  # a window may be closed while its page is being loaded anew
            route.fulfill(body=PATIENT, content_type="text/javascript")

    page.route("**/static/*/dialog.js", patient)


def say_why(page: Page, why: str) -> Locator:
    """Do what the open dialog asks about, for this reason."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(why)
    dialog.get_by_role("button", name="Apply").click()
    return dialog
