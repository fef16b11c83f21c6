"""Takes the picture of the overview for README and docs: `make picture`. It shows what `milepost
demo` shows."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "overview.png"
WIDTH, TALLEST = 1280, 1900
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


def main() -> int:
    """Runs the demo in a folder of its own until all are through, looks at its page, and stops
    it."""
    browser = shutil.which("chromium")
    if browser is None:
        print(
            "there is no Chromium; tools/need-programs chromium says how to get it", file=sys.stderr
        )
        return 1
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "milepost", "demo", "--stay", "--folder", "milepost-demo"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as demo:
            try:
                take(browser, through(demo))
            finally:
                demo.send_signal(signal.SIGINT)
    print(f"{PICTURE.relative_to(ROOT)} is taken anew")
    return 0


def through(demo: subprocess.Popen[str]) -> str:
    """Where the page is, as soon as all parcels are through."""
    assert demo.stdout is not None
    for line in demo.stdout:
        found = re.search(r"arrive every second\..*(http://\S+)", line)
        if found:
            return found[1]
    raise SystemExit("the demo has ended before its page could be looked at")


def take(browser: str, url: str) -> None:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
        page = opened.new_page(
            viewport={"width": WIDTH, "height": 800}, color_scheme="light", reduced_motion="reduce"
        )
        page.goto(url)
        tall = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size({"width": WIDTH, "height": min(TALLEST, tall)})
        page.screenshot(path=PICTURE)
        opened.close()


if __name__ == "__main__":
    sys.exit(main())
