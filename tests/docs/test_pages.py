"""The docs cannot drift: made pages are up to date, everything has its place, and every link leads
somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.project import ROOT

import milepost
from milepost.cli.commands import cli
from milepost.core import errors
from milepost.core.routes.route import Route
from milepost.core.status import Reason, Status

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "packages").glob("*/README.md")),
    *sorted((ROOT / "packages").glob("*/src/**/README.md")),
]
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def test_made_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.docs", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_page_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tools import docs

    monkeypatch.setattr(docs, "pages", lambda: {ROOT / "docs" / "no-such-page.md": "new"})
    assert docs.main(["--check"]) == 1
    assert "docs/no-such-page.md is out of date" in capsys.readouterr().err


def commands(group: click.Group, path: str = "milepost") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for path, command in commands(cli):
        _, found, section = page.partition(f"### {path}\n")
        assert found, f"{path} is not documented"
        section = section.partition("\n### ")[0]
        for option in (
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        ):
            assert option in section, f"{path} {option} is not documented"
        assert command.help, f"{path} says nothing about itself"


def test_every_command_is_used_somewhere_in_the_guides() -> None:
    text = "\n".join(
        page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *DOCS.glob("*.md")]
    )
    unused = [path for path, _ in commands(cli) if path not in text]
    assert not unused


def test_every_public_name_is_documented() -> None:
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    missing = [
        name
        for name in milepost.__all__
        if f"### {name}\n" not in page and f"| `{name}` |" not in page
    ]
    assert not missing
    assert list(milepost.__all__) == sorted(milepost.__all__)


def test_every_error_status_and_reason_is_documented() -> None:
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    names = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert [name for name in names if f"| `{name}` |" not in page] == []
    lifecycle = (DOCS / "lifecycle.md").read_text(encoding="utf-8")
    assert [word for word in (*Status, *Reason) if f"| `{word.value}` |" not in lifecycle] == []


def test_every_option_of_a_stage_is_explained() -> None:
    page = (DOCS / "routes.md").read_text(encoding="utf-8")
    options = {
        *Route.stage.__annotations__,
        *Route.external.__annotations__,
        *Route.__init__.__annotations__,
    } - {"name", "return"}
    assert [
        option
        for option in sorted(options)
        if f"`{option}`" not in page and f"{option}=" not in page
    ] == []


@pytest.mark.parametrize(
    "page", sorted((DOCS / "decisions").glob("*.md")), ids=lambda page: page.name
)
def test_decisions_are_short_and_numbered(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 40
    number = int(page.name[:4])
    assert lines[0].startswith(f"# {number}. ")
    assert all(
        f"**{word}.**" in page.read_text(encoding="utf-8")
        for word in ("Context", "Decision", "Consequences")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if link.startswith("https://"):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), (
                f"{page.name}: {link}: there are {sorted(anchors(target))}"
            )


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(
        r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 170
