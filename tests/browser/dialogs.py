"""The dialog in which people say why they do something."""

from __future__ import annotations

from playwright.sync_api import Locator, Page


def say_why(page: Page, why: str) -> Locator:
    """Do what the open dialog asks about, for this reason."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why?").fill(why)
    dialog.get_by_role("button", name="Do it").click()
    return dialog
