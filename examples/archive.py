"""An archive: files are copied, the copy is checked, and then a partner writes it to tape, which
takes weeks.

    export ARCHIVE=copies        # a folder on a large disk
    milepost --routes examples/archive.py submit archive files.txt        # a path a line
    milepost --routes examples/archive.py up

In milepost.toml, `subscribers = ["archive.py:ask_the_tape_library"]` tells the tape library what
waits for it. They answer:

    milepost confirm archive PATH --stage on-tape --output '{"tape": "T-0042"}' --by "tape library" --reason "nightly run"
"""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import milepost as mp

archive = mp.Route("archive", key="path")


def place_of(item: mp.Item) -> Path:
    """Where the copy goes: by the digest of the path, so that no folder grows too large."""
    name = sha256(item.key.encode()).hexdigest()
    return Path(os.environ.get("ARCHIVE", "archive")) / name[:2] / name


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@archive.stage(
    "copy",
    retry=mp.Backoff(attempts=5, base="10s", cap="10m"),
    checks=mp.Checks(every="10m", up_to="6h", overdue="7d"),
)
def copy(item: mp.Item) -> mp.Outcome:
    """A file that is not there yet is waited for. A copy appears whole or not at all, so doing it
    twice does no harm."""
    source, target = Path(item.input["path"]), place_of(item)
    if not source.exists():
        return mp.NotYet(note="the file has not been delivered")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    shutil.copyfile(source, partial)
    partial.replace(target)
    return mp.Done(
        {"copy": str(target), "digest": digest_of(source), "bytes": target.stat().st_size}
    )


@archive.stage("prove", concurrency=4)
def prove(item: mp.Item) -> mp.Outcome:
    """Read the copy again. If it differs, an operator must check it: another attempt would only
    hide the fault."""
    if digest_of(Path(item.payload["copy"])) != item.payload["digest"]:
        return mp.Reject("the copy differs from the original", category="DIGEST")
    return mp.Done()


archive.external(
    "on-tape",
    resend_after="14d",
    overdue="30d",
    accepts=lambda answer: isinstance(answer, dict) and bool(answer.get("tape")),
    announce="It is on tape.",
)


def ask_the_tape_library(event: dict[str, Any]) -> None:
    """A subscriber: writes what is offered into the tape library's inbox, one file each. The same
    offer again is the same file."""
    if event["type"] == "milepost.item.offered":
        inbox = Path(os.environ.get("TAPE_INBOX", "tape-inbox"))
        inbox.mkdir(exist_ok=True)
        (inbox / f"{event['data']['work_id']}.json").write_text(
            json.dumps(event["data"]), encoding="utf-8"
        )
