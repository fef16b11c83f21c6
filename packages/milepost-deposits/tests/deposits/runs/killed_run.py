"""`milepost deposits run` in a process that kills itself (SIGKILL) at a point: killed_run.py POINT,
in a folder with a milepost.toml."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from milepost.application.context import AppDocuments
from milepost.blobs.inbox import FolderInbox
from milepost.cli import main
from milepost.operations import Operations
from milepost.subscribers.email.smtp import SmtpTransport
from milepost_deposits.digest.collect import CURSOR
from milepost_deposits.fetch.metadata import MetadataStage
from milepost_deposits.runs import RunJournal


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(owner: type, name: str, when: Callable[..., bool], *, done: bool) -> None:
    """Die at a call of this method, before it or when it is done."""
    method = getattr(owner, name)

    def killing(*given: Any, **more: Any) -> Any:
        if when(*given, **more) and not done:
            die()
        result = method(*given, **more)
        if when(*given, **more):
            die()
        return result

    setattr(owner, name, killing)


def at_step(step: str) -> Callable[[], None]:
    return lambda: kill_at(
        RunJournal, "note", lambda *_, **facts: facts.get("step") == step, done=True
    )


POINTS: dict[str, Callable[[], None]] = {
    "beginning": lambda: kill_at(RunJournal, "note", lambda *_, **__: True, done=False),
    "a bad file is in quarantine": lambda: kill_at(
        FolderInbox, "move", lambda self, file, to: to.startswith("quarantine"), done=True
    ),
    "a list is recorded and not archived": lambda: kill_at(
        FolderInbox, "move", lambda self, file, to: "march" in to, done=False
    ),
    "all lists are taken in": at_step("applying results"),
    "a DOI is being worked on": lambda: kill_at(
        MetadataStage, "__call__", lambda *_: True, done=False
    ),
    "all DOIs are worked on": at_step("collecting digests"),
    "a digest is recorded": lambda: kill_at(
        Operations, "submit", lambda self, route, *_, **__: "digests" in route, done=True
    ),
    "the cursor of digests is moved": lambda: kill_at(
        AppDocuments,
        "put",
        lambda self, name, value, **_: name == CURSOR and value["after"] > 0,
        done=True,
    ),
    "digests are collected": at_step("mailing digests"),
    "a digest is mailed and not settled": lambda: kill_at(
        SmtpTransport, "send", lambda *_: True, done=True
    ),
}

if __name__ == "__main__":
    POINTS[sys.argv[1]]()
    sys.argv[1:] = ["deposits", "run"]
    main()
