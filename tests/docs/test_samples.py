"""Everything that the docs show is done here, as a reader would do it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import boto3
import pytest
from tests import standins
from tests.docs.samples import Page, SampleError, compare
from tests.http.live_server import running_server
from tests.project import ROOT

from milepost_deposits.standins.__main__ import partners
from milepost_deposits.standins.dspace import PASSWORD, USER
from milepost_deposits.standins.mailbox import MailboxStandIn
from milepost_postingest.standins.scoutam import StandIn

WORDS_ONLY = {ROOT / "docs/glossary.md", ROOT / "docs/index.md"}
PAGES = [
    ROOT / "README.md",
    *sorted({*(ROOT / "docs").glob("*.md")} - WORDS_ONLY),
    *sorted((ROOT / "docs/guides").glob("*.md")),
]


class Trial(NamedTuple):
    """What a page has its reader set up by hand: variables of the environment, and the ports used
    in place of those that the page names."""

    env: Mapping[str, str]
    ports: Mapping[int, int] = {}


Setup = Callable[[Path], contextlib.AbstractContextManager[Trial]]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_samples_do_what_the_page_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        env: dict[str, str] = {}
        ports: dict[int, int] = {}
        for set_up in SET_UP.get(path.name, ()):
            trial = stack.enter_context(set_up(tmp_path))
            env |= trial.env
            ports |= trial.ports
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        # boto3 keeps the account of whoever was first in this process.
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        assert Page(path, tmp_path, env, ports).run() > 0, f"{path.name} has no sample that runs"


@contextlib.contextmanager
def stand_in(folder: Path, prefix: str = "try") -> Iterator[Trial]:
    """What the pages on AWS have their reader set up by hand: a server at the address that they
    name."""
    server = standins.ministack(folder)
    server.start()
    try:
        yield Trial(
            {
                **standins.environment(standins.new_account()),
                "AWS_DEFAULT_REGION": "eu-west-2",
                "AWS_ENDPOINT_URL": server.url,
                "MILEPOST_LEDGER": f"dynamodb://eu-west-2/{prefix}?endpoint={server.url}",
            }
        )
    finally:
        server.stop()


@contextlib.contextmanager
def archive(folder: Path) -> Iterator[Trial]:
    """What the pages on postingest have their reader set up by hand: the example's folder, and
    something that stands for the tapes."""
    shutil.copytree(
        ROOT / "examples/postingest",
        folder,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    with StandIn(everything=True, after=1.0) as tapes:
        yield Trial(
            {
                "OCFL_REPO_DIR": "repository",
                "SCOUTAM_URL": tapes.url,
                "SCOUTAM_USERNAME": tapes.user,
                "SCOUTAM_PASSWORD": tapes.password,
                "MOUNT_ROOT": tapes.root,
            }
        )


@contextlib.contextmanager
def api(folder: Path) -> Iterator[Trial]:
    """What the page on the API has its reader start by hand: `milepost up`, here without its
    workers, so that items stay where they are."""
    with running_server(folder) as visitor:
        yield Trial({"URL": visitor.url})


@contextlib.contextmanager
def repository(folder: Path) -> Iterator[Trial]:
    """The partners that the page on deposits has its reader start."""
    with (
        partners(0, 0, 0) as (crossref, publisher, dspace),
        MailboxStandIn(folder / "mails", port=0) as mailbox,
    ):
        urls = {9101: crossref.url, 9102: publisher.url, 9103: dspace.url, 2525: mailbox.url}
        ports = {shown: urlsplit(url).port or 0 for shown, url in urls.items()}
        yield Trial({"DSPACE_USER": USER, "DSPACE_PASSWORD": PASSWORD}, ports)


@contextlib.contextmanager
def partner(folder: Path) -> Iterator[Trial]:
    """A free port for the partner that the page on notifications starts."""
    yield Trial({}, {9321: standins.free_port()})


SET_UP: dict[str, tuple[Setup, ...]] = {
    "api.md": (api,),
    "aws.md": (stand_in,),
    "deposits.md": (repository,),
    "notifications.md": (partner,),
    "postingest.md": (archive,),
    "postingest-on-aws.md": (archive, partial(stand_in, prefix="intg-dr2")),
}


def run_text(text: str, folder: Path) -> int:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return Page(page, folder).run()


WRONG = {
    "a python block that raises": "```python\nassert 1 == 2\n```\n",
    "output that differs": "```python\nprint('one')\n```\n\n```text output\ntwo\n```\n",
    "output that is missing": "```python\nprint('one')\n```\n\n```text output\none\ntwo\n```\n",
    "output that goes on": "```python\nprint('one')\nprint('two')\n```\n\n```text output\none\n```\n",
    "a command that fails": "```console\n$ milepost no-such-command\n```\n",
    "a command that should fail": "```console exit=1\n$ milepost --version\n```\n",
    "an answer that differs": "```console\n$ echo one\ntwo\n```\n",
    "a block without a command": "```console\nmilepost status\n```\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_wrong_samples_fail(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_text(text, tmp_path)


def test_right_samples_pass(tmp_path: Path) -> None:
    page = """
```python
word = "one"
```

```python
print(word)
print("at 12:31:07")
```

```text output
one
at ...
```

```text file=words.txt
a
b
c
```

```console
$ cat words.txt \\
    words.txt
a
...
c
$ milepost --version
milepost ...
```

```python no-run
this is not Python
```
"""
    assert run_text(page, tmp_path) == 4


def test_three_dots_stand_for_anything_but_not_for_other_words() -> None:
    compare("a ... c\n...\nz", "a   b c\n\n──\nmore\nz\n", "here")
    with pytest.raises(SampleError, match="here"):
        compare("a ... c\n...\nz", "a b d\nz\n", "here")
